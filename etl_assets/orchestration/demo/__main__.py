"""The demo as it is told: first deliveries, an accident, corrections, the sensors, and what came of it."""

import contextlib
import signal
import sys
import time
from collections.abc import Collection, Iterable
from types import FrameType

from rich.console import Console

from etl_assets.contract import Pipeline
from etl_assets.errors import EtlError
from etl_assets.loading import survey
from etl_assets.locks import FolderInUse, using
from etl_assets.orchestration.counting import count_rows
from etl_assets.orchestration.demo.dev import DagsterDev, DagsterFailed
from etl_assets.orchestration.demo.ground import ForeignData, Ground
from etl_assets.orchestration.demo.patience import Board, busy, wait_until
from etl_assets.orchestration.demo.plan import ACCIDENT, DERIVED, PARTS, Part
from etl_assets.orchestration.demo.receiver import Receiver, receiving
from etl_assets.orchestration.demo.telling import tell
from etl_assets.orchestration.names import CHECKS_JOB, DELIVERIES, in_order, job_name
from etl_assets.orchestration.requests import SETTLE_SECONDS
from etl_assets.settings import LANDING, RELAY, STAGED, WAREHOUSE
from etl_assets.sink import open_sink

DAYS_PASSED_OVER = 45
IN_FLIGHT = ("QUEUED", "NOT_STARTED", "STARTING", "STARTED", "CANCELING")


def main() -> int:
    """Run the demo; the exit code is 0 when all of it went well."""
    console = Console(highlight=False)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        ground = Ground.from_environment()
        places = ground.settings
        with contextlib.ExitStack() as stack:
            stack.enter_context(using(ground.home))
            _start_fresh(console, ground)
            receiver = stack.enter_context(receiving())
            environment = {
                LANDING: places.landing,
                STAGED: places.staged,
                WAREHOUSE: places.warehouse,
                RELAY: receiver.url,
            }
            with busy(console, "Starting Dagster: webserver, daemon, code server"):
                dagster = stack.enter_context(DagsterDev(ground.project, ground.home, environment))
            console.print(f"Dagster runs at {dagster.url} until the demo is over.\n")
            _first_deliveries(console, ground, dagster)
            console.rule("[bold]2. An accident and corrections arrive, and the sensors are on", align="left")
            accident = _accident(console, ground, dagster)
            _corrections(console, ground, dagster, accident)
            _messages(console, ground, dagster, receiver)
            _checks(console, dagster)
            stack.enter_context(busy(console, "Stopping Dagster"))
        tell(console, ground)
    except (ForeignData, FolderInUse, DagsterFailed, EtlError, OSError) as error:
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
    console.rule("[bold]1. First deliveries, by runs of a partition or a range of them", align="left")
    wanted = {}
    for part in PARTS:
        name = part.pipeline.name
        dates = ground.deliver(part.folder, *part.first)
        wanted[name] = _batches(part, dates)
        what = (
            f"the delivery of {dates[0]}" if len(dates) == 1 else f"{len(dates)} deliveries ({dates[0]} … {dates[-1]})"
        )
        number = _launch(dagster, part.pipeline, _scopes(part, dates))
        order = ", in their order" if in_order(part.pipeline) and len(dates) > 1 else ""
        console.print(f"{name}: {what} landed; {number} run{'s' if number > 1 else ''} launched{order}")
    # What is derived of two tables waits for those two alone.
    upstream = {one.pipeline for one in DERIVED.upstream}
    _watch(console, ground, dagster, {name: wanted[name] for name in wanted if name in upstream}, until_idle=False)
    days = [s.scope for s in survey(ground.settings, DERIVED).waiting()]
    number = _launch(dagster, DERIVED, days)
    console.print(f"{DERIVED.name}: {_upstream()} are there; {number} runs for {len(days)} days launched")
    _watch(console, ground, dagster, wanted | {DERIVED.name: len(days)})


def _launch(dagster: DagsterDev, pipeline: Pipeline, scopes: Collection[str]) -> int:
    """Launch runs for these partitions, one for each range of them; returns how many."""
    ranges = _ranges(pipeline, scopes)
    for first, last in ranges:
        dagster.launch(job_name(pipeline), first, last)
    return len(ranges)


def _upstream() -> str:
    return " and ".join(one.pipeline for one in DERIVED.upstream)


def _accident(console: Console, ground: Ground, dagster: DagsterDev) -> str:
    """A list without a row is delivered: refused, and the table keeps its rows. Returns the id of the run that failed."""
    pipeline = ACCIDENT.pipeline
    dates = ground.deliver(ACCIDENT.folder, *ACCIDENT.later)
    (scope,) = _scopes(ACCIDENT, dates)
    sink = open_sink(ground.settings.warehouse)
    before = count_rows(sink, pipeline).total
    run = dagster.launch(job_name(pipeline), scope, scope)
    with busy(console, f"{pipeline.name}: {dates[0]} landed, {ACCIDENT.arrives}"):
        _wait(dagster)
    if run not in {r["runId"] for r in dagster.runs("FAILURE")}:
        raise DagsterFailed(f"{pipeline.name} {dates[0]} was not refused; see {dagster.log}")
    reasons = [s.reason for s in survey(ground.settings, pipeline).statuses if s.state == "refused"]
    console.print(f"{pipeline.name}: {dates[0]} landed, {ACCIDENT.arrives}. Its run [bold]failed[/bold], as it should:")
    console.print("\n".join(reasons), style="dim")
    console.print(f"{pipeline.name}: {count_rows(sink, pipeline).total:,} rows, as before ({before:,})")
    return run


