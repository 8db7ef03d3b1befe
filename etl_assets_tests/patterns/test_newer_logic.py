"""A transform's version is raised over a table of snapshots: what older logic made is listed, and made anew once (case 20)."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from etl_assets.contract import integer, quarantine, text, transform
from etl_assets.errors import EmptyDelivery, Superseded, VersionConflict
from etl_assets_tests.patterns.kinds import SNAPSHOTS, Kind, day
from etl_assets_tests.patterns.logs import A, B, C, kept, position, readings, snapshot
from etl_assets_tests.world import World

snapshots = pytest.mark.parametrize("kind", SNAPSHOTS.values(), ids=SNAPSHOTS)
DAYS = [day(n) for n in (1, 2, 3)]


def logic(version: int, drops: str = "", **changes: Any) -> Any:
    """Readings that tell by which version they were made; those whose key is in ``drops`` are left out."""

    def make(frame: pd.DataFrame) -> pd.DataFrame:
        wanted = frame[~frame["id"].isin(drops.split())]
        return wanted.assign(by=version)

    columns = [*readings().columns, integer("by", optional=True)]
    return readings(columns=columns, transform=transform(make, version=version), **changes)


def of(kind: Kind, version: int, drops: str = "") -> Any:
    return logic(version, drops, bounds=kind.pipeline.bounds, complete=kind.pipeline.complete)  # type: ignore[union-attr]


def world_of(root: Path, pipeline: Any, contents: dict[str, str]) -> World:
    world = World(root, pipeline)
    for scope, content in contents.items():
        world.deliver(scope, content)
    assert {o.status for o in world.load(*contents)} == {"committed"}
    return world


def versions(world: World) -> list[tuple[Any, ...]]:
    """All that the table holds but by which batch."""
    return world.sql('SELECT id, updated, value, "by", _version, _deleted FROM _versions_readings ORDER BY id')


def listed(world: World) -> list[str]:
    """The deliveries that are said to be of older logic."""
    return [s.scope for s in world.survey().statuses if "by transform version 1, the contract has 2" in s.reason]


@snapshots
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)], ids=["forwards", "backwards"])
def test_a_backfill_by_newer_logic_makes_each_snapshot_anew_once_and_ends_as_if_it_had_always_been(
    kind: Kind, order: tuple[int, ...], tmp_path: Path
) -> None:
    contents = {day(n): kind.content(n) for n in (1, 2, 3)}
    fresh = world_of(tmp_path / "fresh", of(kind, 2), contents)
    world = world_of(tmp_path / "old", of(kind, 1), contents)
    ledger, at = world.ledger(), position(world)
    world.pipeline = of(kind, 2)
    assert listed(world) == DAYS
    assert world.survey().waiting() == []  # a person decides
    for done, place in enumerate(order, 1):
        (outcome,) = world.load(DAYS[place])
        assert outcome.status == "committed", outcome.message
        assert (outcome.counts.inserted, outcome.counts.deleted, outcome.counts.restored) == (0, 0, 0)
        assert listed(world) == sorted(DAYS[p] for p in order[done:])
        assert world.warehouse.verify(world.pipeline) == []
    assert world.rows() == fresh.rows()
    # A row that has ended keeps what older logic made of it; it is not read.
    assert [(r[0], *r[4:]) for r in versions(world)] == [(r[0], *r[4:]) for r in versions(fresh)]
    before = world.state()
    assert {o.status for o in world.load(*DAYS)} == {"already committed"}
    assert world.state() == before
    assert world.ledger()[:3] == ledger
    assert [(b.scope, b.transform_version) for b in world.ledger()[3:]] == [(DAYS[p], 2) for p in order]
    assert position(world) == at


@snapshots
def test_rows_that_newer_logic_leaves_out_end_and_those_that_it_lets_in_begin(kind: Kind, tmp_path: Path) -> None:
    contents = {day(n): kind.content(n) for n in (1, 2, 3)}
    fresh = world_of(tmp_path / "fresh", of(kind, 2, drops="k1 k3"), contents)
    world = world_of(tmp_path / "old", of(kind, 1, drops="k2"), contents)
    world.pipeline = of(kind, 2, drops="k1 k3")
    world.load(*DAYS)
    assert world.rows() == fresh.rows()
    assert world.warehouse.verify(world.pipeline) == []


def test_ties_that_strict_bounds_left_out_then_are_left_out_again(tmp_path: Path) -> None:
    contents = {A: snapshot("a,03,1"), B: snapshot("tie,03,1", "late,02,1", "b,04,1"), C: snapshot("b,04,1", "c,05,1")}
    for number, bounds in enumerate(("strict", "inclusive", "none")):
        world = world_of(tmp_path / str(number), logic(1, bounds=bounds), contents)
        keys = [r[0] for r in versions(world)]
        world.pipeline = logic(2, bounds=bounds)
        assert {o.status for o in world.load(A, B, C)} == {"committed"}
        assert [(r[0], r[3]) for r in versions(world)] == [(key, 2) for key in keys]


def test_an_equal_version_with_another_state_is_a_conflict_by_the_same_logic_and_none_with_older(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, logic(1), {A: snapshot("a,03,1")})
    world.pipeline = logic(2)
    world.deliver(B, snapshot("a,03,7"))
    (outcome,) = world.load(B)
    assert outcome.status == "committed", outcome.message
    before = kept(world)
    world.deliver(C, snapshot("a,03,8"))
    (conflict,) = world.load(C)
    assert isinstance(conflict.error, VersionConflict)
    assert kept(world) == before
    assert [(r[2], r[3]) for r in versions(world)] == [(7, 2)]


def test_an_older_whole_snapshot_that_is_made_anew_brings_nothing_back_and_withdraws_nothing(tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1", "gone,01,1"), B: snapshot("a,01,1", "b,02,2")}
    world = world_of(tmp_path, logic(1, complete="whole"), contents)
    world.pipeline = logic(2, complete="whole")
    (outcome,) = world.load(A)
    assert outcome.status == "committed", outcome.message
    assert [(r[0], r[3], r[5]) for r in versions(world)] == [("a", 2, 0), ("b", 1, 0), ("gone", 2, 1)]
    # One that was never committed has been overruled, by whatever logic.
    world.deliver(A, snapshot("x,01,1"), "0.csv")
    late = world.load(A)[0]
    assert isinstance(late.error, Superseded)
    assert "a later one, is committed" in str(late.error)


def test_a_whole_snapshot_by_newer_logic_brings_a_withdrawn_key_back_in_its_new_state(tmp_path: Path) -> None:
    both, one = snapshot("a,01,1", "b,01,1"), snapshot("a,01,1")
    world = world_of(tmp_path, logic(1, complete="whole"), {A: both, B: one})
    world.pipeline = logic(2, complete="whole")
    world.deliver(C, both)
    (outcome,) = world.load(C)
    assert outcome.status == "committed", outcome.message
    assert [(r[0], r[3], r[5]) for r in versions(world)] == [("a", 2, 0), ("b", 2, 0)]
    assert world.warehouse.verify(world.pipeline) == []


def test_a_row_of_older_logic_that_newer_logic_withdrew_comes_back_in_its_new_state(tmp_path: Path) -> None:
    both, one = snapshot("a,01,1", "b,01,1"), snapshot("a,01,1")
    world = world_of(tmp_path, logic(1, complete="whole"), {A: both})
    world.pipeline = logic(2, complete="whole")
    for scope, content in ((B, one), (C, both)):
        world.deliver(scope, content)
        (outcome,) = world.load(scope)
        assert outcome.status == "committed", outcome.message
    assert [(r[0], r[3], r[5]) for r in versions(world)] == [("a", 2, 0), ("b", 2, 0)]
    assert world.warehouse.verify(world.pipeline) == []


def test_older_logic_after_newer_is_superseded_and_changes_nothing(tmp_path: Path) -> None:
    world = world_of(tmp_path, logic(1), {A: snapshot("a,01,1")})
    world.pipeline = logic(2)
    world.load(A)
    before = kept(world)
    world.deliver(B, snapshot("a,02,2"))
    (outcome,) = world.load(B, pipeline=logic(1))  # a worker that was not updated yet
    assert isinstance(outcome.error, Superseded)
    assert f"readings/{A}/1.csv#1@2 is committed for readings, and its transform version 2 is newer" in str(
        outcome.error
    )
    assert kept(world) == before
    assert [o.status for o in world.load_pending()] == ["committed"]


def test_with_rows_quarantined_nothing_that_older_logic_made_is_taken_away(tmp_path: Path) -> None:
    half = quarantine(up_to=0.5)
    world = world_of(tmp_path, logic(1, invalid_rows=half), {A: snapshot("a,01,1", "b,01,1", "c,01,x")})
    world.pipeline = logic(2, drops="b", invalid_rows=half)
    assert [o.status for o in world.load(A)] == ["committed"]
    assert [(r[0], r[3], r[5]) for r in versions(world)] == [("a", 2, 0), ("b", 1, 0)]


@pytest.mark.parametrize("restated_by", [1, 2], ids=["older logic", "newer logic"])
def test_what_was_restated_away_does_not_come_back_by_newer_logic(restated_by: int, tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1"), B: snapshot("a,02,2", "b,02,2"), C: snapshot("b,02,2", "c,03,3")}
    for number, order in enumerate(itertools.permutations((A, B, C))):
        world = world_of(tmp_path / str(number), logic(1, complete="whole"), contents)
        world.pipeline = logic(restated_by, complete="whole")
        (restated,) = world.load(A, restate="the later ones were of another plant")
        assert restated.status == "committed"
        world.pipeline = logic(2, complete="whole")
        for scope in order:
            (outcome,) = world.load(scope)
            assert isinstance(outcome.error, Superseded) == (scope != A), outcome.message
        assert [(r[0], r[2], r[3]) for r in versions(world)] == [("a", 1, 2)]
        # The same bytes again under their name are the same delivery; only other ones are newer.
        world.deliver(C, snapshot("x,03,3"))
        world.deliver(B, contents[B] + "\n")
        world.deliver(B, contents[B])
        (again,) = world.load(B)
        assert isinstance(again.error, Superseded)
        assert "was restated over this delivery (the later ones were of another plant)" in str(again.error)
        assert [s.scope for s in world.survey().waiting()] == [C]
        world.load(C)
        assert [(r[0], r[3]) for r in versions(world) if not r[5]] == [("x", 2)]
        assert isinstance(world.load(B)[0].error, Superseded)
        assert world.warehouse.verify(world.pipeline) == []


def test_what_a_restated_partial_snapshot_corrected_stays_corrected_by_newer_logic(tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1"), B: snapshot("a,09,9", "b,02,2")}
    for number, order in enumerate(itertools.permutations((A, B, C))):
        world = world_of(tmp_path / str(number), logic(1), contents)
        world.deliver(C, snapshot("a,03,3"))
        (restated,) = world.load(C, restate="the change of the ninth was of another plant")
        assert restated.status == "committed"
        world.pipeline = logic(2)
        world.load(*order)
        assert [(r[0], r[2], r[3]) for r in versions(world)] == [("a", 3, 2), ("b", 2, 2)]
        assert world.warehouse.verify(world.pipeline) == []


def test_an_optional_value_ends_the_same_in_any_order_of_making_snapshots_again(tmp_path: Path) -> None:
    red, plain = "id,updated,value,colour", "id,updated,value"
    columns = [*readings().columns, text("colour", optional=True)]
    contents = {
        A: snapshot("a,01,1,red", "b,01,1,red", header=red),
        B: snapshot("b,01,1", header=plain),
        C: snapshot("a,01,1", "b,01,1", header=plain),
    }

    def by(version: int) -> Any:
        return readings(columns=columns, complete="whole", transform=transform(lambda frame: frame, version=version))

    ends = set()
    for number, order in enumerate(itertools.permutations((A, B, C))):
        world = world_of(tmp_path / str(number), by(1), contents)
        world.pipeline = by(2)
        assert {o.status for scope in order for o in world.load(scope)} == {"committed"}
        ends.add(tuple(world.sql("SELECT id, colour FROM readings ORDER BY id")))
        late = world_of(tmp_path / f"{number} late", by(1), {s: contents[s] for s in (A, B)})
        late.pipeline = by(2)
        late.deliver(C, contents[C])
        late.load(*order)
        for scope in order:
            late.load(scope)
        ends.add(tuple(late.sql("SELECT id, colour FROM readings ORDER BY id")))
    assert ends == {(("a", "red"), ("b", "red"))}


def test_a_key_that_newer_logic_lets_into_an_earlier_whole_snapshot_is_not_live(tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1", "x,01,1"), B: snapshot("a,01,1")}
    for number, order in enumerate(itertools.permutations((A, B))):
        world = world_of(tmp_path / str(number), logic(1, drops="x", complete="whole"), contents)
        world.pipeline = logic(2, complete="whole")
        assert {o.status for scope in order for o in world.load(scope)} == {"committed"}
        assert [(r[0], r[3]) for r in versions(world) if not r[5]] == [("a", 2)]


def test_an_earlier_whole_snapshot_made_again_does_not_overrule_a_row_that_came_back_older(tmp_path: Path) -> None:
    contents = {A: snapshot("k,10,10", "l,01,1"), B: snapshot("l,01,1"), C: snapshot("k,05,5", "l,01,1")}
    for number, order in enumerate(itertools.permutations((A, B, C))):
        world = world_of(tmp_path / str(number), logic(1, complete="whole"), contents)
        world.pipeline = logic(2, complete="whole")
        assert {o.status for scope in order for o in world.load(scope)} == {"committed"}
        assert [(r[0], r[2], r[3]) for r in versions(world) if not r[5]] == [("k", 5, 2), ("l", 1, 2)]


def test_newer_logic_that_leaves_no_row_of_a_snapshot_is_refused_unless_it_may(tmp_path: Path) -> None:
    for complete in ("no", "whole"):
        world = world_of(tmp_path / complete, logic(1, complete=complete), {A: snapshot("a,01,1")})
        world.pipeline = logic(2, drops="a", complete=complete)
        before = kept(world)
        (outcome,) = world.load(A)
        assert isinstance(outcome.error, EmptyDelivery), outcome
        assert "leaves none of its 1 rows" in str(outcome.error)
        assert kept(world) == before
        world.pipeline = logic(2, drops="a", complete=complete, allow_empty=True)
        assert [(o.status, o.counts.deleted) for o in world.load(A)] == [("committed", 1)]
