"""Publish: the one transaction in which rows, ledger entry and progress change together.

The order of the checks is part of the protocol: the writer's generation, the batch's identity, its place among
deliveries and versions of logic; then the rows, the ledger, the progress.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, replace

from etl_assets.contract import (
    ChangeLogTable,
    DerivedTable,
    PartitionedTable,
    Pipeline,
    ReplacedTable,
    WatermarkTable,
    is_remade,
)
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import (
    BatchIdentityConflict,
    EmptyDelivery,
    LedgerMismatch,
    ShrunkDelivery,
    StaleWriter,
    Superseded,
)
from etl_assets.model import Batch, Changes, Claim, Delivery, Extract, Manifest, Receipt, Restatement, batch_id
from etl_assets.restated import restated_over
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.consume import consume_events
from etl_assets.sink.sqlite.deriving import check_upstream, record_upstream
from etl_assets.sink.sqlite.notify import write_messages
from etl_assets.sink.sqlite.replace import replace_partition
from etl_assets.sink.sqlite.schema import version
from etl_assets.sink.sqlite.snapshots import merge_snapshot, takes_more
from etl_assets.sink.sqlite.tables import PARTITION, index_table, prepare_table, standing_table
from etl_assets.sink.sqlite.target import Replacement, Target

#: Why a committed delivery without a transform is published once more, in the ledger's words.
CONTRACT_CHANGED = "the contract has changed"


@dataclass(frozen=True, slots=True)
class _Partition:
    id: int
    rows: int
    batch: Batch | None


def check_writer(connection: sqlite3.Connection, claim: Claim) -> None:
    """Refuse a writer that is no longer the scope's, by generation and by run.

    Raises :class:`StaleWriter` or :class:`LedgerMismatch`.
    """
    if not version(connection):
        raise LedgerMismatch(
            f"{claim.pipeline}/{claim.scope}: the warehouse has no ledger any more: it was replaced after run {claim.run} "
            "claimed the scope. Nothing was changed; run again"
        )
    current, run = ledger.generation(connection, claim.pipeline, claim.scope)
    if current == claim.generation and run != claim.run:
        raise StaleWriter(
            f"{claim.pipeline}/{claim.scope}: runs {claim.run} and {run} both hold generation {current}: an older warehouse was "
            f"put back since {claim.run} claimed the scope. Nothing was changed; run again"
        )
    if current != claim.generation:
        raise StaleWriter(
            f"{claim.pipeline}/{claim.scope}: run {claim.run} holds generation {claim.generation}, but run {run} has "
            f"since claimed the scope as generation {current}. Nothing was changed; that run's result stands, or run again"
        )


def publish(
    connection: sqlite3.Connection,
    pipeline: Pipeline,
    claim: Claim,
    delivery: Delivery,
    extract: Extract,
    restate: Restatement | None,
) -> Receipt:
    """All of publish that happens between BEGIN IMMEDIATE and COMMIT; the candidate rows are attached as ``stage``."""
    # An extract of an earlier release has another form of the order.
    manifest = replace(extract.manifest, order=delivery.order)
    check_writer(connection, claim)
    ledger.record_delivery(connection, delivery)
    begun = None
    if isinstance(pipeline, ChangeLogTable):
        begun = ledger.begun(connection, pipeline.name, shard_of(pipeline.partitions, manifest.scope))
    again = restate is not None and not restate.skip_gap
    if restate and again:
        ordinal = _ordinal(connection, restate, manifest)
    else:  # what follows the batch that a log began again with belongs to it
        follows = begun and (begun.scope, begun.delivery, begun.revision) == manifest.identity[1:4]
        ordinal = begun.ordinal if begun and follows else 0
    name = batch_id(*manifest.identity, ordinal, manifest.positions)
    partition = _partition(connection, manifest)
    if again or isinstance(pipeline, ChangeLogTable):
        known = ledger.batch_named(connection, name)
    else:  # a delivery that was only ever restated is committed, too: a plain run of it has nothing to do
        known = ledger.last_batch_of(connection, *manifest.identity)
    if known:
        if begun and known.id < begun.id:
            raise Superseded(
                f"{known.batch} is superseded: the log began again with {begun.batch} ({begun.reason}). Nothing was changed. "
                "To let it begin again with this delivery, restate that with a reason"
            )
        if isinstance(pipeline, ReplacedTable):
            _check_standing(connection, pipeline, partition, manifest)
        if restate or not _is_due_again(connection, pipeline, known, manifest):
            receipt = already_committed(known, manifest, partition.batch if pipeline.newest_counts else None)
            if known.code != manifest.code:
                ledger.record_proof(connection, delivery, manifest.code)
            return receipt
        ordinal = _next_ordinal(connection, manifest)
        name = batch_id(*manifest.identity, ordinal)
    number = int(connection.execute("SELECT coalesce(max(id), 0) + 1 FROM etl_batch").fetchone()[0])
    match pipeline:
        case PartitionedTable() | DerivedTable():
            done = _replace(connection, pipeline, manifest, partition, number, restate)
        case ChangeLogTable():
            done = consume_events(connection, pipeline, extract, number, restate, claim)
        case WatermarkTable():
            done = merge_snapshot(connection, pipeline, manifest, number, restate)
    batch = Batch(
        id=number,
        batch=name,
        pipeline=manifest.pipeline,
        scope=manifest.scope,
        delivery=manifest.delivery,
        revision=manifest.revision,
        order=manifest.order,
        transform_version=manifest.transform_version,
        ordinal=ordinal,
        operation=done.operation or ("restate" if restate else pipeline.operation),
        reason=restate.reason if restate else CONTRACT_CHANGED if ordinal else None,
        operation_id=restate.operation if restate else None,
        digest=manifest.digest,
        input_sha256=manifest.input_sha256,
        code=manifest.code,
        generation=claim.generation,
        run=claim.run,
        rows=manifest.rows,
        lower=manifest.lower,
        upper=done.upper if restate and isinstance(pipeline, WatermarkTable) else manifest.upper,
        counts=replace(
            done.counts,
            source=manifest.source_rows,
            rejected=manifest.rejected_rows,
            duplicates=manifest.duplicates,
        ),
        supersedes=partition.batch.batch if partition.batch else None,
        committed_at="",
        shard=shard_of(pipeline.partitions, manifest.scope),
        continues=manifest.continues,
        events_sha256=manifest.events_sha256,
        manifest=extract.sha256,
    )
    committed_at = ledger.insert_batch(connection, batch, partition.batch.id if partition.batch else None)
    record_upstream(connection, number, manifest.seen)
    _move_progress(connection, partition.id, batch, done)
    ledger.forget_refusal(connection, batch)
    write_messages(connection, pipeline, batch, [scope for scope, _, _ in done.changes.touched])
    return Receipt("committed", replace(batch, committed_at=committed_at), done.changes)


def _replace(
    connection: sqlite3.Connection,
    pipeline: ReplacedTable,
    manifest: Manifest,
    partition: _Partition,
    number: int,
    restate: Restatement | None,
) -> Replacement:
    """Rows of a partitioned table: in the order of deliveries, the partition becomes what the newest one holds."""
    if not restate:
        _check_order(connection, manifest, partition.batch)
        if isinstance(pipeline, DerivedTable):
            check_upstream(connection, pipeline, manifest)
        _check_shrinkage(pipeline, manifest, partition)
    table, new = prepare_table(connection, pipeline, manifest.columns)
    if new and not restate:
        _check_never_filled(connection, pipeline)
    rows_before = _count_rows(connection, table.sql, partition, manifest, bool(restate))
    columns = tuple(c.name for c in manifest.columns)
    target = Target(table, pipeline, partition.id, manifest.scope, number, manifest.order, columns)
    if new:
        return replace_new(connection, target, manifest.rows)
    return replace_partition(connection, target, rows_before, manifest.rows)


def replace_new(connection: sqlite3.Connection, target: Target, candidates: int) -> Replacement:
    """The first rows of a table: written in order, and indexed afterwards."""
    done = replace_partition(connection, replace(target, table=replace(target.table, movable=False)), 0, candidates)
    index_table(connection, target.table)
    return done


def already_committed(known: Batch, manifest: Manifest, current: Batch | None) -> Receipt:
    """The first receipt again, saying what has superseded it (``current``, where only the newest delivery counts).

    Raises :class:`BatchIdentityConflict`.
    """
    if known.digest != manifest.digest:
        what = (
            "its input has other bytes"
            if known.input_sha256 != manifest.input_sha256
            else ("the same bytes now give other rows, so the contract or the transform has changed its meaning")
        )
        advice = (
            "Its events are consumed: take the change of the contract back, or deliver correcting events"
            if known.operation == "consume" or known.events_sha256
            else "Raise the transform's version, so that the ledger can tell the two apart"
        )
        raise BatchIdentityConflict(
            f"{known.batch} is committed with digest {known.digest[:12]}…, and this extract has {manifest.digest[:12]}…: "
            f"{what}. Nothing was changed. {advice}"
        )
    newer = current.batch if current and current.id != known.id else None
    return Receipt("already committed", known, Changes(), superseded_by=newer)


def _ordinal(connection: sqlite3.Connection, restate: Restatement, manifest: Manifest) -> int:
    """The number of this restatement; a retry is the same operation and gets the same number."""
    (own,) = connection.execute(
        "SELECT max(ordinal) FROM etl_batch WHERE ordinal > 0 AND operation_id = ? AND "
        "(pipeline, scope, delivery, revision, transform_version) = (?, ?, ?, ?, ?)",
        (restate.operation, *manifest.identity),
    ).fetchone()
    return int(own or _next_ordinal(connection, manifest))


def _is_due_again(connection: sqlite3.Connection, pipeline: Pipeline, known: Batch, manifest: Manifest) -> bool:
    """Return whether the contract has changed since a delivery was committed, and makes more or other rows of it."""
    if isinstance(pipeline, WatermarkTable):
        return known.digest == manifest.digest and takes_more(connection, pipeline, manifest, known)
    return is_remade(pipeline) and _differs_by_contract(known, manifest)


def _differs_by_contract(known: Batch, manifest: Manifest) -> bool:
    """Return whether the same bytes give other rows because the contract is another one."""
    same_bytes = known.input_sha256 == manifest.input_sha256
    return same_bytes and known.digest != manifest.digest and known.code != manifest.code


def _next_ordinal(connection: sqlite3.Connection, manifest: Manifest) -> int:
    """Return the number of one more batch of a delivery by the same logic."""
    query = (
        "SELECT coalesce(max(ordinal), 0) + 1 FROM etl_batch "
        "WHERE (pipeline, scope, delivery, revision, transform_version) = (?, ?, ?, ?, ?)"
    )
    return int(connection.execute(query, manifest.identity).fetchone()[0])


def _partition(connection: sqlite3.Connection, manifest: Manifest) -> _Partition:
    """The scope's progress; a first batch makes its row."""
    scope = (manifest.pipeline, manifest.scope)
    connection.execute("INSERT OR IGNORE INTO etl_partition (pipeline, scope, rows) VALUES (?, ?, 0)", scope)
    number, rows, name = connection.execute(
        "SELECT p.id, p.rows, b.batch FROM etl_partition p LEFT JOIN etl_batch b ON b.id = p.batch "
        "WHERE p.pipeline = ? AND p.scope = ?",
        scope,
    ).fetchone()
    return _Partition(number, rows, ledger.batch_named(connection, name) if name else None)


