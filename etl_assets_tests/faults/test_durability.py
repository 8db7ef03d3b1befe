"""What a disk would keep if the power failed: only what was synced, files and names of folders alike."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl_assets.sink.sqlite import connection as connections
from etl_assets.staging import extract as extracts
from etl_assets_tests.world import DAYS, World

A, B, _ = DAYS
CONTENT = f"id,day,item,amount\n1,{A},pear,3\n2,{A},fig,5\n"


class ForgetfulDisk:
    """Remembers what was synced: the bytes of files, and which entries a folder had, by inode."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.files: dict[int, bytes] = {}
        self.folders: dict[int, dict[str, int]] = {}
        self.renamed: list[tuple[Path, bool]] = []
        self.sync, self.rename = os.fsync, os.rename
        monkeypatch.setattr(os, "fsync", self._fsync)
        monkeypatch.setattr(os, "rename", self._rename)

    def _fsync(self, descriptor: int) -> None:
        self.sync(descriptor)
        place = Path(f"/proc/self/fd/{descriptor}")
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self.folders[found.st_ino] = {entry.name: entry.inode() for entry in os.scandir(place)}
        else:
            self.files[found.st_ino] = place.read_bytes()

    def _rename(self, source: Any, target: Any) -> None:
        """A name may reach the disk before anybody asks for it: what it names has to be there by then."""
        self.renamed.append((Path(target), self.holds(Path(source))))
        self.rename(source, target)

    def holds(self, path: Path) -> bool:
        """Whether all that is at a path would be there again, if the path itself is."""
        found = path.stat()
        if path.is_file():
            return self.files.get(found.st_ino) == path.read_bytes()
        kept = self.folders.get(found.st_ino, {})
        return kept == {p.name: p.stat().st_ino for p in path.iterdir()} and all(map(self.holds, path.iterdir()))

    def finds(self, path: Path, root: Path) -> bool:
        """Whether a path would be found again from ``root``, by the names of each folder on the way."""
        steps = [path, *path.parents]
        return all(
            self.folders.get(step.parent.stat().st_ino, {}).get(step.name) == step.stat().st_ino
            for step in steps[: steps.index(root)]
        )


@pytest.mark.parametrize("form", ["packed", "folder"])
def test_a_frozen_extract_is_on_the_disk_before_anything_is_published(
    world: World, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if form == "folder":
        monkeypatch.setattr(extracts, "SMALL_INPUT", -1)
    disk = ForgetfulDisk(monkeypatch)
    for day in (A, B):  # the second one finds the pipeline's folder there
        world.deliver(day, CONTENT.replace(A, day))
        (outcome,) = world.engine().load([day], day, publish=False)
        assert outcome.extract is not None, outcome.message
        place = Path(outcome.extract.folder)
        assert place.is_file() == (form == "packed")
        assert [whole for target, whole in disk.renamed if target == place] == [True]
        assert disk.holds(place)
        assert disk.finds(place, world.root)


def test_every_commit_of_a_load_waits_for_the_disk(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[tuple[str, int]] = []

    class Watching(sqlite3.Connection):
        """Tells how a connection is set at the moment of its COMMIT."""

        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "COMMIT":
                settings = (f"PRAGMA main.{name}" for name in ("journal_mode", "synchronous"))
                mode, level = (sqlite3.Connection.execute(self, setting) for setting in settings)
                found.append((mode.fetchone()[0], level.fetchone()[0]))
            return super().execute(sql, *rest)

    connect: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(
        connections.sqlite3, "connect", lambda *args, **options: connect(*args, **{**options, "factory": Watching})
    )
    world.deliver(A, CONTENT)
    world.deliver(B, "id\n")
    assert [o.status for o in world.load(A, B)] == ["committed", "refused"]
    full = 2
    assert len(found) >= 3  # the claim, the publish, the refusal
    assert set(found) == {("wal", full)}
