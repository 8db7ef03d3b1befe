"""Departures a day, origin and carrier: how many, how many cancelled, how late, and how windy it was at their hours.

Derived of flights and weather. Only the later delivery of a day says the scheduled hour as an instant; without it the
wind is unknown. The hours of a day in New York lie in two days of the weather's earlier releases, which label in UTC.
"""

from etl_assets.contract import DerivedTable, Notification, date, integer, partitions_around, real, same_partition, text
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.weather import weather

departures_by_day = DerivedTable(
    name="departures_by_day",
    description=__doc__,
    group="nyc",
    partitions=flights.partitions,
    upstream=[same_partition(flights), partitions_around(weather, after=1, optional=True)],
    sql="""
        SELECT :partition AS day, f.origin, f.carrier,
            count(*) AS departures,
            count(*) FILTER (WHERE f.dep_time IS NULL) AS cancelled,
            round(avg(f.dep_delay), 2) AS mean_delay,
            max(f.dep_delay) AS worst_delay,
            round(avg(w.wind_speed), 2) AS mean_wind
        FROM flights f LEFT JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour
        GROUP BY f.origin, f.carrier
    """,
    columns=[
        date("day"),
        text("origin"),
        text("carrier"),
        integer("departures", required=True, description="Scheduled, cancelled ones included"),
        integer("cancelled", required=True, description="Without a time of departure"),
        real("mean_delay", unit="minutes", description="Of those that departed; negative when early"),
        integer("worst_delay", unit="minutes"),
        real("mean_wind", unit="mph", description="Mean over departures of the wind at their scheduled hour"),
    ],
    key=["day", "origin", "carrier"],
    notifications=[
        Notification(
            name="late_carrier",
            topic="late-carriers",
            description="A carrier whose mean departure delay at an airport passes 30 minutes that day",
            sql="SELECT day, origin, carrier, departures, mean_delay FROM departures_by_day WHERE mean_delay > 30",
            key=["day", "origin", "carrier"],
        )
    ],
)