def _corrections(console: Console, ground: Ground, dagster: DagsterDev, accident: str) -> None:
    before = {b.batch for b in open_sink(ground.settings.warehouse).ledger()}
    wanted = {}
    for part in PARTS:
        dates = ground.deliver(part.folder, *part.later)
        wanted[part.pipeline.name] = _batches(part, dates)
        console.print(f"{part.pipeline.name}: {part.arrives} landed")
    with busy(console, "Waiting until the files have held still for long enough"):
        time.sleep(SETTLE_SECONDS)
    dagster.start_sensor(DELIVERIES)
    _watch(console, ground, dagster, wanted, before, accident)
    sink = open_sink(ground.settings.warehouse)

    def days() -> set[str]:
        return {b.scope for b in sink.ledger(DERIVED.name) if b.batch not in before}

    with busy(console, f"{DERIVED.name}: days with a correction of {_upstream()} are computed again"):
        wait_until(
            lambda: not survey(ground.settings, DERIVED).waiting() and not dagster.runs(*IN_FLIGHT),
            lambda: (len(days()), dagster.all_runs()),
            f"{DERIVED.name} is not computed again; see {dagster.log}",
        )
    console.print(f"{DERIVED.name}: {len(days())} days, which have a correction of {_upstream()}, are computed again")


def _messages(console: Console, ground: Ground, dagster: DagsterDev, receiver: Receiver) -> None:
    """What publishing has written to the outbox is delivered, in its order."""
    sink = open_sink(ground.settings.warehouse)
    wait = sum(of.get("waiting", 0) for of in sink.message_counts("waiting").values())
    console.print(f"outbox: {wait} messages wait, written by the commits that they tell of; its sensor is on")
    dagster.start_sensor("outbox_waiting")
    with busy(console, f"Waiting until they are delivered to {receiver.url}"):
        wait_until(
            lambda: not sink.due(limit=1) and not dagster.runs(*IN_FLIGHT),
            lambda: (len(receiver.taken), dagster.all_runs()),
            f"messages are not delivered; see {dagster.log}",
        )
    console.print(f"{receiver.url} took {len(receiver.taken)} messages, each once. The last three:")
    for document in list(receiver.taken.values())[-3:]:
        data = " ".join(f"{name}={value}" for name, value in document["data"].items())
        console.print(f"  {document['type']}: {data}", style="dim", highlight=False)


def _checks(console: Console, dagster: DagsterDev) -> None:
    dagster.launch(CHECKS_JOB)
    with busy(console, f"Running {CHECKS_JOB}"):
        _wait(dagster)


def _scopes(part: Part, dates: Iterable[str]) -> list[str]:
    """The partitions that deliveries of these dates belong to."""
    keys = part.pipeline.partitions.keys()
    return sorted(set(dates)) if "{partition}" in part.pipeline.landing else [keys[0]]


def _ranges(pipeline: Pipeline, scopes: Collection[str]) -> list[tuple[str, str]]:
    """First and last partition of each run.

    Where days without a delivery are passed over, a run may span some. For each day of a range Dagster writes events,
    so that a hundred days cost as much time as a run.
    """
    keys = list(pipeline.partitions.keys())
    farthest = DAYS_PASSED_OVER if in_order(pipeline) else 1
    ranges: list[tuple[str, str]] = []
    for scope in sorted(scopes):
        if ranges and keys.index(scope) - keys.index(ranges[-1][1]) <= farthest:
            ranges[-1] = (ranges[-1][0], scope)
        else:
            ranges.append((scope, scope))
    return ranges


def _batches(part: Part, dates: list[str]) -> int:
    """How many batches deliveries of these dates come to: one a partition, or one each where each counts."""
    return len(dates) if in_order(part.pipeline) else len(_scopes(part, dates))


def _wait(dagster: DagsterDev) -> None:
    """Wait until no run is left."""
    wait_until(lambda: not dagster.runs(*IN_FLIGHT), dagster.all_runs, f"runs have not ended; see {dagster.log}")


def _watch(
    console: Console,
    ground: Ground,
    dagster: DagsterDev,
    wanted: dict[str, int],
    before: Iterable[str] = (),
    accident: str = "",
    until_idle: bool = True,
) -> None:
    """Show how the ledger grows until it has what is wanted, and until no run is left, if that is asked for."""
    sink = open_sink(ground.settings.warehouse)
    known = set(before)

    def done() -> bool:
        failed = [r for r in dagster.runs("FAILURE", "CANCELED") if r["runId"] != accident]
        if failed:
            raise DagsterFailed(f"{len(failed)} runs failed; see {dagster.url}/runs or `make dev`, and {dagster.log}")
        running = dagster.runs(*IN_FLIGHT)
        committed = {name: sum(b.batch not in known for b in sink.ledger(name)) for name in wanted}
        board.show(committed, f"{len(running)} runs" if running else "waiting for the daemon's next tick")
        return all(committed[name] >= wanted[name] for name in wanted) and not (until_idle and running)

    with Board(console, wanted) as board:
        wait_until(done, lambda: (board.committed, dagster.all_runs()), f"batches are not committed; see {dagster.log}")


if __name__ == "__main__":
    sys.exit(main())
