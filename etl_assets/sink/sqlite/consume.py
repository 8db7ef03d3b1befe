"""What a log's events and a series of snapshots do to a table of versions, inside publish's transaction."""

from __future__ import annotations

import datetime as dt
import sqlite3
from typing import Literal

from etl_assets.contract import ChangeLogTable, Lookback, WatermarkTable, Window
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import EmptyDelivery, LedgerMismatch, RewrittenLog, Superseded, UnexpectedCursor
from etl_assets.model import Changes, Claim, Counts, Extract, Manifest, Restatement
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.logic import Logic, look_back
from etl_assets.sink.sqlite.said import Said
from etl_assets.sink.sqlite.tables import Table, prepare_table
from etl_assets.sink.sqlite.target import Replacement
from etl_assets.sink.sqlite.versions import Merge, clear_versions, merge_versions, withdraw_absent


def consume_events(
    connection: sqlite3.Connection,
    pipeline: ChangeLogTable,
    extract: Extract,
    number: int,
    restate: Restatement | None,
    claim: Claim,
) -> Replacement:
    """Merge the next events of a log, and no others. Raise :class:`UnexpectedCursor`.

    Restated, the log begins again with the delivery's first batch; or else the positions before it are given up.
    """
    manifest = extract.manifest
    # First of all the table: the progress of another load pattern is no position.
    table, new = prepare_table(connection, pipeline, manifest.columns)
    if new:
        _check_never_filled(connection, pipeline)
    shard = shard_of(pipeline.partitions, manifest.scope)
    done = ledger.position(connection, pipeline.name, shard)
    at = pipeline.events.first_position - 1 if done is None else done
    assert manifest.lower is not None
    assert manifest.upper is not None
    operation: Literal["consume", "skip", "restate"] = "consume"
    cleared = 0
    if restate and not restate.skip_gap:
        if not ledger.batches_of_operation(connection, pipeline.name, restate.operation):
            cleared = _begin_again(connection, pipeline, table, shard, claim)
            operation, at = "restate", manifest.lower
    elif restate and manifest.lower > at:
        operation, at = "skip", manifest.lower
    if manifest.lower != at:
        gap = manifest.lower > at
        missing = (
            f"positions {at + 1} to {manifest.lower} are missing" if gap else f"positions up to {at} are committed"
        )
        advice = (
            "It waits for the delivery that holds them. If that never comes, give them up with a reason (--skip-gap), or let "
            "the log begin again with a delivery that holds every row (--restate)"
            if gap
            else "Run again: what is committed is compared with it"
        )
        if not gap and _is_begun(connection, manifest):
            advice = (
                f"The extract is cut otherwise than the batches of this delivery in the ledger: remove the folder "
                f"{extract.folder}, and the next run cuts it as they are"
            )
        raise UnexpectedCursor(
            f"{manifest.batch} holds positions {manifest.lower + 1} to {manifest.upper}, and {missing}: "
            f"{'a gap' if gap else 'an overlap'}. Nothing was changed. {advice}"
        )
    columns = tuple(c.name for c in manifest.columns)
    absent = tuple(c for c in table.columns if c not in columns)
    lenient = _lenient(pipeline, manifest)
    optional = _optional(pipeline)
    said = Said(pipeline, extract)
    merge = Merge(table.sql, table.key, columns, absent, number, lenient=lenient, optional=optional, events=said)
    counts = merge_versions(connection, merge).plus(stale=manifest.stale)
    return Replacement(counts.plus(deleted=cleared), Changes(), rows=0, operation=operation)


def _begin_again(
    connection: sqlite3.Connection, pipeline: ChangeLogTable, table: Table, shard: str, claim: Claim
) -> int:
    """Forget what a log has said so far, so that a delivery begins it again; return how many rows were live.

    Of a log with shards, what the other shards said last stays. A run that has read of the log before cannot write to it
    any more, and what was refused because it differs from the log is asked for again.
    """
    of_shard = "_batch IN (SELECT id FROM etl_batch WHERE pipeline = ? AND shard = ?)"
    cleared = clear_versions(connection, table.sql, of_shard, (pipeline.name, shard))
    ledger.forget_position(connection, pipeline.name, shard)
    scopes = ledger.scopes_claimed(connection, pipeline.name)
    own = [s for s in scopes if s != claim.scope and shard_of(pipeline.partitions, s) == shard]
    ledger.fence(connection, pipeline.name, own, claim.run)
    refused = ledger.refused_as(connection, pipeline.name, RewrittenLog.__name__)
    ledger.forget_refusals(connection, [d for d in refused if shard_of(pipeline.partitions, d.scope) == shard])
    return cleared


def _is_begun(connection: sqlite3.Connection, manifest: Manifest) -> bool:
    """Whether a batch of this very delivery is committed."""
    last = ledger.last_batch_of(connection, *manifest.identity)
    return last is not None and last.input_sha256 == manifest.input_sha256


