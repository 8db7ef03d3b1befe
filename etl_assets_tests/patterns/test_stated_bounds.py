"""Logs whose positions leave gaps: each delivery says where it begins and where it ends (cases 3, 17 and 36)."""

from __future__ import annotations

import gzip
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import debezium, native
from etl_assets.errors import BadEvent, BadPositions, RewrittenLog, ShrunkDelivery, UnexpectedCursor, ZeroBytes
from etl_assets_tests.patterns.logs import (
    A,
    B,
    C,
    delete,
    done,
    kept,
    lines,
    position,
    prices,
    refused,
    upsert,
    versions,
)
from etl_assets_tests.world import World


def bounds(lower: Any, upper: Any) -> str:
    return json.dumps({"lower": lower, "upper": upper})


@pytest.fixture
def log(tmp_path: Path) -> World:
    return World(tmp_path, prices(events=native(first_position=101, bounds="stated")))


def audit(world: World) -> list[tuple[Any, ...]]:
    return [(b.lower, b.upper, b.counts.source, b.counts.stale) for b in world.ledger()]


def test_positions_may_leave_gaps_where_the_delivery_says_what_it_covers(log: World) -> None:
    log.deliver(A, lines(bounds(100, 250), upsert(103, 1, 1), upsert(180, 2, 1, "fig"), upsert(249, 1, 2)))
    log.deliver(B, lines(bounds(250, 400), delete(251, 2, 2), upsert(400, 1, 1, "old")))
    assert done(log.load(A, B)) == [("committed", {"inserted": 2}), ("committed", {"deleted": 1, "stale": 1})]
    assert versions(log) == [(1, 2, 0), (2, 2, 1)]
    assert (position(log), audit(log)) == (400, [(100, 250, 3, 0), (250, 400, 2, 1)])
    assert log.warehouse.verify(log.pipeline) == []


def test_the_first_line_states_the_bounds_of_debezium_events_too(tmp_path: Path) -> None:
    log = World(tmp_path, prices(events=debezium(position="lsn", version=None, bounds="stated")))
    row = {"id": 1, "item": "pear", "price": "1"}
    event = {"lsn": 24_023_128, "op": "c", "before": None, "after": row}
    log.deliver(A, gzip.compress(lines(bounds(0, 24_100_000), json.dumps(event)).encode()), "1.jsonl.gz")
    assert done(log.load(A)) == [("committed", {"inserted": 1})]
    assert audit(log) == [(0, 24_100_000, 1, 0)]


def test_an_empty_interval_that_is_stated_moves_progress_and_no_events_without_one_do_not(log: World) -> None:
    log.deliver(A, lines(bounds(100, 200), upsert(150, 1, 1)))
    log.deliver(B, lines(bounds(200, 300)))
    log.deliver(C, lines(bounds(300, 301), upsert(301, 2, 1, "fig")))
    assert done(log.load(A, B, C)) == [("committed", {"inserted": 1}), ("committed", {}), ("committed", {"updated": 1})]
    assert (position(log), audit(log)) == (301, [(100, 200, 1, 0), (200, 300, 0, 0), (300, 301, 1, 0)])
    assert [s.state for s in log.survey().statuses] == ["committed"] * 3
    before = log.state()
    for _ in range(2):
        assert {o.status for o in log.load(A, B, C)} == {"already committed"}
    assert log.state() == before
    log.deliver(C, "\n\n", "2.jsonl")
    refused(log, ZeroBytes, "no events", scope=C)
    log.deliver(C, "", "2.jsonl")
    refused(log, ZeroBytes, "zero bytes", scope=C)


def test_an_empty_log_may_begin_with_an_empty_interval(log: World) -> None:
    log.deliver(A, lines(bounds(100, 200)))
    assert done(log.load(A)) == [("committed", {})]
    assert (position(log), versions(log), log.rows()) == (200, [], [])
    log.deliver(B, lines(bounds(200, 201), upsert(201, 1, 1)))
    assert done(log.load(B)) == [("committed", {"inserted": 1})]


