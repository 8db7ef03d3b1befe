"""Carrier codes: a small table, delivered whole. The second publisher renamed its columns and kept 16 of 1,571 carriers."""

from etl_assets.contract import ReferenceTable, text

airlines = ReferenceTable(
    name="airlines",
    description=__doc__,
    group="reference",
    landing="airlines/*/*.csv",
    columns=[
        text("carrier", aliases=("Code",), description="IATA code"),
        text("name", aliases=("Description",), required=True),
    ],
    key=["carrier"],
)
