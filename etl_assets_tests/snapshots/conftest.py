"""The installed commands for snapshots, in a folder of their own."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etl_assets_tests.cli.shell import Answer

COMMAND = Path(sys.executable).with_name("etl-assets")
State = dict[str, list[tuple[Any, ...]]]


class Snapshots:
    """A folder with snapshots and a database, and the command run in it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.db = root / "db.sqlite"
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("ETL_")}

    def write(self, name: str, content: str | bytes) -> Path:
        path = self.root / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def command(self, *arguments: str) -> list[str]:
        return [str(COMMAND), *arguments, "--db", str(self.db)]

    def __call__(self, *arguments: str) -> Answer:
        done = subprocess.run(
            self.command(*arguments), env=self.environment, cwd=self.root, capture_output=True, text=True, check=False
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    def take(self, command: str, content: str | bytes, *more: str, source: str = "customers") -> Answer:
        """Run ``build`` or ``incremental`` on this content."""
        path = self.write("snapshot.csv", content)
        return self(command, "--source", source, "--snapshot", str(path), *more)

    def verify(self, source: str = "customers") -> Answer:
        return self("verify", "--source", source)

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        connection = sqlite3.connect(self.db)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()

    def kept(self) -> State:
        """All tables but what notes who may write and what was read."""
        if not self.db.exists():
            return {}
        noted = ("etl_writer", "etl_delivery", "etl_schema")
        names = [r[0] for r in self.sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        found = {n: self.sql('SELECT * FROM "{}"'.format(n.replace('"', '""'))) for n in names if n not in noted}
        return {n: rows for n, rows in found.items() if rows}


#: Two rows, in any other order of columns than this the same.
FIRST = "id,src_updated,name\nu1,2026-01-01T00:00:00Z,a\nu2,2026-01-02T00:00:00Z,b\n"


@pytest.fixture(scope="session")
def first_db(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database into which ``build`` has put ``FIRST``, as ``customers``."""
    snapshots = Snapshots(tmp_path_factory.mktemp("first"))
    assert snapshots.take("build", FIRST).code == 0
    return snapshots.db


@pytest.fixture
def built(tmp_path: Path, first_db: Path) -> Snapshots:
    """A folder with that database: a command costs most of a second, a copy of what it did does not."""
    snapshots = Snapshots(tmp_path)
    shutil.copyfile(first_db, snapshots.db)
    return snapshots


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)