@pytest.mark.parametrize(
    "first, words",
    [
        (upsert(101, 1, 1), "line 1: the delivery does not say which positions it covers"),
        (json.dumps({"lower": 100}), 'its first line has to be {"lower": L, "upper": U}'),
        (json.dumps({"lower": 100, "upper": 200, "shard": "eu"}), "line 1: the delivery does not say"),
        (bounds("100", 200), "line 1: 'lower' is '100', not a whole number"),
        (bounds(100, 200.5), "line 1: 'upper' is '200.5', not a whole number of 64 bits"),
        (bounds(None, 200), "line 1: 'lower' is None, not a whole number"),
        (bounds(100, 2**63), "not a whole number of 64 bits"),
    ],
)
def test_a_delivery_that_does_not_state_its_bounds_is_refused(log: World, first: str, words: str) -> None:
    log.deliver(A, lines(first, upsert(150, 1, 1)))
    refused(log, BadEvent, words)


@pytest.mark.parametrize(
    "events, words",
    [
        ((bounds(100, 200), upsert(100, 1, 1)), "line 2: position 100 after 100: where the delivery begins"),
        ((bounds(100, 200), upsert(201, 1, 1)), "line 2: position 201 is beyond 200, where the delivery ends"),
        ((bounds(100, 200), upsert(150, 1, 1), upsert(150, 1, 2)), "line 3: position 150 after 150: positions grow"),
        ((bounds(100, 200), upsert(150, 1, 1), upsert(140, 1, 2)), "line 3: position 140 after 150: positions grow"),
        ((bounds(100, 200), upsert(0, 1, 1)), "line 2: 'pos' is 0, less than 1"),
        ((bounds(200, 200),), "line 1: the delivery covers no position: it begins after 200 and ends at 200"),
        ((bounds(200, 100),), "line 1: the delivery covers no position"),
        ((bounds(-1, 100),), "line 1: 'lower' is -1, less than 0"),
    ],
)
def test_positions_outside_of_the_stated_bounds_or_out_of_order_are_refused(
    log: World, events: tuple[str, ...], words: str
) -> None:
    log.deliver(A, lines(*events))
    refused(log, BadPositions, words)


def test_bounds_that_are_stated_twice_are_no_event(log: World) -> None:
    log.deliver(A, lines(bounds(100, 200), bounds(200, 300)))
    refused(log, BadEvent, "line 2: 'pos' is None")


def test_a_contiguous_log_does_not_take_a_line_of_bounds(tmp_path: Path) -> None:
    log = World(tmp_path, prices())
    log.deliver(A, lines(bounds(0, 1), upsert(1, 1, 1)))
    refused(log, BadEvent, "line 1: 'pos' is None")


@pytest.mark.parametrize(
    "lower, upper, words",
    [
        (251, 300, "holds positions 252 to 300, and positions 251 to 251 are missing: a gap"),
        (100, 300, "holds positions 101 to 300, and positions up to 250 are committed: an overlap"),
        (100, 250, "positions up to 250 are committed: an overlap"),
    ],
)
def test_a_delivery_begins_where_the_last_one_ended(log: World, lower: int, upper: int, words: str) -> None:
    log.deliver(A, lines(bounds(100, 250), upsert(101, 1, 1)))
    log.load(A)
    log.deliver(B, lines(bounds(lower, upper), upsert(upper, 2, 1)))
    refused(log, UnexpectedCursor if "gap" in words else RewrittenLog, words, scope=B)


@pytest.mark.parametrize(
    "lower, error, words", [(99, BadPositions, "the log begins with 101"), (101, UnexpectedCursor, "a gap")]
)
def test_the_first_delivery_begins_where_the_contract_says_that_the_log_does(
    log: World, lower: int, error: type[Exception], words: str
) -> None:
    log.deliver(A, lines(bounds(lower, 250), upsert(102, 1, 1)))
    refused(log, error, words)


