"""What a log's events do to a table of versions, inside publish's transaction."""

from __future__ import annotations

import sqlite3
from typing import Literal

from etl_assets.contract import ChangeLogTable, WatermarkTable
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import LedgerMismatch, RewrittenLog, UnexpectedCursor
from etl_assets.model import Changes, Claim, Extract, Manifest, Restatement
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.said import Said
from etl_assets.sink.sqlite.tables import Table, prepare_table
from etl_assets.sink.sqlite.target import Replacement
from etl_assets.sink.sqlite.versions import Merge, clear_versions, merge_versions


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
        check_never_filled(connection, pipeline)
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
    merge = Merge(
        *(table.sql, table.key, columns, absent, number),
        lenient=lenient_columns(pipeline, manifest),
        optional=optional_columns(pipeline),
        events=Said(pipeline, extract),
    )
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


def check_never_filled(connection: sqlite3.Connection, pipeline: ChangeLogTable | WatermarkTable) -> None:
    """A table that is not there has no batches in the ledger either."""
    (batches,) = connection.execute("SELECT count(*) FROM etl_batch WHERE pipeline = ?", (pipeline.name,)).fetchone()
    if batches:
        raise LedgerMismatch(
            f"{pipeline.name}: the rows of {pipeline.table!r} are not there, and the ledger has {batches:,} batches: they were "
            "dropped around the ledger, or one was restored without the other. Restore both from one backup"
        )


def lenient_columns(pipeline: ChangeLogTable | WatermarkTable, manifest: Manifest) -> frozenset[str]:
    """Columns that a delivery may lack, and so rows that were committed before the column was there."""
    return optional_columns(pipeline) | {c.name for c in manifest.columns if c.added}


def optional_columns(pipeline: ChangeLogTable | WatermarkTable) -> frozenset[str]:
    return frozenset(c.name for c in pipeline.columns if c.optional)
