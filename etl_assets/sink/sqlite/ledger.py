"""Reading and writing the ledger's rows, inside a transaction that the caller holds."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from etl_assets.errors import StaleWriter
from etl_assets.model import Batch, Claim, Counts, Delivery, LedgerEntry, RecordedDelivery, Refusal

NOW = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now')"
COUNTS = tuple(f.name for f in fields(Counts))

#: The columns of ``etl_batch`` in the order of a batch's fields; a migration appends its own at the end of the table.
_COLUMNS = (
    "id, batch, pipeline, scope, delivery, revision, delivery_order, transform_version, ordinal, operation, reason, "
    "operation_id, digest, input_sha256, code, generation, run, rows, lower, upper, "
    f"{', '.join(COUNTS)}, supersedes, committed_at, shard, continues, manifest, events_sha256"
)

_BATCH = (
    "SELECT b.id, b.batch, b.pipeline, b.scope, b.delivery, b.revision, b.delivery_order, b.transform_version, b.ordinal, "
    "b.operation, b.reason, b.operation_id, b.digest, b.input_sha256, b.code, b.generation, b.run, b.rows, b.lower, b.upper, "
    f"{', '.join('b.' + c for c in COUNTS)}, s.batch, b.committed_at, b.shard, b.continues, b.manifest, b.events_sha256 "
    "FROM etl_batch b LEFT JOIN etl_batch s ON s.id = b.supersedes "
)


def _batch(row: tuple[Any, ...]) -> Batch:
    counts, after = 20, 20 + len(COUNTS)
    plain = (f.name for f in fields(Batch) if f.name != "counts")
    values = dict(zip(plain, (*row[:counts], *row[after:]), strict=True))
    values["continues"] = bool(values["continues"])
    return Batch(**values, counts=Counts(*row[counts:after]))


def _only(alias: str, pipeline: str, scopes: Sequence[str] | None) -> tuple[str, list[str]]:
    """The condition for a pipeline, or some scopes of it."""
    if scopes is None:
        return f"{alias}pipeline = ?", [pipeline]
    return f"{alias}pipeline = ? AND {alias}scope IN (SELECT value FROM json_each(?))", [pipeline, json.dumps(scopes)]


def batches(connection: sqlite3.Connection, pipeline: str | None, scopes: Sequence[str] | None) -> list[Batch]:
    """Committed batches in commit order."""
    where, values = ("1", []) if pipeline is None else _only("b.", pipeline, scopes)
    return [_batch(row) for row in connection.execute(f"{_BATCH} WHERE {where} ORDER BY b.id", values)]


def entries(connection: sqlite3.Connection, pipeline: str, scopes: Sequence[str] | None) -> list[LedgerEntry]:
    """What tells the states of deliveries, of committed batches in commit order."""
    where, values = _only("b.", pipeline, scopes)
    rows = connection.execute(
        "SELECT b.id, b.batch, b.scope, b.delivery, b.revision, b.delivery_order, b.transform_version, b.operation, b.reason, "
        "b.digest, b.input_sha256, b.code, b.upper, b.committed_at, b.continues, p.batch IS b.id, b.missed "
        "FROM etl_batch b LEFT JOIN etl_partition p ON p.pipeline = b.pipeline AND p.scope = b.scope "
        f"WHERE {where} ORDER BY b.id",
        values,
    )
    return [LedgerEntry(*row) for row in rows]


def batch_named(connection: sqlite3.Connection, batch: str) -> Batch | None:
    row = connection.execute(f"{_BATCH} WHERE b.batch = ?", (batch,)).fetchone()
    return _batch(row) if row else None


def last_batch_of(
    connection: sqlite3.Connection, pipeline: str, scope: str, name: str, revision: int, version: int | None = None
) -> Batch | None:
    """The last batch of a delivery, restatements included; by this transform version, or by any."""
    row = connection.execute(
        f"{_BATCH} WHERE (b.pipeline, b.scope, b.delivery, b.revision) = (?, ?, ?, ?) "
        "AND b.transform_version = coalesce(?, b.transform_version) ORDER BY b.id DESC LIMIT 1",
        (pipeline, scope, name, revision, version),
    ).fetchone()
    return _batch(row) if row else None


def batches_of_operation(connection: sqlite3.Connection, pipeline: str, operation: str) -> list[Batch]:
    """What one decision to restate has done."""
    rows = connection.execute(
        f"{_BATCH} WHERE b.pipeline = ? AND b.operation_id = ? ORDER BY b.id", (pipeline, operation)
    )
    return [_batch(row) for row in rows]


def current_batches(connection: sqlite3.Connection, pipeline: str, scopes: Sequence[str] | None) -> dict[str, Batch]:
    """The batch that each scope's rows, or these ones', stand for."""
    where, values = _only("p.", pipeline, scopes)
    rows = connection.execute(f"{_BATCH} JOIN etl_partition p ON p.batch = b.id WHERE {where}", values)
    return {batch.scope: batch for batch in map(_batch, rows)}


def begun(connection: sqlite3.Connection, pipeline: str, shard: str) -> Batch | None:
    """Return the batch that a log began again with, by a person's decision."""
    row = connection.execute(
        f"{_BATCH} WHERE b.pipeline = ? AND b.shard = ? AND b.operation = 'restate' ORDER BY b.id DESC LIMIT 1",
        (pipeline, shard),
    ).fetchone()
    return _batch(row) if row else None


