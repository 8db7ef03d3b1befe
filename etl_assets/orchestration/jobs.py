"""Jobs: load a pipeline, check ledger against rows, reconcile Dagster with the ledger."""

from collections.abc import Sequence

import dagster as dg

# What `define_asset_job` returns has no public name.
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.orchestration.names import ACCEPTED, extract_key, in_order, job_name, made_keys

AssetJob = UnresolvedAssetJobDefinition

CHECKS_JOB = "check_ledger"


def load_job(pipeline: Pipeline) -> AssetJob:
    """Freeze and publish partitions of a pipeline."""
    selection = dg.AssetSelection.assets(*made_keys(pipeline)).without_checks()
    if not in_order(pipeline) and not isinstance(pipeline, DerivedTable):
        # Elsewhere a range may hold days without a delivery. Dagster plans a check for each day of it, and would show
        # those as skipped for ever; evaluations need no plan.
        selection |= dg.AssetSelection.checks(dg.AssetCheckKey(extract_key(pipeline), ACCEPTED))
    return dg.define_asset_job(
        job_name(pipeline),
        selection=selection,
        description=f"Compute partitions of {pipeline.name}."
        if isinstance(pipeline, DerivedTable)
        else f"Freeze and publish deliveries of {pipeline.name}.",
    )


def checks_job(checks: Sequence[dg.AssetChecksDefinition]) -> AssetJob:
    """The ledger's checks of all pipelines."""
    return dg.define_asset_job(
        CHECKS_JOB,
        selection=dg.AssetSelection.checks(*checks),
        description="Does the ledger agree with the rows, is the newest partition loaded, does a delivery wait?",
    )
