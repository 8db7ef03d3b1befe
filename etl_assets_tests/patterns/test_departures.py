"""The showcase's derived table: departures a day, against a computation that knows nothing of SQL or of the warehouse."""

from __future__ import annotations

import csv
import datetime as dt
import shutil
from collections import defaultdict
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from etl_assets.pipelines.departures_by_day import departures_by_day
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.weather import weather
from etl_assets_tests.world import SHOWCASE, World

NEW_YORK = ZoneInfo("America/New_York")
NONE = ("", "NA")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path, flights)
    for source in sorted(SHOWCASE.glob("flights/*/1.csv")):
        world.deliver(source.parent.name, source.read_bytes())
    shutil.copytree(SHOWCASE / "weather", world.landing / "weather")
    for pipeline in (flights, weather, departures_by_day):
        world.load_pending(pipeline)  # type: ignore[arg-type]
    return world


def mean(values: list[Decimal]) -> float | None:
    if not values:
        return None
    return float((sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.01"), ROUND_HALF_UP))


def utc_hour(day: dt.date, row: dict[str, str]) -> str | None:
    """The stated hour, or else the local one of the departure."""
    if row.get("time_hour", "") not in NONE:
        return row["time_hour"]
    if row["hour"] in NONE:
        return None
    # Clock readings, as the delivery has them: 24 is the midnight at the day's end.
    local = dt.datetime.combine(day, dt.time(), NEW_YORK) + dt.timedelta(hours=int(row["hour"]))
    return f"{local.astimezone(dt.UTC):%Y-%m-%dT%H:00:00Z}"


def wanted(world: World) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """From the newest delivery of each day and the observations that the weather came to."""
    wind = {(o, h): w for o, h, w in world.sql("SELECT origin, time_hour, wind_speed FROM weather")}
    rows: dict[tuple[str, str, str], list[dict[str, str]]] = defaultdict(list)
    for folder in sorted((world.landing / "flights").iterdir()):
        for row in csv.DictReader(max(folder.iterdir()).read_text().splitlines()):
            rows[folder.name, row["origin"], row["carrier"]].append(row)
    found = {}
    for (day, origin, carrier), each in rows.items():
        delays = [int(r["dep_delay"]) for r in each if r["dep_delay"] not in NONE]
        hours = [utc_hour(dt.date.fromisoformat(day), r) for r in each]
        winds = [wind.get((origin, hour)) for hour in hours]
        found[day, origin, carrier] = (
            len(each),
            sum(r["dep_time"] in NONE for r in each),
            mean([Decimal(d) for d in delays]),
            max(delays, default=None),
            mean([Decimal(str(w)) for w in winds if w is not None]),
        )
    return found


def computed(world: World) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    query = (
        "SELECT day, origin, carrier, departures, cancelled, mean_delay, worst_delay, mean_wind FROM departures_by_day"
    )
    return {row[:3]: row[3:] for row in world.sql(query)}


def same(one: dict[Any, tuple[Any, ...]], two: dict[Any, tuple[Any, ...]]) -> None:
    """The same rows; means may differ in the last digit, where doubles round the other way."""
    assert one.keys() == two.keys()
    for key in one:
        assert one[key] == pytest.approx(two[key], abs=0.0101), key


def test_every_day_is_what_its_flights_and_their_hours_weather_come_to_and_follows_a_correction(world: World) -> None:
    same(computed(world), wanted(world))
    assert sum(row[4] is not None for row in computed(world).values()) == 491
    before = {b.batch for b in world.warehouse.ledger()}
    for day in ("2013-10-26", "2013-11-03"):
        world.deliver(day, (SHOWCASE / "flights" / day / "2.csv").read_bytes(), "2.csv")
    world.load_pending()
    world.load_pending(departures_by_day)  # type: ignore[arg-type]
    assert {b.batch for b in world.warehouse.ledger()} - before == {
        batch
        for day in ("2013-10-26", "2013-11-03")
        for batch in (f"flights/{day}/2.csv#1@1", f"departures_by_day/{day}/upstream#2@1")
    }
    same(computed(world), wanted(world))
    assert world.warehouse.verify(departures_by_day) == []
