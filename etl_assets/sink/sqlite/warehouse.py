"""The SQLite warehouse as a sink: each method is one transaction on a connection of its own.

What moves rows is imported where it is needed: it brings Arrow along, and what only asks the ledger needs none.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline, WatermarkTable
from etl_assets.contract.partitions import shard_of, shards_of
from etl_assets.errors import EtlError, RewrittenLog, StaleWriter, UnknownMessage, UnknownPipeline
from etl_assets.model import (
    Batch,
    Claim,
    Consumed,
    Delivery,
    Extract,
    LedgerEntry,
    Message,
    Receipt,
    RecordedDelivery,
    Refusal,
    Restatement,
    RunFailure,
    Seen,
    refusal_code,
)
from etl_assets.sink.protocol import Stage
from etl_assets.sink.sqlite import alone, ledger, outbox, schema
from etl_assets.sink.sqlite.connection import BUSY_TIMEOUT, Held, quoted, reading, writing
from etl_assets.sink.sqlite.verifying import differing_scopes, profile, verify_table
from etl_assets.staging.extract import candidate_file


class SQLiteWarehouse:
    """Rows, ledger and progress in one SQLite file. Holds a path, never a connection."""

    def __init__(self, path: str | Path, busy_timeout: float = BUSY_TIMEOUT) -> None:
        self.path = Path(path).absolute()
        self.busy_timeout = busy_timeout

    # ------------------------------------------------------------------ writing

    def claim(self, pipeline: Pipeline, scopes: Sequence[str], run: str) -> dict[str, Claim]:
        """Issue this run's generation for all its scopes in one transaction."""
        with writing(self.path, timeout=self.busy_timeout) as connection:
            schema.migrate(connection)
            return {scope: ledger.issue(connection, pipeline.name, scope, run) for scope in scopes}

    def record(self, claim: Claim, delivery: Delivery) -> None:
        """Note that a delivery was read, where nothing else is written about it."""
        from etl_assets.sink.sqlite.publish import check_writer

        with writing(self.path, timeout=self.busy_timeout) as connection:
            check_writer(connection, claim)
            ledger.record_delivery(connection, delivery)

    def refuse(self, pipeline: Pipeline, claim: Claim, delivery: Delivery, error: EtlError) -> Refusal | None:
        """Remember a refusal; None where a newer run has taken over, whose word counts."""
        from etl_assets.sink.sqlite.publish import check_writer

        try:
            with writing(self.path, timeout=self.busy_timeout) as connection:
                check_writer(connection, claim)
                ledger.record_delivery(connection, delivery)
                code = refusal_code(pipeline.code, delivery.declared)
                refusal = ledger.record_refusal(connection, delivery, error.kind, str(error), code)
                outbox.tell_refusal(connection, pipeline, delivery, refusal)
                return refusal
        except StaleWriter:
            return None

    def prepare(self, pipeline: Pipeline, extract: Extract, work: Path) -> Stage:
        """Stage the candidate rows, outside of the lock: in memory where they are few, in a private file where not."""
        from etl_assets.sink.sqlite import stage_file, stage_rows

        if extract.manifest.rows <= stage_rows.FEW:
            return stage_rows.hold(candidate_file(extract), extract.manifest, pipeline.key)
        # Rows that are there are compared with the candidates by key, and so is what a complete snapshot lacks.
        complete = isinstance(pipeline, WatermarkTable) and pipeline.complete != "no"
        index = pipeline.key if complete or self._has_rows(pipeline.name, extract.manifest.scope) else ()
        stage = work / "stage.sqlite"
        stage.unlink(missing_ok=True)  # of the batch before
        return stage_file.build(candidate_file(extract), extract.manifest, stage, index)

    def is_related(self, pipeline: Pipeline, prepared: Stage, other: Stage) -> bool:
        """Whether what was staged of two extracts shares a key, or a row where there is no key."""
        from etl_assets.sink.sqlite import stage_file

        return stage_file.share_rows(prepared, other, pipeline.key)

    def publish(
        self,
        pipeline: Pipeline,
        claim: Claim,
        delivery: Delivery,
        extract: Extract,
        stage: Stage,
        restate: Restatement | None = None,
    ) -> Receipt:
        """Apply what was staged in one transaction."""
        from etl_assets.sink.sqlite.publish import publish

        held = Held()
        with writing(self.path, attach=stage.attach, timeout=self.busy_timeout, held=held) as connection:
            receipt = publish(connection, pipeline, claim, delivery, extract, restate)
        return replace(receipt, locked_seconds=held.seconds, long_log=held.log)

    # ------------------------------------------------------------------ messages

    def tell_failure(self, topic: str, failure: RunFailure) -> None:
        """Write a message about a run that failed, once."""
        with writing(self.path, timeout=self.busy_timeout) as connection:
            schema.migrate(connection)
            outbox.tell_failure(connection, topic, failure)

    def relaying(self) -> AbstractContextManager[bool]:
        """The right to relay: a lock on the warehouse itself, which the kernel releases when its holder dies."""
        return alone.locked(self.path)

    def relays(self) -> bool:
        """Return whether this process holds the lock of what is the warehouse now."""
        return alone.holds(self.path)

    def waits(self, message: Message) -> bool:
        """Return whether a message still waits, as it was read."""
        with self._reading() as connection:
            return connection is not None and outbox.waits(connection, message)

    def sent(self, message: Message) -> str:
        """Note that a message was sent; returns its status."""
        with writing(self.path, timeout=self.busy_timeout) as connection:
            return outbox.mark_sent(connection, message)

    def unsent(self, message: Message, reason: str, retry_after: float | None) -> str:
        """Note that a message was not taken, and when to try again; with None it is parked. Returns its status."""
        with writing(self.path, timeout=self.busy_timeout) as connection:
            return outbox.mark_refused(connection, message, reason, retry_after)

    def release(self, key: str) -> None:
        """Make a parked or waiting message due now."""
        self._check_there(key)
        with writing(self.path, timeout=self.busy_timeout) as connection:
            schema.migrate(connection)
            outbox.release(connection, key)

    def discard(self, key: str) -> None:
        """Give a parked or waiting message up."""
        self._check_there(key)
        with writing(self.path, timeout=self.busy_timeout) as connection:
            schema.migrate(connection)
            outbox.discard(connection, key)

    def _check_there(self, key: str) -> None:
        """A person's decision makes no warehouse, as the first delivery does."""
        if not self.path.exists():
            raise UnknownMessage(
                f"the message {key!r} is not there: {self.path} does not exist. Is ETL_WAREHOUSE right?"
            )

    def due(self, held: Sequence[str] = (), limit: int = 100) -> list[Message]:
        """Messages whose turn it is, in their order."""
        with self._reading() as connection:
            return outbox.due(connection, held, limit) if connection else []

    def messages(self, status: str, last: int | None = None) -> list[Message]:
        """Messages of a status in their order."""
        with self._reading() as connection:
            return list(outbox.messages(connection, status, last)) if connection else []

    def message_counts(self, *statuses: str) -> dict[str, dict[str, int]]:
        """How many messages of each of these statuses each topic has."""
        with self._reading() as connection:
            return outbox.counts(connection, statuses) if connection else {}

    # ------------------------------------------------------------------ reading

    def ledger(self, pipeline: str | None = None, scopes: Sequence[str] | None = None) -> list[Batch]:
        """The committed batches in commit order."""
        with self._reading() as connection:
            return ledger.batches(connection, pipeline, scopes) if connection else []

    def entries(self, pipeline: str, scopes: Sequence[str] | None = None) -> list[LedgerEntry]:
        """What tells the states of deliveries of each committed batch, in commit order."""
        with self._reading() as connection:
            return ledger.entries(connection, pipeline, scopes) if connection else []

    def restated(self, pipeline: str, operation: str) -> list[Batch]:
        """The batches of one decision to restate."""
        with self._reading() as connection:
            return ledger.batches_of_operation(connection, pipeline, operation) if connection else []

    def current(self, pipeline: str, scopes: Sequence[str] | None = None) -> dict[str, Batch]:
        """The batch that each scope's rows stand for."""
        with self._reading() as connection:
            return ledger.current_batches(connection, pipeline, scopes) if connection else {}

    def position(self, pipeline: str, shard: str = "") -> int | None:
        """How far a change log's shard or a series of snapshots is consumed."""
        with self._reading() as connection:
            return ledger.position(connection, pipeline, shard) if connection else None

    def begun(self, pipeline: ChangeLogTable) -> dict[str, Batch]:
        """For each shard of a log, the batch that it began again with, by a person's decision."""
        with self._reading() as connection:
            found = {
                s: connection and ledger.begun(connection, pipeline.name, s) for s in shards_of(pipeline.partitions)
            }
            return {shard: batch for shard, batch in found.items() if batch}

    def disputed(self, pipeline: ChangeLogTable) -> list[Delivery]:
        """Deliveries of a log that say something else than what is committed at their positions."""
        with self._reading() as connection:
            return ledger.refused_as(connection, pipeline.name, RewrittenLog.__name__) if connection else []

    def given_up(self, pipeline: ChangeLogTable) -> list[tuple[Batch, int]]:
        """Batches before which positions were given up, each with where the log had ended."""
        with self._reading() as connection:
            return ledger.given_up(connection, pipeline.name) if connection else []

    def consumed(self, pipeline: ChangeLogTable, delivery: Delivery, lower: int) -> Consumed:
        """What the ledger has of a log around a delivery that begins after the position ``lower``."""
        name, shard = pipeline.name, shard_of(pipeline.partitions, delivery.scope)
        with self._reading() as connection:
            if connection is None:
                return Consumed(None, None, (), (), ())
            begun = ledger.begun(connection, name, shard)
            since = begun.id if begun else 0
            batches = ledger.batches_of_delivery(connection, delivery)
            return Consumed(
                position=ledger.log_position(connection, name, shard),
                begun=begun,
                own=tuple(b for b in batches if b.id >= since),
                former=tuple(b for b in batches if b.id < since),
                beyond=tuple(ledger.batches_beyond(connection, name, shard, lower, since)),
            )

    def rows(self, pipeline: str) -> dict[str, int]:
        """Rows of each scope in the table, by the ledger."""
        with self._reading() as connection:
            query = "SELECT scope, rows FROM etl_partition WHERE pipeline = ? AND batch IS NOT NULL"
            return dict(connection.execute(query, (pipeline,)).fetchall()) if connection else {}

    def deliveries(self, pipeline: str, scopes: Sequence[str] | None = None) -> list[RecordedDelivery]:
        """Every delivery that was read, by scope and place."""
        with self._reading() as connection:
            return ledger.deliveries(connection, pipeline, scopes) if connection else []

    def marks(self) -> dict[str, str]:
        """For each pipeline a text that changes whenever its ledger, or what is recorded of its deliveries, does."""
        with self._reading() as connection:
            return ledger.marks(connection) if connection else {}

    def verify(self, pipeline: Pipeline) -> list[str]:
        """Count the table's rows against the ledger; the differences in words."""
        with self._reading() as connection:
            return verify_table(connection, pipeline.name) if connection else []

    def differing(self, pipeline: Pipeline, scopes: Sequence[str]) -> set[str]:
        """Of these scopes, those whose rows are not the ones that the ledger committed, by their number."""
        with self._reading() as connection:
            return differing_scopes(connection, pipeline, scopes) if connection else set()

    def upstream(self, pipeline: DerivedTable, scopes: Sequence[str] | None = None) -> dict[str, tuple[Seen, ...]]:
        """What each partition of a derived table sees of its upstream now; of all partitions, or of some."""
        from etl_assets.sink.sqlite import deriving

        every = pipeline.partitions.keys()
        keys = every if scopes is None else [s for s in scopes if s in every]
        with self._reading() as connection:
            return deriving.seen_by(connection, pipeline, keys) if connection else {}

    def compute(self, pipeline: DerivedTable, scope: str, target: Path) -> tuple[Seen, ...]:
        """Write the rows of a derived partition to ``target``; what they were made of, all of it as of one commit."""
        from etl_assets.sink.sqlite import deriving

        with self._reading() as connection:
            return deriving.compute(connection, pipeline, scope, target) if connection else ()

    def newest(self, pipeline: Pipeline, column: str) -> str | None:
        """The largest value of a column, as it is stored."""
        with self._reading() as connection:
            if connection is None or not _exists(connection, pipeline.table):
                return None
            row = connection.execute(f"SELECT max({quoted(column)}) FROM {quoted(pipeline.table)}").fetchone()
            return str(row[0]) if row[0] is not None else None

    def profile(self, name: str) -> dict[str, Any]:
        """What a table of versions holds, beside what the ledger says of it. Raises :class:`UnknownPipeline`."""
        with self._reading() as connection:
            row = (
                connection
                and connection.execute("SELECT name, identity FROM etl_table WHERE pipeline = ?", (name,)).fetchone()
            )
            if not connection or not row:
                raise UnknownPipeline(f"{self.path}: there is no source {name!r}: build it first")
            return profile(connection, name, *row)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        """A read transaction on a ledger of this release's version; an older one is shown as one, and left as it is."""
        with reading(self.path, self.busy_timeout) as connection:
            have = schema.version(connection) if connection else 0
            if connection and 0 < have < len(schema.MIGRATIONS):
                schema.overlay(connection)
            yield connection if have else None

    def _has_rows(self, pipeline: str, scope: str) -> bool:
        with self._reading() as connection:
            query = "SELECT 1 FROM etl_partition WHERE pipeline = ? AND scope = ? AND rows > 0"
            return bool(connection and connection.execute(query, (pipeline, scope)).fetchone())


def _exists(connection: sqlite3.Connection, table: str) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone())
