"""What Dagster's own records say of pipelines: partitions in flight, and how often a delivery was asked for."""

import datetime as dt
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
ENDED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED, dg.DagsterRunStatus.SUCCESS]

PARTITION_TAG = "dagster/partition"
RANGE_START_TAG, RANGE_END_TAG = "dagster/asset_partition_range_start", "dagster/asset_partition_range_end"
PAGE = 500
#: Newest backfills that are looked at for ones that have not ended.
RECENT_BACKFILLS = 100
#: A run that is in flight for longer is named, since its process may be gone.
LONG_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Flight:
    """What holds a partition back: a run that has not ended, since when; or a backfill that has not made its runs yet."""

    id: str
    since: dt.datetime
    is_backfill: bool = False

    def __str__(self) -> str:
        return f"{'backfill' if self.is_backfill else 'run'} {self.id[:8]}"

    @property
    def is_long(self) -> bool:
        return dt.datetime.now(dt.UTC) - self.since > dt.timedelta(seconds=LONG_SECONDS)

    @property
    def advice(self) -> str:
        """What a person may have to do about it."""
        done = "cancel it" if self.is_backfill else "if its process is gone, terminate it in Dagster"
        return f"{self} has not ended since {self.since:%Y-%m-%d %H:%M} UTC: {done}; what it committed stays"


NEVER = dt.datetime.min.replace(tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class Tried:
    """How many runs that were asked for a delivery have ended, how many without success, and when the last one did."""

    times: int = 0
    failed: int = 0
    last: dt.datetime = NEVER


class Records:
    """Dagster's runs and backfills; those in flight are read once, for all pipelines."""

    def __init__(self, instance: dg.DagsterInstance, asset_graph: Any) -> None:
        self.instance, self.asset_graph = instance, asset_graph

    @functools.cached_property
    def _running(self) -> list[dg.RunRecord]:
        return list(_records(self.instance, dg.RunsFilter(statuses=IN_FLIGHT)))

    @functools.cached_property
    def _requested(self) -> list[Any]:
        found = self.instance.get_backfills(limit=RECENT_BACKFILLS)
        return [backfill for backfill in found if backfill.status.value == "REQUESTED"]

    def running(self, pipeline: Pipeline, keys: Sequence[str]) -> dict[str, Flight]:
        """Partitions of runs that have not ended, however they were launched."""
        found: dict[str, Flight] = {}
        for record in self._running:
            if _loads(record.dagster_run, pipeline):
                flight = Flight(record.dagster_run.run_id, _utc(record.create_timestamp))
                found.update(dict.fromkeys(_partitions_of(record.dagster_run, pipeline, keys), flight))
        return found

    def in_flight(self, pipeline: Pipeline, keys: Sequence[str]) -> dict[str, Flight]:
        """Partitions of runs that have not ended, and of backfills that have not made all of their runs yet."""
        found = self.running(pipeline, keys)
        for backfill in self._requested:
            since = dt.datetime.fromtimestamp(backfill.backfill_timestamp, dt.UTC)
            flight = Flight(backfill.backfill_id, since, is_backfill=True)
            found = dict.fromkeys(_partitions_to_come(backfill, pipeline, self.asset_graph), flight) | found
        return found

    def tried(self, pipeline: Pipeline) -> dict[str, Tried]:
        """For each label, the runs that were asked for it and have ended; with a file's stamp, and whatever its stamp was."""
        found: dict[str, Tried] = {}
        for record in _records(self.instance, dg.RunsFilter(statuses=ENDED, tags={PIPELINE_TAG: pipeline.name})):
            ended, failed = _utc(record.update_timestamp), record.dagster_run.status is not dg.DagsterRunStatus.SUCCESS
            lines = record.dagster_run.tags.get(DELIVERIES_TAG, "").splitlines()
            for one in {*lines, *(line.rpartition(" ")[0] for line in lines)}:
                before = found.get(one, Tried())
                found[one] = Tried(before.times + 1, before.failed + failed, max(before.last, ended))
        return found


def is_running(instance: dg.DagsterInstance, asset: dg.AssetKey, job: str) -> bool:
    """Whether a run that has not ended makes this asset, in its job or out of any."""
    runs = (record.dagster_run for record in _records(instance, dg.RunsFilter(statuses=IN_FLIGHT)))
    return any(run.job_name == job or asset in (run.asset_selection or ()) for run in runs)


def _utc(moment: dt.datetime) -> dt.datetime:
    """Dagster keeps moments in UTC; some storages leave the zone out."""
    return moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)


def _records(instance: dg.DagsterInstance, filters: dg.RunsFilter) -> Iterator[dg.RunRecord]:
    cursor = None
    while page := instance.get_run_records(filters, cursor=cursor, limit=PAGE):
        yield from page
        cursor = page[-1].dagster_run.run_id
        if len(page) < PAGE:
            return


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
