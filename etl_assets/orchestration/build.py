"""Pipelines to Dagster definitions: the one function that another Dagster project needs."""

from collections.abc import Iterable

import dagster as dg

from etl_assets.contract import DeliveredTable, Pipeline
from etl_assets.orchestration.assets import landing_asset, pipeline_assets
from etl_assets.orchestration.checks import ledger_checks
from etl_assets.orchestration.failures import failed_runs_sensor
from etl_assets.orchestration.jobs import checks_job, load_job
from etl_assets.orchestration.reconcile import reconcile_job
from etl_assets.orchestration.relaying import outbox_asset, relay_job, waiting_sensor
from etl_assets.orchestration.resources import ROOMS, Rooms
from etl_assets.orchestration.schedules import catch_up_schedule, ledger_schedules
from etl_assets.orchestration.sensors import deliveries_sensor


def build_defs(pipelines: Iterable[Pipeline], rooms: Rooms | None = None) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedules of pipelines; ``rooms`` come from the environment if not given.

    The executor is in-process: a fresh interpreter for each step costs more than a partition, and a killed
    multiprocess run leaves its step behind. Merge the result with other definitions by ``Definitions.merge``.
    """
    pipelines = list(pipelines)
    loads = {p.name: load_job(p) for p in pipelines}
    checks = [check for p in pipelines for check in ledger_checks(p)]
    checking, reconciling, relaying = checks_job(checks), reconcile_job(pipelines), relay_job()
    return dg.Definitions(
        assets=[
            *(landing_asset(p) for p in pipelines if isinstance(p, DeliveredTable)),
            *(pipeline_assets(p) for p in pipelines),
            outbox_asset(pipelines),
        ],
        asset_checks=checks,
        jobs=[*loads.values(), checking, reconciling, relaying],
        sensors=[
            *(deliveries_sensor(p, loads[p.name]) for p in pipelines),
            waiting_sensor(relaying),
            failed_runs_sensor(),
        ],
        schedules=[
            *(catch_up_schedule(p, loads[p.name]) for p in pipelines),
            *ledger_schedules(checking, reconciling),
        ],
        resources={ROOMS: rooms or Rooms.from_environment()},
        executor=dg.in_process_executor,
    )
