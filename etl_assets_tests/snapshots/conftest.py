"""The installed commands for snapshots, in a folder of their own."""

from __future__ import annotations

import os
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


@pytest.fixture
def snapshots(tmp_path: Path) -> Snapshots:
    return Snapshots(tmp_path)
