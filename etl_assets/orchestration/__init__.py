"""Dagster only: pipelines as assets, jobs, sensors, schedules and checks.

In another Dagster project::

    from etl_assets.orchestration import build_defs
    from my_project.pipelines import orders

    defs = build_defs([orders])
"""

from etl_assets.orchestration.assets import landing_asset, pipeline_assets
from etl_assets.orchestration.build import build_defs
from etl_assets.orchestration.loading import LoadConfig
from etl_assets.orchestration.partitions import partitions_definition
from etl_assets.settings import Settings as Rooms

__all__ = ["LoadConfig", "Rooms", "build_defs", "landing_asset", "partitions_definition", "pipeline_assets"]
