"""Connections and transactions. The only place that opens the warehouse, and the only way to write to it.

A connection lives as long as its transaction: none is kept in a field, handed to another thread or left to a
garbage collector. Writers begin IMMEDIATE, so that what they check is what they change; whatever leaves the block
as an exception, Dagster's terminate included, rolls it back.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from etl_assets.errors import SinkBusy, WarehouseError

#: How long a writer waits for the one before it, in seconds.
BUSY_TIMEOUT = 60.0
CACHE_KIB = 65_536
#: A write-ahead log is cut down to this when it begins again.
LOG_BYTES = 1 << 20
#: How a file is opened that nobody can be asked to share: without its log, and without an index of it.
ALONE = "ro&immutable=1"
SQLITE_WANTED = (3, 37, 0)  # STRICT tables


def quoted(name: str) -> str:
    """An SQL identifier, whatever its characters."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(slots=True)
class Held:
    """How long a transaction held the write lock, in seconds: from BEGIN to the end of COMMIT.

    ``log`` is the size of the write-ahead log that it left, where that is larger than the warehouse.
    """

    seconds: float = 0.0
    log: int = 0


@contextlib.contextmanager
def writing(
    path: Path,
    attach: Callable[[sqlite3.Connection], None] | None = None,
    timeout: float = BUSY_TIMEOUT,
    held: Held | None = None,
) -> Iterator[sqlite3.Connection]:
    """One write transaction; ``attach`` makes candidate rows readable in it as ``stage``; ``held`` is filled at its end.

    Raises :class:`SinkBusy` when another writer holds the warehouse for longer than ``timeout`` seconds, and
    :class:`WarehouseError` for everything else that the database reports; nothing has changed in either case.
    """
    with _translated(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = _open(path, timeout, "rwc")
        try:
            _enter_wal(connection, timeout)
            if attach is not None:
                attach(connection)
            connection.execute("BEGIN IMMEDIATE")
            began = time.perf_counter()
            try:
                yield connection
                connection.execute("COMMIT")
                if held is not None:
                    held.seconds = time.perf_counter() - began
            except BaseException:
                # A failed COMMIT may leave the transaction open, or may have ended it: ask before rolling back.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
        finally:
            connection.close()
        if held is not None:
            held.log = _long_log(path)


def _long_log(path: Path) -> int:
    """The size of a log that is larger than its warehouse: the last connection removes it, unless a reader is left."""
    log = _size(_beside(path, "-wal"))
    return log if log > max(LOG_BYTES, path.stat().st_size) else 0


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # the last connection to close removes the log
        return 0


@contextlib.contextmanager
def reading(path: Path, timeout: float = BUSY_TIMEOUT) -> Iterator[sqlite3.Connection | None]:
    """One read transaction, a snapshot of the last commit; None where there is no warehouse yet. Writes no page.

    Where the file or its folder cannot be written, a reader leaves nothing beside it. It reads the file alone if no log
    holds a commit, and raises :class:`SinkBusy` when that file has changed meanwhile.
    """
    with _translated(path):
        if not path.exists():
            yield None
            return
        mode = _reading_mode(path)
        before = _stamp(path)
        changed = False
        connection = _open(path, timeout, mode)
        try:
            connection.execute("PRAGMA query_only = 1")
            connection.execute("BEGIN")
            yield connection
        finally:
            connection.close()
            changed = mode == ALONE and _stamp(path) != before
            if changed:
                # What was read, or what went wrong with it, may be half of two commits.
                raise SinkBusy(f"{path} was written while it was read without a lock. Run again")


def _reading_mode(path: Path) -> str:
    if os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        return "rw"
    return "ro" if _size(_beside(path, "-wal")) else ALONE


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _open(path: Path, timeout: float, mode: str) -> sqlite3.Connection:
    if sqlite3.sqlite_version_info < SQLITE_WANTED:
        raise WarehouseError(f"SQLite {sqlite3.sqlite_version} is too old; this needs 3.37 or newer (STRICT tables)")
    place = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(place, timeout=timeout, isolation_level=None, uri=True)
    try:
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA journal_size_limit = {LOG_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("PRAGMA foreign_keys = ON")
    except BaseException:
        connection.close()
        raise
    return connection


def _enter_wal(connection: sqlite3.Connection, timeout: float) -> None:
    """Switch to WAL once; the switch does not wait for locks by itself, so two first writers retry here."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
                return
            mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            if mode != "wal":
                raise WarehouseError(
                    f"the warehouse cannot use a write-ahead log here (it stays in mode {mode!r}), as on a network mount. "
                    "Nothing was changed; put it on a local disk"
                )
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
        time.sleep(0.005)


def _unwritable(path: Path) -> str:
    """What cannot be written, and what to do about it."""
    for file in (_beside(path, "-shm"), _beside(path, "-wal")):
        if file.exists() and not os.access(file, os.W_OK):
            return f"{file} cannot be written: check its owner, or remove it when no process has the warehouse open"
    return "the file or its folder cannot be written: check owner and permissions. Nothing was changed"


def _is_busy(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def undecodable(error: sqlite3.Error) -> bool:
    """Return whether a value was text by its type and isn't UTF-8, which a query can make with CAST."""
    return isinstance(error, sqlite3.OperationalError) and str(error).startswith("Could not decode to UTF-8")


@contextlib.contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        if _is_busy(error):
            raise SinkBusy(
                f"{path}: another writer held the warehouse for longer than the busy timeout ({error}). Nothing was "
                "changed; run again"
            ) from error
        # An extended code, such as SQLITE_READONLY_DIRECTORY, is a kind of what its last byte says.
        advice = {
            sqlite3.SQLITE_FULL: "the disk is full: free some space and run again",
            sqlite3.SQLITE_READONLY: _unwritable(path),
            sqlite3.SQLITE_CANTOPEN: "the file cannot be opened: check the path, its folder and permissions. A reader of a "
            "warehouse whose log holds a commit needs the files beside it, or the right to make them",
            sqlite3.SQLITE_NOTADB: "the file is not a SQLite database: check ETL_WAREHOUSE",
        }.get(
            getattr(error, "sqlite_errorcode", 0) & 0xFF,
            "nothing was changed; see the error's name in SQLite's documentation",
        )
        raise WarehouseError(f"{path}: {error} ({name}); {advice}") from error
    except OSError as error:
        raise WarehouseError(f"{path}: {error}") from error
