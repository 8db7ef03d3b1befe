"""A module of pipelines for ``ETL_PIPELINES``, as light as a user's: the figures of commands load ``small`` from here."""

from __future__ import annotations

import datetime as dt
import os

from etl_assets.contract import Daily, PartitionedTable, date, integer, real, text

FIRST = "1700-01-01"
#: How many partitions there are, set by the figure.
DAYS = "BENCH_DAYS"


def pipeline(name: str = "small") -> PartitionedTable:
    """A pipeline of a delivery a day, each of a few rows."""
    end = dt.date.fromisoformat(FIRST) + dt.timedelta(int(os.environ.get(DAYS, "1000")))
    return PartitionedTable(
        name=name,
        partitions=Daily(start=FIRST, end=end.isoformat()),
        landing=f"{name}/{{partition}}/*.csv",
        columns=[date("day"), integer("id"), text("item"), integer("amount"), real("price")],
        key=["day", "id"],
        partition_by="day",
    )


small = pipeline()