def _check_order(connection: sqlite3.Connection, manifest: Manifest, current: Batch | None) -> None:
    if current is None:
        return
    entries = ledger.entries(connection, manifest.pipeline, [manifest.scope])
    decision = restated_over(entries, manifest.delivery, manifest.revision, manifest.input_sha256)
    if decision:
        raise Superseded(
            f"{manifest.batch} is superseded: {decision.batch} was restated over this delivery ({decision.reason}). Nothing was "
            "changed. A run of the partition takes the delivery that stands; to bring this one back, restate it with a reason"
        )
    # Where names do not tell which is newer, a person has chosen.
    if current.is_newer_than(manifest.delivery, manifest.order, manifest.revision):
        newer = f"delivery {current.delivery}#{current.revision} is newer"
    elif manifest.transform_version < current.transform_version:
        newer = f"transform version {current.transform_version} is newer"
    else:
        return
    raise Superseded(
        f"{manifest.batch} is superseded: {current.batch} is committed for {manifest.pipeline}/{manifest.scope}, and its "
        f"{newer}. Nothing was changed. To publish it all the same, restate it with a reason"
    )


def _check_shrinkage(pipeline: ReplacedTable, manifest: Manifest, partition: _Partition) -> None:
    limit, current = pipeline.shrink_limit, partition.batch
    if not pipeline.allow_empty and not manifest.rows and partition.rows:
        raise EmptyDelivery(
            f"{manifest.batch} has a header and no rows, and {pipeline.table!r} has {partition.rows:,}; allow_empty=False. "
            "Nothing was changed. If it is meant, restate it with a reason"
        )
    if limit is None or current is None or manifest.rows >= current.rows * (1 - limit):
        return
    raise ShrunkDelivery(
        f"{manifest.batch} has {manifest.rows:,} rows where {current.batch} had {current.rows:,}: "
        f"{1 - manifest.rows / current.rows:.1%} fewer, and the contract allows {limit:.1%}. Is it the complete contents of "
        "the partition? If it is, restate it with a reason"
    )


