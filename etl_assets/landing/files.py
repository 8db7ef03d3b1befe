"""Files of a landing as their filesystem tells of them: copied out, stamped, and its errors told apart."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etl_assets.errors import EtlError, LandingUnreachable, StagingFailed, StillArriving


class Copy:
    """A file being written, whose errors are the staged folder's and not the landing's."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __enter__(self) -> Copy:
        with self._errors():
            self.file = self.target.open("wb")
        return self

    def write(self, chunk: bytes) -> None:
        with self._errors():
            self.file.write(chunk)

    def __exit__(self, *_: object) -> None:
        with self._errors():
            self.file.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StagingFailed(f"cannot write {self.target}: {error}; free some space and run again") from error


@contextlib.contextmanager
def reading(path: str) -> Iterator[None]:
    """Errors of reading a file, as those of a landing: it vanished, or it cannot be read."""
    try:
        yield
    except EtlError:
        raise
    except FileNotFoundError as error:
        raise StillArriving(f"{path} vanished between listing and reading; the next run looks again") from error
    except Exception as error:  # each filesystem has its own: botocore, aiohttp, OSError
        raise LandingUnreachable(
            f"{path} cannot be read: {type(error).__name__}: {error}. Nothing was changed"
        ) from error


def stamp_of(info: dict[str, Any]) -> str:
    """Everything that changes when a file is written: a replaced file is noticed though size and mtime are kept.

    An object store says it with an ETag; its times differ, by rounding, between listing and asking for one object.
    """
    tags = [k for k in ("ETag", "etag", "md5", "generation") if info.get(k)]
    facts = ("size", *(tags or ("mtime", "created", "ino", "LastModified")))
    return " ".join(f"{k}={info[k]}" for k in facts if k in info)


def modified(info: dict[str, Any]) -> float | None:
    """When a file was written, in seconds since 1970, if its filesystem says so."""
    value = info.get("mtime", info.get("LastModified"))
    return value.timestamp() if isinstance(value, dt.datetime) else value
