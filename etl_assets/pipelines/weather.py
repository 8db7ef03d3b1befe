"""Hourly weather at the three New York airports: one row an airport and hour, one delivery a day and release.

The publisher labelled day and hour in UTC in releases 1 and 2 and in New York time in release 3. Rows are keyed by
the hour in UTC, which the transform settles, so that an observation stands once however it was labelled; it belongs
to the day under which its newest release puts it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etl_assets.contract import Daily, PartitionedTable, date_of, integer, real, repair, text, timestamp, transform

if TYPE_CHECKING:
    import pandas as pd

EMPTY = ("", "NA")


def settle_utc_hour(frame: pd.DataFrame) -> pd.DataFrame:
    """Give each observation its hour in UTC.

    Release 1 has no ``time_hour`` and labels in UTC. Release 2 labels in UTC too, and its ``time_hour`` is one hour
    early as long as daylight saving lasts: the label is right. Release 3 labels in local time, four or five hours
    behind its ``time_hour``, which is right.
    """
    import pandas as pd  # takes its time, and only a run needs it

    label = pd.to_datetime(frame[["year", "month", "day", "hour"]].astype("int64"), utc=True)
    stated = pd.to_datetime(frame["time_hour"], utc=True)
    local = stated.notna() & (stated - label >= pd.Timedelta(hours=1))
    return frame.assign(time_hour=label.where(~local, stated))


weather = PartitionedTable(
    name="weather",
    description=__doc__,
    group="nyc",
    partitions=Daily(start="2013-01-01", end="2014-01-01", timezone="America/New_York"),
    landing="weather/{partition}/*.csv",
    columns=[
        text("origin"),
        timestamp("time_hour", missing=EMPTY, optional=True, resolution="s", description="Hour of observation, UTC"),
        integer("year", required=True, description="As labelled by the release"),
        integer("month", required=True, minimum=1, maximum=12),
        integer("day", required=True, minimum=1, maximum=31),
        integer("hour", required=True, minimum=0, maximum=23, description="UTC in releases 1 and 2, local in 3"),
        real("temp", missing=EMPTY, unit="°F"),
        real("dewp", missing=EMPTY, unit="°F"),
        real("humid", missing=EMPTY, unit="%"),
        integer("wind_dir", missing=EMPTY, unit="degrees"),
        real("wind_speed", missing=EMPTY, unit="mph"),
        real("wind_gust", missing=EMPTY, unit="mph"),
        real("precip", missing=EMPTY, unit="inches"),
        real("pressure", missing=EMPTY, unit="mbar"),
        real("visib", missing=EMPTY, unit="miles"),
    ],
    key=["origin", "time_hour"],
    partition_by=date_of("year", "month", "day"),
    moved_keys=repair(order="delivery"),
    transform=transform(settle_utc_hour, version=1, rowwise=True),
    new_columns="add",
)
