"""The pipeline's own table: how it is laid out, created and widened. All inside the caller's transaction.

Four layouts, by what tells rows apart:

- a key that cannot leave its partition: rows are stored in order of partition and key, and nothing else is indexed;
- a key that is unique in the table and may move: a rowid table, one index on the key, one on the partition;
- no key: a rowid table and an index on the partition;
- versions of keys: stored in order of key under another name, behind a view of the live ones.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from etl_assets.contract import Pipeline, Repair, ReplacedTable
from etl_assets.errors import BadHeader, ContractError, EtlError
from etl_assets.model import DELETED, ExtractColumn
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
    movable: bool = False
    repaired: bool = False
    versions: bool = False

    @property
    def sql(self) -> str:
        return quoted(self.name)

    @property
    def aside(self) -> str:
        """The table of rows that lost their key to another partition, quoted."""
        return quoted(f"_aside_{self.name}")


def versions_name(table: str) -> str:
    """The table of versions behind a view of its live rows."""
    return f"_versions_{table}"


def storage(kind: str) -> str:
    return STORAGE.get(kind, "TEXT")


def prepare_table(
    connection: sqlite3.Connection, pipeline: Pipeline, columns: Sequence[ExtractColumn]
) -> tuple[Table, bool]:
    """Create the table, or widen it to hold ``columns``; returns it and whether it is new (its indexes still to come).

    Raises :class:`ContractError` where the contract no longer fits the rows that are there, and :class:`BadHeader`
    where a column that a delivery adds does not.
    """
    known = _own(connection, pipeline)
    table = _described(pipeline, [])
    existing = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table.sql})")]
    new = not existing
    table = replace(
        table, columns=tuple(c for c in existing if c not in (PARTITION, BATCH)) or tuple(c.name for c in columns)
    )
    if table.repaired and not new:
        _keep_step(connection, table, known)
    tables = (table.sql, *((table.aside,) if table.repaired else ()))
    folded = {name.casefold(): name for name in existing}
    forms = {} if new else dict(known)
    if sum(not name.startswith("_") for name in {*existing, *(c.name for c in columns)}) > pipeline.most_columns:
        raise BadHeader(
            f"{pipeline.name}: with the columns of this delivery the table would have more than {pipeline.most_columns}, which "
            "it cannot hold. Nothing was changed"
        )
    for column in columns:
        have, form = folded.get(column.name.casefold(), column.name), _form(pipeline, column)
        if have != column.name or forms.get(have, form) != form:
            raise _misfit(pipeline, column, form, f"{have!r} as {forms.get(have)}")
        forms[column.name] = form
        if not new and column.name not in existing:
            for name in tables:
                connection.execute(f"ALTER TABLE main.{name} ADD COLUMN {quoted(column.name)} {storage(column.type)}")
    if new:
        connection.execute(f"DROP TABLE IF EXISTS main.{table.aside}")
        for name in tables:
            _create(connection, table, name, columns)
    table = replace(table, columns=(*table.columns, *(c for c in forms if not new and c not in existing)))
    if forms != known:
        connection.execute("UPDATE etl_table SET columns = ? WHERE name = ?", (json.dumps(forms), pipeline.table))
    if table.versions and (new or forms != known):
        _show_live_rows(connection, pipeline.table, table)
    return table, new


def standing_table(connection: sqlite3.Connection, pipeline: Pipeline) -> Table | None:
    """The table as it is, or None where it is not there. Raises :class:`ContractError` where it is another's, or renamed."""
    _own(connection, pipeline)
    table = _described(pipeline, [])
    return table if connection.execute(f"PRAGMA main.table_info({table.sql})").fetchone() else None


def _keep_step(connection: sqlite3.Connection, table: Table, forms: dict[str, str]) -> None:
    """Make the table of what is kept aside where moves were refused so far, or while it was widened: it is empty then."""
    found = {row[1] for row in connection.execute(f"PRAGMA main.table_info({table.aside})")}
    if found != {*table.columns, PARTITION, BATCH}:
        connection.execute(f"DROP TABLE IF EXISTS main.{table.aside}")
        _create(connection, table, table.aside, [ExtractColumn(c, _type_of(forms[c])) for c in table.columns])


def _exists(connection: sqlite3.Connection, name: str) -> bool:
    return connection.execute("SELECT 1 FROM main.sqlite_master WHERE name = ?", (name,)).fetchone() is not None


def _type_of(form: str) -> str:
    """The type in a column's form: ``decimal`` of ``decimal(2)``."""
    return form.partition("(")[0]


def _show_live_rows(connection: sqlite3.Connection, name: str, table: Table) -> None:
    """The view under the pipeline's own name: rows that are not deleted, without what tells versions apart."""
    columns = ", ".join(quoted(c) for c in table.columns if not c.startswith("_"))
    connection.execute(f"DROP VIEW IF EXISTS main.{quoted(name)}")
    connection.execute(
        f"CREATE VIEW {quoted(name)} AS SELECT {columns}, {BATCH} FROM {table.sql} WHERE NOT {quoted(DELETED)}"
    )


def _misfit(pipeline: Pipeline, column: ExtractColumn, form: str, have: str) -> EtlError:
    """The error for a column that the table has under another type or spelling; whose fault it is tells the class."""
    if column.added:
        return BadHeader(
            f"{pipeline.name}: the delivery adds the column {column.name!r} as {form}, but the table has {have}. Deliver it "
            "under the table's name, or declare it in the contract with the new one as an alias"
        )
    return ContractError(
        f"{pipeline.name}: column {column.name!r} is {form} by the contract, but the table has {have}. Keep the type and "
        "add a column of another name, or load into a new table"
    )


