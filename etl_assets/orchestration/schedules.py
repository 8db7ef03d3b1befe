"""A daily schedule for each pipeline, which asks for what the sensor does; two look after the ledger. STOPPED until turned on."""

import dagster as dg

from etl_assets.contract import Pipeline, StaticPartitions
from etl_assets.orchestration.findings import find
from etl_assets.orchestration.inflight import Records
from etl_assets.orchestration.jobs import AssetJob
from etl_assets.orchestration.names import CHECK_SCHEDULE, RECONCILE_SCHEDULE, schedule_name, shared
from etl_assets.orchestration.requests import plan_requests
from etl_assets.settings import Settings

CATCH_UP = "0 6 * * *"
CHECK = "30 6 * * *"
RECONCILE = "0 * * * *"


def catch_up_schedule(pipeline: Pipeline, job: AssetJob, rooms: Settings) -> dg.ScheduleDefinition:
    """For those who want to load at a time of day instead of when a delivery arrives."""
    zone = "UTC" if isinstance(pipeline.partitions, StaticPartitions) else pipeline.partitions.timezone

    @dg.schedule(
        name=schedule_name(pipeline),
        job=job,
        cron_schedule=CATCH_UP,
        execution_timezone=zone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Asks for what waits in {pipeline.name}, as the sensor does.",
    )
    def catch_up(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest] | dg.SkipReason:
        assert context.repository_def is not None
        records = Records(context.instance, context.repository_def.asset_graph)
        plan = plan_requests(pipeline, find(rooms, pipeline), records)
        context.log.info(plan.message)
        return plan.requests or dg.SkipReason(plan.message)

    return catch_up


def ledger_schedules(checks: AssetJob, reconcile: dg.JobDefinition, name: str | None) -> list[dg.ScheduleDefinition]:
    """When the checks run, and when Dagster is reconciled with the ledger."""
    stopped = dg.DefaultScheduleStatus.STOPPED
    return [
        dg.ScheduleDefinition(
            name=shared(name, CHECK_SCHEDULE),
            job=checks,
            cron_schedule=CHECK,
            default_status=stopped,
            execution_timezone="UTC",
        ),
        dg.ScheduleDefinition(
            name=shared(name, RECONCILE_SCHEDULE),
            job=reconcile,
            cron_schedule=RECONCILE,
            default_status=stopped,
            execution_timezone="UTC",
        ),
    ]
