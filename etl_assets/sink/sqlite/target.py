"""What is replaced: one partition of a table, by one batch; and what replacing it did."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from etl_assets.contract import ReplacedTable
from etl_assets.model import Changes, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.stage_file import TABLE as CANDIDATE
from etl_assets.sink.sqlite.tables import Table


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replacing did, and how many rows of the partition are in the table now.

    ``operation`` is the ledger's word for it, where that is not the pipeline's own.
    Of a restated snapshot ``upper`` is the watermark that the table has now.
    """

    counts: Counts
    changes: Changes
    rows: int
    operation: Literal["consume", "skip", "restate", "amend"] | None = None
    upper: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """One partition of a table, and the batch that replaces it. ``order`` is its delivery's, as text."""

    table: Table
    pipeline: ReplacedTable
    partition: int
    scope: str
    batch: int
    order: str
    columns: tuple[str, ...]

    @property
    def names(self) -> str:
        return ", ".join(map(quoted, self.columns))

    def of(self, alias: str, columns: Sequence[str] | None = None) -> str:
        return ", ".join(f"{alias}.{quoted(c)}" for c in (self.columns if columns is None else columns))

    def same_key(self, one: str, two: str) -> str:
        return " AND ".join(f"{one}.{quoted(k)} = {two}.{quoted(k)}" for k in self.table.key)

    @property
    def compared(self) -> tuple[str, ...]:
        """Columns whose change makes a row an updated one: all of the table's but the key."""
        return tuple(c for c in self.table.columns if c not in self.table.key)


def copy_standing(connection: sqlite3.Connection, target: Target, which: str) -> str:
    """The candidates that may stand, indexed by key. Comparing without an index would take time by their square."""
    connection.execute(f"CREATE TEMP TABLE standing AS SELECT c.* FROM {CANDIDATE} c WHERE {which} ORDER BY c._rowid_")
    keys = ", ".join(map(quoted, target.table.key))
    connection.execute(f"CREATE UNIQUE INDEX temp.standing_key ON standing ({keys})")
    return "temp.standing"
