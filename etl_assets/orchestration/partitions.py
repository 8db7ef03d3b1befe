"""A contract's partitions as Dagster's: the same keys, so that a scope has one name everywhere."""

import warnings

import dagster as dg

from etl_assets.contract import DerivedTable, ShardedPartitions, StaticPartitions, TimePartitions, Upstream
from etl_assets.contract.partitions import Partitions

#: The dimensions of a log with shards, in the order in which they stand in its keys (Dagster sorts them by name).
ARRIVAL, SHARD = "arrival", "shard"


def partition_tags(partitions: Partitions, scope: str) -> dict[str, str]:
    """What Dagster puts on an event of a partition of two dimensions, and reads the partition's key from."""
    if not isinstance(partitions, ShardedPartitions):
        return {}
    return {
        f"dagster/partition/{name}": key for name, key in zip((ARRIVAL, SHARD), partitions.split(scope), strict=True)
    }


def partitions_definition(partitions: Partitions) -> dg.PartitionsDefinition[str]:
    """The Dagster definition with exactly the contract's keys."""
    if isinstance(partitions, ShardedPartitions):
        shards = dg.StaticPartitionsDefinition(list(partitions.shards))
        return dg.MultiPartitionsDefinition({ARRIVAL: partitions_definition(partitions.arrival), SHARD: shards})
    if isinstance(partitions, StaticPartitions):
        return dg.StaticPartitionsDefinition(list(partitions.names))
    definition = {
        "hourly": dg.HourlyPartitionsDefinition,
        "daily": dg.DailyPartitionsDefinition,
        "weekly": dg.WeeklyPartitionsDefinition,
        "monthly": dg.MonthlyPartitionsDefinition,
    }[partitions.cadence]
    return definition(start_date=partitions.start, end_date=partitions.end, timezone=partitions.timezone)


def partition_mapping(derived: DerivedTable, upstream: Upstream) -> dg.PartitionMapping:
    """Which upstream partitions a derived one sees, as Dagster says it; lineage only, the ledger decides what is stale."""
    theirs, own = upstream.partitions, derived.partitions
    if isinstance(theirs, StaticPartitions):
        return dg.IdentityPartitionMapping()
    if not isinstance(theirs, TimePartitions) or not isinstance(own, TimePartitions) or theirs.timezone != own.timezone:
        return dg.AllPartitionMapping()
    with warnings.catch_warnings():
        # Beta in 1.13, and needed: the window after the last one is a partition of neither table.
        warnings.filterwarnings("ignore", message=".*allow_nonexistent_upstream_partitions", category=dg.BetaWarning)
        return dg.TimeWindowPartitionMapping(
            -upstream.before, upstream.after, allow_nonexistent_upstream_partitions=True
        )
