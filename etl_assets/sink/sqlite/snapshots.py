"""What a series of snapshots does to a table of versions, inside publish's transaction."""

from __future__ import annotations

import datetime as dt
import sqlite3

from etl_assets.contract import Lookback, WatermarkTable, Window
from etl_assets.errors import EmptyDelivery, OutOfBounds, Superseded
from etl_assets.model import Batch, Changes, Counts, Manifest, Restatement
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.consume import check_never_filled, lenient_columns, optional_columns
from etl_assets.sink.sqlite.logic import Logic, look_back
from etl_assets.sink.sqlite.restating import newest_live, restate_versions
from etl_assets.sink.sqlite.tables import Table, prepare_table, standing_table
from etl_assets.sink.sqlite.target import Replacement
from etl_assets.sink.sqlite.versions import Merge, count_missed, merge_versions, withdraw_absent


def merge_snapshot(
    connection: sqlite3.Connection,
    pipeline: WatermarkTable,
    manifest: Manifest,
    number: int,
    restate: Restatement | None,
) -> Replacement:
    """Merge the rows of a snapshot that lie within the contract's bounds; withdraw what a complete one lacks.

    Under newer logic, a committed delivery is made again, see :mod:`~etl_assets.sink.sqlite.logic`; for a restatement see
    :mod:`~etl_assets.sink.sqlite.restating`. Raises :class:`Superseded` for older logic than the table's, for a complete
    snapshot older than the last, and for one that was restated away; :class:`OutOfBounds` where the bounds leave out every
    row, and the table lacks some of them.
    """
    table, new = prepare_table(connection, pipeline, manifest.columns)
    if restate:
        return _restate(connection, pipeline, manifest, _merge(pipeline, manifest, table, number), new)
    if new:
        check_never_filled(connection, pipeline)
    logic = look_back(connection, pipeline, manifest, number)
    complete = pipeline.complete != "no"
    # The last of complete snapshots says what is there. An earlier one that newer logic makes again has been overruled.
    last = complete and logic.overtaken_by is None
    if complete and not last and logic.made is None:
        raise Superseded(
            f"{manifest.batch} is a complete snapshot, and {logic.overtaken_by}, a later one, is committed. Nothing was "
            "changed. To make the table this snapshot all the same, restate it with a reason"
        )
    _check_filled(connection, pipeline, manifest, logic.made, last)
    merge = _merge(pipeline, manifest, table, number, logic, last)
    counts = merge_versions(connection, merge)
    if counts.missed and counts.skipped == manifest.rows and logic.made is None:
        raise OutOfBounds(
            f"{manifest.batch}: the bounds leave out all of its {manifest.rows:,} rows, and {counts.missed:,} of them are newer "
            f"than what the table has. Nothing was changed. Widen the contract's bounds (bounds='none' looks at every row) and "
            "run it again. If the table holds a wrong row from the future, restate the delivery that corrects it with a reason"
        )
    counts = _withdraw(connection, pipeline, manifest, merge, counts, logic.made)
    return Replacement(counts, Changes(), rows=0)


def takes_more(connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest, known: Batch) -> bool:
    """Whether the bounds have been widened since ``known`` was committed, and let in rows that the table lacks."""
    if not known.counts.skipped or known.code == manifest.code or pipeline.complete != "no":
        return False
    table = standing_table(connection, pipeline)
    if table is None:
        return False
    merge = _merge(pipeline, manifest, table, 0, look_back(connection, pipeline, manifest, 0))
    return count_missed(connection, merge, inside=True) > 0


def _merge(
    pipeline: WatermarkTable,
    manifest: Manifest,
    table: Table,
    number: int,
    logic: Logic | None = None,
    last: bool = False,
) -> Merge:
    """What is merged, and how; ``logic`` is None for a restatement, which no bounds hold back."""
    columns = tuple(c.name for c in manifest.columns)
    overruled = logic is not None and pipeline.complete != "no" and not last
    bounded = logic is not None and pipeline.complete == "no" and pipeline.bounds != "none"
    watermark = logic.watermark if logic else None
    return Merge(
        *(table.sql, table.key, columns, tuple(c for c in table.columns if c not in columns), number),
        least=_least(pipeline, watermark) if bounded and watermark is not None else None,
        watermark=watermark,
        lift=last,
        lenient=lenient_columns(pipeline, manifest),
        optional=optional_columns(pipeline),
        since=logic.since if logic else 0,
        kept=logic.kept if logic else (),
        later=logic.later if logic and overruled else (),
        adds=not (overruled and pipeline.complete == "whole"),
    )


def _restate(
    connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest, merge: Merge, new: bool
) -> Replacement:
    """Let a snapshot stand as it is: alone where it says all that there is, else beside the other keys of the table.

    The watermark begins again with the newest live row.
    """
    complete = pipeline.complete != "no"
    alone = complete or len(pipeline.partitions.keys()) == 1
    if new and not alone:
        check_never_filled(connection, pipeline)
    if alone and not complete and not manifest.rows and not pipeline.allow_empty:
        _refuse_empty(connection, pipeline, manifest, "Deliver a snapshot that has rows")
    counts = restate_versions(connection, merge, alone, remember=not complete)
    ledger.forget_position(connection, pipeline.name)
    return Replacement(counts, Changes(), 0, None if alone else "amend", newest_live(connection, merge.table))


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


def _check_filled(
    connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest, made: int | None, last: bool
) -> None:
    """Refuse a snapshot without a row that would withdraw what the table has: more often an accident than the truth."""
    if manifest.rows or pipeline.allow_empty:
        return
    if last and pipeline.complete == "whole":
        _refuse_empty(connection, pipeline, manifest, "If it is meant, restate it with a reason")
    elif made is not None:
        advice = "Mend the transform; or allow it with allow_empty=True"
        _refuse_empty(connection, pipeline, manifest, advice, f"WHERE _batch = {made}")


def _refuse_empty(
    connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest, advice: str, of: str = ""
) -> None:
    live = connection.execute(f"SELECT count(*) FROM {quoted(pipeline.table)} {of}").fetchone()[0]
    if not live:
        return
    what = "has a header and no rows"
    if manifest.source_rows:
        rejected = f"{manifest.rejected_rows:,} of them are rejected"
        what = f"leaves none of its {manifest.source_rows:,} rows ({rejected}, and the transform drops the others)"
        if manifest.rejected_rows == manifest.source_rows:
            what = f"has no valid row: all of its {manifest.source_rows:,} are rejected"
    raise EmptyDelivery(
        f"{manifest.batch} {what}, and {pipeline.table!r} has {live:,}; allow_empty=False. Nothing was changed. {advice}"
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
