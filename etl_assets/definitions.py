"""What Dagster loads: the pipelines of this project and of ``ETL_PIPELINES``, as one module-level ``defs``."""

from etl_assets.orchestration import build_defs
from etl_assets.registry import load_pipelines

defs = build_defs(load_pipelines().values())
