"""Few candidate rows, held in memory until a transaction attaches them: a file of their own would cost more than they do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from etl_assets.model import Manifest
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.stage_file import Layout, tables_of

#: An extract of up to so many rows is staged in memory.
FEW = 1_000


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The tables of a stage, with their rows, and the columns by which the candidates are told apart."""

    tables: tuple[tuple[Layout, list[tuple[Any, ...]]], ...]
    index: tuple[str, ...]

    def attach(self, connection: sqlite3.Connection, name: str = "stage") -> None:
        """Make the rows readable under a name, before the transaction begins."""
        connection.execute(f"ATTACH DATABASE ':memory:' AS {name}")
        for layout, rows in self.tables:
            connection.execute(f"CREATE TABLE {name}.{layout.name} ({layout.columns}) STRICT")
            if rows:
                marks = ", ".join("?" * len(rows[0]))
                connection.executemany(f"INSERT INTO {name}.{layout.name} VALUES ({marks})", rows)
        if self.index:
            keys = ", ".join(map(quoted, self.index))
            connection.execute(f"CREATE UNIQUE INDEX {name}.candidate_key ON candidate ({keys})")


def hold(candidate: Path | bytes, manifest: Manifest, index: Sequence[str]) -> StagedRows:
    """Return the candidate rows of an extract as they are stored, to be indexed by ``index``."""
    tables = ((layout, list(_rows(layout.batches()))) for layout in tables_of(candidate, manifest))
    return StagedRows(tuple(tables), tuple(index))


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
