"""What a pipeline's assets, op, job and schedule are called in Dagster, and the tags of the runs asked for."""

import hashlib

import dagster as dg

from etl_assets.contract import DerivedTable, Pipeline, Table
from etl_assets.loading import Status
from etl_assets.model import batch_id

ACCEPTED = "delivery_accepted"

#: The one slot of a relay: order needs a single one.
OUTBOX_POOL = "outbox"

#: What a call of ``build_defs`` makes once, whatever its pipelines; see :func:`shared`.
OUTBOX, RELAY_JOB, WAITING_SENSOR, FAILED_RUNS = "outbox", "relay_outbox", "outbox_waiting", "failed_runs"
DELIVERIES, CHECKS_JOB, RECONCILE_JOB = "deliveries", "check_ledger", "reconcile_with_ledger"
CHECK_SCHEDULE, RECONCILE_SCHEDULE = "check_ledger_daily", "reconcile_hourly"

#: Tags of a run that the sensor or a schedule asked for: for which pipeline, and for which deliveries, a line each.
PIPELINE_TAG = "etl/pipeline"
DELIVERIES_TAG = "etl/deliveries"


def shared(name: str | None, what: str) -> str:
    """The name of what is made once, by the ``name`` that tells several calls of ``build_defs`` in one project apart."""
    return f"{name}_{what}" if name else what


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


def op_name(pipeline: Pipeline) -> str:
    return f"load_{pipeline.name}"


def job_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_job"


def schedule_name(pipeline: Pipeline) -> str:
    return f"{pipeline.name}_catch_up"


def label(pipeline: Pipeline, status: Status) -> str:
    """The delivery that a request is for, and the logic that is to load it, as ``scope/name#revision@version``.

    Escaped as in a batch's id: no two deliveries share a label, and none breaks a line.
    """
    version = pipeline.transform_version
    whole = batch_id(pipeline.name, status.scope, status.name, status.revision, version)
    return whole.partition("/")[2]


def label_with_stamp(pipeline: Pipeline, status: Status) -> str:
    """The label of a delivery and, behind a blank, what tells that its file was written again since."""
    stamp = status.arrival.stamp if status.arrival else ""
    return f"{label(pipeline, status)} {hashlib.sha256(stamp.encode()).hexdigest()[:8]}"


def in_order(pipeline: Pipeline) -> bool:
    """Whether every delivery counts and is loaded in its turn (logs, snapshots), instead of the newest of a partition."""
    return not pipeline.newest_counts
