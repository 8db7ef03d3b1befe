"""Deliveries of a log that hold what is committed: the same again, more of it, or something else."""

from __future__ import annotations

import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import debezium, native
from etl_assets.errors import RewrittenLog, UnexpectedCursor
from etl_assets_tests.patterns.logs import A, B, C, D, delete, kept, lines, position, prices, refused, upsert
from etl_assets_tests.world import World

EVENTS = [upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 2, 1, "fig"), delete(4, 2, 2), upsert(5, 3, 2, "nut")]
EVENTS += [upsert(6, 3, 1, "plum"), upsert(7, 1, 3)]
ROWS = [(1, "plum"), (2, "nut"), (3, "pear")]


@pytest.fixture
def log(tmp_path: Path) -> World:
    return World(tmp_path, prices())


def live(world: World) -> list[tuple[Any, ...]]:
    return world.sql("SELECT id, item FROM prices ORDER BY id")


def states(world: World) -> list[str]:
    return [s.state for s in world.survey().statuses]


def is_whole(world: World) -> bool:
    """Each event is consumed once, and nothing waits."""
    ledger = world.ledger()
    assert (live(world), position(world), sum(b.counts.source for b in ledger)) == (ROWS, 7, 7)
    assert all(one.upper == two.lower for one, two in itertools.pairwise(ledger))
    assert (world.warehouse.verify(world.pipeline), world.survey().waiting()) == ([], [])
    before = world.state()
    assert {o.status for o in world.load(A, *([B] if world.ledger(B) else []))} == {"already committed"}
    return world.state() == before


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("done", [1, 5, 7])
def test_a_file_that_has_grown_is_compared_and_the_rest_of_it_is_taken(tmp_path: Path, done: int, size: int) -> None:
    log = World(tmp_path, prices(batch_events=size))
    log.deliver(A, lines(*EVENTS[:done]), "events.jsonl")
    log.load(A)
    log.deliver(A, lines(*EVENTS), "events.jsonl")
    assert {o.status for o in log.load_pending() or log.load(A)} <= {"committed", "already committed"}
    assert is_whole(log)
    assert states(log)[-1] == "committed"


def test_a_file_grows_again_and_again(log: World) -> None:
    for end in range(1, 8):
        log.deliver(A, lines(*EVENTS[:end]), "events.jsonl")
        assert [o.status for o in log.load_pending()] == ["committed"]
    assert is_whole(log)
    assert [b.batch.split("#")[1] for b in log.ledger()] == ["1@1", *(f"{n}@1:{n}..{n}" for n in range(2, 8))]


@pytest.mark.parametrize("kept_extracts", [True, False])
@pytest.mark.parametrize("written", [lambda e: e + " ", lambda e: json.dumps(json.loads(e), separators=(",", ":"))])
def test_blanks_make_no_other_event(log: World, written: Any, kept_extracts: bool) -> None:
    log.deliver(A, lines(*EVENTS[:5]), "1.jsonl")
    log.load(A)
    if not kept_extracts:
        shutil.rmtree(log.root / "staged")
    log.deliver(B, lines(*map(written, EVENTS)), "2.jsonl")
    assert [(o.status, o.counts.source) for o in log.load(B)] == [("committed", 2)]
    assert is_whole(log)


def test_members_in_another_order_are_told_by_the_extract_that_is_kept(log: World) -> None:
    log.deliver(A, lines(*EVENTS[:5]))
    log.load(A)
    log.deliver(B, lines(*(json.dumps(json.loads(e), sort_keys=True) for e in EVENTS)))
    assert [o.status for o in log.load(B)] == ["committed"]
    assert is_whole(log)


@pytest.mark.parametrize("begins", [2, 4, 5])
def test_a_file_that_begins_within_a_batch_is_compared_with_the_extract(log: World, begins: int) -> None:
    log.deliver(A, lines(*EVENTS[:5]))
    log.load(A)
    log.deliver(B, lines(*EVENTS[begins - 1 :]))
    assert [o.status for o in log.load(B)] == ["committed"]
    assert is_whole(log)


def test_a_part_of_a_batch_whose_extract_is_gone_cannot_be_compared(log: World) -> None:
    log.deliver(A, lines(*EVENTS[:5]))
    log.load(A)
    shutil.rmtree(log.root / "staged")
    log.deliver(B, lines(*EVENTS[2:]))
    refused(log, RewrittenLog, "positions up to 5 are committed: an overlap", "Positions 3 to 5", "no extract", scope=B)


@pytest.mark.parametrize("kept_extracts", [True, False])
@pytest.mark.parametrize("end", [2, 5, 7])
def test_a_committed_file_that_was_rewritten_is_refused_and_shown(log: World, end: int, kept_extracts: bool) -> None:
    log.deliver(A, lines(*EVENTS[:5]), "events.jsonl")
    log.load(A)
    if not kept_extracts:
        shutil.rmtree(log.root / "staged")
    log.deliver(A, lines(EVENTS[0], upsert(2, 1, 2, "kiwi"), *EVENTS[2:end]), "events.jsonl")
    words = ["an overlap", "position 2", '"item":"kiwi"', '"item":"pear"'] if kept_extracts else ["other events"]
    refused(log, RewrittenLog, *words, "--restate", "Nothing was changed")
    (status,) = [s for s in log.survey().statuses if s.state == "needs attention"]
    assert ("an overlap" in status.reason, status.revision) == (True, 2)
    assert log.survey().waiting(attempts=3) == []


