"""Small tables that are delivered whole: one of them once without a row, the other once with renamed columns."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path

import pytest

from etl_assets.contract import PartitionedTable, ReferenceTable, integer, text
from etl_assets.errors import BadHeader, EmptyDelivery, Superseded, ZeroBytes
from etl_assets.pipelines.airlines import airlines
from etl_assets.pipelines.countries import countries
from etl_assets_tests.patterns.logs import done, kept, refused
from etl_assets_tests.world import SHOWCASE, World

DAYS = sorted(folder.name for folder in (SHOWCASE / "countries").iterdir())
EMPTY, NEXT = "2025-01-31", "2025-02-01"


def arrive(world: World, pipeline: PartitionedTable, day: str) -> list[dict[str, str]]:
    source = SHOWCASE / pipeline.name / day
    shutil.copytree(source, world.landing / pipeline.name / day)
    with (source / "1.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def codes(tmp_path: Path) -> World:
    """A small reference table of two rows."""
    pipeline = ReferenceTable(
        name="codes", landing="codes/*.csv", columns=[integer("id"), text("code", aliases=("Code",))], key=["id"]
    )
    world = World(tmp_path, pipeline)
    (world.landing / "codes").mkdir()
    write(world, "1.csv", "id,code\n1,NA\n2,ZW\n")
    world.load("all")
    return world


def write(world: World, name: str, content: str) -> None:
    (world.landing / "codes" / name).write_text(content)


def test_each_day_of_countries_becomes_the_table_and_the_one_without_rows_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, countries)
    rows: list[dict[str, str]] = []
    for day in DAYS:
        delivered = arrive(world, countries, day)
        if day == EMPTY:
            assert delivered == []
            refused(world, EmptyDelivery, f"{day}/1.csv#1@1 has a header and no rows", "allow_empty=False", scope="all")
        else:
            rows = delivered
            assert [o.status for o in world.load("all")] == ["committed"]
        assert world.sql("SELECT id, code, name, continent, wikipedia_link, keywords FROM countries ORDER BY id") == [
            (int(r["id"]), r["code"], r["name"], r["continent"], r["wikipedia_link"] or None, r["keywords"] or None)
            for r in sorted(rows, key=lambda r: int(r["id"]))
        ]
        assert world.warehouse.verify(countries) == []
    assert EMPTY in DAYS
    assert DAYS.index(NEXT) == DAYS.index(EMPTY) + 1


def test_namibias_code_is_na_and_is_not_missing(tmp_path: Path) -> None:
    world = World(tmp_path, countries)
    arrive(world, countries, NEXT)
    world.load("all")
    assert world.sql("SELECT code, continent FROM countries WHERE name = 'Namibia'") == [("NA", "AF")]
    assert world.sql("SELECT count(*) FROM countries WHERE continent = 'NA'")[0][0] > 30


def test_an_empty_day_needs_attention_until_the_next_one_comes(tmp_path: Path) -> None:
    world = World(tmp_path, countries)
    arrive(world, countries, "2022-06-24")
    world.load("all")
    arrive(world, countries, EMPTY)
    for _ in range(countries.attempts):
        world.load("all")
    assert [s.state for s in world.survey().statuses] == ["committed", "needs attention"]
    assert world.survey().waiting(countries.attempts) == []
    arrive(world, countries, NEXT)
    assert [o.status for o in world.load_pending()] == ["committed"]


def test_the_second_publisher_of_airlines_renamed_the_columns_and_kept_sixteen_carriers(tmp_path: Path) -> None:
    world = World(tmp_path, airlines)
    first = arrive(world, airlines, "2014-06-27")
    assert done(world.load("all")) == [("committed", {"inserted": len(first)})]
    assert len(first) == 1_571
    second = arrive(world, airlines, "2015-12-31")
    (outcome,) = world.load("all")
    assert outcome.status == "committed"
    assert world.sql("SELECT count(*) FROM airlines") == [(16,)]
    name = {"carrier": "carrier", "Code": "carrier", "name": "name", "Description": "name"}
    renamed = [{name[k]: v for k, v in row.items()} for row in second]
    assert world.sql("SELECT carrier, name FROM airlines ORDER BY carrier") == sorted(
        (r["carrier"], r["name"]) for r in renamed
    )
    assert {*first[0]} != {*second[0]}


def test_a_reload_writes_only_the_rows_that_it_changes(codes: World) -> None:
    write(codes, "2.csv", "id,Code\n2,ZB\n3,ZM\n")
    assert done(codes.load("all")) == [("committed", {"inserted": 1, "updated": 1, "deleted": 1})]
    write(codes, "3.csv", "id,Code\n3,ZM\n2,ZB\n4,X\n")
    assert done(codes.load("all")) == [("committed", {"inserted": 1, "unchanged": 2})]
    assert codes.sql("SELECT id, code, _batch FROM codes ORDER BY id") == [(2, "ZB", 2), (3, "ZM", 2), (4, "X", 3)]


def test_the_same_table_three_times_is_one_ledger_entry(codes: World) -> None:
    before = codes.state()
    assert [codes.load("all")[0].status for _ in range(2)] == ["already committed"] * 2
    assert codes.state() == before


def test_an_empty_first_delivery_is_an_empty_table_and_the_next_one_fills_it(tmp_path: Path) -> None:
    world = World(tmp_path, ReferenceTable(name="codes", landing="codes/*.csv", columns=[integer("id")], key=["id"]))
    (world.landing / "codes").mkdir()
    write(world, "1.csv", "id\n")
    assert done(world.load("all")) == [("committed", {})]
    write(world, "2.csv", "id\n7\n")
    assert done(world.load("all")) == [("committed", {"inserted": 1})]


def test_a_table_is_emptied_where_the_contract_allows_it_or_a_person_gives_a_reason(codes: World) -> None:
    write(codes, "2.csv", "id,code\n")
    refused(codes, EmptyDelivery, "has a header and no rows, and 'codes' has 2", scope="all")
    (outcome,) = codes.load("all", restate="the register was closed")
    assert (outcome.status, outcome.counts.deleted, codes.rows()) == ("committed", 2, [])
    write(codes, "3.csv", "id,code\n1,A\n")
    codes.load("all")
    codes.pipeline = codes.pipeline.model_copy(update={"allow_empty": True})
    write(codes, "4.csv", "id,code\n")
    assert done(codes.load("all")) == [("committed", {"deleted": 1})]


def test_broken_and_older_reloads_leave_the_table_as_it_is(codes: World) -> None:
    write(codes, "3.csv", "")
    refused(codes, ZeroBytes, scope="all")
    write(codes, "3.csv", "id,code,Code\n1,a,b\n")
    refused(codes, BadHeader, "all name the contract's column 'code'", scope="all")
    write(codes, "3.csv", "id,code\n9,Z\n")
    codes.load("all")
    before = kept(codes)
    (outcome,) = codes.load("all", delivery="1.csv")
    assert outcome.status == "already committed"
    write(codes, "2.csv", "id,code\n5,Q\n")
    refused(codes, Superseded, scope="all", delivery="2.csv")
    assert kept(codes) == before
