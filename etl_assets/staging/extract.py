"""Extracts on disk: content-addressed folders, frozen by write, fsync, rename, fsync of the parent.

Belongs here: where an extract lies, how it is frozen, found and checked. Does not belong here: how its rows come about.

A folder under ``.incoming`` belongs to the process that holds its lock; those whose process died are swept away by
the next run. A frozen extract is never edited: its files are read-only, and what is read is compared with the
digests in the manifest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from etl_assets.errors import ExtractDamaged, StagingFailed
from etl_assets.model import Delivery, Extract, ExtractColumn, Manifest, Part, Seen

INCOMING = ".incoming"
INPUT, CANDIDATE, REJECTS, MANIFEST = "input", "candidate.parquet", "rejects.jsonl", "manifest.json"


def safe_name(text: str) -> str:
    """A file name for any text: percent-encoded, never hidden, never a path, of bounded length."""
    name = quote(text, safe=" !$&'()+,-=@^_{}~[]#")
    if name.startswith("."):
        name = "%2E" + name[1:]
    if len(name) <= 120:
        return name
    return f"{name[:80]}~{hashlib.sha256(text.encode()).hexdigest()[:16]}"


class StagedFolder:
    """The folder of all extracts."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).absolute()

    def folder(self, delivery: Delivery, code: str, transform_version: int) -> Path:
        """Where the extract of these bytes under this contract and logic lies, or would lie."""
        content = hashlib.sha256(f"{delivery.sha256} {code}".encode()).hexdigest()[:16]
        name = safe_name(f"{delivery.name}#{delivery.revision}@{transform_version}")
        return self.root / safe_name(delivery.pipeline) / safe_name(delivery.scope) / f"{name}-{content}"

    def find(self, delivery: Delivery, code: str, transform_version: int) -> Extract | None:
        """The frozen extract, or None when there is none yet."""
        folder = self.folder(delivery, code, transform_version)
        try:
            return Extract(str(folder), read_manifest(folder / MANIFEST))
        except FileNotFoundError:
            return None

    def kept_input(self, delivery: Delivery) -> Path | None:
        """The exact bytes of a delivery, from any extract of it, whatever contract or logic made that."""
        folder = self.root / safe_name(delivery.pipeline) / safe_name(delivery.scope)
        for manifest in sorted(folder.glob(f"*/{MANIFEST}")):
            found = read_manifest(manifest)
            if (found.delivery, found.revision, found.input_sha256) == (
                delivery.name,
                delivery.revision,
                delivery.sha256,
            ):
                return _checked(manifest.parent / INPUT, delivery.sha256)
        return None

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A private folder on the same filesystem, removed at the end whatever happens."""
        with _as_staging_error(self.root):
            folder, lock = self._own_folder()
        try:
            yield folder
        finally:
            os.close(lock)
            shutil.rmtree(folder, ignore_errors=True)

    def _own_folder(self) -> tuple[Path, int]:
        """A new folder under ``.incoming`` and the lock on it; another one where a sweep came before the lock."""
        while True:
            folder = self.root / INCOMING / f"{os.getpid()}-{uuid.uuid4().hex[:12]}"
            folder.mkdir(parents=True)
            with contextlib.suppress(FileNotFoundError):
                lock = os.open(folder, os.O_RDONLY)
                fcntl.flock(lock, fcntl.LOCK_EX)
                if folder.exists():
                    return folder, lock
                os.close(lock)

    def sweep(self) -> None:
        """Remove what dead processes left under ``.incoming``."""
        incoming = self.root / INCOMING
        for folder in incoming.iterdir() if incoming.is_dir() else ():
            with contextlib.suppress(OSError):
                lock = os.open(folder, os.O_RDONLY)
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(lock)

    def freeze(self, files: Path, manifest: Manifest, folder: Path) -> Extract:
        """Make ``files`` (holding input, candidate and rejects) the extract at ``folder``.

        Of two processes that freeze the same extract one wins, and both go on with its folder.
        """
        with _as_staging_error(folder):
            described = json.dumps(dataclasses.asdict(manifest), indent=1, ensure_ascii=False)
            (files / MANIFEST).write_text(described + "\n", encoding="utf-8")
            for file in files.iterdir():
                _sync(file)
                file.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
            _sync(files)
            _make_folders(folder.parent, self.root)
            try:
                files.rename(folder)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _sync(folder.parent)
        try:
            return Extract(str(folder), read_manifest(folder / MANIFEST))
        except FileNotFoundError as error:
            raise ExtractDamaged(f"{folder} has no manifest. {_ANEW.format(folder)}") from error


def candidate_name(part: int | None) -> str:
    """The file with the candidate rows of a part; the first one's is that of a delivery that has no parts."""
    return CANDIDATE if part in (None, 1) else f"candidate-{part}.parquet"


def candidate_path(extract: Extract) -> Path:
    """The candidate rows, checked against the manifest. Raises :class:`ExtractDamaged`."""
    manifest = extract.manifest
    return _checked(Path(extract.folder) / candidate_name(manifest.part), manifest.candidate_sha256)


def kept_bytes(extract: Extract) -> Path:
    """The delivery's exact bytes, checked against the manifest. Raises :class:`ExtractDamaged`."""
    return _checked(Path(extract.folder) / INPUT, extract.manifest.input_sha256)


def _checked(path: Path, sha256: str) -> Path:
    """A file of an extract, if it is the one that its manifest names. Raises :class:`ExtractDamaged`."""
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise ExtractDamaged(f"{path}: {error}. {_ANEW.format(path.parent)}") from error
    if found != sha256:
        raise ExtractDamaged(
            f"{path} is not the file that its manifest names (sha256 {found[:12]}…, wanted {sha256[:12]}…). "
            f"An extract is never edited. {_ANEW.format(path.parent)}"
        )
    return path


_ANEW = "Remove the folder {}; the next run freezes it anew from the delivery"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest back. Raises ``FileNotFoundError``, or :class:`ExtractDamaged` when it is not one."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        columns = tuple(ExtractColumn(**c) for c in fields.pop("columns"))
        parts = tuple(Part(**p) for p in fields.pop("parts", ()))
        seen = tuple(Seen(**one) for one in fields.pop("seen", ()))
        return Manifest(**fields, columns=columns, parts=parts, seen=seen)
    except FileNotFoundError:
        raise
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExtractDamaged(f"{path} is not a manifest ({error}). {_ANEW.format(path.parent)}") from error


def _make_folders(folder: Path, root: Path) -> None:
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync(made.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _as_staging_error(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StagingFailed(
            f"cannot write {place}: {error}. Nothing was published; mend the folder and run again"
        ) from error
