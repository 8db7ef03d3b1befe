"""The pipeline's own table: how it is laid out, created and widened. All inside the caller's transaction.

Three layouts, by what tells rows apart:

- a key that cannot leave its partition: rows are stored in order of partition and key, and nothing else is indexed;
- a key that is unique in the table and may move: a rowid table, one index on the key, one on the partition;
- no key: a rowid table and an index on the partition.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from etl_assets.contract import Pipeline, Repair
from etl_assets.errors import ContractError
from etl_assets.model import ExtractColumn
from etl_assets.sink.sqlite.connection import quoted

PARTITION, BATCH = "_partition", "_batch"

#: Dates, timestamps, decimals and JSON are text of a form that sorts and compares as the value does, or exactly.
STORAGE = {"integer": "INTEGER", "boolean": "INTEGER", "real": "REAL"}


@dataclass(frozen=True, slots=True)
class Table:
    """A pipeline's table as it is in the database: all its columns but our own, in order."""

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    movable: bool
    repaired: bool

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def aside(self) -> str:
        """The table of rows that lost their key to another partition, quoted."""
        return quoted(f"_aside_{self.name}")


def storage(kind: str) -> str:
    return STORAGE.get(kind, "TEXT")


def prepare_table(
    connection: sqlite3.Connection, pipeline: Pipeline, columns: Sequence[ExtractColumn]
) -> tuple[Table, bool]:
    """Create the table, or widen it to hold ``columns``; returns it and whether it is new (its indexes still to come).

    Raises :class:`ContractError` where the contract no longer fits the rows that are there.
    """
    _own(connection, pipeline)
    existing = {row[1]: row[2] for row in connection.execute(f"PRAGMA table_info({quoted(pipeline.table)})")}
    new = not existing
    table = _described(pipeline, [c for c in existing if c not in (PARTITION, BATCH)] or [c.name for c in columns])
    if new:
        for name in (table.sql, *((table.aside,) if table.repaired else ())):
            _create(connection, table, name, columns)
        return table, True
    folded = {name.casefold(): name for name in existing}
    for column in columns:
        have = folded.get(column.name.casefold())
        if have is None:
            for name in (table.sql, *((table.aside,) if table.repaired else ())):
                connection.execute(f"ALTER TABLE {name} ADD COLUMN {quoted(column.name)} {storage(column.type)}")
        elif have != column.name or existing[have] != storage(column.type):
            raise ContractError(
                f"{pipeline.name}: column {column.name!r} is {storage(column.type)} by the contract, but the table has "
                f"{have!r} as {existing[have]}. Keep the type and add a column of another name, or load into a new table"
            )
    return _described(pipeline, [*table.columns, *(c.name for c in columns if c.name.casefold() not in folded)]), False


def index_table(connection: sqlite3.Connection, table: Table) -> None:
    """Build the indexes of a new table: after its first rows, which is when they cost least."""
    name = table.name
    if table.key and not table.movable:
        return
    connection.execute(f"CREATE INDEX {quoted(f'{name}_partition')} ON {table.sql} ({PARTITION})")
    if table.movable:
        columns = ", ".join(map(quoted, table.key))
        connection.execute(f"CREATE UNIQUE INDEX {quoted(f'{name}_key')} ON {table.sql} ({columns})")


def _described(pipeline: Pipeline, columns: Sequence[str]) -> Table:
    repaired = isinstance(pipeline.moved_keys, Repair)
    return Table(pipeline.table, tuple(columns), pipeline.key, pipeline.keys_can_move, repaired)


def _create(connection: sqlite3.Connection, table: Table, name: str, columns: Sequence[ExtractColumn]) -> None:
    parts = [f"{quoted(c.name)} {storage(c.type)}{' NOT NULL' if c.name in table.key else ''}" for c in columns]
    parts += [f"{PARTITION} INTEGER NOT NULL", f"{BATCH} INTEGER NOT NULL"]
    key = ", ".join(map(quoted, table.key))
    options = "STRICT"
    if name == table.aside:
        parts.append(f"PRIMARY KEY ({key}, {PARTITION})")
        options = "STRICT, WITHOUT ROWID"
    elif table.key and not table.movable:
        parts.append(f"PRIMARY KEY ({PARTITION}, {key})")
        options = "STRICT, WITHOUT ROWID"
    connection.execute(f"CREATE TABLE {name} ({', '.join(parts)}) {options}")


def _own(connection: sqlite3.Connection, pipeline: Pipeline) -> None:
    """Take the table for this pipeline, or make sure that it has it, under the same key."""
    identity = json.dumps(
        {"key": pipeline.key, "movable": pipeline.keys_can_move, "repair": isinstance(pipeline.moved_keys, Repair)}
    )
    row = connection.execute("SELECT pipeline, identity FROM etl_table WHERE name = ?", (pipeline.table,)).fetchone()
    if row is None:
        taken = connection.execute(
            "SELECT type FROM sqlite_master WHERE lower(name) = lower(?)", (pipeline.table,)
        ).fetchone()
        if taken:
            raise ContractError(
                f"{pipeline.name}: the warehouse already has a {taken[0]} named {pipeline.table!r} that no pipeline "
                "made. Give the contract another table="
            )
        other = connection.execute("SELECT name FROM etl_table WHERE pipeline = ?", (pipeline.name,)).fetchone()
        if other:
            raise ContractError(
                f"{pipeline.name}: its rows are in table {other[0]!r}, and the contract now says {pipeline.table!r}. "
                "Keep the name, or load under a new pipeline name"
            )
        connection.execute("INSERT INTO etl_table VALUES (?, ?, ?)", (pipeline.table, pipeline.name, identity))
        return
    owner, known = row
    if owner != pipeline.name:
        raise ContractError(f"{pipeline.name}: table {pipeline.table!r} belongs to pipeline {owner!r}")
    if known != identity:
        raise ContractError(
            f"{pipeline.name}: the rows in table {pipeline.table!r} are told apart by {known}, the contract now says "
            f"{identity}. A key cannot be changed under rows that are there: load into a new table"
        )
