"""What the demo loads: which deliveries of the showcase arrive first, and which later."""

from dataclasses import dataclass

from etl_assets.contract import ChangeLogTable, PartitionedTable, WatermarkTable
from etl_assets.pipelines.airlines import airlines
from etl_assets.pipelines.countries import countries
from etl_assets.pipelines.departures_by_day import departures_by_day
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.frequencies import frequencies
from etl_assets.pipelines.quakes import quakes
from etl_assets.pipelines.weather import weather


@dataclass(frozen=True, slots=True)
class Part:
    """A pipeline's part in the demo: deliveries as patterns of ``date/name``."""

    pipeline: PartitionedTable | ChangeLogTable | WatermarkTable
    first: tuple[str, ...]
    later: tuple[str, ...]
    #: What the later ones are, in words.
    arrives: str

    @property
    def folder(self) -> str:
        """The folder of its deliveries, in the showcase and in the landing."""
        return self.pipeline.landing.split("/")[0]


PARTS = (
    Part(flights, ("*/1.csv",), ("*/2.csv",), "the days that release 2 corrects"),
    Part(
        weather, ("*/1.csv",), ("*/2.csv", "*/3.csv"), "releases 2 and 3 of every day, of which a run takes the newest,"
    ),
    Part(airlines, ("2014-06-27/*",), ("2015-12-31/*",), "the list with renamed columns and 16 of 1,571 carriers"),
    Part(countries, ("202[12]-*/*",), ("2025-02-01/*",), "the list as it was put right a day later"),
    Part(frequencies, ("202[1-4]-*/*", "2025-0*/*"), ("2025-11-02/*",), "the next events of the log"),
    Part(quakes, ("2020-02-*/*", "2020-03-0*/*"), ("2020-03-22/*",), "a snapshot that two events are gone from"),
)

#: What is computed of the others, once they are there and again when they are corrected.
DERIVED = departures_by_day

#: The list of countries of 2025-01-31 has a header and no row, by an accident of its publisher's.
ACCIDENT = Part(countries, (), ("2025-01-31/*",), "a header and no row")
#: What is left for the person at the screen to deliver.
LEFT = "countries/2025-02-28/1.csv"
