"""A sensor that tells others of runs that failed: a message in the outbox, once a run."""

import dagster as dg

from etl_assets.model import RunFailure
from etl_assets.orchestration.inflight import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG
from etl_assets.orchestration.names import FAILED_RUNS, shared
from etl_assets.settings import Settings
from etl_assets.sink import open_sink

TOPIC = "failed-runs"
#: Characters of a reason; the run's page has all of it.
LONGEST = 4_000


def failed_runs_sensor(rooms: Settings, relay_job: str, outbox: dg.AssetKey, name: str | None) -> dg.SensorDefinition:
    """Runs of the relay are left out: a message about one could not be sent, and would make the next one fail."""

    @dg.run_failure_sensor(
        name=shared(name, FAILED_RUNS),
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Writes a message on the topic `{TOPIC}` for each run that fails, but for runs of the relay.",
    )
    def failed_runs(context: dg.RunFailureSensorContext) -> None:
        run = context.dagster_run
        if run.job_name == relay_job or run.asset_selection == {outbox}:
            return
        failure = RunFailure(
            run=run.run_id,
            job=run.job_name,
            assets=tuple(sorted(key.to_user_string() for key in run.asset_selection or ())),
            partitions=_partitions(run),
            reason=_reason(context)[:LONGEST],
        )
        open_sink(rooms.warehouse).tell_failure(TOPIC, failure)

    return failed_runs


def _partitions(run: dg.DagsterRun) -> str | None:
    if PARTITION_TAG in run.tags:
        return run.tags[PARTITION_TAG]
    if RANGE_START_TAG in run.tags:
        return f"{run.tags[RANGE_START_TAG]}..{run.tags.get(RANGE_END_TAG, '')}"
    return None


def _reason(context: dg.RunFailureSensorContext) -> str:
    """What the failed steps say of themselves, or else what the run says."""
    reasons = []
    for event in context.get_step_failure_events():
        shown = event.step_failure_data.user_failure_data
        reasons.append((shown and shown.description) or event.message or "")
    return "\n".join(filter(None, reasons)) or context.failure_event.message or ""
