"""One process at a time relays the messages of a warehouse.

The lock is on the warehouse itself, on a byte far beyond its end: there is no other file that could be removed, and no
link that leads round it. It belongs to an open file, unlike SQLite's own locks, which belong to a process and fall when
that closes any descriptor of the file. So a descriptor, once opened, is kept for as long as the process lives.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from etl_assets.errors import WarehouseError

#: SQLite locks bytes just behind the first gigabyte; a database is never this large.
_BYTE = 2**62

_Identity = tuple[int, int]
_descriptors: dict[_Identity, int] = {}
_held: set[_Identity] = set()
_guard = threading.Lock()


def _forget() -> None:
    """A forked process shares its parent's open files, and so their locks: it opens its own."""
    _descriptors.clear()
    _held.clear()


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock of a warehouse; yields False where another has it.

    Without a warehouse there is nothing to send, and no file to make for it. Raises :class:`WarehouseError`.
    """
    if not path.exists():
        yield True
        return
    try:
        identity, descriptor = _opened(path)
    except OSError as error:
        raise WarehouseError(
            f"{path}: {error.strerror}. Relaying needs to lock the warehouse and to write to it"
        ) from error
    with _guard:
        free = identity not in _held and _lock(descriptor, fcntl.F_WRLCK)
        if free:
            _held.add(identity)
    if not free:
        yield False
        return
    try:
        yield True
    finally:
        with _guard:
            _held.discard(identity)
            _lock(descriptor, fcntl.F_UNLCK)


def holds(path: Path) -> bool:
    """Return whether this process holds the lock of the file that is there now."""
    return _identity(path) in _held


def _identity(path: Path) -> _Identity | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _opened(path: Path) -> tuple[_Identity, int]:
    """The file's identity, and this process' descriptor of it. One that was opened for a known file is kept, too."""
    with _guard:
        identity = _identity(path)
        if identity is None or identity not in _descriptors:
            descriptor = os.open(path, os.O_RDWR)
            found = os.fstat(descriptor)
            identity = found.st_dev, found.st_ino
            _descriptors.setdefault(identity, descriptor)
        return identity, _descriptors[identity]


def _lock(descriptor: int, kind: int) -> bool:
    """Set or release the lock; False where another holds it."""
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, _flock(kind))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise WarehouseError(
            f"the warehouse cannot be locked here ({error.strerror}), as on a network mount. Nothing was sent; put it on "
            "a local disk"
        ) from error
    return True


if sys.platform == "linux":
    _SET_LOCK = fcntl.F_OFD_SETLK

    def _flock(kind: int) -> bytes:
        return struct.pack("hhqqi4x", kind, os.SEEK_SET, _BYTE, 1, 0)

else:  # macOS: the same lock by its number there, and its own order of fields
    _SET_LOCK = 90

    def _flock(kind: int) -> bytes:
        return struct.pack("qqihh", _BYTE, 1, 0, kind, os.SEEK_SET)