def test_what_follows_a_rewritten_file_waits_until_that_is_put_right_or_removed(log: World) -> None:
    first = log.deliver(A, lines(*EVENTS[:5]), "1.jsonl")
    log.load(A)
    log.deliver(A, lines(upsert(1, 1, 1, "other"), *EVENTS[1:5]), "1.jsonl")
    log.deliver(B, lines(*EVENTS[5:]), "2.jsonl")
    assert [type(o.error) for o in log.load(A, B)] == [RewrittenLog, UnexpectedCursor]
    waits = log.survey().statuses[-1]
    assert (waits.state, waits.waits) == ("staged", True)
    assert f"waits for a decision: prices/{A}/1.jsonl#2 was refused" in waits.reason
    log.deliver(A, lines(*EVENTS[:5]), "1.jsonl")
    assert [o.status for o in log.load(A, B)] == ["committed", "committed"]
    assert is_whole(log)
    first.write_text(lines(upsert(1, 1, 1, "other")))
    log.deliver(C, lines(upsert(8, 1, 9)), "3.jsonl")
    assert [o.status for o in log.load(A, C)] == ["refused", "refused"]
    first.unlink()
    assert [o.status for o in log.load(C)] == ["committed"]


def test_attention_is_written_for_an_overlap_that_differs(tmp_path: Path) -> None:
    log = World(tmp_path, prices(attention_topic="attention"))
    log.deliver(A, lines(*EVENTS[:5]))
    log.load(A)
    log.deliver(B, lines(*EVENTS[:4], upsert(5, 9, 9), *EVENTS[5:]))
    for _ in range(3):
        log.load(B)
    ((topic, payload),) = log.sql("SELECT topic, payload FROM etl_outbox")
    assert (topic, json.loads(payload)["data"]["kind"]) == ("attention", "RewrittenLog")


def test_batches_of_an_earlier_release_are_compared_with_their_extracts(log: World) -> None:
    log.deliver(A, lines(*EVENTS[:5]))
    log.load(A)
    from etl_assets_tests.sink.test_tables import around

    around(log, "UPDATE etl_batch SET events_sha256 = NULL")
    log.deliver(B, lines(*EVENTS))
    assert [o.status for o in log.load(B)] == ["committed"]
    assert is_whole(log)


def test_the_rest_of_a_grown_file_that_was_cut_off_goes_on_where_it_ended(tmp_path: Path) -> None:
    log = World(tmp_path, prices(batch_events=2))
    log.deliver(A, lines(*EVENTS[:2]))
    log.load(A)
    log.deliver(A, lines(*EVENTS))
    coming = log.engine().load([A], "cut off")
    assert next(coming).status == "committed"
    coming.close()  # type: ignore[attr-defined]
    for size in (3, 100):
        log.pipeline = prices(batch_events=size)
        assert {o.status for o in log.load(A)} <= {"committed", "already committed"}
        assert is_whole(log)


def bounds(lower: int, upper: int) -> str:
    return json.dumps({"lower": lower, "upper": upper})


@pytest.mark.parametrize("begins, ends", [(0, 40), (0, 25), (5, 40), (10, 40), (0, 20), (19, 40)])
def test_stated_bounds_are_compared_by_the_events_in_them(tmp_path: Path, begins: int, ends: int) -> None:
    events = {10: upsert(10, 1, 1), 20: upsert(20, 2, 1, "fig"), 30: upsert(30, 3, 1, "nut")}
    log = World(tmp_path, prices(events=native(bounds="stated")))
    log.deliver(A, lines(bounds(0, 15), events[10]), "1.jsonl")
    log.deliver(A, lines(bounds(15, 25), events[20]), "2.jsonl")
    log.load(A)
    log.deliver(B, lines(bounds(begins, ends), *(e for pos, e in events.items() if begins < pos <= ends)))
    assert [o.status for o in log.load(B)] == ["committed"]
    beyond = ends > 25
    assert (position(log), live(log)) == (max(25, ends), [(1, "nut" if beyond else "fig")])
    assert sum(b.counts.source for b in log.ledger()) == 2 + beyond
    log.deliver(C, lines(bounds(0, 50), events[10], upsert(12, 1, 7), events[20]))
    refused(log, RewrittenLog, "position 12", "committed: no event", scope=C)
    log.deliver(D, lines(bounds(12, 50), events[20]))
    assert log.load(D)[0].status == "refused"


def test_a_change_of_key_overlaps_as_one_event(tmp_path: Path) -> None:
    def event(pos: int, before: int | None, after: int) -> str:
        row = {"item": "pear", "price": "1"}
        old = None if before is None else {"id": before, **row}
        return json.dumps({"pos": pos, "version": pos, "op": "u", "before": old, "after": {"id": after, **row}})

    events = [event(1, None, 1), event(2, 1, 2), event(3, 2, 3), event(4, 3, 4)]
    for size in (1, 2, 100):
        log = World(tmp_path / str(size), prices(events=debezium(), batch_events=size))
        log.deliver(A, lines(*events[:2]))
        log.load(A)
        log.deliver(A, lines(*events))
        log.load(A)
        assert (live(log), position(log)) == ([(4, "pear")], 4)
        assert sum(b.counts.source for b in log.ledger()) == 4


@pytest.mark.parametrize("second", [A, B])
@pytest.mark.parametrize("names", [("1.jsonl", "2.jsonl"), ("2.jsonl", "1.jsonl")])
def test_two_files_that_overlap_and_come_together_give_each_event_once(
    log: World, names: tuple[str, str], second: str
) -> None:
    log.deliver(A, lines(*EVENTS[:4]), names[0])
    log.deliver(second, lines(*EVENTS[2:]), names[1])
    assert [o.status for o in log.load_pending()] == ["committed", "committed"]
    assert is_whole(log)
    before = kept(log)
    log.load(A)
    assert kept(log) == before