def given_up(connection: sqlite3.Connection, pipeline: str) -> list[tuple[Batch, int]]:
    """Return the batches before which positions were given up, each with where its log had ended."""
    found = connection.execute(f"{_BATCH} WHERE b.pipeline = ? AND b.operation = 'skip' ORDER BY b.id", (pipeline,))
    ended = "SELECT upper FROM etl_batch WHERE pipeline = ? AND shard = ? AND id < ? ORDER BY id DESC LIMIT 1"
    pairs = []
    for batch in map(_batch, found.fetchall()):
        row = connection.execute(ended, (pipeline, batch.shard, batch.id)).fetchone()
        pairs.append((batch, int(row[0]) if row else 0))
    return pairs


def batches_beyond(connection: sqlite3.Connection, pipeline: str, shard: str, position: int, since: int) -> list[Batch]:
    """Return the batches of a log, from the batch ``since`` on, that consumed events beyond a position."""
    rows = connection.execute(
        f"{_BATCH} WHERE b.pipeline = ? AND b.shard = ? AND b.upper > ? AND b.lower IS NOT NULL AND b.lower < b.upper "
        "AND b.id >= ? ORDER BY b.id",
        (pipeline, shard, position, since),
    )
    return [_batch(row) for row in rows]


def batches_of_delivery(connection: sqlite3.Connection, delivery: Delivery) -> list[Batch]:
    """Return the batches of one delivery in commit order."""
    rows = connection.execute(
        f"{_BATCH} WHERE (b.pipeline, b.scope, b.delivery, b.revision) = (?, ?, ?, ?) ORDER BY b.id",
        (delivery.pipeline, delivery.scope, delivery.name, delivery.revision),
    )
    return [_batch(row) for row in rows]


def insert_batch(connection: sqlite3.Connection, batch: Batch, supersedes: int | None) -> str:
    """Write a ledger entry under its id; returns the time that the database gave it."""
    values = (
        *(batch.id, batch.batch, batch.pipeline, batch.scope, batch.delivery, batch.revision, batch.order),
        *(batch.transform_version, batch.ordinal, batch.operation, batch.reason, batch.operation_id, batch.digest),
        *(batch.input_sha256, batch.code, batch.generation, batch.run, batch.rows, batch.lower, batch.upper),
        *(*batch.counts.as_dict().values(), supersedes),
    )
    marks = ", ".join("?" * len(values))
    values = (*values, batch.shard, batch.continues, batch.manifest, batch.events_sha256)
    connection.execute(f"INSERT INTO etl_batch ({_COLUMNS}) VALUES ({marks}, {NOW}, ?, ?, ?, ?)", values)
    return str(connection.execute("SELECT committed_at FROM etl_batch WHERE id = ?", (batch.id,)).fetchone()[0])


def positions(connection: sqlite3.Connection, pipeline: str) -> dict[str, int]:
    """The committed position of each shard of a log (or of the only one, ``""``) that has a batch."""
    return dict(
        connection.execute("SELECT shard, position FROM etl_progress WHERE pipeline = ?", (pipeline,)).fetchall()
    )


def position(connection: sqlite3.Connection, pipeline: str, shard: str = "") -> int | None:
    """The committed position of a change log's shard, or the watermark; None before its first batch."""
    return positions(connection, pipeline).get(shard)