def merge_snapshot(
    connection: sqlite3.Connection,
    pipeline: WatermarkTable,
    manifest: Manifest,
    number: int,
    restate: Restatement | None,
) -> Replacement:
    """Rows of a snapshot beyond the watermark are merged; of a complete one all are, and absent keys are withdrawn.

    Restated, the table becomes this snapshot. Under newer logic, a delivery that is committed is made anew: see
    :mod:`~etl_assets.sink.sqlite.logic`. Raises :class:`Superseded` for a complete one older than the last, for older
    logic than the table's, and for a restated one that is neither complete nor the only partition's: what other snapshots
    said would be lost.
    """
    table, new = prepare_table(connection, pipeline, manifest.columns)
    if new and not restate:
        _check_never_filled(connection, pipeline)
    complete = pipeline.complete != "no"
    cleared = 0
    if restate:
        if not complete and len(pipeline.partitions.keys()) > 1:
            raise Superseded(
                f"{manifest.batch} is not a complete snapshot, so the table cannot be made of it alone: nothing was changed. "
                "Deliver the rows that are to change under a new name"
            )
        cleared = clear_versions(connection, table.sql)
        ledger.forget_position(connection, pipeline.name)
        logic = Logic(since=number, overtaken_by=None, made=None, watermark=None)
    else:
        logic = look_back(connection, manifest, number)
    # The last of complete snapshots says what is there. An earlier one that newer logic makes anew has been overruled.
    last = complete and logic.overtaken_by is None
    if complete and not last and logic.made is None:
        raise Superseded(
            f"{manifest.batch} is a complete snapshot, and {logic.overtaken_by}, a later one, is committed. Nothing was "
            "changed. To make the table this snapshot all the same, restate it with a reason"
        )
    if last and not restate:
        _check_filled(connection, pipeline, manifest)
    watermark = logic.watermark
    unbounded = complete or pipeline.bounds == "none" or watermark is None
    least = None if unbounded or watermark is None else _least(pipeline, watermark)
    columns = tuple(c.name for c in manifest.columns)
    absent = tuple(c for c in table.columns if c not in columns)
    lenient = _lenient(pipeline, manifest)
    merge = Merge(
        *(table.sql, table.key, columns, absent, number),
        least=least,
        watermark=watermark,
        lift=last,
        lenient=lenient,
        optional=_optional(pipeline),
        since=logic.since,
    )
    counts = merge_versions(connection, merge)
    if not restate:
        counts = _withdraw(connection, pipeline, manifest, merge, counts, logic.made)
    return Replacement(counts.plus(deleted=cleared), Changes(), rows=0)


def _withdraw(
    connection: sqlite3.Connection,
    pipeline: WatermarkTable,
    manifest: Manifest,
    merge: Merge,
    counts: Counts,
    made: int | None,
) -> Counts:
    """Keys that the snapshot lacks end: all of a complete one, and those that older logic made of it (batch ``made``).

    Where rows of it are quarantined it cannot be told which keys it lacks.
    """
    if manifest.rejected_rows:
        return counts
    if merge.lift:
        window = pipeline.complete.column if isinstance(pipeline.complete, Window) else None
        counts = withdraw_absent(connection, merge, counts, window)
    return counts if made is None else withdraw_absent(connection, merge, counts, None, of=made)


def _check_never_filled(connection: sqlite3.Connection, pipeline: ChangeLogTable | WatermarkTable) -> None:
    """A table that is not there has no batches in the ledger either."""
    (batches,) = connection.execute("SELECT count(*) FROM etl_batch WHERE pipeline = ?", (pipeline.name,)).fetchone()
    if batches:
        raise LedgerMismatch(
            f"{pipeline.name}: the rows of {pipeline.table!r} are not there, and the ledger has {batches:,} batches: they were "
            "dropped around the ledger, or one was restored without the other. Restore both from one backup"
        )


def _lenient(pipeline: ChangeLogTable | WatermarkTable, manifest: Manifest) -> frozenset[str]:
    """Columns that a delivery may lack, and so rows that were committed before the column was there."""
    return _optional(pipeline) | {c.name for c in manifest.columns if c.added}


def _optional(pipeline: ChangeLogTable | WatermarkTable) -> frozenset[str]:
    return frozenset(c.name for c in pipeline.columns if c.optional)


def _check_filled(connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest) -> None:
    """A whole snapshot without a row would withdraw all of them: more often an accident than the truth."""
    if pipeline.complete != "whole" or pipeline.allow_empty or manifest.source_rows:
        return
    live = connection.execute(f"SELECT count(*) FROM {quoted(pipeline.table)}").fetchone()[0]
    if live:
        raise EmptyDelivery(
            f"{manifest.batch} has a header and no rows, and {pipeline.table!r} has {live:,}; allow_empty=False. "
            "Nothing was changed. If it is meant, restate it with a reason"
        )


def _least(pipeline: WatermarkTable, watermark: int) -> int:
    """The smallest change that is looked at, by the contract's bounds."""
    match pipeline.bounds:
        case "strict":
            return watermark + 1
        case Lookback(by=by):
            column = pipeline.column(pipeline.updated)
            assert column is not None
            unit = dt.timedelta(days=1) if column.type == "date" else dt.timedelta(microseconds=1)
            return watermark + (-by // unit)  # a part of a day looks back to the whole of it
        case _:
            return watermark
