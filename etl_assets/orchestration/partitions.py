"""A contract's partitions as Dagster's: the same keys, so that a scope has one name everywhere."""

import dagster as dg

from etl_assets.contract import StaticPartitions
from etl_assets.contract.partitions import Partitions


def partitions_definition(partitions: Partitions) -> dg.PartitionsDefinition[str]:
    """The Dagster definition with exactly the contract's keys."""
    if isinstance(partitions, StaticPartitions):
        return dg.StaticPartitionsDefinition(list(partitions.names))
    definition = {
        "hourly": dg.HourlyPartitionsDefinition,
        "daily": dg.DailyPartitionsDefinition,
        "weekly": dg.WeeklyPartitionsDefinition,
        "monthly": dg.MonthlyPartitionsDefinition,
    }[partitions.cadence]
    return definition(start_date=partitions.start, end_date=partitions.end, timezone=partitions.timezone)
