"""Pipelines to Dagster definitions: the one function that another Dagster project needs."""

from collections.abc import Iterable

import dagster as dg

from etl_assets.contract import DeliveredTable, Pipeline
from etl_assets.contract.naming import check_together
from etl_assets.errors import ContractError
from etl_assets.orchestration.assets import landing_asset, pipeline_assets
from etl_assets.orchestration.checks import all_checks
from etl_assets.orchestration.failures import failed_runs_sensor
from etl_assets.orchestration.jobs import checks_job, load_job
from etl_assets.orchestration.reconcile import reconcile_job
from etl_assets.orchestration.relaying import outbox_asset, outbox_key, relay_job, waiting_sensor
from etl_assets.orchestration.schedules import catch_up_schedule, ledger_schedules
from etl_assets.orchestration.sensors import deliveries_sensor
from etl_assets.settings import Settings


def build_defs(pipelines: Iterable[Pipeline], rooms: Settings | None = None, name: str | None = None) -> dg.Definitions:
    """Assets, checks, jobs, sensors and schedules of pipelines; ``rooms`` come from the environment if not given.

    Merge the result with other definitions by ``Definitions.merge``: it brings no executor and no resources that could
    be in the way of theirs. What is made once for all pipelines (the sensor ``deliveries``, the asset ``outbox``, the
    job ``check_ledger`` …) begins with ``name`` where it is given, so that a project may call this several times.
    Raises ``ContractError`` where names clash; where two calls share theirs, once the project that holds both is loaded.
    """
    pipelines = list(pipelines)
    if name is not None and not name.isidentifier():
        raise ContractError(f"build_defs: name: {name!r} must be letters, digits and _, and begin with no digit")
    _check_names(pipelines)
    rooms = rooms or Settings.from_environment()
    loads = {p.name: load_job(p) for p in pipelines}
    checks = [check for p in pipelines for check in all_checks(p, rooms)]
    checking, reconciling, relaying = checks_job(checks, name), reconcile_job(pipelines, rooms, name), relay_job(name)
    return dg.Definitions(
        assets=[
            *(landing_asset(p) for p in pipelines if isinstance(p, DeliveredTable)),
            *(pipeline_assets(p, rooms) for p in pipelines),
            outbox_asset(pipelines, rooms, name),
        ],
        asset_checks=checks,
        jobs=[*loads.values(), checking, reconciling, relaying],
        sensors=[
            *([deliveries_sensor(pipelines, loads, rooms, name)] if pipelines else []),
            waiting_sensor(relaying, rooms, name),
            failed_runs_sensor(rooms, relaying.name, outbox_key(name), name),
        ],
        schedules=[
            *(catch_up_schedule(p, loads[p.name], rooms) for p in pipelines),
            *ledger_schedules(checking, reconciling, name),
        ],
    )


def _check_names(pipelines: list[Pipeline]) -> None:
    """Raise ``ContractError`` where two pipelines, or an asset of one and the other, have the same name."""
    names = [pipeline.name for pipeline in pipelines]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ContractError(f"build_defs: two pipelines are named {twice[0]!r}: rename one")
    try:
        check_together(pipelines)
    except ValueError as error:
        raise ContractError(f"build_defs: {error}") from error