def _form(pipeline: Pipeline, column: ExtractColumn) -> str:
    """How a column's values are written, where values of two forms do not compare: type, and digits of a fraction."""
    declared = pipeline.column(column.name)
    if declared is not None and column.type == "decimal":
        return f"decimal({declared.scale})"
    if declared is not None and column.type == "timestamp":
        return f"timestamp({declared.resolution})"
    return column.type


def index_table(connection: sqlite3.Connection, table: Table) -> None:
    """Build the indexes of a new table: after its first rows, which is when they cost least."""
    if table.versions or (table.key and not table.movable):
        return
    connection.execute(f"CREATE INDEX main.{quoted(f'_partition_{table.name}')} ON {table.sql} ({PARTITION})")
    if table.movable:
        columns = ", ".join(map(quoted, table.key))
        connection.execute(f"CREATE UNIQUE INDEX main.{quoted(f'_key_{table.name}')} ON {table.sql} ({columns})")


def _described(pipeline: Pipeline, columns: Sequence[str]) -> Table:
    if not isinstance(pipeline, ReplacedTable):
        return Table(versions_name(pipeline.table), tuple(columns), pipeline.key, versions=True)
    repaired = isinstance(pipeline.moved_keys, Repair)
    return Table(pipeline.table, tuple(columns), pipeline.key, pipeline.keys_can_move, repaired)


def _create(connection: sqlite3.Connection, table: Table, name: str, columns: Sequence[ExtractColumn]) -> None:
    parts = [f"{quoted(c.name)} {storage(c.type)}{' NOT NULL' if c.name in table.key else ''}" for c in columns]
    parts += [f"{own} INTEGER NOT NULL" for own in ((BATCH,) if table.versions else (PARTITION, BATCH))]
    key = ", ".join(map(quoted, table.key))
    options = "STRICT"
    if name == table.aside:
        parts.append(f"PRIMARY KEY ({key}, {PARTITION})")
        options = "STRICT, WITHOUT ROWID"
    elif table.versions:
        parts.append(f"PRIMARY KEY ({key})")
        options = "STRICT, WITHOUT ROWID"
    elif table.key and not table.movable:
        parts.append(f"PRIMARY KEY ({PARTITION}, {key})")
        options = "STRICT, WITHOUT ROWID"
    connection.execute(f"CREATE TABLE {name} ({', '.join(parts)}) {options}")


def _own(connection: sqlite3.Connection, pipeline: Pipeline) -> dict[str, str]:
    """Take the table for this pipeline, or make sure that it has it, under the same key; the forms of its columns."""
    identity = json.dumps(_identity(pipeline))
    row = connection.execute(
        "SELECT pipeline, identity, columns, name FROM etl_table WHERE lower(name) = lower(?)", (pipeline.table,)
    ).fetchone()
    if row is None:
        taken = connection.execute(
            "SELECT type FROM main.sqlite_master WHERE lower(name) = lower(?)", (pipeline.table,)
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
        connection.execute("INSERT INTO etl_table VALUES (?, ?, ?, '{}')", (pipeline.table, pipeline.name, identity))
        return {}
    owner, known, columns, name = row
    if owner != pipeline.name:
        raise ContractError(
            f"{pipeline.name}: table {name!r} belongs to pipeline {owner!r}. Give the contract another table="
        )
    if name != pipeline.table:
        raise ContractError(
            f"{pipeline.name}: its rows are in table {name!r}, and the contract now says {pipeline.table!r}. Keep the name"
        )
    if known != identity:
        _check_identity(connection, pipeline, json.loads(known))
        connection.execute("UPDATE etl_table SET identity = ? WHERE name = ?", (identity, pipeline.table))
    return dict(json.loads(columns))


def _identity(pipeline: Pipeline) -> dict[str, Any]:
    """By what the rows of a table are told apart, and how keys that moved were settled."""
    facts: dict[str, Any] = {"key": pipeline.key, "operation": pipeline.operation}
    if isinstance(pipeline, ReplacedTable):
        moves = pipeline.moved_keys.order if isinstance(pipeline.moved_keys, Repair) else None
        facts |= {"movable": pipeline.keys_can_move, "moved_keys": moves}
    return facts


def _check_identity(connection: sqlite3.Connection, pipeline: Pipeline, known: dict[str, Any]) -> None:
    """A key cannot change under rows that are there; how moves are settled can, as long as none has been."""
    wanted = json.loads(json.dumps(_identity(pipeline)))
    if {**known, "moved_keys": None} != {**wanted, "moved_keys": None}:
        raise ContractError(
            f"{pipeline.name}: the rows in table {pipeline.table!r} are told apart by {_said(known)}, and the contract now "
            f"says {_said(wanted)}. A key cannot be changed under rows that are there: load under a new pipeline name"
        )
    aside = quoted(f"_aside_{pipeline.table}")
    if (
        _exists(connection, f"_aside_{pipeline.table}")
        and connection.execute(f"SELECT 1 FROM main.{aside} LIMIT 1").fetchone()
    ):
        raise ContractError(
            f"{pipeline.name}: keys that two partitions claim were settled by moved_keys={known['moved_keys']!r}, and the "
            f"contract now says {wanted['moved_keys']!r}: the table would depend on when each was loaded. Keep the order, or "
            "load under a new pipeline name"
        )


def _said(facts: dict[str, Any]) -> str:
    scope = "" if facts.get("movable", True) else " within a partition"
    return f"the key ({', '.join(facts['key']) or 'none'}){scope}, by {facts['operation']}"
