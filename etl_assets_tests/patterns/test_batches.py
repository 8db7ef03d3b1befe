"""A delivery of a log that is more than one batch: each in a transaction of its own, in order, and nothing twice."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import debezium, text
from etl_assets.errors import ContractError, StaleWriter, UnexpectedCursor, VersionConflict
from etl_assets.model import batch_id
from etl_assets_tests.faults.scenarios import timeless
from etl_assets_tests.patterns.logs import A, B, delete, done, kept, lines, position, prices, upsert, versions
from etl_assets_tests.world import World

EVENTS = [upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 2, 1, "fig"), delete(4, 2, 2), upsert(5, 3, 2, "nut")]
EVENTS += [upsert(6, 3, 1, "plum"), upsert(7, 1, 3)]
ROWS = [(1, "plum", "1.0000"), (2, "nut", "1.0000"), (3, "pear", "1.0000")]
OF_TWO = [f"prices/{A}/1.jsonl#1@1:{bounds}" for bounds in ("1..2", "3..4", "5..6", "7..7")]
OF_THREE = [f"prices/{A}/1.jsonl#1@1:{bounds}" for bounds in ("1..3", "4..6", "7..7")]


def world_of(path: Path, size: int, *events: str, **contract: Any) -> World:
    world = World(path, prices(batch_events=size, **contract))
    world.deliver(A, lines(*(events or EVENTS)), "1.jsonl")
    return world


def live(world: World) -> list[tuple[Any, ...]]:
    return world.sql("SELECT id, item, price FROM prices ORDER BY id")


def audit(world: World) -> list[tuple[Any, ...]]:
    """What of each batch is its own."""
    return [(b.batch, b.lower, b.upper, b.counts.source, b.rows, b.continues) for b in world.ledger()]


def test_a_delivery_of_more_events_than_a_batch_may_have_is_several_batches_in_order(tmp_path: Path) -> None:
    world = world_of(tmp_path, 2)
    assert done(world.load(A)) == [
        ("committed", {"inserted": 2}),
        ("committed", {"updated": 1, "deleted": 1}),
        ("committed", {"inserted": 1, "updated": 1}),
        ("committed", {"inserted": 1}),
    ]
    assert live(world) == ROWS
    assert audit(world) == [
        (OF_TWO[0], 0, 2, 2, 2, True),
        (OF_TWO[1], 2, 4, 2, 2, True),
        (OF_TWO[2], 4, 6, 2, 2, True),
        (OF_TWO[3], 6, 7, 1, 1, False),
    ]
    assert len({b.digest for b in world.ledger()}) == 4
    assert (position(world), world.warehouse.verify(world.pipeline)) == (7, [])
    before = world.state()
    for _ in range(2):
        assert [(o.status, o.batch) for o in world.load(A)] == [("already committed", b) for b in OF_TWO]
    assert world.state() == before
    (status,) = world.survey().statuses
    assert (status.state, status.reason.split()[1]) == ("committed", OF_TWO[3])


@pytest.mark.parametrize("size", [7, 8])
def test_a_delivery_that_fits_one_batch_is_what_it_would_be_without_a_bound(tmp_path: Path, size: int) -> None:
    bounded, free = world_of(tmp_path / "bounded", size), world_of(tmp_path / "free", 1_000_000)
    for world in (bounded, free):
        world.load(A, run="one")
    assert timeless(kept(bounded)) == timeless(kept(free))
    assert [b.batch for b in bounded.ledger()] == [f"prices/{A}/1.jsonl#1@1"]


@pytest.mark.parametrize("size", range(1, 8))
def test_any_bound_gives_the_same_rows_and_versions(tmp_path: Path, size: int) -> None:
    world = world_of(tmp_path, size)
    world.load(A)
    assert live(world) == ROWS
    assert versions(world) == [(1, 3, 0), (2, 3, 0), (3, 1, 0)]
    bounds = [*range(0, 7, size), 7]
    assert [(b.lower, b.upper) for b in world.ledger()] == list(itertools.pairwise(bounds))


def test_an_event_that_changes_a_key_is_one_event_and_stays_in_one_batch(tmp_path: Path) -> None:
    def event(pos: int, before: int | None, after: int) -> str:
        row = {"item": "pear", "price": "1"}
        old = None if before is None else {"id": before, **row}
        return json.dumps({"pos": pos, "version": pos, "op": "u", "before": old, "after": {"id": after, **row}})

    events = [event(1, None, 1), event(2, 1, 2), event(3, 2, 3), event(4, 3, 4)]
    world = world_of(tmp_path, 2, *events, events=debezium())
    world.load(A)
    assert [row[0] for row in live(world)] == [4]
    assert [(b.lower, b.upper, b.counts.source) for b in world.ledger()] == [(0, 2, 2), (2, 4, 2)]


def test_deliveries_of_several_batches_follow_each_other(tmp_path: Path) -> None:
    world = world_of(tmp_path, 3)
    world.deliver(B, lines(upsert(8, 4, 1, "last"), upsert(9, 2, 3), upsert(10, 1, 9), upsert(11, 1, 8)), "1.jsonl")
    assert [o.status for o in world.load(A, B)] == ["committed"] * 5
    assert [row[:2] for row in live(world)] == [(1, "last"), (2, "nut"), (3, "pear"), (8, "pear"), (9, "pear")]
    assert sum(b.counts.source for b in world.ledger()) == position(world) == 11


def cut_off(world: World, batches: int) -> None:
    """A run that ends, without an error of its own, after some batches."""
    coming = world.engine().load([A], "cut off")
    for _ in range(batches):
        assert next(coming).status == "committed"
    coming.close()  # type: ignore[attr-defined]


def test_a_delivery_is_committed_only_with_its_last_batch_and_the_next_run_goes_on_with_the_next_one(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, 2)
    cut_off(world, 2)
    assert ([b.batch for b in world.ledger()], position(world)) == (OF_TWO[:2], 4)
    (status,) = world.survey().statuses
    assert (status.state, status.reason) == (
        "staged",
        "committed up to position 4, and the rest of it is not published yet",
    )
    assert world.survey().waiting() == [status]
    assert [(o.status, o.batch) for o in world.load_pending()] == [
        *(("already committed", b) for b in OF_TWO[:2]),
        *(("committed", b) for b in OF_TWO[2:]),
    ]
    assert (live(world), position(world)) == (ROWS, 7)
    assert sum(b.counts.source for b in world.ledger()) == 7
    assert world.survey().waiting() == []


@pytest.mark.parametrize("lost", [True, False])
@pytest.mark.parametrize("size", [1, 3, 4, 100])
def test_a_bound_that_changes_while_a_delivery_is_half_consumed_applies_to_the_rest_of_it_at_most(
    tmp_path: Path, size: int, lost: bool
) -> None:
    world = world_of(tmp_path, 2)
    cut_off(world, 2)
    if lost:  # with its extract the delivery keeps its parts
        shutil.rmtree(tmp_path / "staged")
    again = prices(batch_events=size)
    outcomes = world.load(A, pipeline=again)
    assert [o.status for o in outcomes][:3] == ["already committed"] * 2 + ["committed"]
    assert [b.batch for b in world.ledger()][:2] == OF_TWO[:2]
    assert (live(world), position(world)) == (ROWS, 7)
    assert [(b.upper, b.counts.source) for b in world.ledger()][2:] == (
        [(6, 2), (7, 1)] if not lost else [(p, 1) for p in (5, 6, 7)] if size == 1 else [(7, 3)]
    )
    assert sum(b.counts.source for b in world.ledger()) == 7
    before = kept(world)
    for contract in (again, prices(batch_events=2), prices()):
        assert {o.status for o in world.load(A, pipeline=contract)} == {"already committed"}
    assert kept(world) == before


def test_another_bound_leaves_what_is_committed_as_it_is_though_its_extract_is_made_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, 3)
    world.load(A)
    before = kept(world)
    for size in (2, 100):
        shutil.rmtree(tmp_path / "staged")
        # Named, so that it is read again.
        again = world.load(A, pipeline=prices(batch_events=size), delivery="1.jsonl")
        assert [(o.status, o.batch) for o in again] == [("already committed", b) for b in OF_THREE]
    assert kept(world) == before


def test_an_extract_that_is_cut_otherwise_than_the_ledger_is_refused_by_name_and_nothing_is_counted_twice(
    tmp_path: Path,
) -> None:
    world, other = world_of(tmp_path / "one", 2), world_of(tmp_path / "other", 3)
    cut_off(world, 1)
    other.engine().load([A], "frozen")
    cut_off(other, 1)
    # The ledger of another run of the same log, beside extracts that are cut in another way.
    shutil.rmtree(tmp_path / "one" / "staged")
    shutil.copytree(tmp_path / "other" / "staged", tmp_path / "one" / "staged")
    before = kept(world)
    (outcome,) = world.load(A)
    assert isinstance(outcome.error, UnexpectedCursor)
    assert "cut otherwise" in str(outcome.error)
    assert str(tmp_path / "one" / "staged") in str(outcome.error)
    assert kept(world) == before
    shutil.rmtree(tmp_path / "one" / "staged")
    world.load(A)
    assert (live(world), position(world)) == (ROWS, 7)


def test_a_batch_that_is_refused_leaves_the_ones_before_it_committed_and_the_later_ones_for_another_run(
    tmp_path: Path,
) -> None:
    events = [upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 1, 1, "conflict"), upsert(4, 1, 3), upsert(5, 1, 4)]
    world = world_of(tmp_path, 2, *events)
    world.deliver(B, lines(upsert(6, 1, 9)), "1.jsonl")
    first, second, after = world.load(A, B)
    assert (first.status, second.batch, after.status) == ("committed", f"prices/{A}/1.jsonl#1@1:3..4", "refused")
    assert isinstance(second.error, VersionConflict)
    assert isinstance(after.error, UnexpectedCursor)
    assert ([row[0] for row in live(world)], position(world)) == ([1, 2], 2)
    # Corrected, the delivery still begins with what is committed: that is compared, and the rest of it is taken.
    world.deliver(A, lines(*events[:2], upsert(3, 2, 1, "fine"), *events[3:]), "1.jsonl")
    assert [o.status for o in world.load(A, B)] == ["committed", "committed", "committed"]
    assert [b.batch for b in world.ledger()][1:3] == [f"prices/{A}/1.jsonl#2@1:{p}" for p in ("3..4", "5..5")]
    assert live(world)[0][:2] == (1, "fine")
    assert sum(b.counts.source for b in world.ledger()) == position(world) == 6


def test_a_run_that_was_paused_between_two_batches_is_refused_once_another_has_gone_on(
    tmp_path: Path,
) -> None:  # CASE 4
    world = world_of(tmp_path, 2)
    paused = world.engine().load([A], "paused")
    assert next(paused).status == "committed"
    assert [o.status for o in world.load(A, run="successor")] == ["already committed"] + ["committed"] * 3
    before = kept(world)
    (late,) = paused
    assert isinstance(late.error, StaleWriter)
    assert kept(world) == before
    assert (live(world), position(world)) == (ROWS, 7)


def test_a_contract_that_no_longer_fits_the_table_ends_the_run_and_leaves_the_rest_of_the_delivery(
    tmp_path: Path,
) -> None:
    world = world_of(tmp_path, 2)
    cut_off(world, 2)
    before = kept(world)
    other = [*prices().columns[:2], prices().columns[2].model_copy(update={"scale": 2})]
    with pytest.raises(ContractError, match="'price' is decimal"):
        world.load(A, pipeline=prices(batch_events=2, columns=other))
    assert kept(world) == before
    world.load(A)
    assert (live(world), position(world)) == (ROWS, 7)


def test_a_column_that_is_declared_between_two_batches_counts_from_the_next_one_on(tmp_path: Path) -> None:
    events = [upsert(n, 1, n, colour=f"colour {n}") for n in (1, 2, 3, 4)]
    world = world_of(tmp_path, 2, *events, new_columns="ignore")
    cut_off(world, 1)
    wider = prices(batch_events=2, columns=[*prices().columns, text("colour", optional=True)])
    assert [o.status for o in world.load(A, pipeline=wider)] == ["already committed", "committed"]
    assert world.sql("SELECT id, colour FROM prices ORDER BY id") == [
        (1, None),
        (2, None),
        (3, "colour 3"),
        (4, "colour 4"),
    ]
    assert world.survey(wider).waiting() == []
    assert world.warehouse.verify(wider) == []


def test_an_id_says_which_positions_and_no_two_are_the_same() -> None:
    plain = batch_id("p", "s", "1", 1, 1)
    assert batch_id("p", "s", "1", 1, 1, positions=(0, 5)) == f"{plain}:1..5"
    named = batch_id("p", "s", "1#1@1:1..5", 1, 1)
    assert named == "p/s/1%231%401:1..5#1@1"
    assert len({plain, named, batch_id("p", "s", "1", 1, 1, 5), batch_id("p", "s", "1", 1, 15)}) == 4
