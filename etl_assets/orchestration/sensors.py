"""One sensor for all pipelines: asks for partitions that wait for a commit, or are stale. STOPPED until turned on."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.errors import EtlError, OperationalError
from etl_assets.orchestration.findings import Finder
from etl_assets.orchestration.inflight import Records
from etl_assets.orchestration.jobs import AssetJob
from etl_assets.orchestration.names import DELIVERIES, shared
from etl_assets.orchestration.requests import plan_requests
from etl_assets.settings import Settings

INTERVAL_SECONDS = 30
#: A tick that has looked for so long, or has asked for so many runs, leaves the other pipelines to the next one.
SECONDS_PER_TICK = 20.0
RUNS_PER_TICK = 50
#: Pipelines with nothing to ask for that a tick names; more of them are counted.
QUIET_NAMED = 2


@dataclass(frozen=True, slots=True)
class Round:
    """What one tick asks for and says, which pipelines it could not look at, and with which one the next tick begins."""

    requests: list[dg.RunRequest]
    message: str
    troubles: list[EtlError]
    begin: str


def deliveries_sensor(
    pipelines: Sequence[Pipeline], jobs: Mapping[str, AssetJob], rooms: Settings, name: str | None
) -> dg.SensorDefinition:
    """The sensor on the landings, and on the ledger's upstream batches. Its skip reason says what waits and why."""
    finder = Finder(rooms)

    @dg.sensor(
        name=shared(name, DELIVERIES),
        jobs=list(jobs.values()),
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description="Asks for partitions whose newest delivery is not in the ledger, and for derived ones whose upstream has a "
        "batch that they were not computed of. Says for each pipeline what waits, and why.",
    )
    def deliveries(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        assert context.repository_def is not None
        records = Records(context.instance, context.repository_def.asset_graph)
        found = go_round(pipelines, finder, records, context.cursor or "")
        context.log.info(found.message)
        if found.troubles and not found.requests and not found.begin:
            # A tick that asks for nothing and could not look everywhere is no quiet one.
            raise type(found.troubles[0])(found.message) from found.troubles[0]
        quiet = None if found.requests else dg.SkipReason(found.message)
        return dg.SensorResult(run_requests=found.requests, skip_reason=quiet, cursor=found.begin)

    return deliveries


def go_round(pipelines: Sequence[Pipeline], finder: Finder, records: Records, begin: str) -> Round:
    """Plan the runs of each pipeline, from the one that the last tick left off at; what is wrong with one stops no other."""
    names = [pipeline.name for pipeline in pipelines]
    first = names.index(begin) if begin in names else 0
    requests: list[dg.RunRequest] = []
    said: list[str] = []
    troubles: list[EtlError] = []
    idle: list[str] = []
    deadline, begin = time.monotonic() + SECONDS_PER_TICK, ""
    marks = finder.marks()
    for pipeline in [*pipelines[first:], *pipelines[:first]]:
        if len(requests) >= RUNS_PER_TICK or time.monotonic() > deadline:
            begin = pipeline.name
            break
        try:
            plan = plan_requests(pipeline, finder.find(pipeline, marks), records)
        except Exception as error:  # a contract's code may fail in any way
            trouble = error if isinstance(error, EtlError) else OperationalError(f"{type(error).__name__}: {error}")
            troubles.append(trouble)
            said.append(f"{pipeline.name}: cannot be looked at: {type(error).__name__}: {error}")
            continue
        requests += plan.requests
        (idle if plan.idle else said).append(f"{pipeline.name}: {plan.message}")
    many = f"{len(idle):,} pipelines have nothing to ask for: all that has arrived is committed"
    quiet = [many] if len(idle) > QUIET_NAMED else idle
    rest = [f"the rest, from {begin} on, at the next tick"] if begin else []
    return Round(requests, "\n".join([*said, *quiet, *rest]), troubles, begin)
