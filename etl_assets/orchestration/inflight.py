"""What Dagster's own records say of a pipeline: partitions in flight, and how often a delivery was asked for."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.orchestration.names import DELIVERIES_TAG, PIPELINE_TAG, extract_key, job_name, table_key

IN_FLIGHT = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
UNSUCCESSFUL = (dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED)
ENDED = [*UNSUCCESSFUL, dg.DagsterRunStatus.SUCCESS]

PARTITION_TAG = "dagster/partition"
RANGE_START_TAG, RANGE_END_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
PAGE = 500
#: Newest backfills that are looked at for ones that have not ended.
RECENT_BACKFILLS = 100


def partitions_running(instance: dg.DagsterInstance, pipeline: Pipeline, keys: Sequence[str]) -> set[str]:
    """Partitions of runs that have not ended, by whatever way they were launched."""
    found: set[str] = set()
    for run in _runs(instance, dg.RunsFilter(statuses=IN_FLIGHT)):
        if _loads(run, pipeline):
            found.update(_partitions_of(run, pipeline, keys))
    return found


def is_running(instance: dg.DagsterInstance, asset: dg.AssetKey, job: str) -> bool:
    """Whether a run that has not ended makes this asset, in its job or out of any."""
    runs = _runs(instance, dg.RunsFilter(statuses=IN_FLIGHT))
    return any(run.job_name == job or asset in (run.asset_selection or ()) for run in runs)


def partitions_requested(instance: dg.DagsterInstance, pipeline: Pipeline, asset_graph: Any) -> set[str]:
    """Partitions of backfills that have not ended and have not made their runs yet."""
    found: set[str] = set()
    for backfill in instance.get_backfills(limit=RECENT_BACKFILLS):
        if backfill.status.value == "REQUESTED":
            found.update(_partitions_to_come(backfill, pipeline, asset_graph))
    return found


def count_requests(instance: dg.DagsterInstance, pipeline: Pipeline) -> tuple[Counter[str], Counter[str]]:
    """For each delivery, how many runs that were asked for it have ended, and how many of them in failure."""
    ended: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for run in _runs(instance, dg.RunsFilter(statuses=ENDED, tags={PIPELINE_TAG: pipeline.name})):
        deliveries = run.tags.get(DELIVERIES_TAG, "").splitlines()
        ended.update(deliveries)
        if run.status in UNSUCCESSFUL:
            failed.update(deliveries)
    return ended, failed


def _runs(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> Iterator[dg.DagsterRun]:
    cursor = None
    while page := instance.get_runs(filters, cursor=cursor, limit=PAGE):
        yield from page
        cursor = page[-1].run_id


def _loads(run: dg.DagsterRun, pipeline: Pipeline) -> bool:
    """Whether a run is about the pipeline's assets; a job's run without a selection is about all of the job's."""
    if run.asset_selection is not None:
        return bool(run.asset_selection & {extract_key(pipeline), table_key(pipeline)})
    return run.job_name == job_name(pipeline)


def _partitions_of(run: dg.DagsterRun, pipeline: Pipeline, keys: Sequence[str]) -> Sequence[str]:
    if PARTITION_TAG in run.tags:
        return [run.tags[PARTITION_TAG]]
    first, last = run.tags.get(RANGE_START_TAG, ""), run.tags.get(RANGE_END_TAG, "")
    if first in keys and last in keys:
        return pipeline.partitions.between(first, last)
    return []


def _partitions_to_come(backfill: Any, pipeline: Pipeline, asset_graph: Any) -> Iterator[str]:
    """Partitions of a backfill whose run is not made yet; the others are those of their runs.

    What has become of the runs a backfill notes only at the daemon's next tick, half a minute later.
    """
    if not backfill.is_asset_backfill:
        if backfill.job_name == job_name(pipeline):
            yield from backfill.partition_names or ()
        return
    if not set(backfill.asset_selection or ()) & {extract_key(pipeline), table_key(pipeline)}:
        return
    data = backfill.get_asset_backfill_data(asset_graph)
    subset = data.target_subset - data.requested_subset - data.materialized_subset - data.failed_and_downstream_subset
    for key in (extract_key(pipeline), table_key(pipeline)):
        if key in subset.asset_keys:
            yield from subset.get_partitions_subset(key).get_partition_keys()
