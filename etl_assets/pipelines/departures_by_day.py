"""Departures a day, origin and carrier: how many, how many cancelled, how late, and how windy it was at their hours.

Derived of flights and weather, which are joined by the hour in UTC. The later delivery of a day says the scheduled one; for
the earlier ones it is the local hour of the departure, counted from where the day begins. The hours of a day in New York
lie in two days of the weather's earlier releases, which label in UTC.
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
        WITH clock AS (
            -- One hour more or less on the days that clocks change, at two in the morning.
            SELECT CAST(round(24 * (julianday(:end) - julianday(:start))) AS INTEGER) - 24 AS change
        ), departures AS (
            SELECT f.*, coalesce(f.time_hour, strftime(
                '%Y-%m-%dT%H:00:00Z', :start, '+' || (f.hour + iif(f.hour >= 2, change, 0)) || ' hours'
            )) AS utc_hour
            FROM flights f, clock
        )
        SELECT :partition AS day, d.origin, d.carrier,
            count(*) AS departures,
            count(*) FILTER (WHERE d.dep_time IS NULL) AS cancelled,
            round(avg(d.dep_delay), 2) AS mean_delay,
            max(d.dep_delay) AS worst_delay,
            round(avg(w.wind_speed), 2) AS mean_wind
        FROM departures d LEFT JOIN weather w ON w.origin = d.origin AND w.time_hour = d.utc_hour
        GROUP BY d.origin, d.carrier
    """,
    columns=[
        date("day"),
        text("origin"),
        text("carrier"),
        integer("departures", required=True, description="Scheduled, cancelled ones included"),
        integer("cancelled", required=True, description="Without a time of departure"),
        real("mean_delay", unit="minutes", description="Of those that departed; negative when early"),
        integer("worst_delay", unit="minutes"),
        real("mean_wind", unit="mph", description="Mean over departures of the wind at their hour"),
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
