"""A workbench: landing, staged folder and warehouse below one folder, and what a test does with them."""

from __future__ import annotations

import sqlite3
import uuid
from pathlib import Path
from typing import Any

from etl_assets.contract import Pipeline
from etl_assets.loading import Engine, Outcome, survey
from etl_assets.model import Batch
from etl_assets.settings import Settings
from etl_assets.sink import open_sink


class Workbench:
    """Places below ``root`` that belong to one test. Several pipelines may share them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.landing.mkdir(parents=True, exist_ok=True)
        self.settings = Settings(str(self.landing), str(root / "staged"), str(root / "warehouse.sqlite"))

    def put(self, path: str, content: bytes | str | Path) -> Path:
        """Let a delivery arrive at ``path`` below the landing: these bytes, this text (UTF-8), or a copy of this file."""
        place = self.landing / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(as_bytes(content))
        return place

    def load(self, pipeline: Pipeline, *scopes: str, delivery: str | None = None) -> list[Outcome]:
        """Load these partitions in one run; without any, all that waits, as the sensor would.

        ``delivery`` names another one than the newest. What is wrong with a delivery is its outcome's ``error``.
        """
        wanted = scopes or dict.fromkeys(s.scope for s in survey(self.settings, pipeline).waiting())
        run = f"test-{uuid.uuid4().hex}"
        return list(Engine(self.settings, pipeline).load(list(wanted), run, delivery=delivery)) if wanted else []

    def ledger(self, pipeline: Pipeline) -> list[Batch]:
        """The committed batches of a pipeline, in commit order."""
        return open_sink(self.settings.warehouse).ledger(pipeline.name)

    def differences(self, pipeline: Pipeline) -> list[str]:
        """Where ledger and rows disagree, in words; none when the warehouse tells the truth."""
        return open_sink(self.settings.warehouse).verify(pipeline)

    def rows(self, pipeline: Pipeline) -> list[dict[str, Any]]:
        """The table's rows as its readers see them, without the warehouse's own columns; sorted."""
        found = [
            {name: value for name, value in sorted(row.items()) if not name.startswith("_")}
            for row in self.records(pipeline.table)
        ]
        return sorted(found, key=lambda row: repr([*row.values()]))

    def records(self, table: str) -> list[dict[str, Any]]:
        """Every row of a table of the warehouse, all its columns; none where there is no such table."""
        quoted = table.replace('"', '""')
        names = [row[1] for row in self.sql(f'PRAGMA table_info("{quoted}")')]
        return [dict(zip(names, row, strict=True)) for row in self.sql(f'SELECT * FROM "{quoted}"')] if names else []

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query the warehouse as a reader with plain SQL does."""
        connection = sqlite3.connect(self.settings.warehouse)
        try:
            return connection.execute(query, values).fetchall()
        finally:
            connection.close()


def as_bytes(content: bytes | str | Path) -> bytes:
    """The bytes of a delivery that is given as such, as text or as a file."""
    if isinstance(content, Path):
        return content.read_bytes()
    return content.encode() if isinstance(content, str) else content
