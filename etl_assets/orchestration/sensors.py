"""A sensor a pipeline: asks for partitions that wait for a commit, or are stale. STOPPED until turned on."""

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.orchestration.jobs import AssetJob
from etl_assets.orchestration.names import sensor_name, waiting_for
from etl_assets.orchestration.requests import plan_requests
from etl_assets.orchestration.resources import Rooms

INTERVAL_SECONDS = 30


def deliveries_sensor(pipeline: Pipeline, job: AssetJob) -> dg.SensorDefinition:
    """The sensor on a pipeline's landing, or on the ledger's upstream batches. Its skip reason says what waits and why."""

    @dg.sensor(
        name=sensor_name(pipeline),
        job=job,
        minimum_interval_seconds=INTERVAL_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=f"Asks for partitions of {pipeline.name} whose {waiting_for(pipeline)}.",
    )
    def deliveries(context: dg.SensorEvaluationContext, rooms: Rooms) -> dg.SensorResult | dg.SkipReason:
        assert context.repository_def is not None
        plan = plan_requests(pipeline, rooms, context.instance, context.repository_def.asset_graph)
        context.log.info(plan.message)
        return dg.SensorResult(run_requests=plan.requests) if plan.requests else dg.SkipReason(plan.message)

    return deliveries
