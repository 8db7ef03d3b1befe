"""The vocabulary of a pipeline's promises: typed, frozen, fingerprinted. Neither I/O nor Dagster belongs here."""

from etl_assets.contract.changelog import ChangeLogTable, Events, debezium, native
from etl_assets.contract.columns import Column, boolean, date, decimal, integer, json, real, text, timestamp
from etl_assets.contract.derived import DerivedTable, Upstream, partitions_around, same_partition, whole
from etl_assets.contract.notification import Notification
from etl_assets.contract.partitions import (
    Daily,
    Hourly,
    Monthly,
    Sharded,
    ShardedPartitions,
    Static,
    StaticPartitions,
    TimePartitions,
    Weekly,
)
from etl_assets.contract.policies import (
    DateOf,
    FileFormat,
    Quarantine,
    Repair,
    Transform,
    ValueOf,
    date_of,
    quarantine,
    repair,
)
from etl_assets.contract.table import DeliveredTable, PartitionedTable, ReferenceTable, Table, is_remade, transform
from etl_assets.contract.watermark import Lookback, WatermarkTable, Window, lookback, window

#: What the other rooms load; which of them it is decides how it is published.
Pipeline = PartitionedTable | ChangeLogTable | WatermarkTable | DerivedTable
#: Those whose partitions are replaced, and hold rows of their own.
ReplacedTable = PartitionedTable | DerivedTable

__all__ = [
    "ChangeLogTable",
    "Column",
    "Daily",
    "DateOf",
    "DeliveredTable",
    "DerivedTable",
    "Events",
    "FileFormat",
    "Hourly",
    "Lookback",
    "Monthly",
    "Notification",
    "PartitionedTable",
    "Pipeline",
    "Quarantine",
    "ReferenceTable",
    "Repair",
    "ReplacedTable",
    "Sharded",
    "ShardedPartitions",
    "Static",
    "StaticPartitions",
    "Table",
    "TimePartitions",
    "Transform",
    "Upstream",
    "ValueOf",
    "WatermarkTable",
    "Weekly",
    "Window",
    "boolean",
    "date",
    "date_of",
    "debezium",
    "decimal",
    "integer",
    "is_remade",
    "json",
    "lookback",
    "native",
    "partitions_around",
    "quarantine",
    "real",
    "repair",
    "same_partition",
    "text",
    "timestamp",
    "transform",
    "whole",
    "window",
]
