"""Snapshots in any order of arrival: which rows they leave out, what is told of that, and how it is mended."""

from __future__ import annotations

import datetime as dt
import itertools
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import date, integer, lookback, quarantine, text, timestamp, transform
from etl_assets.errors import EmptyDelivery, InvalidRows, OutOfBounds
from etl_assets_tests.patterns.logs import A, B, C, D, done, kept, position, readings, refused, snapshot
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import World

NOW = dt.datetime.now(dt.UTC)


def world_of(root: Path, contents: dict[str, str], **changes: Any) -> World:
    world = World(root, readings(**changes))
    for scope, content in contents.items():
        world.deliver(scope, content)
    return world


def values(world: World) -> dict[str, int]:
    return dict(world.sql("SELECT id, value FROM readings"))


# --------------------------------------------------------------------------- the order of arrival

DAYS = {
    A: snapshot("a,01,1", "b,01,1", "old,01,1"),
    B: snapshot("a,02,2", "only,02,2"),
    C: snapshot("a,03,3", "b,01,1", "new,03,3"),
}


def test_by_default_no_row_is_lost_in_any_order_of_arrival(tmp_path: Path) -> None:
    for number, order in enumerate(itertools.permutations(DAYS)):
        world = world_of(tmp_path / str(number), DAYS)
        assert {o.status for scope in order for o in world.load(scope)} == {"committed"}
        assert values(world) == {"a": 3, "b": 1, "old": 1, "only": 2, "new": 3}
        assert sum(b.counts.skipped + b.counts.missed for b in world.ledger()) == 0
        assert world.warehouse.verify(world.pipeline) == []


@pytest.mark.parametrize("bounds", ["strict", "inclusive", lookback(hours=1)], ids=["strict", "inclusive", "lookback"])
def test_a_late_snapshot_that_declared_bounds_leave_out_is_refused_and_loads_by_wider_ones(
    bounds: Any, tmp_path: Path
) -> None:
    world = world_of(tmp_path, DAYS, bounds=bounds)
    world.load(A)
    world.load(C)
    refused(world, OutOfBounds, "leave out all of its 2 rows, and 1 of them", "bounds='none'", scope=B)
    assert world.survey().waiting()
    world.pipeline = readings()
    assert [o.status for o in world.load(B)] == ["committed"]
    assert values(world) == {"a": 3, "b": 1, "old": 1, "only": 2, "new": 3}


def test_rows_that_bounds_left_out_are_told_and_loaded_once_by_wider_bounds(tmp_path: Path) -> None:
    contents = {A: snapshot("a,03,3"), B: snapshot("late,01,1", "a,01,1", "b,04,4"), C: snapshot("c,05,5")}
    world = world_of(tmp_path, contents, bounds="inclusive")
    world.load(A)
    (second,) = world.load(B)
    assert done([second]) == [("committed", {"inserted": 1, "skipped": 2, "missed": 1})]
    assert second.message == "committed; the bounds left out 1 rows that the table lacks"
    world.load(C)
    assert ["1 rows that the table lacks" in s.reason for s in world.survey().statuses] == [False, True, False]
    before = kept(world)
    assert {o.status for o in world.load(A, B, C)} == {"already committed"}
    for narrower in (readings(bounds="strict"), readings(bounds="inclusive")):
        assert {o.status for o in world.load(A, B, C, pipeline=narrower)} == {"already committed"}
    assert kept(world) == before
    world.pipeline = readings(bounds=lookback(days=3))
    assert done(world.load(A, B, C))[1] == ("committed", {"inserted": 1, "stale": 1, "unchanged": 1})
    assert values(world) == {"a": 3, "b": 4, "c": 5, "late": 1}
    assert world.ledger()[-1].batch == f"readings/{B}/1.csv#1@1+1"
    assert world.warehouse.verify(world.pipeline) == []
    after = kept(world)
    assert {o.status for o in world.load(C, B, A)} == {"already committed"}
    assert kept(world) == after
    assert ["the table lacks" in s.reason for s in world.survey().statuses] == [False, False, False]


