"""A daily schedule a pipeline asks for the same as its sensor; two more look after the ledger. STOPPED until turned on."""

import dagster as dg

from etl_assets.contract import Pipeline, StaticPartitions
from etl_assets.orchestration.jobs import AssetJob
from etl_assets.orchestration.names import schedule_name, waiting_for
from etl_assets.orchestration.requests import plan_requests
from etl_assets.orchestration.resources import Rooms

CATCH_UP = "0 6 * * *"
CHECK = "30 6 * * *"
RECONCILE = "0 * * * *"


def catch_up_schedule(pipeline: Pipeline, job: AssetJob) -> dg.ScheduleDefinition:
    """For those who want to load at a time of day instead of when a delivery arrives."""
    zone = "UTC" if isinstance(pipeline.partitions, StaticPartitions) else pipeline.partitions.timezone

    @dg.schedule(
        name=schedule_name(pipeline),
        job=job,
        cron_schedule=CATCH_UP,
        execution_timezone=zone,
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Asks for partitions of {pipeline.name} whose {waiting_for(pipeline)}.",
    )
    def catch_up(context: dg.ScheduleEvaluationContext, rooms: Rooms) -> list[dg.RunRequest] | dg.SkipReason:
        assert context.repository_def is not None
        plan = plan_requests(pipeline, rooms, context.instance, context.repository_def.asset_graph)
        context.log.info(plan.message)
        return plan.requests or dg.SkipReason(plan.message)

    return catch_up


def ledger_schedules(checks: AssetJob, reconcile: dg.JobDefinition) -> list[dg.ScheduleDefinition]:
    """When the checks run, and when Dagster is reconciled with the ledger."""
    stopped = dg.DefaultScheduleStatus.STOPPED
    return [
        dg.ScheduleDefinition(
            name="check_ledger_daily", job=checks, cron_schedule=CHECK, default_status=stopped, execution_timezone="UTC"
        ),
        dg.ScheduleDefinition(
            name="reconcile_hourly",
            job=reconcile,
            cron_schedule=RECONCILE,
            default_status=stopped,
            execution_timezone="UTC",
        ),
    ]
