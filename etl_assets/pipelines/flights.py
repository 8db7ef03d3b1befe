"""Departures from the three New York airports: one row a flight, one delivery a day.

Days were delivered again in 2018: three new columns, another column order, and ``hour`` and ``minute`` that mean the
scheduled time where they meant the actual one.
"""

from etl_assets.contract import Daily, Notification, PartitionedTable, date_of, integer, quarantine, text, timestamp

EMPTY = ("", "NA")

flights = PartitionedTable(
    name="flights",
    description=__doc__,
    group="nyc",
    partitions=Daily(start="2013-01-01", end="2014-01-01", timezone="America/New_York"),
    landing="flights/{partition}/*.csv",
    columns=[
        integer("year"),
        integer("month", minimum=1, maximum=12),
        integer("day", minimum=1, maximum=31),
        integer("dep_time", missing=EMPTY, description="Actual departure, local, as HHMM"),
        integer("sched_dep_time", missing=EMPTY, optional=True, description="Scheduled departure, local, as HHMM"),
        integer("dep_delay", missing=EMPTY, unit="minutes", description="Negative when early"),
        integer("arr_time", missing=EMPTY, description="Actual arrival, local, as HHMM"),
        integer("sched_arr_time", missing=EMPTY, optional=True, description="Scheduled arrival, local, as HHMM"),
        integer("arr_delay", missing=EMPTY, unit="minutes", description="Negative when early"),
        text("carrier"),
        text("tailnum", missing=EMPTY),
        integer("flight"),
        text("origin"),
        text("dest"),
        integer("air_time", missing=EMPTY, unit="minutes"),
        integer("distance", missing=EMPTY, unit="miles"),
        integer("hour", missing=EMPTY, description="Of the departure: actual in delivery 1, scheduled in delivery 2"),
        integer("minute", missing=EMPTY, description="Of the departure: actual in delivery 1, scheduled in delivery 2"),
        timestamp("time_hour", missing=EMPTY, optional=True, resolution="s", description="Scheduled hour, in UTC"),
    ],
    key=["year", "month", "day", "carrier", "flight", "origin"],
    partition_by=date_of("year", "month", "day"),
    new_columns="add",
    invalid_rows=quarantine(up_to=0.01),
    notifications=[
        Notification(
            name="late_day",
            topic="late-days",
            description="A day whose mean departure delay passes 30 minutes",
            sql="""
                SELECT :partition AS day, round(avg(dep_delay), 1) AS mean_delay, count(*) AS departures
                FROM flights GROUP BY 1 HAVING avg(dep_delay) > 30
            """,
            key=["day"],
        )
    ],
)