def test_a_snapshot_whose_skipped_rows_the_table_has_is_committed_without_a_word(tmp_path: Path) -> None:
    world = world_of(tmp_path, {A: snapshot("a,02,2", "b,03,3"), B: snapshot("a,01,1")}, bounds="inclusive")
    world.load(A)
    assert done(world.load(B)) == [("committed", {"skipped": 1})]


# --------------------------------------------------------------------------- rows from the future


def at(moment: dt.datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize("ahead", [dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(days=700_000)])
def test_a_row_that_changed_after_it_was_read_is_invalid_and_named_by_line(ahead: dt.timedelta, tmp_path: Path) -> None:
    content = snapshot("a,02,1", f"b,{at(NOW + ahead)[:19]}Z,2")
    world = world_of(tmp_path / "refuse", {A: content})
    refused(world, InvalidRows, "line 3: updated is ", "which is after the delivery was first read")
    world = world_of(
        tmp_path / "quarantine", {A: content, B: snapshot("a,03,2", "c,03,3")}, invalid_rows=quarantine(0.5)
    )
    assert done(world.load(A, B)) == [
        ("committed", {"inserted": 1, "rejected": 1}),
        ("committed", {"inserted": 1, "updated": 1}),
    ]
    assert values(world) == {"a": 2, "c": 3}


def test_a_clock_that_is_a_little_ahead_is_no_future(tmp_path: Path) -> None:
    columns = [text("id"), timestamp("updated", resolution="us"), integer("value")]
    world = world_of(tmp_path, {A: f"id,updated,value\na,{at(NOW + dt.timedelta(minutes=5))},1\n"}, columns=columns)
    assert [o.status for o in world.load(A)] == ["committed"]


def test_a_local_time_is_compared_as_the_instant_that_it_is(tmp_path: Path) -> None:
    columns = [text("id"), timestamp("updated", resolution="s", timezone="Pacific/Auckland"), integer("value")]
    local = (NOW + dt.timedelta(hours=12)).strftime("%Y-%m-%dT%H:%M:%S")
    world = world_of(tmp_path, {A: f"id,updated,value\na,{local},1\n"}, columns=columns)
    assert [o.status for o in world.load(A)] == ["committed"]
    world.deliver(B, f"id,updated,value\nb,{local}Z,1\n")
    refused(world, InvalidRows, "after the delivery was first read", scope=B)


def test_a_date_is_valid_as_long_as_it_is_that_day_somewhere(tmp_path: Path) -> None:
    columns = [text("id"), date("updated"), integer("value")]
    day = NOW.date()
    for days, valid in ((0, True), (2, False), (9_000, False)):
        content = f"id,updated,value\na,{day + dt.timedelta(days=days)},1\n"
        world = world_of(tmp_path / str(days), {A: content}, columns=columns)
        assert [o.status == "committed" for o in world.load(A)] == [valid]


def test_integer_watermarks_tell_no_time(tmp_path: Path) -> None:
    columns = [text("id"), integer("updated"), integer("value")]
    world = world_of(tmp_path, {A: "id,updated,value\na,9223372036854775807,1\n"}, columns=columns)
    assert [o.status for o in world.load(A)] == ["committed"]


def test_a_watermark_that_a_transform_makes_is_looked_at_too(tmp_path: Path) -> None:
    later = transform(lambda frame: frame.assign(updated=frame["updated"] + dt.timedelta(days=40_000)), version=1)
    world = world_of(tmp_path, {A: snapshot("a,02,1")}, transform=later)
    refused(world, InvalidRows, "which is after the delivery was first read")


def test_an_extract_that_is_made_again_is_bound_by_the_time_of_its_first_reading(tmp_path: Path) -> None:
    content = snapshot("a,02,1", f"b,{at(NOW - dt.timedelta(hours=1))[:19]}Z,2")
    world = world_of(tmp_path, {A: content}, invalid_rows=quarantine(0.5))
    world.load(A)
    digest = world.ledger()[0].digest
    shutil.rmtree(tmp_path / "staged")
    (tmp_path / "landing" / "readings" / A / "1.csv").touch()
    (again,) = world.load(A)
    assert (again.status, world.ledger()[0].digest) == ("already committed", digest)
    around(world, "UPDATE etl_delivery SET seen_at = '2024-06-01T00:00:00.000Z'")
    world.pipeline = readings(invalid_rows=quarantine(0.6))
    (other,) = world.load(A, delivery="1.csv")
    assert other.error is not None
    assert other.extract is not None
    assert other.extract.manifest.rejected_rows == 1


@pytest.mark.parametrize("bounds", ["none", "inclusive"])
def test_a_future_row_that_is_in_the_table_is_corrected_by_restating_a_delivery(bounds: Any, tmp_path: Path) -> None:
    columns = [text("id"), integer("updated"), integer("value")]  # which tell no time, as a row taken before did not
    head = "id,updated,value\n"
    contents = {
        A: f"{head}a,2,1\nb,99999,1\n",
        B: f"{head}a,3,2\nc,3,3\n",
        C: f"{head}b,4,4\n",
        D: f"{head}b,5,5\nd,5,5\n",
    }
    world = world_of(tmp_path, contents, columns=columns, bounds=bounds)
    world.load(A)
    (second,) = world.load(B)
    assert (second.status, isinstance(second.error, OutOfBounds)) == (
        ("committed", False) if bounds == "none" else ("refused", True)
    )
    (mended,) = world.load(C, restate="the source's clock was wrong")
    assert mended.status == "committed", mended.message
    assert position(world) == 4
    assert [o.status for o in world.load(D)] == ["committed"]
    assert world.sql("SELECT updated, value FROM readings WHERE id IN ('b', 'd')") == [(5, 5), (5, 5)]
    assert world.warehouse.verify(world.pipeline) == []


# --------------------------------------------------------------------------- complete snapshots


def test_a_key_that_is_there_again_is_live_again_though_its_change_is_older(tmp_path: Path) -> None:
    contents = {A: snapshot("k,10,10", "l,01,1"), B: snapshot("l,01,1"), C: snapshot("k,05,5", "l,01,1")}
    world = world_of(tmp_path, contents, complete="whole")
    *_, back = world.load(A, B, C)
    assert done([back]) == [("committed", {"restored": 1, "unchanged": 1})]
    assert values(world) == {"k": 5, "l": 1}
    assert world.warehouse.verify(world.pipeline) == []
    # Without an absence in between an older change is a stale one.
    world = world_of(tmp_path / "stale", {s: contents[s] for s in (A, C)}, complete="whole")
    *_, last = world.load(A, C)
    assert done([last]) == [("committed", {"unchanged": 1, "stale": 1})]
    assert values(world) == {"k": 10, "l": 1}


def test_a_transform_that_leaves_no_row_of_a_whole_snapshot_is_refused(tmp_path: Path) -> None:
    world = world_of(
        tmp_path,
        {A: snapshot("a,01,1"), B: snapshot("a,02,-1", "b,02,-1")},
        complete="whole",
        transform=transform(lambda frame: frame[frame["value"] > 0], version=1),
    )
    world.load(A)
    refused(world, EmptyDelivery, "leaves none of its 2 rows", "has 1", scope=B)
    (outcome,) = world.load(B, restate="all of it was withdrawn")
    assert (outcome.status, values(world)) == ("committed", {})


def test_a_whole_snapshot_of_rejected_rows_alone_is_refused(tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1"), B: snapshot("a,02,x", "b,02,y")}
    world = world_of(tmp_path, contents, complete="whole", invalid_rows=quarantine(1.0))
    world.load(A)
    refused(world, EmptyDelivery, "has no valid row: all of its 2 are rejected", scope=B)
