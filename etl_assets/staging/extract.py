"""Extracts on disk: content-addressed, frozen by write, fsync, rename, fsync of the parent.

Belongs here: where an extract lies, how it is frozen, found and checked. Does not belong here: how its rows come about.

A small extract is one file, a larger one a folder of files. What lies under ``.incoming`` belongs to the process that
holds its lock; the next run sweeps away what dead processes left. A frozen extract is never edited: it is read-only. Its
manifest is sealed, and all else is compared with the digests in the manifest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from etl_assets.errors import ExtractDamaged, StagingFailed
from etl_assets.model import EXTRACT_FORMAT, CandidateFormat, Delivery, Extract, Manifest
from etl_assets.staging.manifest import sealed, unsealed
from etl_assets.staging.packed import pack, unpack

INCOMING = ".incoming"
INPUT, REJECTS, MANIFEST = "input", "rejects.jsonl", "manifest.json"
#: What the name of an extract that is one file ends in.
PACKED = ".tar.zst"
#: A delivery of up to so many bytes has its candidate rows as an Arrow stream. If all its files come to no more than
#: ``PACKED_BYTES``, they are packed.
SMALL_INPUT, PACKED_BYTES = 256 << 10, 4 << 20
READ_ONLY = 0o444
BinaryFile = io.BytesIO | io.BufferedReader


def safe_name(text: str) -> str:
    """Return a file name for any text: percent-encoded, never hidden, never a path, of bounded length."""
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
        """Return where the extract of these bytes under this contract and logic lies; a packed one is beside it."""
        content = hashlib.sha256(f"{delivery.sha256} {code} {EXTRACT_FORMAT}".encode()).hexdigest()[:16]
        name = safe_name(f"{delivery.name}#{delivery.revision}@{transform_version}")
        return self._partition(delivery) / f"{name}-{content}"

    def _partition(self, delivery: Delivery) -> Path:
        return self.root / safe_name(delivery.pipeline) / safe_name(delivery.scope)

    def find(self, delivery: Delivery, code: str, transform_version: int) -> Extract | None:
        """Return the frozen extract, or None when there is none yet. Raise :class:`ExtractDamaged` if it is another's."""
        folder = self.folder(delivery, code, transform_version)
        found = read_extract(folder.with_name(folder.name + PACKED)) or read_extract(folder)
        if found is None:
            return None
        manifest = found.manifest
        named = (*manifest.identity, manifest.input_sha256, manifest.code, manifest.format)
        identity = (delivery.pipeline, delivery.scope, delivery.name, delivery.revision, transform_version)
        if named != (*identity, delivery.sha256, code, EXTRACT_FORMAT):
            raise ExtractDamaged(
                f"{found.folder} holds the extract of {manifest.batch}. {_ADVICE.format(found.folder)}"
            )
        return found

    def restore_input(self, delivery: Delivery, target: Path) -> bool:
        """Write the exact bytes of a delivery to ``target``, from any extract of it; False when none is kept.

        Raise :class:`ExtractDamaged` when all that are kept have other bytes.
        """
        damaged: ExtractDamaged | None = None
        for place in sorted(self._partition(delivery).glob("*")):
            try:
                if _described(place).get("input_sha256") != delivery.sha256:
                    continue
                with target.open("wb") as copy, _opened(place, INPUT, delivery.sha256) as kept:
                    shutil.copyfileobj(kept, copy)
                return True
            except ExtractDamaged as error:
                damaged = error
        if damaged:
            raise damaged
        return False

    def described(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Yield each extract, of whatever format, with the fields of its manifest."""
        for place in sorted(self.root.glob("*/*/*")):
            if INCOMING not in place.relative_to(self.root).parts:
                yield place, _described(place)

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
        if not self.root.exists():
            _make_folders(self.root)
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

    def freeze(self, work: Path, manifest: Manifest, folder: Path) -> Extract:
        """Make the files in ``work`` that the manifest names the extract at ``folder``; a small one is packed.

        Of two processes that freeze the same extract one wins, and both go on with what it made.
        """
        with _as_staging_error(folder):
            files = [work / name for name, _ in _files(manifest)]
            if manifest.candidate_format == "arrow" and sum(file.stat().st_size for file in files) <= PACKED_BYTES:
                made, frozen = work / "packed", folder.with_name(folder.name + PACKED)
                contents = {MANIFEST: sealed(manifest)} | {file.name: file.read_bytes() for file in files}
                _write(made, pack(contents))
            else:
                made, frozen = work / "extract", folder
                made.mkdir()
                _write(made / MANIFEST, sealed(manifest))
                for file in files:
                    _sync(file)
                    file.chmod(READ_ONLY)
                    file.rename(made / file.name)
                _sync(made)
            _make_folders(folder.parent)
            try:
                made.rename(frozen)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
            _sync(folder.parent)
        found = read_extract(frozen)
        if found is None:
            raise ExtractDamaged(f"{frozen} has no manifest. {_ADVICE.format(frozen)}")
        return found


def read_extract(place: Path) -> Extract | None:
    """Return the extract at a place, or None when there is none. Raise :class:`ExtractDamaged` when it is not one."""
    try:
        text = _manifest_text(place)
        return Extract(str(place), *unsealed(text)) if text is not None else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ExtractDamaged(
            f"{place / MANIFEST} is not as it was sealed ({error}). {_ADVICE.format(place)}"
        ) from error


def candidate_format(size: int) -> CandidateFormat:
    """Return how the candidate rows of a delivery of so many bytes are written."""
    return "arrow" if size <= SMALL_INPUT else "parquet"


def candidate_name(form: CandidateFormat, part: int | None = None) -> str:
    """Return the file of a part's candidate rows; the first one's is that of a delivery that has no parts."""
    return f"candidate.{form}" if part in (None, 1) else f"candidate-{part}.{form}"


def candidate_file(extract: Extract) -> Path | bytes:
    """Return the candidate rows: their file, or its bytes where the extract is packed.

    Raise :class:`ExtractDamaged` when they are not those of the manifest.
    """
    place, manifest = Path(extract.folder), extract.manifest
    name = candidate_name(manifest.candidate_format, manifest.part)
    with _opened(place, name, manifest.candidate_sha256) as file:
        return file.read() if place.name.endswith(PACKED) else place / name


@contextlib.contextmanager
def kept_bytes(extract: Extract) -> Iterator[Path]:
    """The delivery's exact bytes as a file. Raise :class:`ExtractDamaged` when they are not those of the manifest."""
    place = Path(extract.folder)
    with _opened(place, INPUT, extract.manifest.input_sha256) as file:
        if not place.name.endswith(PACKED):
            yield place / INPUT
            return
        with tempfile.NamedTemporaryFile(prefix="etl-input-") as copy:
            copy.write(file.read())
            copy.flush()
            yield Path(copy.name)


@contextlib.contextmanager
def rejected_lines(extract: Extract) -> Iterator[Iterator[str]]:
    """The rejected rows of an extract, a JSON object a line."""
    if extract.manifest.rejects_sha256 is None:
        yield iter(())
        return
    with _opened(Path(extract.folder), REJECTS, extract.manifest.rejects_sha256) as file:
        yield io.TextIOWrapper(file, encoding="utf-8")


def check_files(extract: Extract) -> None:
    """Raise :class:`ExtractDamaged` unless every file of an extract is the one that its manifest names."""
    for name, sha256 in _files(extract.manifest):
        with _opened(Path(extract.folder), name, sha256):
            pass


def _files(manifest: Manifest) -> list[tuple[str, str]]:
    """The files of an extract but the manifest itself, with their digests."""
    form = manifest.candidate_format
    parts = [(candidate_name(form, n), part.candidate_sha256) for n, part in enumerate(manifest.parts, start=1)]
    rejects = [(REJECTS, manifest.rejects_sha256)] if manifest.rejects_sha256 is not None else []
    return [(INPUT, manifest.input_sha256), *(parts or [(candidate_name(form), manifest.candidate_sha256)]), *rejects]


@contextlib.contextmanager
def _opened(place: Path, name: str, sha256: str) -> Iterator[BinaryFile]:
    """A file of an extract, if it is the one that its manifest names. Raise :class:`ExtractDamaged` if not."""
    try:
        file: BinaryFile = io.BytesIO(_members(place)[name]) if place.is_file() else (place / name).open("rb")
    except (OSError, ValueError, KeyError) as error:
        raise ExtractDamaged(f"{place / name}: {error}. {_ADVICE.format(place)}") from error
    with file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != sha256:
            raise ExtractDamaged(
                f"{place / name} is not the file that its manifest names (sha256 {found[:12]}…, wanted {sha256[:12]}…). "
                f"An extract is never edited. {_ADVICE.format(place)}"
            )
        file.seek(0)
        yield file


_ADVICE = "Nothing was changed. Remove {}; the next run freezes it again from the delivery"


def _members(place: Path) -> dict[str, bytes]:
    return unpack(place.read_bytes())


def _manifest_text(place: Path) -> bytes | None:
    """The text of the manifest; None where there is no extract, or a folder without one."""
    try:
        return _members(place)[MANIFEST] if place.name.endswith(PACKED) else (place / MANIFEST).read_bytes()
    except FileNotFoundError:
        return None


def _described(place: Path) -> dict[str, Any]:
    """The fields of a manifest of whatever format, not compared with its seal; none where there is no manifest."""
    try:
        fields = json.loads(_manifest_text(place) or b"{}")
        return fields if isinstance(fields, dict) else {}
    except (OSError, ValueError, KeyError) as error:
        raise ExtractDamaged(f"{place / MANIFEST} is not a manifest ({error}). {_ADVICE.format(place)}") from error


def _make_folders(folder: Path) -> None:
    """Make a folder and those above it that are missing, and wait until the disk has their names."""
    missing = [p for p in (folder, *folder.parents) if not p.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for made in missing:
        _sync(made.parent)


def _write(path: Path, data: bytes) -> None:
    """Write a read-only file, and wait until the disk has it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, READ_ONLY)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(descriptor)


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
