"""Countries of OurAirports: a small table, delivered whole, once by accident without a row (2025-01-31).

``NA`` is Namibia as a code and North America as a continent, so it is no missing token here.
"""

from etl_assets.contract import ReferenceTable, integer, text

countries = ReferenceTable(
    name="countries",
    description=__doc__,
    group="reference",
    landing="countries/*/*.csv",
    columns=[
        integer("id"),
        text("code", required=True, description="ISO 3166-1 alpha-2, and some of OurAirports' own"),
        text("name", required=True),
        text("continent", required=True),
        text("wikipedia_link"),
        text("keywords"),
    ],
    key=["id"],
)
