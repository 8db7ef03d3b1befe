"""A folder that one program uses at a time, by a lock that the kernel releases when its holder ends.

As a program, hold the lock of a folder for as long as another program runs::

    python -m etl_assets.locks data/dagster_home dagster dev
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
from collections.abc import Iterator
from pathlib import Path


class FolderInUse(Exception):
    """Another program uses the folder."""


@contextlib.contextmanager
def using(folder: Path) -> Iterator[int]:
    """Hold the lock of a folder, which need not exist yet; yields its descriptor. Raises :class:`FolderInUse`.

    The lock file lies beside the folder, so that the folder itself may be removed and made again.
    """
    place = folder.absolute()
    place.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(place.with_name(f".{place.name}.in-use"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FolderInUse(
                f"{place} is in use by another `make dev` or `make demo`. Nothing was changed; stop that one first"
            ) from error
        yield lock
    finally:
        os.close(lock)


def main(folder: str, *command: str) -> None:
    """Become another program, which holds the lock of a folder until it ends."""
    try:
        with using(Path(folder)) as lock:
            os.set_inheritable(lock, True)
            os.execvp(command[0], command)
    except FolderInUse as error:
        sys.exit(f"make: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
