"""Candidate rows as a private SQLite file, made outside of the lock, ready to be attached and moved set-wise.

ADBC brings its own SQLite; two libraries on one live file are a locking hazard, so it writes this file only, and has
let go of it before the warehouse's transaction begins.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.errors import StagingFailed
from etl_assets.model import ExtractColumn, Manifest
from etl_assets.sink.protocol import Stage
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.tables import storage
from etl_assets.staging.candidate import candidate_batches, candidate_schema
from etl_assets.staging.casting import plain_text
from etl_assets.staging.history import DISPUTE, HISTORY

TABLE = "stage.candidate"
#: Of a change log: the lowest version that stood before a candidate's own (NULL where none did), and all of them by its rowid.
LEAST, EARLIER = "_least", "stage.earlier"
#: Of a change log: candidates on the way to which there were two states of one version, and what they say.
DISPUTED = "stage.disputed"


@dataclass(frozen=True, slots=True)
class StageFile:
    """A private SQLite file with the tables of a stage."""

    path: Path

    def attach(self, connection: sqlite3.Connection, name: str = "stage") -> None:
        """Make the rows readable under a name, before the transaction begins."""
        connection.execute(f"ATTACH DATABASE ? AS {name}", (f"{self.path.as_uri()}?mode=ro&immutable=1",))


@dataclass(frozen=True, slots=True)
class Layout:
    """A table of a stage: its columns as SQL, their Arrow schema, and its rows as SQLite stores them."""

    name: str
    columns: str
    schema: pa.Schema
    batches: Callable[[], Iterator[pa.RecordBatch]]


def tables_of(candidate: Path | bytes, manifest: Manifest) -> list[Layout]:
    """Return the tables of an extract's stage: the candidate rows, and of a change log what stood before them."""
    schema = pa.schema([(c.name, _storage_type(c.type)) for c in manifest.columns])
    columns = ", ".join(f"{quoted(c.name)} {storage(c.type)}" for c in manifest.columns)
    if HISTORY not in candidate_schema(candidate).names:
        return [Layout("candidate", columns, schema, lambda: _batches(candidate, manifest, schema))]
    logged = schema.append(pa.field(LEAST, pa.int64()))
    earlier = "_candidate INTEGER NOT NULL, _version INTEGER NOT NULL"
    disputed = "_candidate INTEGER, _version INTEGER, _states TEXT"
    return [
        Layout("candidate", f"{columns}, {LEAST} INTEGER", logged, lambda: _batches(candidate, manifest, logged)),
        Layout("earlier", earlier, _EARLIER, lambda: _earlier(candidate)),
        Layout("disputed", disputed, _DISPUTED, lambda: _disputed(candidate)),
    ]


def build(candidate: Path | bytes, manifest: Manifest, target: Path, index: Sequence[str]) -> StageFile:
    """Write the candidate rows of an extract to ``target`` in their order; index them by ``index`` if any is named.

    Raises :class:`StagingFailed` when the file cannot be written.
    """
    import adbc_driver_sqlite.dbapi as adbc

    try:
        with adbc.connect(str(target), autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute("PRAGMA journal_mode = OFF")
            cursor.fetchall()
            cursor.execute("PRAGMA synchronous = OFF")
            for table in tables_of(candidate, manifest):
                cursor.execute(f"CREATE TABLE {table.name} ({table.columns}) STRICT")
                rows = pa.RecordBatchReader.from_batches(table.schema, table.batches())
                cursor.adbc_ingest(table.name, rows, mode="append")
        pa.default_memory_pool().release_unused()
        if index and manifest.rows:
            _index(target, index)
    except (adbc.Error, sqlite3.Error, OSError) as error:
        raise StagingFailed(
            f"cannot write {target}: {error}. Is the disk full? Nothing was published; free some space and run again"
        ) from error
    return StageFile(target)


def _index(target: Path, index: Sequence[str]) -> None:
    plain = sqlite3.connect(target, isolation_level=None)
    try:
        plain.execute("PRAGMA journal_mode = OFF")
        plain.execute("PRAGMA synchronous = OFF")
        plain.execute(f"CREATE UNIQUE INDEX candidate_key ON candidate ({', '.join(map(quoted, index))})")
    finally:
        plain.close()


def share_rows(one: Stage, other: Stage, key: Sequence[str]) -> bool:
    """Return whether what was staged of two extracts has a key in common, or without one a whole row."""
    connection = sqlite3.connect(":memory:", isolation_level=None, uri=True)
    try:
        one.attach(connection)
        other.attach(connection, "other")
        mine, theirs = (
            [row[1] for row in connection.execute(f"PRAGMA {schema}.table_info(candidate)")]
            for schema in ("stage", "other")
        )
        columns = ", ".join(map(quoted, key or [name for name in mine if name in theirs]))
        query = f"SELECT {columns} FROM other.candidate INTERSECT SELECT {columns} FROM stage.candidate LIMIT 1"
        return connection.execute(query).fetchone() is not None
    except sqlite3.Error as error:
        raise StagingFailed(f"cannot compare what was staged: {error}. Nothing was published") from error
    finally:
        connection.close()


def _batches(candidate: Path | bytes, manifest: Manifest, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    log = LEAST in schema.names
    names = [column.name for column in manifest.columns]
    for batch in candidate_batches(candidate, [*names, HISTORY] if log else names):
        columns = [stored(column, batch[column.name]) for column in manifest.columns]
        if log:
            columns.append(pc.list_element(pc.list_slice(batch[HISTORY], 0, 1, return_fixed_size_list=True), 0))
        yield pa.record_batch(columns, schema=schema)


_EARLIER = pa.schema([("_candidate", pa.int64()), ("_version", pa.int64())])


def _earlier(candidate: Path | bytes) -> Iterator[pa.RecordBatch]:
    """What stood before, by the rowid that the candidate has in the stage file."""
    first = 1
    for batch in candidate_batches(candidate, [HISTORY]):
        lists = batch[HISTORY]
        owners = pc.add(pc.cast(pc.list_parent_indices(lists), pa.int64()), first)
        yield pa.record_batch([owners, pc.list_flatten(lists)], schema=_EARLIER)
        first += batch.num_rows


_DISPUTED = pa.schema([("_candidate", pa.int64()), ("_version", pa.int64()), ("_states", pa.string())])


def _disputed(candidate: Path | bytes) -> Iterator[pa.RecordBatch]:
    """Disputes, by the rowid that the candidate has in the stage file."""
    first = 1
    for batch in candidate_batches(candidate, [DISPUTE]):
        disputes = batch[DISPUTE]
        found = pc.indices_nonzero(disputes.is_valid())
        if len(found):
            disputes = disputes.take(found)
            owners = pc.add(pc.cast(found, pa.int64()), first)
            states = [pc.struct_field(disputes, name) for name in ("version", "states")]
            yield pa.record_batch([owners, *states], schema=_DISPUTED)
        first += batch.num_rows


def _storage_type(kind: str) -> pa.DataType:
    return {"INTEGER": pa.int64(), "REAL": pa.float64()}.get(storage(kind), pa.string())


def stored(column: ExtractColumn, values: pa.Array) -> pa.Array:
    """Values as SQLite stores them: text where it has no exact type, booleans as 1 and 0."""
    if column.resolution:
        values = pc.cast(values, pa.timestamp(column.resolution, "UTC"))
    return pc.cast(values, pa.int64()) if pa.types.is_boolean(values.type) else plain_text(values)
