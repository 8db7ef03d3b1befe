"""Jobs: load a pipeline, check ledger against rows, reconcile Dagster with the ledger."""

from collections.abc import Sequence

import dagster as dg

# What `define_asset_job` returns has no public name.
from dagster._core.definitions.unresolved_asset_job_definition import UnresolvedAssetJobDefinition

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.orchestration.names import CHECKS_JOB, job_name, made_keys, shared

AssetJob = UnresolvedAssetJobDefinition

#: Jobs bring their executor: a fresh interpreter for each step costs more than a partition, and a killed run of several
#: processes leaves its step behind. Set for all definitions, it would not merge with a project's own.
EXECUTOR = dg.in_process_executor


def load_job(pipeline: Pipeline) -> AssetJob:
    """Freeze and publish partitions of a pipeline.

    Without the checks: Dagster would plan them once for each partition, and show them as failed whenever the load fails.
    The op evaluates what it knows of each delivery, which needs no plan.
    """
    return dg.define_asset_job(
        job_name(pipeline),
        selection=dg.AssetSelection.assets(*made_keys(pipeline)).without_checks(),
        executor_def=EXECUTOR,
        description=f"Compute partitions of {pipeline.name}."
        if isinstance(pipeline, DerivedTable)
        else f"Freeze and publish deliveries of {pipeline.name}.",
    )


def checks_job(checks: Sequence[dg.AssetChecksDefinition], name: str | None) -> AssetJob:
    """The ledger's checks of all pipelines."""
    return dg.define_asset_job(
        shared(name, CHECKS_JOB),
        executor_def=EXECUTOR,
        selection=dg.AssetSelection.checks(*checks),
        description="Does the ledger agree with the rows, is the newest partition loaded, does a delivery wait?",
    )
