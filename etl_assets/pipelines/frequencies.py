"""Radio frequencies of airports, as a log of changes: one row a frequency, kept by its id.

Ids are deleted and inserted again; the version counts the changes of an id.
"""

from etl_assets.contract import ChangeLogTable, Daily, debezium, decimal, integer, text

frequencies = ChangeLogTable(
    name="frequencies",
    description=__doc__,
    group="airports",
    partitions=Daily(start="2021-11-01", end="2026-01-01"),
    landing="frequencies_cdc/{partition}/*.jsonl",
    columns=[
        integer("id"),
        integer("airport_ref"),
        text("airport_ident", required=True, description="ICAO code, or the local one"),
        text("type"),
        text("description"),
        decimal("frequency_mhz", precision=12, scale=4, unit="MHz"),
    ],
    key=["id"],
    events=debezium(position="pos", version="version"),
)
