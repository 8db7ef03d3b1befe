"""The contract of a watermark table: snapshots whose rows say when they last changed. No I/O."""

from __future__ import annotations

import datetime as dt
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from etl_assets.contract.columns import Frozen
from etl_assets.contract.partitions import TimePartitions
from etl_assets.contract.table import DeliveredTable


class Lookback(Frozen):
    """Take rows that changed up to this long before the watermark, too: they may have arrived late."""

    by: dt.timedelta = Field(gt=dt.timedelta(0))


def lookback(**duration: float) -> Lookback:
    """``lookback(hours=6)``: take rows that changed up to six hours before the watermark."""
    return Lookback(by=dt.timedelta(**duration))


class Window(Frozen):
    """A snapshot is complete within the range of this column: what is absent there was withdrawn."""

    column: str


def window(column: str) -> Window:
    """A rolling feed is complete for what lies between its smallest and largest value of ``column``."""
    return Window(column=column)


class WatermarkTable(DeliveredTable):
    """Deliveries that are snapshots with a column that says when a row last changed.

    A row is taken when it is newer than the version in the table. All rows are looked at, however late, unless ``bounds``
    limit them by the watermark, the newest change committed so far: ``strict`` beyond it, ``inclusive`` from it on (ties
    are not lost), or with a ``lookback``. Of complete snapshots (``whole``, or within a ``window``) all are, and a key that
    is absent is withdrawn; complete snapshots are ordered, and an older one after a newer is superseded.
    """

    updated: str
    bounds: Literal["strict", "inclusive", "none"] | Lookback = "none"
    complete: Literal["no", "whole"] | Window = "no"
    allow_empty: bool = Field(False, description="a whole snapshot without rows withdraws all that the table has")

    newest_counts: ClassVar[bool] = False
    operation: ClassVar[Literal["replace", "consume", "merge"]] = "merge"

    @model_validator(mode="after")
    def _snapshots(self) -> Self:
        if not self.key:
            raise ValueError("key: the rows of snapshots are told apart by a key")
        column = self.column(self.updated)
        if column is None or column.type not in ("timestamp", "date", "integer"):
            raise ValueError(f"updated: {self.updated!r} is not a timestamp, date or integer column")
        if isinstance(self.bounds, Lookback) and column.type == "integer":
            raise ValueError("bounds: a lookback is for timestamps and dates")
        if self.complete != "no" and not isinstance(self.partitions, TimePartitions):
            raise ValueError("complete: snapshots are ordered by their time, so their partitions are hours, days …")
        if isinstance(self.complete, Window):
            self._check_named("complete", (self.complete.column,))
            within = self.column(self.complete.column)
            if within is not None and within.type not in ("timestamp", "date", "integer", "real"):
                raise ValueError(f"complete: {within.name!r} is {within.type}, and has no range in the warehouse")
        return self

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns whose value no row may lack: the declared ones, the key and the watermark."""
        return super().required_columns | {self.updated}
