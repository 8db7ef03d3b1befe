"""What a pipeline's assets, op, job, sensor and schedule are called in Dagster, and the tags of the runs asked for."""

import dagster as dg

from etl_assets.contract import DerivedTable, Pipeline, Table

ACCEPTED = "delivery_accepted"

#: The asset of all messages, its job, and its one slot: order needs a single relay.
OUTBOX = dg.AssetKey("outbox")
RELAY_JOB = "relay_outbox"
OUTBOX_POOL = "outbox"

#: Tags of a run that the sensor or the schedule asked for: for which pipeline, and for which deliveries, a line each.
PIPELINE_TAG = "etl/pipeline"
DELIVERIES_TAG = "etl/deliveries"


def landing_key(pipeline: Table) -> dg.AssetKey:
    return dg.AssetKey(f"{pipeline.name}_landing")


def extract_key(pipeline: Pipeline) -> dg.AssetKey:
    return dg.AssetKey(f"{pipeline.name}_extract")


def pool_name(pipeline: Pipeline) -> str:
    """Return the pool of a pipeline's runs: they follow one another, and those of other pipelines go beside them."""
    return f"load_{pipeline.name}"


def table_key(pipeline: Pipeline) -> dg.AssetKey:
    return dg.AssetKey(pipeline.name)


def made_keys(pipeline: Pipeline) -> list[dg.AssetKey]:
    """The assets that loading makes: extract and table; of what is computed the table alone."""
    return [table_key(pipeline)] if isinstance(pipeline, DerivedTable) else [extract_key(pipeline), table_key(pipeline)]


def checked_key(pipeline: Pipeline) -> dg.AssetKey:
    """The asset that the ledger's checks hang on: the landing where there is one."""
    return table_key(pipeline) if isinstance(pipeline, DerivedTable) else landing_key(pipeline)


def op_name(pipeline: Pipeline) -> str:
    return f"load_{pipeline.name}"


def job_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_job"


def sensor_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_{'stale' if isinstance(pipeline, DerivedTable) else 'deliveries'}"


def schedule_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_catch_up"


def waiting_for(pipeline: Pipeline) -> str:
    """What makes a run ask for a partition, in words."""
    if isinstance(pipeline, DerivedTable):
        return "upstream has a batch in the ledger that they were not computed of"
    return "newest delivery is not in the ledger"


def in_order(pipeline: Pipeline) -> bool:
    """Whether every delivery counts and is loaded in its turn (logs, snapshots), instead of the newest of a partition."""
    return not pipeline.newest_counts