def test_deliveries_in_any_order_wait_for_their_turn(log: World) -> None:  # CASE 17
    for scope, (lower, upper) in zip((A, B, C), itertools.pairwise((100, 150, 160, 300)), strict=True):
        log.deliver(scope, lines(bounds(lower, upper), upsert(upper - 1, upper, 1, f"of {scope}")))
    assert [log.load(scope)[-1].status for scope in (C, A)] == ["refused", "committed"]
    waits = {s.scope: (s.state, s.waits, s.reason) for s in log.survey().statuses}
    assert waits[C] == ("staged", True, "waits for its turn: positions 151 to 160 are missing")
    assert [log.load(scope)[-1].status for scope in (B, C)] == ["committed", "committed"]
    assert (position(log), versions(log)) == (300, [(1, 300, 0)])


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_batches_are_cut_at_events_and_the_last_one_ends_where_the_delivery_does(tmp_path: Path, size: int) -> None:
    contract = prices(events=native(bounds="stated"), batch_events=size)
    log = World(tmp_path, contract)
    events = [upsert(10, 1, 1), upsert(25, 1, 2), delete(40, 2, 1), upsert(70, 2, 2, "fig")]
    log.deliver(A, lines(bounds(0, 100), *events))
    coming = log.engine().load([A], "cut off")
    assert next(coming).status == "committed"
    coming.close()  # type: ignore[attr-defined]
    shutil.rmtree(tmp_path / "staged")
    assert {o.status for o in log.load(A)} <= {"already committed", "committed"}
    ends = [*[10, 25, 40, 70][size - 1 : 3 : size], 100]
    assert [(b.lower, b.upper) for b in log.ledger()] == list(itertools.pairwise([0, *ends]))
    assert sum(b.counts.source for b in log.ledger()) == 4
    assert (position(log), versions(log)) == (100, [(1, 2, 1), (2, 2, 0)])
    before = kept(log)
    assert {o.status for o in log.load(A)} == {"already committed"}
    assert kept(log) == before


def test_a_control_file_counts_events_and_not_the_line_of_bounds(tmp_path: Path) -> None:
    contract = prices(events=native(bounds="stated"), landing="prices/{partition}/*.jsonl", row_count_file=".count")
    log = World(tmp_path, contract)
    log.deliver(A, lines(bounds(0, 9), upsert(5, 1, 1)), "1.jsonl")
    log.deliver(A, "2", "1.jsonl.count")
    refused(log, ShrunkDelivery, "1 rows, but its control file", "declares 2")
    log.deliver(A, "1", "1.jsonl.count")
    log.deliver(A, lines(bounds(0, 9), upsert(4, 1, 1)), "1.jsonl")
    assert done(log.load(A)) == [("committed", {"inserted": 1})]


def test_a_first_line_that_says_how_many_events_there_are_tells_a_file_that_is_cut_off_between_two_lines(
    log: World,
) -> None:
    first = json.dumps({"lower": 100, "upper": 250, "events": 2})
    log.deliver(A, lines(first, upsert(103, 1, 1)))
    refused(log, ShrunkDelivery, "1 events, and its first line says 2")
    log.deliver(A, lines(first, upsert(103, 1, 1), upsert(180, 2, 1, "fig"), upsert(181, 1, 2)))
    refused(log, ShrunkDelivery, "3 events, and its first line says 2")
    log.deliver(A, lines(first, upsert(103, 1, 1), upsert(180, 2, 1, "fig")))
    assert done(log.load(A)) == [("committed", {"inserted": 1})]


def test_a_delivery_that_is_cut_off_within_its_last_line_is_refused(log: World) -> None:
    whole = lines(bounds(100, 250), upsert(103, 1, 1), upsert(180, 2, 1, "fig"))
    log.deliver(A, whole[:-9])
    refused(log, BadEvent, "line 3: not JSON", "cut off")
