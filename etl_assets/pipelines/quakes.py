"""Earthquakes of the USGS feed "all_month": one row an event, snapshots of a rolling thirty days.

An event that a snapshot lacks was withdrawn if its time lies inside of the snapshot's range; older ones have merely
rolled off.
"""

from etl_assets.contract import Daily, WatermarkTable, integer, real, text, timestamp, window

quakes = WatermarkTable(
    name="quakes",
    description=__doc__,
    group="quakes",
    partitions=Daily(start="2020-02-01", end="2021-01-01"),
    landing="quakes/{partition}/*.csv",
    columns=[
        text("id"),
        timestamp("time", resolution="ms", required=True),
        timestamp("updated", resolution="ms"),
        real("latitude", required=True, minimum=-90, maximum=90),
        real("longitude", required=True, minimum=-180, maximum=180),
        real("depth", unit="km"),
        real("mag"),
        text("magType"),
        integer("nst"),
        real("gap", unit="degrees"),
        real("dmin", unit="degrees"),
        real("rms", unit="s"),
        text("net"),
        text("place"),
        text("type"),
        real("horizontalError", unit="km"),
        real("depthError", unit="km"),
        real("magError"),
        integer("magNst"),
        text("status"),
        text("locationSource"),
        text("magSource"),
    ],
    key=["id"],
    updated="updated",
    complete=window("time"),
)
