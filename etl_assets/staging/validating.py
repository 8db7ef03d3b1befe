"""Typed rows against the contract: required values, bounds, how many, and their partition. Vectorised."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import (
    Column,
    DateOf,
    DeliveredTable,
    PartitionedTable,
    StaticPartitions,
    Table,
    TimePartitions,
    ValueOf,
)
from etl_assets.errors import ShrunkDelivery
from etl_assets.model import Fetched
from etl_assets.staging.rejects import Rejected

#: The column that numbers the records of a delivery, while rows are being staged.
RECORD = "__record"


def find_invalid(contract: Table, table: pa.Table) -> dict[int, list[str]]:
    """Rows (by position) that break a promise about their values, with the reasons."""
    invalid: dict[int, list[str]] = {}

    def mark(mask: pa.ChunkedArray | pa.Array, reason: Any) -> None:
        for row in pc.indices_nonzero(pc.fill_null(mask, False)).to_pylist():
            invalid.setdefault(row, []).append(reason(row) if callable(reason) else reason)

    for column in contract.columns:
        values = table[column.name]
        if column.name in contract.required_columns:
            part = "part of the key" if column.name in contract.key else "required"
            if values.null_count:
                mark(pc.is_null(values), f"{column.name} is {part} and has no value")
            if column.name in contract.key and column.type == "text":
                mark(pc.equal(values, ""), f"{column.name} is part of the key and is empty")
        if column.type in ("text", "json") and pc.any(nul := pc.match_substring(values, "\0")).as_py():
            of_key = "is part of the key and " if column.name in contract.key else ""
            mark(nul, f"{column.name} {of_key}holds a NUL character, after which databases cut a text")
        if column.type == "real" and not pc.all(finite := pc.is_finite(values)).as_py():
            mark(pc.invert(finite), f"{column.name} is not finite")  # only a transform can make one
        _check_bounds(column, values, mark)
    return invalid


def _check_bounds(column: Column, values: pa.ChunkedArray, mark: Any) -> None:
    low, high = column.bounds
    if low is not None:
        bound = pa.scalar(low).cast(values.type)
        mark(pc.less(values, bound), lambda row: f"{column.name} is {values[row].as_py()}, less than {low}")
    if high is not None:
        bound = pa.scalar(high).cast(values.type)
        mark(pc.greater(values, bound), lambda row: f"{column.name} is {values[row].as_py()}, more than {high}")


def check_counts(contract: DeliveredTable, fetched: Fetched, shown: str, source_rows: int) -> None:
    """Raise :class:`ShrunkDelivery` for fewer records than the control file declares or the contract expects."""
    declared = fetched.declared_rows
    if declared is not None:
        control = f"{shown}{contract.row_count_file}"
        if not (declared.isascii() and declared.isdigit()):
            raise ShrunkDelivery(
                f"{control}: {declared!r} is not a count of rows; deliver it again with the number alone"
            )
        if int(declared) != source_rows:
            raise ShrunkDelivery(
                f"{shown}: {source_rows:,} rows, but its control file {control} declares {int(declared):,}: not the "
                "whole delivery. Deliver it again"
            )
    if source_rows < contract.min_rows:
        raise ShrunkDelivery(
            f"{shown}: {source_rows:,} rows, but the contract expects at least {contract.min_rows:,}: "
            "is this the complete contents of the partition?"
        )


def find_foreign(contract: PartitionedTable, scope: str, table: pa.Table) -> dict[int, list[str]]:
    """Rows (by position) that belong to another partition than ``scope``, with the one they belong to."""
    rule = contract.partition_by
    if rule is None or not table.num_rows:
        return {}
    belongs = _DateOf(contract, scope, rule) if isinstance(rule, DateOf) else _ValueOf(contract, scope, rule)
    rows = pc.indices_nonzero(pc.invert(belongs.mask(table))).to_pylist()
    return {row: [f"belongs to partition {belongs.key(table, row)}, not {scope}"] for row in rows}


class _DateOf:
    def __init__(self, contract: PartitionedTable, scope: str, rule: DateOf) -> None:
        assert isinstance(contract.partitions, TimePartitions)
        self.partitions, self.rule = contract.partitions, rule
        start = self.partitions.parse(scope)
        assert start is not None
        first, last = start.date(), self.partitions.next(start).date() - dt.timedelta(days=1)
        #: Year, month, and first and last day in it: a week may lie in two months. Dates that do not exist are in none.
        self.spans = [(first.year, first.month, first.day, last.day)]
        if (first.year, first.month) != (last.year, last.month):
            end = last.replace(day=1) - dt.timedelta(days=1)
            self.spans = [(first.year, first.month, first.day, end.day), (last.year, last.month, 1, last.day)]

    def mask(self, table: pa.Table) -> pa.Array:
        year, month, day = (table[name] for name in self.rule.columns)
        inside = None
        for in_year, in_month, first, last in self.spans:
            of_month = pc.and_(pc.equal(year, in_year), pc.equal(month, in_month))
            span = pc.and_(of_month, pc.and_(pc.greater_equal(day, first), pc.less_equal(day, last)))
            inside = span if inside is None else pc.or_(inside, span)
        return inside

    def key(self, table: pa.Table, row: int) -> str:
        year, month, day = (table[name][row].as_py() for name in self.rule.columns)
        try:
            return self.partitions.key(dt.datetime(year, month, day, tzinfo=self.partitions.zone))
        except (ValueError, OverflowError):
            return f"of {year}-{month}-{day}, which is no date"


class _ValueOf:
    def __init__(self, contract: PartitionedTable, scope: str, rule: ValueOf) -> None:
        assert isinstance(contract.partitions, TimePartitions | StaticPartitions)
        self.partitions, self.scope, self.column = contract.partitions, scope, rule.column

    def mask(self, table: pa.Table) -> pa.Array:
        values = table[self.column]
        if isinstance(self.partitions, StaticPartitions):
            return pc.equal(values, self.scope)
        start = self.partitions.parse(self.scope)
        assert start is not None
        until = self.partitions.next(start)
        if pa.types.is_date(values.type):
            low, high = pa.scalar(start.date()), pa.scalar(until.date())
        else:
            # Windows are compared as instants: a local day may have 23 or 25 hours.
            low, high = (pa.scalar(m.astimezone(dt.UTC), pa.timestamp("us", "UTC")) for m in (start, until))
        return pc.and_(pc.greater_equal(values, low), pc.less(values, high))

    def key(self, table: pa.Table, row: int) -> str:
        value = table[self.column][row].as_py()
        if isinstance(self.partitions, StaticPartitions):
            return repr(value)
        if not isinstance(value, dt.datetime):
            value = dt.datetime(value.year, value.month, value.day, tzinfo=self.partitions.zone)
        try:
            return self.partitions.key(value)
        except (ValueError, OverflowError):  # at the ends of the calendar
            return f"of {value}"


def rejected(table: pa.Table, reasons: dict[int, list[str]]) -> list[Rejected]:
    """The rows at these positions as rejects, with their values as text."""
    if not reasons:
        return []
    positions = sorted(reasons)
    rows = table.take(pa.array(positions, pa.int64())).to_pylist()
    return [
        Rejected(row.pop(RECORD, None), tuple(reasons[position]), row)
        for position, row in zip(positions, rows, strict=True)
    ]


def without(table: pa.Table, reasons: dict[int, list[str]]) -> pa.Table:
    """The table without the rows at these positions."""
    if not reasons:
        return table
    bad = pa.array(sorted(reasons), pa.int64())
    return table.filter(pc.invert(pc.is_in(pa.array(range(table.num_rows), pa.int64()), bad)))
