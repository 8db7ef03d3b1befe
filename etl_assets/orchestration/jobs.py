"""Jobs: load a pipeline, check ledger against rows, reconcile Dagster with the ledger."""

from collections.abc import Sequence

import dagster as dg

# What `define_asset_job` returns has no public name.
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from etl_assets.contract import Pipeline
from etl_assets.orchestration.names import ACCEPTED, extract_key, in_order, job_name, table_key

AssetJob = UnresolvedAssetJobDefinition

CHECKS_JOB = "check_ledger"


def load_job(pipeline: Pipeline) -> AssetJob:
    """Freeze and publish partitions of a pipeline."""
    extract, table = extract_key(pipeline), table_key(pipeline)
    selection = dg.AssetSelection.assets(extract, table).without_checks()
    if not in_order(pipeline):
        # Elsewhere a range may hold days without a delivery. Dagster plans a check for each day of it, and would show
        # those as skipped for ever; evaluations need no plan.
        selection |= dg.AssetSelection.checks(dg.AssetCheckKey(extract, ACCEPTED))
    return dg.define_asset_job(
        job_name(pipeline),
        selection=selection,
        description=f"Freeze and publish deliveries of {pipeline.name}.",
    )


def checks_job(checks: Sequence[dg.AssetChecksDefinition]) -> AssetJob:
    """The ledger's checks of all pipelines."""
    return dg.define_asset_job(
        CHECKS_JOB,
        selection=dg.AssetSelection.checks(*checks),
        description="Does the ledger agree with the rows, is the newest partition loaded, does a delivery wait?",
    )
