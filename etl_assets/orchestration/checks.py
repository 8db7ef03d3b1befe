"""Checks that ask the ledger and the landing. Each can be executed by itself; no load waits for one."""

from collections.abc import Callable

import dagster as dg

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.loading import Status, survey
from etl_assets.orchestration.counting import count_rows
from etl_assets.orchestration.names import ACCEPTED, extract_key, in_order, table_key
from etl_assets.orchestration.wording import missing, place
from etl_assets.settings import Settings
from etl_assets.sink import open_sink

Evaluate = Callable[[], dg.AssetCheckResult]


def ledger_checks(pipeline: Pipeline, rooms: Settings) -> list[dg.AssetChecksDefinition]:
    """The checks of a table. Whether the newest day is there is asked only where every day has to have a delivery."""
    loaded = [] if in_order(pipeline) else [_newest_partition_loaded(pipeline, rooms)]
    return [_ledger_matches_rows(pipeline, rooms), *loaded, _nothing_waits(pipeline, rooms)]


def accepted_check(pipeline: Pipeline, rooms: Settings) -> dg.AssetChecksDefinition:
    """The check of an extract. A run evaluates it for each delivery that it reads; executed by itself, it asks for all."""
    which = "Each delivery of a partition keeps" if in_order(pipeline) else "A partition's newest delivery keeps"

    def evaluate() -> dg.AssetCheckResult:
        refused = [s for s in survey(rooms, pipeline).waiting() if s.state in ("refused", "needs attention")]
        return dg.AssetCheckResult(
            passed=not refused, description=_paragraphs(refused) or "No delivery that counts is refused"
        )

    described = f"{which} the contract. If it does not, it is refused with its reason, and the table keeps its rows."
    return _check(extract_key(pipeline), ACCEPTED, described, evaluate)


def _check(asset: dg.AssetKey, name: str, description: str, evaluate: Evaluate) -> dg.AssetChecksDefinition:
    @dg.asset_check(asset=asset, name=name, description=description)
    def check() -> dg.AssetCheckResult:
        return evaluate()

    return check


def _paragraphs(statuses: list[Status]) -> str:
    """Return a paragraph for each, since Dagster shows descriptions as Markdown."""
    return "\n\n".join(f"{place(s)}: {s.state}: {s.reason}" for s in statuses)


def _ledger_matches_rows(pipeline: Pipeline, rooms: Settings) -> dg.AssetChecksDefinition:
    def evaluate() -> dg.AssetCheckResult:
        sink = open_sink(rooms.warehouse)
        differences = sink.verify(pipeline)
        rows, partitions = count_rows(sink, pipeline), len(sink.current(pipeline.name))
        return dg.AssetCheckResult(
            passed=not differences,
            description="\n\n".join(differences)
            or f"{rows.total:,} rows {'from' if in_order(pipeline) else 'in'} {partitions:,} partitions",
            metadata={"partitions": partitions, "rows": rows.total, "differences": differences},
        )

    described = (
        f"`{pipeline.table}` holds the live rows that the ledger's batches add up to, at its last position."
        if in_order(pipeline)
        else f"Each partition of `{pipeline.table}` holds the rows that the ledger committed."
    )
    return _check(table_key(pipeline), "ledger_matches_rows", described, evaluate)


def _newest_partition_loaded(pipeline: Pipeline, rooms: Settings) -> dg.AssetChecksDefinition:
    def evaluate() -> dg.AssetCheckResult:
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

    described = (
        "The newest partition whose window is over is in the ledger. Dagster's freshness looks at when any partition was "
        "materialised last, which a correction of an old one satisfies."
    )
    return _check(table_key(pipeline), "newest_partition_loaded", described, evaluate)


def _nothing_waits(pipeline: Pipeline, rooms: Settings) -> dg.AssetChecksDefinition:
    def evaluate() -> dg.AssetCheckResult:
        found = survey(rooms, pipeline)
        open_ones = found.waiting()
        return dg.AssetCheckResult(
            passed=not open_ones,
            severity=dg.AssetCheckSeverity.WARN,
            description=_paragraphs(open_ones) or "All that has arrived is committed",
            metadata={
                "waiting": sum(s.state != "needs attention" for s in open_ones),
                "needs_attention": sum(s.state == "needs attention" for s in open_ones),
                "partitions_without_delivery": missing(pipeline, found) or "none",
            },
        )

    which = "Every" if in_order(pipeline) else "The newest"
    described = f"{which} delivery of every partition is committed: none waits, none needs attention."
    return _check(table_key(pipeline), "nothing_waits", described, evaluate)


def all_checks(pipeline: Pipeline, rooms: Settings) -> list[dg.AssetChecksDefinition]:
    """The checks of a pipeline: those of its table, and that of its extract where it has one."""
    extract = [] if isinstance(pipeline, DerivedTable) else [accepted_check(pipeline, rooms)]
    return [*ledger_checks(pipeline, rooms), *extract]