def _check_standing(
    connection: sqlite3.Connection, pipeline: ReplacedTable, partition: _Partition, manifest: Manifest
) -> None:
    """What is already committed is still there."""
    table = standing_table(connection, pipeline)
    if table is None:
        _check_never_filled(connection, pipeline)
    else:
        _count_rows(connection, table.sql, partition, manifest, restate=False)


def _check_never_filled(connection: sqlite3.Connection, pipeline: Pipeline) -> None:
    """A table that is not there has no rows by the ledger either, in any partition."""
    query = "SELECT count(*), sum(rows) FROM etl_partition WHERE pipeline = ? AND rows > 0"
    scopes, rows = connection.execute(query, (pipeline.name,)).fetchone()
    if scopes:
        raise LedgerMismatch(
            f"{pipeline.name}: the table {pipeline.table!r} is not there, and the ledger committed {rows:,} rows in "
            f"{scopes:,} partitions: it was dropped around the ledger, or one was restored without the other. Restore "
            "both from one backup, or restate each partition with a reason"
        )


def _count_rows(
    connection: sqlite3.Connection, table: str, partition: _Partition, manifest: Manifest, restate: bool
) -> int:
    """The partition's rows as they are, which must be those that the ledger committed."""
    found = int(
        connection.execute(f"SELECT count(*) FROM main.{table} WHERE {PARTITION} = ?", (partition.id,)).fetchone()[0]
    )
    if found != partition.rows and not restate:
        raise LedgerMismatch(
            f"{manifest.pipeline}/{manifest.scope} has {found:,} rows, and the ledger committed {partition.rows:,}: rows were "
            "written around the ledger, or one was restored without the other. Restore both from one backup, or restate "
            "the partition with a reason"
        )
    return found


def _move_progress(connection: sqlite3.Connection, partition: int, batch: Batch, done: Replacement) -> None:
    connection.execute("UPDATE etl_partition SET batch = ?, rows = ? WHERE id = ?", (batch.id, done.rows, partition))
    if batch.upper is not None:
        ledger.move_position(connection, batch)
    for scope, taken, restored in done.changes.touched:
        where = (batch.pipeline, scope)
        connection.execute(
            "UPDATE etl_partition SET rows = rows - ? + ? WHERE pipeline = ? AND scope = ?", (taken, restored, *where)
        )
        connection.execute(
            "INSERT INTO etl_touched SELECT ?, id, ?, ? FROM etl_partition WHERE pipeline = ? AND scope = ?",
            (batch.id, taken, restored, *where),
        )
