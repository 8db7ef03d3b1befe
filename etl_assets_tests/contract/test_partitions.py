"""Which partitions a table has: keys, windows and clock changes."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etl_assets.contract import Daily, Hourly, Monthly, Static, TimePartitions, Weekly
from etl_assets.contract.partitions import utc
from etl_assets.errors import ContractError

NY = "America/New_York"
NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)
ZONES = ["UTC", NY, "Europe/Amsterdam", "Asia/Kolkata", "Australia/Lord_Howe", "America/Sao_Paulo", "America/Havana"]


def hours(partitions: TimePartitions, key: str) -> float:
    start = partitions.parse(key)
    assert start is not None
    return (utc(partitions.next(start)) - utc(start)).total_seconds() / 3600


@pytest.mark.parametrize(
    "partitions, first, last, count",
    [
        (Daily(start="2024-02-28", end="2024-03-02"), "2024-02-28", "2024-03-01", 3),
        (Weekly(start="2024-01-01", end="2024-02-01"), "2024-01-07", "2024-01-21", 3),
        (Monthly(start="2024-01-15", end="2024-12-31"), "2024-02-01", "2024-11-01", 10),
        (Monthly(start="2023-12-01", end="2024-03-01"), "2023-12-01", "2024-02-01", 3),
        (Hourly(start="2024-01-01-22:00", end="2024-01-02-01:00"), "2024-01-01-22:00", "2024-01-02-00:00", 3),
        (Daily(start="2013-03-09", end="2013-03-12", timezone=NY), "2013-03-09", "2013-03-11", 3),
    ],
)
def test_partitions_go_from_start_to_end_exclusive(
    partitions: TimePartitions, first: str, last: str, count: int
) -> None:
    keys = partitions.keys(NOW)
    assert (keys[0], keys[-1], len(keys)) == (first, last, count)
    assert partitions.between(keys[1], keys[-1], NOW) == keys[1:]


def test_a_partition_exists_once_its_window_is_over_in_its_zone() -> None:
    partitions = Daily(start="2013-07-01", timezone=NY)
    before, after = (dt.datetime(2013, 7, 2, h, m, tzinfo=dt.UTC) for h, m in ((3, 59), (4, 0)))
    assert (partitions.keys(before), partitions.contains("2013-07-01", before)) == ((), False)
    assert (partitions.keys(after), partitions.contains("2013-07-01", after)) == (("2013-07-01",), True)


def test_days_of_clock_changes_have_23_and_25_hours() -> None:
    partitions = Daily(start="2013-01-01", timezone=NY)
    assert [hours(partitions, key) for key in ("2013-03-10", "2013-03-11", "2013-11-03")] == [23, 24, 25]


def test_an_hour_that_is_skipped_is_no_partition_and_one_that_repeats_is_two() -> None:
    spring = Hourly(start="2013-03-10-00:00", end="2013-03-10-05:00", timezone=NY)
    assert spring.keys() == ("2013-03-10-00:00", "2013-03-10-01:00", "2013-03-10-03:00", "2013-03-10-04:00")
    assert not spring.contains("2013-03-10-02:00")
    autumn = Hourly(start="2013-11-03-00:00", end="2013-11-03-03:00", timezone=NY)
    listed = autumn.keys()
    assert listed == ("2013-11-03-00:00", "2013-11-03-01:00", "2013-11-03-01:00-0500", "2013-11-03-02:00")
    instants = [autumn.parse(key) for key in listed]
    assert [utc(m).hour for m in instants if m] == [4, 5, 6, 7]
    assert not autumn.contains("2013-11-03-01:00-0400")


def test_a_start_in_a_skipped_hour_is_the_hour_that_the_clocks_show() -> None:
    assert Hourly(start="2013-03-10-02:00", end="2013-03-10-05:00", timezone=NY).keys() == (
        "2013-03-10-03:00",
        "2013-03-10-04:00",
    )


def test_a_day_whose_midnight_is_skipped_is_a_partition_from_its_first_moment() -> None:
    partitions = Daily(start="2017-10-15", end="2017-10-17", timezone="America/Sao_Paulo")
    assert partitions.keys() == ("2017-10-15", "2017-10-16")
    assert partitions.key(dt.datetime(2017, 10, 15, 2, 59, tzinfo=dt.UTC)) == "2017-10-14"
    assert partitions.key(dt.datetime(2017, 10, 15, 3, 0, tzinfo=dt.UTC)) == "2017-10-15"


@settings(max_examples=200, deadline=None)
@given(
    st.datetimes(dt.datetime(2010, 1, 1), dt.datetime(2024, 1, 1), timezones=st.just(dt.UTC)),  # noqa: DTZ001 - hypothesis wants it naive
    st.sampled_from(["hourly", "daily", "weekly", "monthly"]),
    st.sampled_from(ZONES),
)
def test_each_instant_is_in_the_window_of_its_key_and_in_no_other(moment: dt.datetime, cadence: Any, zone: str) -> None:
    assume(cadence != "hourly" or zone != "Australia/Lord_Howe")
    partitions = TimePartitions(cadence=cadence, start="2000-01-01", timezone=zone)  # type: ignore[arg-type]
    key = partitions.key(moment)
    start = partitions.parse(key)
    assert start is not None
    assert utc(start) <= moment < utc(partitions.next(start))
    assert partitions.key(start) == key
    assert partitions.contains(key, NOW)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(ZONES), st.sampled_from(["hourly", "daily"]), st.dates(dt.date(2012, 1, 1), dt.date(2020, 1, 1)))
def test_what_is_contained_is_listed_and_the_other_way_round(zone: str, cadence: Any, day: dt.date) -> None:
    """Around any day, clock changes among them: every spelling of a key is either both or neither."""
    assume(cadence != "hourly" or zone != "Australia/Lord_Howe")
    end = day + dt.timedelta(days=2)
    partitions = TimePartitions(cadence=cadence, start=day, end=end, timezone=zone)
    listed = set(partitions.keys(NOW))
    days = [str(day + dt.timedelta(days=n)) for n in (-1, 0, 1, 2)]
    clock = [
        f"{d}-{h:02}:{m}{z}"
        for d in days
        for h in range(24)
        for m in ("00", "30")
        for z in ("", "-0500", "+0100", "-0300")
    ]
    for key in (*days, *clock):
        assert partitions.contains(key, NOW) == (key in listed), key


@pytest.mark.parametrize(
    "key",
    [
        "",
        "2024-1-1",
        "2024-02-30",
        "2024-01-01-00:00",
        "2024-01-01+0000",
        "x",
        "2024-01-01\n",
        "20240101",
        "\uff12\uff10\uff12\uff14-01-01",
    ],
)
def test_another_spelling_is_no_key(key: str) -> None:
    assert Daily(start="2024-01-01").parse(key) is None
    assert not Daily(start="2024-01-01").contains(key, NOW)


def test_weeks_and_months_are_keyed_by_their_first_day_only() -> None:
    assert [k for k in ("2024-01-07", "2024-01-08") if Weekly(start="2024-01-01").contains(k, NOW)] == ["2024-01-07"]
    assert [k for k in ("2024-02-01", "2024-02-02") if Monthly(start="2024-01-01").contains(k, NOW)] == ["2024-02-01"]


def test_static_partitions_are_as_listed_and_to_the_letter() -> None:
    shops = Static("north", "South", "é'\"")
    assert shops.keys() == ("north", "South", "é'\"")
    assert shops.between("South", "é'\"") == ("South", "é'\"")
    assert [shops.contains(k) for k in ("north", "NORTH", "south", "é'\"")] == [True, False, False, True]
    assert shops.describe() == "static partitions north, South, é'\""


def test_a_description_names_first_key_end_and_zone() -> None:
    assert Daily(start="2013-01-01", end="2014-01-01", timezone=NY).describe() == (
        f"daily partitions from 2013-01-01 up to 2014-01-01 ({NY})"
    )
    assert (
        Monthly(start="2013-01-02").describe()
        == "monthly partitions from 2013-02-01, each once its window is over (UTC)"
    )


def test_hours_of_clocks_that_change_by_half_of_one_are_refused() -> None:
    with pytest.raises(ContractError, match="the clocks of Australia/Lord_Howe change by a part of an hour"):
        Hourly(start="2024-01-01", timezone="Australia/Lord_Howe")
    assert list(Daily(start="2024-04-06", end="2024-04-08", timezone="Australia/Lord_Howe").keys()) == [
        "2024-04-06",
        "2024-04-07",
    ]
