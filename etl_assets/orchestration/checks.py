"""Checks that ask the ledger. They hang on the landing, and run in a job of their own.

On the table they would ride along in every load, where Dagster plans them once for each partition, and shows them as
failed whenever the load fails.
"""

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.loading import survey
from etl_assets.orchestration.counting import count_rows
from etl_assets.orchestration.names import checked_key, in_order
from etl_assets.orchestration.requests import missing
from etl_assets.orchestration.resources import Rooms
from etl_assets.sink import open_sink


def ledger_checks(pipeline: Pipeline) -> list[dg.AssetChecksDefinition]:
    """The checks of one pipeline. Whether the newest day is there is asked only where every day has to have a delivery."""
    loaded = [] if in_order(pipeline) else [_newest_partition_loaded(pipeline)]
    return [_ledger_matches_rows(pipeline), *loaded, _nothing_waits(pipeline)]


def _ledger_matches_rows(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=checked_key(pipeline),
        name="ledger_matches_rows",
        description=f"`{pipeline.table}` holds the live rows that the ledger's batches add up to, at its last position."
        if in_order(pipeline)
        else f"Each partition of `{pipeline.table}` holds the rows that the ledger committed.",
    )
    def ledger_matches_rows(rooms: Rooms) -> dg.AssetCheckResult:
        sink = open_sink(rooms.warehouse)
        differences = sink.verify(pipeline)
        rows, partitions = count_rows(sink, pipeline), len(sink.current(pipeline.name))
        return dg.AssetCheckResult(
            passed=not differences,
            description="\n".join(differences)
            or f"{rows.total:,} rows {'from' if in_order(pipeline) else 'in'} {partitions:,} partitions",
            metadata={"partitions": partitions, "rows": rows.total, "differences": differences},
        )

    return ledger_matches_rows


def _newest_partition_loaded(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=checked_key(pipeline),
        name="newest_partition_loaded",
        description="The newest partition whose window is over is in the ledger. Dagster's freshness looks at when any "
        "partition was materialised last, which a correction of an old one satisfies.",
    )
    def newest_partition_loaded(rooms: Rooms) -> dg.AssetCheckResult:
        keys = pipeline.partitions.keys()
        current = open_sink(rooms.warehouse).current(pipeline.name)
        loaded = [key for key in keys if key in current]
        if not keys:
            return dg.AssetCheckResult(passed=True, description="No partition's window is over yet")
        newest = keys[-1]
        if newest in current:
            said = f"{newest} is committed as {current[newest].batch}"
        else:
            last = loaded[-1] if loaded else "none"
            said = f"{newest} is not loaded; the newest loaded partition is {last}"
        return dg.AssetCheckResult(
            passed=newest in current,
            severity=dg.AssetCheckSeverity.WARN,
            description=said,
            metadata={"newest": newest, "newest_loaded": loaded[-1] if loaded else "none"},
        )

    return newest_partition_loaded


def _nothing_waits(pipeline: Pipeline) -> dg.AssetChecksDefinition:
    @dg.asset_check(
        asset=checked_key(pipeline),
        name="nothing_waits",
        description=f"{'Every' if in_order(pipeline) else 'The newest'} delivery of every partition is committed: none "
        "waits, none needs attention.",
    )
    def nothing_waits(rooms: Rooms) -> dg.AssetCheckResult:
        found = survey(rooms.settings, pipeline)
        open_ones = found.waiting()
        lines = [f"{s.scope}/{s.name}#{s.revision}: {s.state}: {s.reason}" for s in open_ones]
        return dg.AssetCheckResult(
            passed=not open_ones,
            severity=dg.AssetCheckSeverity.WARN,
            description="\n".join(lines) or "All that has arrived is committed",
            metadata={
                "waiting": sum(s.state != "needs attention" for s in open_ones),
                "needs_attention": sum(s.state == "needs attention" for s in open_ones),
                "partitions_without_delivery": missing(pipeline, found) or "none",
            },
        )

    return nothing_waits
