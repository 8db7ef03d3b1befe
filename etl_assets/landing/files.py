"""Files of a landing as their filesystem tells of them: copied out, stamped, and its errors told apart."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem

from etl_assets.errors import EtlError, LandingUnreachable, StagingFailed, StillArriving, UnreadableDelivery
from etl_assets.naming import shown

_TAGS = ("ETag", "etag", "md5", "generation")


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
    """Errors of reading a file, as those of a landing: it vanished, it alone cannot be read, or the landing is out of reach."""
    try:
        yield
    except EtlError:
        raise
    except FileNotFoundError as error:
        raise StillArriving(f"{shown(path)} vanished between listing and reading; the next run looks again") from error
    except Exception as error:  # each filesystem has its own: botocore, aiohttp, OSError
        if (
            isinstance(error, OSError)
            and not isinstance(error, ConnectionError)
            and type(error).__module__ == "builtins"
        ):
            raise UnreadableDelivery(
                f"{shown(path)} cannot be read: {type(error).__name__}: {error}. Nothing was changed; mend its permissions or "
                "its disk, or deliver it again"
            ) from error
        raise LandingUnreachable(
            f"{shown(path)} cannot be read: {type(error).__name__}: {error}. Nothing was changed"
        ) from error


#: The type of a file or folder that a link promises and does not lead to; ``why`` says what is the matter.
BROKEN = "broken"
NOWHERE, CIRCLE = "a link that leads nowhere", "a link that leads in a circle"


def entries(fs: Any, folder: str) -> list[dict[str, Any]]:
    """List a folder; nothing where there is none. Raises ``OSError`` for one that is there and cannot be listed.

    A local folder is asked directly, for what a stamp is made of: fsspec asks for more than twice as much, file by file,
    and follows links in some places only.
    """
    try:
        return _local_entries(folder) if isinstance(fs, LocalFileSystem) else fs.ls(folder, detail=True)
    except (FileNotFoundError, NotADirectoryError):
        if isinstance(fs, LocalFileSystem) and Path(folder).is_symlink() and not Path(folder).exists():
            raise OSError(errno.ENOENT, NOWHERE, folder) from None
        return []


def _local_entries(folder: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    with os.scandir(folder if folder.startswith("/") else Path(folder).absolute()) as listed:
        for entry in listed:
            try:
                told = {"type": "directory"} if entry.is_dir() else _facts(entry.stat())
            except FileNotFoundError:
                if not entry.is_symlink():  # gone since
                    continue
                told = {"type": BROKEN, "why": NOWHERE}
            except OSError as error:
                why = CIRCLE if error.errno == errno.ELOOP else f"one that cannot be looked at ({error.strerror})"
                told = {"type": BROKEN, "why": why}
            found.append(told | {"name": entry.path})
    return found


def info(fs: Any, path: str) -> dict[str, Any]:
    """What is told of one file, as it is in a list; of the file that a link leads to."""
    return _facts(Path(path).stat()) if isinstance(fs, LocalFileSystem) else fs.info(path)


def _facts(found: os.stat_result) -> dict[str, Any]:
    made = getattr(found, "st_birthtime", found.st_ctime)
    kind = "file" if stat.S_ISREG(found.st_mode) else "other"
    return {"type": kind, "size": found.st_size, "mtime": found.st_mtime, "created": made, "ino": found.st_ino}


def stamp_of(info: dict[str, Any]) -> str:
    """Everything that changes when a file is written: a replaced file is noticed though size and mtime are kept.

    An object store says it with an ETag; its times differ, by rounding, between listing and asking for one object.
    """
    tags = tuple(k for k in _TAGS if info.get(k))
    facts = ("size", *(tags or ("mtime", "created", "ino", "LastModified")))
    return " ".join([f"{k}={info[k]}" for k in facts if k in info])


def modified(info: dict[str, Any]) -> float | None:
    """When a file was written, in seconds since 1970, if its filesystem says so."""
    value = info.get("mtime", info.get("LastModified"))
    return value.timestamp() if isinstance(value, dt.datetime) else value
