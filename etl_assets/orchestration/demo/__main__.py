"""The demo as it is told: first deliveries, a backfill, corrections, the sensors, and what came of it."""

import contextlib
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from etl_assets.contract import Pipeline
from etl_assets.errors import EtlError
from etl_assets.model import Batch
from etl_assets.orchestration.demo.dev import DagsterDev, DagsterFailed
from etl_assets.orchestration.demo.ground import HOME, ForeignData, Ground
from etl_assets.orchestration.jobs import CHECKS_JOB
from etl_assets.orchestration.names import extract_key, sensor_name, table_key
from etl_assets.orchestration.requests import SETTLE_SECONDS
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.weather import weather
from etl_assets.settings import LANDING, STAGED, WAREHOUSE, Settings
from etl_assets.sink import open_sink
from etl_assets.survey import survey

PIPELINES = (flights, weather)
DONE_WITHIN = 300.0
IN_FLIGHT = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


def main() -> int:
    """Run the demo; the exit code is 0 when all of it went well."""
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        ground = Ground.from_environment()
        _start_fresh(console, ground)
        places = ground.settings
        environment = {LANDING: places.landing, STAGED: places.staged, WAREHOUSE: places.warehouse}
        with contextlib.ExitStack() as stack:
            with console.status("Starting Dagster: webserver, daemon, code server …"):
                dagster = stack.enter_context(DagsterDev(ground.project, ground.home, environment))
            console.print(f"Dagster runs at {dagster.url} until the demo is over.\n")
            _first_deliveries(console, ground, dagster)
            _corrections(console, ground, dagster)
            _checks(console, dagster)
            stack.enter_context(console.status("Stopping Dagster …"))
        _tell(console, ground)
    except (ForeignData, DagsterFailed, EtlError) as error:
        console.print(f"[red]demo: {error}[/red]", soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("Interrupted; Dagster is stopped.")
        return 130
    return 0


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _start_fresh(console: Console, ground: Ground) -> None:
    for place in ground.clear():
        console.print(f"Cleared what an earlier demo left in {place}", style="dim", soft_wrap=True)
    ground.prepare()


def _first_deliveries(console: Console, ground: Ground, dagster: DagsterDev) -> None:
    console.rule("[bold]1. First deliveries, and a backfill", align="left")
    wanted = {p.name: ground.deliver(p.name, "1.csv") for p in PIPELINES}
    for pipeline in PIPELINES:
        scopes = wanted[pipeline.name]
        assets = [key.to_user_string() for key in (extract_key(pipeline), table_key(pipeline))]
        dagster.backfill(assets, scopes, f"{pipeline.name}: first deliveries")
        console.print(
            f"{pipeline.name}: {len(scopes)} deliveries landed ({scopes[0]} … {scopes[-1]}), backfill launched"
        )
    _watch(console, ground, dagster, {p.name: len(wanted[p.name]) for p in PIPELINES}, lambda b: True)


def _corrections(console: Console, ground: Ground, dagster: DagsterDev) -> None:
    console.rule("[bold]2. Corrections arrive, and the sensors are on", align="left")
    before = {b.batch for b in open_sink(ground.settings.warehouse).ledger()}
    wanted = {flights.name: ground.deliver(flights.name, "2.csv")}
    wanted[weather.name] = ground.deliver(weather.name, "2.csv", "3.csv")
    console.print(f"flights: the days of release 2 landed: {', '.join(wanted[flights.name])}")
    console.print("weather: releases 2 and 3 of every day landed; a run takes the newest delivery")
    with console.status("Waiting until the files have held still for long enough …"):
        time.sleep(SETTLE_SECONDS)
    for pipeline in PIPELINES:
        dagster.start_sensor(sensor_name(pipeline))
    _watch(console, ground, dagster, {n: len(scopes) for n, scopes in wanted.items()}, lambda b: b.batch not in before)


def _checks(console: Console, dagster: DagsterDev) -> None:
    dagster.launch(CHECKS_JOB)
    with console.status(f"Running {CHECKS_JOB} …"):
        deadline = time.monotonic() + DONE_WITHIN
        while dagster.runs(*IN_FLIGHT):
            if time.monotonic() > deadline:
                raise DagsterFailed(f"{CHECKS_JOB} has not ended after {DONE_WITHIN:.0f} s; see {dagster.log}")
            time.sleep(0.5)


def _watch(
    console: Console, ground: Ground, dagster: DagsterDev, wanted: dict[str, int], counts: Callable[[Batch], bool]
) -> None:
    """Show how the ledger grows until it has what is wanted and no run is left."""
    sink = open_sink(ground.settings.warehouse)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    deadline = time.monotonic() + DONE_WITHIN
    with Progress(*columns, TextColumn("[dim]{task.fields[doing]}"), console=console) as progress:
        tasks = {n: progress.add_task(f"{n:8} committed", total=total, doing="") for n, total in wanted.items()}
        while True:
            running = dagster.runs(*IN_FLIGHT)
            left = 0
            for name, task in tasks.items():
                committed = sum(counts(b) for b in sink.ledger(name))
                doing = f"{len(running)} runs" if running else "waiting for the daemon's next tick"
                progress.update(task, completed=committed, doing="" if committed == wanted[name] else doing)
                left += wanted[name] - committed
            failed = dagster.runs("FAILURE", "CANCELED")
            if failed:
                raise DagsterFailed(
                    f"{len(failed)} runs failed; see {dagster.url}/runs or `make dev`, and {dagster.log}"
                )
            if not left and not running:
                return
            if time.monotonic() > deadline:
                raise DagsterFailed(f"{left} partitions are not committed after {DONE_WITHIN:.0f} s; see {dagster.log}")
            time.sleep(0.5)


# ------------------------------------------------------------------ what came of it


def _tell(console: Console, ground: Ground) -> None:
    console.rule("[bold]3. What changed, and why (from the ledger)", align="left")
    for pipeline in PIPELINES:
        for paragraph in (pipeline.description or "").split("\n\n"):
            console.print(" ".join(paragraph.replace("``", "").split()), style="dim")
        console.print(_changes(ground, pipeline))
        console.print()
    console.rule("[bold]4. What is missing, and whether all of it is true", align="left")
    current = {p.name: open_sink(ground.settings.warehouse).current(p.name) for p in PIPELINES}
    for scope in sorted(current[flights.name].keys() - current[weather.name].keys()):
        console.print(
            f"weather {scope} is [bold]missing[/bold], which is not empty: no delivery has come (its publisher has no "
            "such day), so the partition is not in the ledger, and not green in Dagster."
        )
    for pipeline in PIPELINES:
        sink = open_sink(ground.settings.warehouse)
        differences = sink.verify(pipeline)
        rows = sink.rows(pipeline.name)
        waiting = survey(ground.settings, pipeline).waiting()
        console.print(
            f"{pipeline.name}: {sum(rows.values()):,} rows in {len(rows)} partitions, "
            + ("as the ledger committed them" if not differences else f"[red]{'; '.join(differences)}[/red]")
            + f"; {len(waiting)} deliveries wait"
        )
    console.rule("[bold]5. See for yourself", align="left")
    for command, what in _commands(ground):
        console.print(f"[bold]{command}[/bold]\n    {what}", soft_wrap=True)


def _commands(ground: Ground) -> list[tuple[str, str]]:
    """What to do next, on the state that the demo leaves."""
    places = ground.settings
    file = ground.landing / "flights" / "2013-11-08" / "1.csv"
    if ground.home == HOME.absolute() and places == Settings(*(str(Path(p).absolute()) for p in astuple(Settings()))):
        variables, dev = "", "make dev"
    else:
        variables = f"{LANDING}={places.landing} {STAGED}={places.staged} {WAREHOUSE}={places.warehouse} "
        dev = f"{variables}DAGSTER_HOME={ground.home} dagster dev -w workspace.yaml"
    return [
        (dev, "the Dagster UI on this state; the sensors are on"),
        (f"mkdir -p {file.parent}; cp FILE {file}", "another day arrives, and the sensor asks for it"),
        (f"{variables}etl-assets ledger", "every batch, in commit order"),
        (f"{variables}etl-assets deliveries", "every delivery and its state"),
    ]


def _changes(ground: Ground, pipeline: Pipeline) -> Table:
    """The batches that superseded another: what a correction changed in its partition, and in others."""
    corrections = [b for b in open_sink(ground.settings.warehouse).ledger(pipeline.name) if b.supersedes]
    every = ("updated", "inserted", "deleted", "unchanged", "moved", "aside", "restored")
    names = [n for n in every if any(b.counts.as_dict()[n] for b in corrections)]
    table = Table(header_style="bold", box=None)
    table.add_column(pipeline.name, no_wrap=True)
    table.add_column("delivery", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for batch in corrections:
        before = str(batch.supersedes).rpartition("/")[2].partition("#")[0]
        counts = batch.counts.as_dict()
        table.add_row(
            batch.scope, f"{before} → {batch.delivery}", *(f"{counts[n]:,}" if counts[n] else "·" for n in names)
        )
    return table


if __name__ == "__main__":
    sys.exit(main())