def log_position(connection: sqlite3.Connection, pipeline: str, shard: str) -> int | None:
    """Return the committed position of a log's shard; None before its first batch, and where another pattern has one."""
    row = connection.execute("SELECT identity FROM etl_table WHERE pipeline = ?", (pipeline,)).fetchone()
    own = row is not None and json.loads(row[0])["operation"] == "consume"
    return position(connection, pipeline, shard) if own else None


def move_position(connection: sqlite3.Connection, batch: Batch) -> None:
    """Move forward to where the batch ends; a late snapshot does not take the watermark back."""
    connection.execute(
        "INSERT INTO etl_progress VALUES (?, ?, ?, ?) ON CONFLICT (pipeline, shard) DO UPDATE "
        "SET position = excluded.position, batch = excluded.batch WHERE excluded.position > position",
        (batch.pipeline, batch.shard, batch.upper, batch.id),
    )


def forget_position(connection: sqlite3.Connection, pipeline: str, shard: str = "") -> None:
    """Begin anew, with a table that is made anew."""
    connection.execute("DELETE FROM etl_progress WHERE pipeline = ? AND shard = ?", (pipeline, shard))


def generation(connection: sqlite3.Connection, pipeline: str, scope: str) -> tuple[int, str]:
    """The scope's current generation and the run that holds it; ``(0, "")`` where none was issued."""
    row = connection.execute(
        "SELECT generation, run FROM etl_writer WHERE pipeline = ? AND scope = ? ORDER BY generation DESC LIMIT 1",
        (pipeline, scope),
    ).fetchone()
    return (int(row[0]), str(row[1])) if row else (0, "")


def issue(connection: sqlite3.Connection, pipeline: str, scope: str, run: str) -> Claim:
    """The claim of this run: a new generation, or the one that it was issued before, however old that is by now."""
    row = connection.execute(
        "SELECT generation FROM etl_writer WHERE pipeline = ? AND scope = ? AND run = ?", (pipeline, scope, run)
    ).fetchone()
    if row:
        return Claim(pipeline, scope, run, int(row[0]))
    number = generation(connection, pipeline, scope)[0] + 1
    connection.execute(f"INSERT INTO etl_writer VALUES (?, ?, ?, ?, {NOW})", (pipeline, scope, number, run))
    return Claim(pipeline, scope, run, number)


def fence(connection: sqlite3.Connection, pipeline: str, scopes: Sequence[str], run: str) -> None:
    """Issue a generation of these scopes to a run, so that no other run that holds one can write to them."""
    for scope in scopes:
        issue(connection, pipeline, scope, run)


_DELIVERY = (
    "SELECT pipeline, scope, name, revision, name_order, sha256, size, stamp, "
    "refused_kind, refused_reason, refused_code, attempts, proved_code, seen_at FROM etl_delivery "
)


def _recorded(row: tuple[Any, ...]) -> RecordedDelivery:
    refusal = Refusal(*row[8:12]) if row[8] is not None else None
    return RecordedDelivery(Delivery(*(*row[:8], None, row[13])), refusal, row[12])


def deliveries(connection: sqlite3.Connection, pipeline: str, scopes: Sequence[str] | None) -> list[RecordedDelivery]:
    """Every delivery that was read, by scope and place."""
    where, values = _only("", pipeline, scopes)
    rows = connection.execute(f"{_DELIVERY} WHERE {where} ORDER BY scope, name_order, revision", values)
    return [_recorded(row) for row in rows]


def marks(connection: sqlite3.Connection) -> dict[str, str]:
    """For each pipeline a text that changes whenever its ledger, or what is recorded of its deliveries, does."""
    last = connection.execute(
        "SELECT b.pipeline, b.id || ' ' || b.committed_at FROM etl_batch b "
        "JOIN (SELECT max(id) AS id FROM etl_batch GROUP BY pipeline) AS newest ON newest.id = b.id"
    )
    found = {pipeline: str(mark) for pipeline, mark in last}
    refused = "CASE WHEN refused_kind IS NOT NULL THEN json_array(scope, name, revision, refused_code, attempts) END"
    query = f"SELECT pipeline, count(*) || coalesce(group_concat({refused}), '') FROM etl_delivery GROUP BY pipeline"
    for pipeline, mark in connection.execute(query):
        found[pipeline] = f"{found.get(pipeline, '')} {mark}"
    return found


