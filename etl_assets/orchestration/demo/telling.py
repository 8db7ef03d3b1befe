"""What came of the demo, told from the ledger: what changed and why, what is missing, and whether all of it is true."""

from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from rich.console import Console
from rich.table import Table

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline, ReplacedTable
from etl_assets.loading import survey
from etl_assets.model import Batch
from etl_assets.orchestration.counting import count_rows
from etl_assets.orchestration.demo.ground import HOME, SHOWCASE, Ground
from etl_assets.orchestration.demo.plan import DERIVED, LEFT, PARTS
from etl_assets.orchestration.names import in_order
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.weather import weather
from etl_assets.settings import LANDING, STAGED, WAREHOUSE, Settings
from etl_assets.sink import open_sink

PIPELINES: tuple[Pipeline, ...] = (*(part.pipeline for part in PARTS), DERIVED)
COUNTS = ("inserted", "updated", "deleted", "unchanged", "moved", "aside", "restored", "stale", "ties")


def tell(console: Console, ground: Ground) -> None:
    """Print all of it."""
    console.rule("[bold]3. What changed, and why (from the ledger)", align="left")
    for pipeline in PIPELINES:
        for paragraph in (pipeline.description or "").split("\n\n"):
            console.print(" ".join(paragraph.replace("``", "").split()), style="dim")
        console.print(_changes(ground, pipeline))
        console.print()
    console.rule("[bold]4. What is missing, and whether all of it is true", align="left")
    sink = open_sink(ground.settings.warehouse)
    for scope in sorted(sink.current(flights.name).keys() - sink.current(weather.name).keys()):
        console.print(
            f"weather {scope} is [bold]missing[/bold], which is not empty: no delivery has come (its publisher has no "
            "such day), so the partition is not in the ledger, and not green in Dagster."
        )
    for pipeline in PIPELINES:
        console.print(_sum(ground, pipeline))
    console.rule("[bold]5. See for yourself", align="left")
    for command, what in _commands(ground):
        console.print(f"[bold]{command}[/bold]\n    {what}", soft_wrap=True)


def _sum(ground: Ground, pipeline: Pipeline) -> str:
    """One line: what the table holds, and whether it is what the ledger says."""
    sink = open_sink(ground.settings.warehouse)
    differences = sink.verify(pipeline)
    waiting = survey(ground.settings, pipeline).waiting()
    batches = sink.ledger(pipeline.name)
    rows = f"{count_rows(sink, pipeline).total:,}"
    if isinstance(pipeline, ReplacedTable):
        partitions = len(sink.current(pipeline.name))
        held = f"{rows} rows in {partitions} partition{'s' if partitions > 1 else ''}"
    elif isinstance(pipeline, ChangeLogTable):
        held = f"{rows} live rows of {sum(b.counts.source for b in batches):,} events"
    else:
        seen, gone = sum(b.counts.inserted for b in batches), sum(b.counts.deleted for b in batches)
        held = f"{rows} live rows; {seen:,} seen, {gone:,} withdrawn"
    true = "as the ledger committed them" if not differences else f"[red]{'; '.join(differences)}[/red]"
    left = "partitions are stale" if isinstance(pipeline, DerivedTable) else "deliveries wait"
    return f"{pipeline.name}: {held}, {true}; {len(waiting)} {left}"


def _commands(ground: Ground) -> list[tuple[str, str]]:
    """What to do next, on the state that the demo leaves."""
    places = ground.settings
    file = ground.landing / LEFT
    if ground.home == HOME.absolute() and places == Settings(
        *(str(Path(p).absolute()) for p in astuple(Settings())[:3])
    ):
        variables, dev = "", "make dev"
    else:
        variables = f"{LANDING}={places.landing} {STAGED}={places.staged} {WAREHOUSE}={places.warehouse} "
        dev = f"{variables}DAGSTER_HOME={ground.home} dagster dev -w workspace.yaml"
    return [
        (dev, "the Dagster UI on this state; the sensors are on"),
        (f"mkdir -p {file.parent}; cp {SHOWCASE / LEFT} {file}", "another list arrives, and the sensor asks for it"),
        (f"{variables}etl-assets ledger", "every batch, in commit order"),
        (f"{variables}etl-assets deliveries", "every delivery and its state"),
    ]


def _changes(ground: Ground, pipeline: Pipeline) -> Table:
    """The batches that superseded another; of logs and snapshots all of them, since each builds on those before."""
    batches = open_sink(ground.settings.warehouse).ledger(pipeline.name)
    shown = batches if in_order(pipeline) else [b for b in batches if b.supersedes]
    names = [n for n in COUNTS if any(b.counts.as_dict()[n] for b in shown)]
    table = Table(header_style="bold", box=None)
    table.add_column(pipeline.name, no_wrap=True)
    table.add_column("delivery", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for batch in shown:
        counts = batch.counts.as_dict()
        table.add_row(
            batch.scope, _delivery(batch, batches, pipeline), *(f"{counts[n]:,}" if counts[n] else "·" for n in names)
        )
    return table


def _delivery(batch: Batch, batches: Sequence[Batch], pipeline: Pipeline) -> str:
    """The delivery, and the one that it superseded."""
    if in_order(pipeline):
        return batch.delivery
    before = next(b for b in batches if b.batch == batch.supersedes)
    if isinstance(pipeline, DerivedTable):
        return f"computed anew ({before.revision} → {batch.revision})"
    return f"{before.delivery} → {batch.delivery}"
