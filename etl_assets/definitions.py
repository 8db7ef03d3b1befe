"""What Dagster loads: the pipelines of this project and of ``ETL_PIPELINES``, as one module-level ``defs``."""

import dagster as dg

from etl_assets.orchestration import build_defs
from etl_assets.registry import load_pipelines

#: Assets that are launched outside of a job run in the process of their run, as jobs do.
defs = dg.Definitions.merge(build_defs(load_pipelines().values()), dg.Definitions(executor=dg.in_process_executor))
