"""The vocabulary of a pipeline's promises: typed, frozen, fingerprinted. Neither I/O nor Dagster belongs here."""

from etl_assets.contract.columns import Column, boolean, date, decimal, integer, json, real, text, timestamp
from etl_assets.contract.partitions import Daily, Hourly, Monthly, Static, StaticPartitions, TimePartitions, Weekly
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
from etl_assets.contract.table import PartitionedTable, Pipeline, ReferenceTable, transform

__all__ = [
    "Column",
    "Daily",
    "DateOf",
    "FileFormat",
    "Hourly",
    "Monthly",
    "PartitionedTable",
    "Pipeline",
    "Quarantine",
    "ReferenceTable",
    "Repair",
    "Static",
    "StaticPartitions",
    "TimePartitions",
    "Transform",
    "ValueOf",
    "Weekly",
    "boolean",
    "date",
    "date_of",
    "decimal",
    "integer",
    "json",
    "quarantine",
    "real",
    "repair",
    "text",
    "timestamp",
    "transform",
]
