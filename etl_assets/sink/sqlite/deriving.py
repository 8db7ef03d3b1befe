"""What a derived partition sees of its upstream, and the query that makes its rows of it.

A partition's state is the last batch that changed it: its own, or one of another partition that took or gave back rows
because keys moved. In the query the upstream tables' names are temporary copies of what the partition sees, in order of
key, and an authorizer lets it read nothing else: what a partition depends on is what it declares.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from etl_assets.contract import DerivedTable, Upstream
from etl_assets.contract.derived import WHOLE
from etl_assets.contract.partitions import utc
from etl_assets.contract.queries import IMPURE, reading
from etl_assets.errors import LedgerMismatch, StagingFailed, TransformFailed, UpstreamMoved
from etl_assets.model import Manifest, Seen
from etl_assets.sink.sqlite.connection import quoted, undecodable
from etl_assets.sink.sqlite.tables import PARTITION

FETCHED_ROWS = 20_000
#: Tables that are functions of their arguments.
TABLE_FUNCTIONS = frozenset(("json_each", "json_tree"))
#: What SQLite reports about a statement, rather than about the file or the disk.
OF_STATEMENT = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE}


# --------------------------------------------------------------------------- what a partition sees


def seen_by(
    connection: sqlite3.Connection, pipeline: DerivedTable, scopes: Sequence[str]
) -> dict[str, tuple[Seen, ...]]:
    """What each of these partitions sees, where there is something of every upstream table that is not optional."""
    found: dict[str, list[Seen]] = {scope: [] for scope in scopes}
    for upstream in pipeline.upstream:
        wanted = {scope: pipeline.sees(upstream, scope) for scope in found}
        states = _states(connection, upstream, {key for keys in wanted.values() for key in keys})
        for scope, keys in wanted.items():
            seen = [Seen(upstream.pipeline, key, states[key]) for key in keys if key in states]
            if seen or upstream.optional:
                found[scope].extend(seen)
            else:
                del found[scope]
    return {scope: tuple(seen) for scope, seen in found.items()}


def check_upstream(connection: sqlite3.Connection, pipeline: DerivedTable, manifest: Manifest) -> None:
    """Refuse rows that were computed of batches which have a successor. Raises :class:`UpstreamMoved`."""
    now = seen_by(connection, pipeline, [manifest.scope]).get(manifest.scope, ())
    if now != manifest.seen:
        news = next((one for one in now if one not in manifest.seen), None)
        raise UpstreamMoved(
            f"{manifest.batch} was computed before {news.batch if news else 'its upstream'} was committed. Nothing was changed; "
            "the next run computes it again"
        )


def record_upstream(connection: sqlite3.Connection, number: int, seen: Iterable[Seen]) -> None:
    """Note what a batch was computed of."""
    connection.executemany(
        "INSERT INTO etl_upstream SELECT ?, ?, ?, id FROM etl_batch WHERE batch = ?",
        [(number, one.pipeline, one.scope, one.batch) for one in seen],
    )


def _states(connection: sqlite3.Connection, upstream: Upstream, keys: Iterable[str]) -> dict[str, str]:
    """The last batch that changed each of these partitions, or the table as a whole, where there is one."""
    if upstream.partitions is None:
        query = "SELECT batch FROM etl_batch WHERE pipeline = ? ORDER BY id DESC LIMIT 1"
        row = connection.execute(query, (upstream.pipeline,)).fetchone()
        return {WHOLE: row[0]} if row else {}
    return dict(
        connection.execute(
            "SELECT p.scope, b.batch FROM etl_partition p JOIN etl_batch b ON b.id = "
            "max(p.batch, coalesce((SELECT max(t.batch) FROM etl_touched t WHERE t.partition = p.id), 0)) "
            "WHERE p.pipeline = ? AND p.scope IN (SELECT value FROM json_each(?))",
            (upstream.pipeline, json.dumps(sorted(keys))),
        ).fetchall()
    )


# --------------------------------------------------------------------------- the query


def compute(connection: sqlite3.Connection, pipeline: DerivedTable, scope: str, target: Path) -> tuple[Seen, ...]:
    """Write the rows of a partition to ``target``, an Arrow stream of texts; returns what they were made of.

    Raises :class:`TransformFailed` where the SQL is at fault, :class:`LedgerMismatch` and :class:`StagingFailed`.
    """
    seen = seen_by(connection, pipeline, [scope]).get(scope, ())
    connection.execute("PRAGMA query_only = 0")  # tables that only this connection sees are written, too
    for upstream in pipeline.upstream:
        _check_there(connection, upstream, seen, f"{pipeline.name}/{scope}")
        _copy(connection, pipeline, upstream, scope)
    connection.execute("PRAGMA query_only = 1")
    authorizer = _Authorizer(connection, pipeline)
    place = f"{pipeline.name}/{scope}"
    watched = None
    try:
        with reading(connection, authorizer) as watched:
            cursor = connection.execute(
                f"SELECT * FROM (\n{pipeline.sql.rstrip().rstrip(';')}\n)", _parameters(pipeline, scope)
            )
            _check_columns(pipeline, [c[0] for c in cursor.description], place)
            _write(pipeline, cursor, target, place)
    except sqlite3.Error as error:
        of_statement = getattr(error, "sqlite_errorcode", 0) & 0xFF in OF_STATEMENT or undecodable(error)
        if isinstance(error, sqlite3.ProgrammingError) or of_statement:
            why = authorizer.denied or (watched.denied if watched else "")
            denied = f" ({why})" if why else ""
            raise TransformFailed(
                f"{place}: the SQL of {pipeline.name}: {error}{denied}. It may read "
                f"{', '.join(u.table for u in pipeline.upstream)}, and the parameters :partition, :start and :end. Nothing was "
                "changed; mend the SQL, or declare what it reads"
            ) from error
        raise
    return seen


class _Authorizer:
    """Lets the query read the copies of the upstream tables, and do nothing else."""

    def __init__(self, connection: sqlite3.Connection, pipeline: DerivedTable) -> None:
        everything = connection.execute("SELECT lower(name) FROM main.sqlite_master WHERE type IN ('table', 'view')")
        self.others = {name for (name,) in everything} - {u.table.lower() for u in pipeline.upstream}
        self.denied = ""

    def __call__(self, action: int, one: str | None, two: str | None, database: str | None, _: str | None) -> int:
        name = (one or "").lower()
        if action == sqlite3.SQLITE_READ:
            # A table of which no column is read has no database here; nor has a part of the query with a name of its own.
            hidden = name in self.others if database is None else database != "temp"
            allowed = name in TABLE_FUNCTIONS or not (hidden or name.startswith("sqlite_"))
        elif action == sqlite3.SQLITE_FUNCTION:
            allowed = (two or "").lower() not in IMPURE
        else:
            allowed = action in (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE)
        if not allowed and not self.denied:
            self.denied = (
                f"{two or one} is not a function of the tables" if action == sqlite3.SQLITE_FUNCTION else f"{one}"
            )
        return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def _check_there(connection: sqlite3.Connection, upstream: Upstream, seen: Iterable[Seen], place: str) -> None:
    """A table that was dropped around the ledger is no empty one."""
    there = connection.execute(f"PRAGMA main.table_info({quoted(upstream.table)})").fetchone()
    if not there and any(one.pipeline == upstream.pipeline for one in seen):
        raise LedgerMismatch(
            f"{place}: the ledger has batches of {upstream.pipeline}, and its table {upstream.table!r} is not there: it was "
            "dropped around the ledger, or one was restored without the other. Nothing was changed. Restore both from one backup"
        )


def _copy(connection: sqlite3.Connection, pipeline: DerivedTable, upstream: Upstream, scope: str) -> None:
    """A temporary table under the upstream table's name of what the partition sees; columns that it lacks as yet are empty.

    In order of key, so that a sum of floats or a list is a function of the rows, and not of the order in which they came.
    """
    have = [row[1] for row in connection.execute(f"PRAGMA main.table_info({quoted(upstream.table)})")]
    own = [name for name in have if not name.startswith("_")]
    folded = {name.lower() for name in have}
    columns = [quoted(name) for name in own]
    columns += [f"NULL AS {quoted(name)}" for name in upstream.columns if name.lower() not in folded]
    source = f"FROM main.{quoted(upstream.table)}" if have else "WHERE 0"
    if have and upstream.partitions is not None:
        numbers = connection.execute(
            "SELECT id FROM etl_partition WHERE pipeline = ? AND scope IN (SELECT value FROM json_each(?))",
            (upstream.pipeline, json.dumps(pipeline.sees(upstream, scope))),
        ).fetchall()
        source += f" WHERE {PARTITION} IN ({', '.join(str(number) for (number,) in numbers)})"
    identity = connection.execute("SELECT identity FROM etl_table WHERE name = ?", (upstream.table,)).fetchone()
    key = json.loads(identity[0])["key"] if identity else []
    order = [quoted(name) for name in (*key, *(name for name in own if name not in key))]
    ordered = f" ORDER BY {', '.join(order)}" if order else ""
    connection.execute(f"CREATE TEMP TABLE {quoted(upstream.table)} AS SELECT {', '.join(columns)} {source}{ordered}")


def _parameters(pipeline: DerivedTable, scope: str) -> dict[str, str | None]:
    window = pipeline.window(scope)
    start, end = (utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ") for moment in window) if window else (None, None)
    return {"partition": scope, "start": start, "end": end}


def _check_columns(pipeline: DerivedTable, returned: Sequence[str], place: str) -> None:
    wanted = [c.name for c in pipeline.columns]
    if sorted(returned) == sorted(wanted):
        return
    missing = [name for name in wanted if name not in returned]
    unknown = [name for name in returned if name not in wanted]
    twice = sorted({name for name in returned if list(returned).count(name) > 1})
    said = [
        f"{what}: {', '.join(names)}"
        for what, names in (("missing", missing), ("not in the contract", unknown), ("twice", twice))
        if names
    ]
    raise TransformFailed(
        f"{place}: the columns that the SQL of {pipeline.name} returns are not the contract's ({'; '.join(said)}). Name them "
        "with AS. Nothing was changed"
    )


def _write(pipeline: DerivedTable, cursor: sqlite3.Cursor, target: Path, place: str) -> None:
    import pyarrow as pa

    names = [c[0] for c in cursor.description]
    schema = pa.schema([(name, pa.string()) for name in names])
    try:
        with pa.OSFile(str(target), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
            while rows := cursor.fetchmany(FETCHED_ROWS):
                columns = [
                    pa.array([_text(value, name, place) for value in values], pa.string())
                    for name, values in zip(names, zip(*rows, strict=True), strict=True)
                ]
                stream.write_batch(pa.record_batch(columns, schema=schema))
    except OSError as error:
        raise StagingFailed(f"cannot write {target}: {error}; free some space and run again") from error


def _text(value: Any, name: str, place: str) -> str | None:
    """A value of the database as the text that it would be in a file."""
    if isinstance(value, bytes):
        raise TransformFailed(f"{place}: the SQL returned bytes for {name!r}; CAST them to text. Nothing was changed")
    return value if value is None or isinstance(value, str) else repr(value)