def record_delivery(connection: sqlite3.Connection, delivery: Delivery) -> None:
    """Insert a revision, or note under which stamp a known one lies in landing now.

    Raises :class:`StaleWriter` where other bytes were recorded as this revision since it was read: two processes of
    one run hold the same generation, and may have read a file before and after it was replaced.
    """
    written = connection.execute(
        "INSERT INTO etl_delivery (pipeline, scope, name, revision, name_order, sha256, size, stamp, seen_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, coalesce(?, {NOW})) "
        "ON CONFLICT (pipeline, scope, name, revision) DO UPDATE SET stamp = excluded.stamp "
        "WHERE sha256 = excluded.sha256",
        (
            *(delivery.pipeline, delivery.scope, delivery.name, delivery.revision),
            *(delivery.order, delivery.sha256, delivery.size, delivery.stamp, delivery.read_at),
        ),
    ).rowcount
    if not written:
        raise StaleWriter(
            f"{delivery}: other bytes were recorded as this revision by another process since they were read. Nothing was "
            "changed; run again"
        )


def record_proof(connection: sqlite3.Connection, delivery: Delivery, code: str) -> None:
    """Note a contract under which a committed delivery gives the rows that are committed."""
    connection.execute(
        "UPDATE etl_delivery SET proved_code = ? WHERE (pipeline, scope, name, revision) = (?, ?, ?, ?)",
        (code, delivery.pipeline, delivery.scope, delivery.name, delivery.revision),
    )


def record_refusal(connection: sqlite3.Connection, delivery: Delivery, kind: str, reason: str, code: str) -> Refusal:
    """Count a refusal; attempts start anew under another contract or logic."""
    key = (delivery.pipeline, delivery.scope, delivery.name, delivery.revision)
    connection.execute(
        "UPDATE etl_delivery SET attempts = CASE WHEN refused_code IS ? THEN attempts + 1 ELSE 1 END, "
        "refused_kind = ?, refused_reason = ?, refused_code = ? "
        "WHERE pipeline = ? AND scope = ? AND name = ? AND revision = ?",
        (code, kind, reason, code, *key),
    )
    row = connection.execute(
        f"{_DELIVERY} WHERE pipeline = ? AND scope = ? AND name = ? AND revision = ?", key
    ).fetchone()
    return Refusal(*row[8:12])


def forget_refusal(connection: sqlite3.Connection, batch: Batch) -> None:
    """A committed delivery is no longer a refused one."""
    connection.execute(
        "UPDATE etl_delivery SET refused_kind = NULL, refused_reason = NULL, refused_code = NULL, attempts = 0 "
        "WHERE pipeline = ? AND scope = ? AND name = ? AND revision = ? AND refused_kind IS NOT NULL",
        (batch.pipeline, batch.scope, batch.delivery, batch.revision),
    )


def refused_as(connection: sqlite3.Connection, pipeline: str, kind: str) -> list[Delivery]:
    """Return the deliveries whose newest revision was refused so."""
    rows = connection.execute(
        f"{_DELIVERY} d WHERE pipeline = ? AND refused_kind IS NOT NULL AND refused_kind = ? AND NOT EXISTS (SELECT 1 "
        "FROM etl_delivery n WHERE (n.pipeline, n.scope, n.name) = (d.pipeline, d.scope, d.name) AND n.revision > d.revision)",
        (pipeline, kind),
    )
    return [_recorded(row).delivery for row in rows]


def forget_refusals(connection: sqlite3.Connection, deliveries: Sequence[Delivery]) -> None:
    """Let deliveries be asked for again: what they were refused for does not hold any more."""
    connection.executemany(
        "UPDATE etl_delivery SET refused_kind = NULL, refused_reason = NULL, refused_code = NULL, attempts = 0 "
        "WHERE (pipeline, scope, name, revision) = (?, ?, ?, ?)",
        [(d.pipeline, d.scope, d.name, d.revision) for d in deliveries],
    )


def scopes_claimed(connection: sqlite3.Connection, pipeline: str) -> list[str]:
    """Return the scopes that a run has ever claimed."""
    rows = connection.execute("SELECT DISTINCT scope FROM etl_writer WHERE pipeline = ?", (pipeline,))
    return [scope for (scope,) in rows]
