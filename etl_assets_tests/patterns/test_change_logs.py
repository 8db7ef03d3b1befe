"""What each event of a change log does to its row, and which logs are refused, by name."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import boolean, date, debezium, decimal, integer, native, quarantine, real, text
from etl_assets.contract import json as json_column
from etl_assets.errors import (
    BadEvent,
    BadPositions,
    BrokenDelivery,
    ContractError,
    LedgerMismatch,
    RewrittenDelivery,
    RewrittenLog,
    ShrunkDelivery,
    Undecodable,
    UnexpectedCursor,
    VersionConflict,
    ZeroBytes,
)
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
    readings,
    refused,
    snapshot,
    upsert,
    versions,
)
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import World


@pytest.fixture
def log(tmp_path: Path) -> World:
    return World(tmp_path, prices())


def live(world: World) -> list[tuple[Any, ...]]:
    return world.sql("SELECT id, item, price FROM prices ORDER BY id")


def envelope(pos: int, op: str, before: Any, after: Any, version: int | None = None) -> str:
    return json.dumps({"pos": pos, "version": version or pos, "op": op, "before": before, "after": after})


def row(key: Any, item: str = "pear", price: str = "1") -> dict[str, Any]:
    return {"id": key, "item": item, "price": price}


# --------------------------------------------------------------------------- what events do


def test_events_insert_change_and_end_rows(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, "fig"), upsert(3, 1, 3, "nut")))
    log.deliver(B, lines(upsert(4, 2, 1, "plum", "2.5"), delete(5, 2, 2), upsert(6, 1, 4, "elm")))
    assert done(log.load(A, B)) == [
        ("committed", {"inserted": 3}),
        ("committed", {"inserted": 1, "updated": 1, "deleted": 1}),
    ]
    assert live(log) == [(1, "plum", "2.5000"), (3, "nut", "1.0000"), (4, "elm", "1.0000")]
    assert versions(log) == [(1, 2, 0), (2, 2, 1), (3, 1, 0), (4, 1, 0)]
    assert (position(log), [(b.lower, b.upper, b.counts.source) for b in log.ledger()]) == (6, [(0, 3, 3), (3, 6, 3)])


def test_a_key_that_is_inserted_changed_and_ended_within_one_delivery_is_gone(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 2, 1, "fig"), delete(3, 3, 1), upsert(4, 1, 2)))
    log.load(A)
    assert live(log) == [(2, "pear", "1.0000")]
    assert versions(log) == [(1, 3, 1), (2, 1, 0)]


@pytest.mark.parametrize("split", [(3,), (1, 2), (2, 1), (1, 1, 1)])
def test_a_row_that_is_inserted_again_after_its_end_is_there(log: World, split: tuple[int, ...]) -> None:
    events = [upsert(1, 1, 1), delete(2, 2, 1), upsert(3, 3, 1, "again")]
    for number, count in enumerate(split, 1):
        log.deliver(A, lines(*events[:count]), f"{number}.jsonl")
        del events[:count]
    log.load(A)
    assert live(log) == [(1, "again", "1.0000")]
    assert versions(log) == [(1, 3, 0)]


def test_events_without_versions_are_ordered_by_position_though_all_else_is_equal(tmp_path: Path) -> None:
    log = World(tmp_path, prices(events=native(version=None)))
    log.deliver(A, lines(upsert(1, 9, 1, "one"), upsert(2, 9, 1, "two"), delete(3, 9, 2), upsert(4, 9, 2, "four")))
    log.load(A)
    assert [r[:2] for r in live(log)] == [(1, "two"), (2, "four")]


def test_an_older_version_after_a_newer_one_is_counted_as_stale_and_consumed(log: World) -> None:
    log.deliver(A, lines(upsert(1, 5, 1, "new"), upsert(2, 1, 2)))
    log.deliver(B, lines(upsert(3, 4, 1, "old"), upsert(4, 2, 2, "fig")))
    assert done(log.load(A, B))[1] == ("committed", {"updated": 1, "stale": 1})
    assert [r[:2] for r in live(log)] == [(1, "new"), (2, "fig")]
    assert position(log) == 4


def test_an_older_version_after_a_newer_one_in_the_same_delivery_is_ignored(log: World) -> None:
    log.deliver(A, lines(upsert(1, 5, 1, "new"), upsert(2, 4, 1, "old"), delete(3, 3, 1)))
    log.load(A)
    assert [r[:2] for r in live(log)] == [(1, "new")]


def test_a_stale_replay_does_not_bring_back_a_row_that_has_ended(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), delete(2, 2, 1)))
    log.deliver(B, lines(upsert(3, 1, 1, "ghost")))
    assert done(log.load(A, B))[1] == ("committed", {"stale": 1})
    assert live(log) == []
    assert versions(log) == [(1, 2, 1)]


def test_the_end_of_a_row_that_never_was_is_remembered(log: World) -> None:
    log.deliver(A, lines(delete(1, 7, 1)))
    log.deliver(B, lines(upsert(2, 6, 1, "ghost"), upsert(3, 8, 2)))
    assert done(log.load(A, B)) == [("committed", {}), ("committed", {"inserted": 1, "stale": 1})]
    assert [r[0] for r in live(log)] == [2]
    assert log.warehouse.verify(log.pipeline) == []


def test_a_delivery_of_nothing_but_stale_events_moves_progress_and_changes_no_row(log: World) -> None:
    log.deliver(A, lines(upsert(1, 5, 1), upsert(2, 5, 2)))
    log.load(A)
    before = kept(log)
    log.deliver(B, lines(upsert(3, 1, 1, "old"), delete(4, 2, 2)))
    assert done(log.load(B)) == [("committed", {"stale": 2})]
    after = kept(log)
    assert after["_versions_prices"] == before["_versions_prices"]
    assert position(log) == 4


@pytest.mark.parametrize("together", [True, False])
def test_versions_are_compared_as_numbers(log: World, together: bool) -> None:
    events = [upsert(1, 9, 1, "nine"), upsert(2, 10, 1, "ten"), upsert(3, 10, 2, "ten"), upsert(4, 9, 2, "nine")]
    if together:
        log.deliver(A, lines(*events))
    else:
        for number, event in enumerate(events):
            log.deliver(A, lines(event), f"{number}.jsonl")
    log.load(A)
    assert [r[:2] for r in live(log)] == [(1, "ten"), (2, "ten")]


def test_an_equal_version_with_the_same_state_is_fine_and_unchanged(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1, price="1.50"), upsert(2, 1, 1, price="1.5"), delete(3, 1, 2), delete(4, 1, 2)))
    log.deliver(B, lines(upsert(5, 1, 1, price="1.500"), delete(6, 1, 2)))
    assert done(log.load(A, B)) == [("committed", {"inserted": 1}), ("committed", {"unchanged": 2})]
    assert live(log) == [(1, "pear", "1.5000")]


@pytest.mark.parametrize("conflicting", [upsert(4, 1, 1, "fig"), delete(4, 1, 1)])
def test_an_equal_version_with_another_state_is_a_conflict_and_all_of_it_is_rolled_back(
    log: World, conflicting: str
) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)))
    log.load(A)
    log.deliver(B, lines(upsert(3, 2, 2, "plum"), conflicting, upsert(5, 1, 3)))
    refused(log, VersionConflict, "1 rows", "id=1", "version 1", "'item': 'pear'", "Nothing was changed", scope=B)
    assert (position(log), [r[:2] for r in live(log)]) == (2, [(1, "pear"), (2, "pear")])


def test_an_equal_version_with_another_state_in_one_delivery_names_both_lines(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, "fig"), upsert(3, 1, 2, "nut")))
    refused(log, VersionConflict, "line 2: {", "line 3: {", "'fig'", "'nut'", "id=2, version 1")


# --------------------------------------------------------------------------- Debezium's envelope


@pytest.fixture
def envelopes(tmp_path: Path) -> World:
    return World(tmp_path, prices(events=debezium()))


def test_the_operations_of_an_envelope_read_create_change_and_end_rows(envelopes: World) -> None:
    envelopes.deliver(
        A,
        lines(
            envelope(1, "r", None, row(1)),
            envelope(2, "c", None, row(2)),
            envelope(3, "u", row(1), row(1, "fig")),
            envelope(4, "d", row(2), None),
        ),
    )
    envelopes.load(A)
    assert live(envelopes) == [(1, "fig", "1.0000")]
    assert versions(envelopes) == [(1, 3, 0), (2, 4, 1)]


@pytest.mark.parametrize("together", [True, False])
def test_a_change_of_key_is_the_end_of_the_old_row_and_the_start_of_the_new_one(
    envelopes: World, together: bool
) -> None:
    first, second = envelope(1, "c", None, row(1)), envelope(2, "u", row(1), row(5, "moved"))
    envelopes.deliver(A, lines(first, second) if together else lines(first), "1.jsonl")
    if not together:
        envelopes.deliver(A, lines(second), "2.jsonl")
    envelopes.load(A)
    assert live(envelopes) == [(5, "moved", "1.0000")]
    assert versions(envelopes) == [(1, 2, 1), (5, 2, 0)]
    assert sum(b.counts.source for b in envelopes.ledger()) == 2


def test_a_change_of_key_is_seen_under_an_alias_too(tmp_path: Path) -> None:
    columns = [integer("id", aliases=("ID",)), text("item"), decimal("price", precision=20, scale=4)]
    log = World(tmp_path, prices(events=debezium(), columns=columns))
    renamed = [{"ID" if k == "id" else k: v for k, v in row(key).items()} for key in (1, 5)]
    log.deliver(A, lines(envelope(1, "c", None, renamed[0]), envelope(2, "u", renamed[0], renamed[1])))
    log.load(A)
    assert [r[0] for r in live(log)] == [5]


def test_a_key_that_is_only_written_in_another_way_is_no_change_of_key(envelopes: World) -> None:
    events = lines(envelope(1, "c", None, row("01")), envelope(2, "u", row("01"), row(1, "fig")))
    envelopes.deliver(A, events)
    envelopes.load(A)
    assert live(envelopes) == [(1, "fig", "1.0000")]


@pytest.mark.parametrize("other, rows", [("1", {"1"}), ("01", {"01"}), ("1.0", {"1.0"})])
def test_a_key_of_texts_is_compared_by_its_texts(tmp_path: Path, other: str, rows: set[str]) -> None:
    columns = [text("id"), text("item"), decimal("price", precision=20, scale=4)]
    log = World(tmp_path, prices(columns=columns, events=debezium()))
    log.deliver(A, lines(envelope(1, "c", None, row("1")), envelope(2, "u", row("1"), row(other, "fig"))))
    log.load(A)
    assert {key for key, _, _ in live(log)} == rows


def test_a_before_that_does_not_say_the_key_says_nothing_of_it(envelopes: World) -> None:
    envelopes.deliver(A, lines(envelope(1, "c", None, row(1)), envelope(2, "u", {"item": "pear"}, row(1, "fig"))))
    envelopes.load(A)
    assert live(envelopes) == [(1, "fig", "1.0000")]


def test_two_rows_may_exchange_their_keys_by_way_of_a_third(envelopes: World) -> None:
    one, two = row(1, "one"), row(2, "two")
    moves = [(one, row(9, "one")), (two, row(1, "two")), (row(9, "one"), row(2, "one"))]
    events = [envelope(1, "c", None, one), envelope(2, "c", None, two)]
    events += [envelope(number, "u", before, after) for number, (before, after) in enumerate(moves, 3)]
    envelopes.deliver(A, lines(*events))
    envelopes.load(A)
    assert [r[:2] for r in live(envelopes)] == [(1, "two"), (2, "one")]


# --------------------------------------------------------------------------- order


@pytest.mark.parametrize(
    "events, words",
    [
        ((upsert(5, 1, 3),), "#1@1 holds positions 5 to 5, and positions 3 to 4 are missing: a gap"),
        (
            (upsert(2, 2, 2), upsert(3, 1, 3)),
            "#1 holds positions 2 to 3, and positions up to 2 are committed: an overlap",
        ),
        ((upsert(1, 1, 9), upsert(2, 1, 2), upsert(3, 1, 3)), "positions up to 2 are committed: an overlap"),
        ((upsert(1, 2, 1),), "positions up to 2 are committed: an overlap"),
    ],
)
def test_a_gap_and_another_overlap_are_refused_by_name(log: World, events: tuple[str, ...], words: str) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)))
    log.load(A)
    log.deliver(B, lines(*events))
    kind = UnexpectedCursor if "gap" in words else RewrittenLog
    refused(log, kind, words, f"prices/{B}/1.csv", "Nothing was changed", scope=B)
    refusal = log.warehouse.deliveries("prices")[-1].refusal
    assert refusal is None if "gap" in words else refusal and refusal.attempts == 1


def test_a_delivery_that_waited_for_its_turn_is_not_refused_once_it_has_come(log: World) -> None:
    for scope, event in zip((A, B, C), (upsert(1, 1, 1), upsert(2, 2, 1, "fig"), delete(3, 3, 1)), strict=True):
        log.deliver(scope, lines(event))
    verdicts = [[o.status for o in log.load(scope)] for scope in (C, A, B, C)]
    assert verdicts == [["refused"], ["committed"], ["committed"], ["committed"]]
    assert (live(log), position(log)) == ([], 3)


def test_several_deliveries_of_one_day_are_consumed_in_the_natural_order_of_their_names(log: World) -> None:
    for number, name in enumerate(("2.jsonl", "9.jsonl", "10.jsonl"), 1):
        log.deliver(A, lines(upsert(number, number, 1, name)), name)
    assert [o.status for o in log.load(A)] == ["committed"] * 3
    assert live(log) == [(1, "10.jsonl", "1.0000")]
    log.deliver(A, lines(upsert(4, 4, 1, "late")), "11.jsonl")
    assert [o.status for o in log.load(A)] == ["already committed"] * 3 + ["committed"]
    assert [o.status for o in log.load(A)] == ["already committed"] * 4


@pytest.mark.parametrize(
    "names",
    [
        ("events.jsonl", "events-2.jsonl", "events-10.jsonl"),
        ("7f3a.jsonl", "c01e.jsonl", "0b.jsonl"),
        ("c.jsonl", "b.jsonl", "a.jsonl"),
        ("b.jsonl", "c.jsonl", "a.jsonl"),
    ],
)
def test_deliveries_of_a_day_are_consumed_in_the_order_of_their_positions(log: World, names: tuple[str, ...]) -> None:
    for number, name in enumerate(names, 1):
        log.deliver(A, lines(upsert(2 * number - 1, number, 1, name), upsert(2 * number, 1, number + 1)), name)
    assert [(o.status, o.batch and o.batch.split("/")[2]) for o in log.load_pending()] == [
        ("committed", f"{name}#1@1") for name in names
    ]
    assert [r[:2] for r in live(log)] == [(1, names[-1]), (2, "pear"), (3, "pear"), (4, "pear")]
    assert [(b.lower, b.upper) for b in log.ledger()] == [(0, 2), (2, 4), (4, 6)]
    before = log.state()
    assert [o.status for o in log.load(A)] == ["already committed"] * 3
    assert (log.state(), log.survey().waiting(), log.warehouse.verify(log.pipeline)) == (before, [], [])


def test_what_lies_behind_a_gap_in_a_day_is_refused_once_and_all_that_follows_is_consumed(log: World) -> None:
    for name, pos in (("a.jsonl", 5), ("b.jsonl", 2), ("c.jsonl", 1), ("d.jsonl", 4)):
        log.deliver(A, lines(upsert(pos, pos, 1, name)), name)
    outcomes = log.load(A)
    assert [(o.status, o.delivery and o.delivery.name) for o in outcomes] == [
        *(("committed", name) for name in ("c.jsonl", "b.jsonl")),
        *(("refused", name) for name in ("d.jsonl", "a.jsonl")),
    ]
    assert "positions 3 to 3 are missing: a gap" in str(outcomes[2].error)
    log.deliver(A, lines(upsert(3, 3, 1, "e.jsonl")), "e.jsonl")
    statuses = [o.status for o in log.load(A)]
    assert statuses == ["already committed"] * 2 + ["committed"] * 3
    assert (position(log), [r[:2] for r in live(log)]) == (5, [(1, "a.jsonl")])


def test_days_whose_events_come_in_another_order_are_consumed_by_pending_runs(log: World) -> None:
    for scope, pos in ((A, 3), (B, 2), (C, 1)):
        log.deliver(scope, lines(upsert(pos, pos, 1, scope)))
    for _ in range(3):
        log.load_pending()
    assert (position(log), log.survey().waiting(), [r[:2] for r in live(log)]) == (3, [], [(1, A)])


def test_one_bad_file_stops_the_later_ones_of_the_log_and_a_later_run_completes(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1)), "1.jsonl")
    log.deliver(A, lines(upsert(2, 2, 1), "no event"), "2.jsonl")
    log.deliver(A, lines(upsert(4, 4, 1, "last")), "3.jsonl")
    log.deliver(B, lines(upsert(5, 1, 2)))
    outcomes = log.load(A, B)
    assert [(o.status, type(o.error).__name__) for o in outcomes] == [
        ("committed", "NoneType"),
        ("refused", "BadEvent"),
        ("refused", "UnexpectedCursor"),
        ("refused", "UnexpectedCursor"),
    ]
    assert position(log) == 1
    log.deliver(A, lines(upsert(2, 2, 1), upsert(3, 3, 1)), "2.jsonl")
    assert [o.status for o in log.load(A, B)] == ["already committed", "committed", "committed", "committed"]
    assert [r[:2] for r in live(log)] == [(1, "last"), (2, "pear")]
    assert [b.batch.split("/")[-1] for b in log.ledger()] == ["1.jsonl#1@1", "2.jsonl#2@1", "3.jsonl#1@1", "1.csv#1@1"]


def test_a_consumed_delivery_that_was_rewritten_is_refused_and_with_strict_names_too(tmp_path: Path) -> None:
    for policy, error in (("revision", RewrittenLog), ("strict", RewrittenDelivery)):
        log = World(tmp_path / policy, prices(redelivery=policy))
        log.deliver(A, lines(upsert(1, 1, 1)))
        log.load(A)
        log.deliver(A, lines(upsert(1, 2, 1, "fig")))
        refused(log, error)


def test_the_same_events_under_a_new_name_are_committed_and_add_nothing(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1)), "1.jsonl")
    log.load(A)
    log.deliver(A, lines(upsert(1, 1, 1)), "2.jsonl")
    assert [(o.status, o.counts.source) for o in log.load(A)] == [("already committed", 1), ("committed", 0)]
    assert [(b.lower, b.upper) for b in log.ledger()] == [(0, 1), (1, 1)]
    assert ([s.state for s in log.survey().statuses], log.survey().waiting()) == (["committed"] * 2, [])


def test_a_consumed_delivery_that_came_again_with_other_bytes_does_not_hold_up_the_ones_after_it(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)), "1.jsonl")
    log.load(A)
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)) + "\n", "1.jsonl")
    log.deliver(A, lines(upsert(3, 2, 1, "fig")), "2.jsonl")
    assert [(o.status, o.counts.source) for o in log.load(A)] == [("committed", 0), ("committed", 1)]
    assert (position(log), [r[:2] for r in live(log)]) == (3, [(1, "fig"), (2, "pear")])
    assert log.survey().waiting() == []
    assert log.warehouse.verify(log.pipeline) == []


def test_a_consumed_delivery_that_another_contract_reads_otherwise_does_not_hold_up_the_ones_after_it(
    tmp_path: Path,
) -> None:
    log = World(tmp_path, prices(new_columns="ignore"))
    log.deliver(A, lines(upsert(1, 1, 1, unit="kg")), "1.jsonl")
    log.load(A)
    columns = [*log.pipeline.columns, text("unit", optional=True)]
    log.pipeline = prices(new_columns="ignore", columns=columns)
    log.deliver(A, lines(upsert(2, 2, 1, "fig", unit="lb")), "2.jsonl")
    assert [(o.status, type(o.error).__name__) for o in log.load(A)] == [
        ("refused", "BatchIdentityConflict"),
        ("committed", "NoneType"),
    ]
    assert (position(log), log.sql("SELECT id, item, unit FROM prices")) == (2, [(1, "fig", "lb")])
    assert log.survey().waiting() == []


def test_a_log_may_begin_at_another_position(tmp_path: Path) -> None:
    log = World(tmp_path, prices(events=native(first_position=100)))
    log.deliver(A, lines(upsert(99, 1, 1)))
    refused(log, BadPositions, "#1 holds positions 99 to 99, and the log begins with 100 by its contract")
    log.deliver(B, lines(upsert(100, 1, 1)))
    assert done(log.load(B)) == [("committed", {"inserted": 1})]
    assert position(log) == 100


# --------------------------------------------------------------------------- positions and lines


@pytest.mark.parametrize(
    "content, error, words",
    [
        (lines(upsert(1, 1, 1), upsert(1, 1, 2)), BadPositions, "line 2: position 1 after 1"),
        (lines(upsert(1, 1, 1), upsert(3, 1, 2)), BadPositions, "line 2: position 3 after 1: 2 is missing"),
        (lines(upsert(2, 1, 1), upsert(1, 1, 2)), BadPositions, "line 2: position 1 after 2"),
        (lines(upsert(0, 1, 1)), BadPositions, "line 1: 'pos' is 0, less than 1"),
        (lines(upsert(-4, 1, 1)), BadPositions, "line 1: 'pos' is -4, less than 1"),
        (lines(upsert(1, -1, 1)), BadPositions, "line 1: 'version' is -1, less than 1"),
        (lines(upsert(1, 0, 1)), BadPositions, "line 1: 'version' is 0, less than 1"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": "1"')), BadEvent, "'pos' is '1', not a whole number"),
        (lines(upsert(1, 1, 1).replace('"version": 1', '"version": "1"')), BadEvent, "numbers have no quotes"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": 1.0')), BadEvent, "'pos' is '1.0', not a whole number"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": 1e0')), BadEvent, "'pos' is '1e0', not a whole number"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": "--1"')), BadEvent, "'pos' is '--1', not a whole number"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": "²"')), BadEvent, "'pos' is '²', not a whole number"),
        (lines(upsert(1, 1, 1).replace('"pos": 1', '"pos": true')), BadEvent, "'pos' is True, not a whole number"),
        (lines(upsert(1, 1, 1).replace('"pos": 1, ', "")), BadEvent, "'pos' is None, not a whole number"),
        (lines(upsert(2**63, 1, 1)), BadEvent, "not a whole number of 64 bits"),
        (lines(upsert(10**30, 1, 1)), BadEvent, "not a whole number of 64 bits"),
        (lines(upsert(1, 2**63, 1)), BadEvent, "'version' is '9223372036854775808', not a whole number of 64 bits"),
        (lines(upsert(1, 1, 1).replace('"version": 1, ', "")), BadEvent, "'version' is None"),
        (lines(upsert(1, 1, 1).replace('"upsert"', '"merge"')), BadEvent, "'op' is 'merge'; wanted one of upsert, delete"),
        (lines(upsert(1, 1, 1).replace('"op": "upsert", ', "")), BadEvent, "'op' is None"),
        (lines('{"pos": 1, "op": "upsert", "version": 1}'), BadEvent, "the event has no 'row'"),
        (lines('{"pos": 1, "op": "upsert", "version": 1, "row": [1]}'), BadEvent, "the event has no 'row'"),
        (lines(upsert(1, 1, 1), "", upsert(2, 1, 2)[:-4]), BadEvent, "line 3: not JSON"),
        (lines(upsert(1, 1, 1), "[1]"), BadEvent, "line 2: not a JSON object, but list"),
        (lines(upsert(1, 1, 1), "null"), BadEvent, "line 2: not a JSON object"),
        (lines(upsert(1, 1, 1).replace('"pear"', "NaN")), BadEvent, "line 1: not JSON (NaN is not JSON)"),
        ("[" * 100_000, BadEvent, "line 1: not JSON"),
        (lines(upsert(1, 1, 1), upsert(2, 1, 2, r"\ud800").replace(r"\\", "\\")), BadEvent, "line 2: item: a lone"),
        (lines(upsert(1, 1, 1), upsert(2, 1, 2, price="1.00001")), BadEvent, "line 2: price: '1.00001' is not a decimal"),
        (lines(upsert(1, 1, 1), upsert(2, 1, 2, price="x")), BadEvent, "line 2: price: 'x' is not a decimal"),
        (lines(upsert(1, 1, 1).replace('"id": 1', '"id": null')), BadEvent, "line 1: id is part of the key"),
        (lines(delete(1, 1, 1).replace('"id": 1', "")), BadEvent, "line 1: id is part of the key"),
        (lines(delete(1, 1, 1).replace('"id": 1', '"id": "x"')), BadEvent, "line 1: id: 'x' is not an integer"),
        (lines(upsert(1, 1, 1, colour="red")), BadEvent, "line 1: the row has 'colour', which the contract does not know"),
        (lines(upsert(1, 1, 1).replace('"item": "pear", ', "")), BadEvent, "line 1: the row lacks 'item'"),
        ("", ZeroBytes, "zero bytes"),
        ("\n\n", ZeroBytes, "no events"),
        (upsert(1, 1, 1, "\xe9").encode().decode("unicode_escape").encode("latin-1"), Undecodable, "line 1: byte 0xE9"),
    ],
    ids=itertools.count(),
)  # fmt: skip
def test_what_is_no_event_is_refused_by_its_line(
    log: World, content: str | bytes, error: type[Exception], words: str
) -> None:
    log.deliver(A, content)
    refused(log, error, words)
    log.deliver(A, lines(upsert(1, 1, 1)))
    assert done(log.load(A)) == [("committed", {"inserted": 1})]


@pytest.mark.parametrize(
    "event, words",
    [
        (envelope(1, "t", None, None), "'op' is 't'; wanted one of c, r, u, d"),
        (envelope(1, "upsert", None, row(1)), "'op' is 'upsert'; wanted one of c, r, u, d"),
        (envelope(1, "d", None, row(1)), "the event has no 'before'"),
        (envelope(1, "u", row(1), None), "the event has no 'after'"),
        (envelope(1, "u", row(1), {"id": 1, "item": "fig"}), "the row lacks 'price'"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_envelope_is_refused_by_its_line(envelopes: World, event: str, words: str) -> None:
    envelopes.deliver(A, lines(event))
    refused(envelopes, BadEvent, words)


def test_every_position_of_a_delivery_is_checked_though_it_is_typed_in_pieces(
    log: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("etl_assets.staging.logs.CHUNK", 3)
    events = [upsert(n, n, n % 4) for n in range(1, 11)]
    log.deliver(A, lines(*events, upsert(12, 1, 1)))
    refused(log, BadPositions, "line 11: position 12 after 10: 11 is missing")
    log.deliver(A, lines(*events))
    assert done(log.load(A)) == [("committed", {"inserted": 4})]
    assert versions(log) == [(0, 8, 0), (1, 9, 0), (2, 10, 0), (3, 7, 0)]


# --------------------------------------------------------------------------- values


def test_numbers_keep_every_digit_that_the_log_writes(tmp_path: Path) -> None:
    columns = [integer("id"), decimal("price", precision=38, scale=20), text("code"), json_column("more")]
    log = World(tmp_path, prices(columns=columns))
    given = '{"a": 1.10, "b": [12345678901234567890, "7", true, null], "c": {"é": -0.0}}'
    line = '{"pos": 1, "op": "upsert", "version": 1, "row": {"id": 9007199254740993, '
    log.deliver(A, line + f'"price": 12345678901234567.12345678901234567890, "code": "1.50", "more": {given}}}}}\n')
    log.load(A)
    assert log.sql("SELECT id, price, code, more FROM prices") == [
        (9007199254740993, "12345678901234567.12345678901234567890", "1.50", given)
    ]


def with_item(written: str, pos: int = 1) -> str:
    """A line of a log whose item is this JSON."""
    return f'{{"pos": {pos}, "op": "upsert", "version": 1, "row": {{"id": {pos}, "price": 2, "item": {written}}}}}'


@pytest.mark.parametrize(
    "written, kept_as",
    [
        ('"-0"', "-0"),
        ('""', ""),
        ('" "', " "),
        ('"null"', "null"),
        ("null", None),
        ('"\\u0001"', "\x01"),
        ('"a: \\"b\\": c"', 'a: "b": c'),
        (r'"\u00e9\ud83d\ude00"', "\xe9\N{GRINNING FACE}"),
    ],
    ids=itertools.count(),
)
def test_a_text_of_a_log_is_the_text_that_it_writes(log: World, written: str, kept_as: Any) -> None:
    log.deliver(A, lines(with_item(written)))
    assert done(log.load(A)) == [("committed", {"inserted": 1})]
    assert live(log) == [(1, kept_as, "2.0000")]


@pytest.mark.parametrize(
    "written, words",
    [
        ("5", "item: 5 is a number, which a text column does not take"),
        ("-0", "item: -0 is a number"),
        ("5.0", "item: 5.0 is a number"),
        ("1E-400", "item: 1E-400 is a number"),
        ("9" * 5_000, "item: 999"),
        ("true", "item: true is a truth value"),
        ("[1, -0, 2.50]", "item: [1, -0, 2.50] is a list"),
        ('{"a": 1}', 'item: {"a": 1} is an object'),
        (r'"a\u0000b"', "item holds a NUL character"),
        ('"first", "item": "last"', "an object has two members named 'item'"),
        ('"first", "item" : "last"', "an object has two members named 'item'"),
        (r'"first", "it\u0065m": "last"', "an object has two members named 'item'"),
        ('"first", "item" : ":"', "an object has two members named 'item'"),
    ],
    ids=itertools.count(),
)
def test_what_is_no_text_of_json_is_refused_by_its_line(log: World, written: str, words: str) -> None:
    log.deliver(A, lines(with_item('"pear"'), with_item(written, 2)))
    assert "line 2: " in refused(log, BadEvent, words)


@pytest.mark.parametrize(
    "line",
    [
        '{"pos": 1, "pos": 2, "op": "upsert", "version": 1, "row": {"id": 1, "price": 2, "item": "pear"}}',
        '{"pos": 1, "op": "delete", "op": "upsert", "version": 1, "row": {"id": 1, "price": 2, "item": "pear"}}',
        '{"pos": 1, "op": "upsert", "version": 1, "row": {"id": 2}, "row": {"id": 1, "price": 2, "item": "pear"}}',
        '{"pos": 1, "op": "upsert", "version": 1, "at": {"x": [{"y": 1, "y": 1}]}, "row": {"id": 1, "price": 2, "item": ""}}',
        '{"pos" :1, "pos" : 1, "op": "upsert", "version": 1, "row": {"id": 1, "price": 2, "item": "\\": \\":"}}',
        '{"pos":1,"op":"upsert","version":1,"row":{"id":1,"price":2,"item":":a"},"at":":","at":":"}',
    ],
    ids=itertools.count(),
)
@pytest.mark.parametrize("before", [0, 3, 5_000])
def test_a_name_that_stands_twice_in_an_object_is_refused_by_its_line(log: World, line: str, before: int) -> None:
    events = [upsert(n, n, n % 9) for n in range(1, before + 1)]
    log.deliver(A, lines(*events, line.replace('"pos": 1,', f'"pos": {before + 1},')))
    assert f"line {before + 1}: an object has two members named" in refused(log, BadEvent)


def test_values_of_a_json_column_are_json_and_its_texts_are_no_other_values(tmp_path: Path) -> None:
    log = World(tmp_path, prices(columns=[integer("id"), json_column("more")]))
    given = ['"7"', '"true"', '"hello"', '""', "7", "true", "null", '"null"', "[]", '{"a": "", "b": 1.10}', '"NaN"']
    log.deliver(A, lines(*(
        f'{{"pos": {n}, "op": "upsert", "version": 1, "row": {{"id": {n}, "more": {written}}}}}'
        for n, written in enumerate(given, 1)
    )))  # fmt: skip
    log.load(A)
    wanted = [None if written == "null" else written for written in given]
    assert log.sql("SELECT more FROM prices ORDER BY id") == [(written,) for written in wanted]


@pytest.mark.parametrize("written", [r'"a\u0000"', r'{"a": ["\u0000"]}', r'{"\u0000": 1}'])
def test_a_nul_in_a_json_column_is_refused_by_its_line(tmp_path: Path, written: str) -> None:
    log = World(tmp_path, prices(columns=[integer("id"), json_column("more")]))
    log.deliver(A, f'{{"pos": 1, "op": "upsert", "version": 1, "row": {{"id": 1, "more": {written}}}}}\n')
    refused(log, BadEvent, "line 1: more: ", "NUL character")


def test_a_nul_in_a_key_of_texts_is_refused_for_rows_and_for_their_end(tmp_path: Path) -> None:
    log = World(tmp_path, prices(columns=[text("id"), text("item")]))
    for op in ("upsert", "delete"):
        log.deliver(A, json.dumps({"pos": 1, "op": op, "version": 1, "row": {"id": "a\0", "item": "x"}}))
        refused(log, BadEvent, "line 1: id is part of the key and holds a NUL character")


@pytest.mark.parametrize(
    "column, written, wanted",
    [
        (boolean("c"), "true", 1),
        (boolean("c"), '"no"', 0),
        (boolean("c"), "1", "c: 1 is a number, which a boolean column does not take"),
        (boolean("c"), '"maybe"', "c: 'maybe' is not a boolean"),
        (boolean("c"), "[true]", "c: [true] is a list"),
        (date("c"), '"2024-01-01"', "2024-01-01"),
        (date("c", format="%Y%m%d"), "20240101", "c: 20240101 is a number, which a date column does not take"),
        (real("c"), "0.5", 0.5),
        (real("c"), '"0.5"', 0.5),
        (real("c"), "1e400", "c: '1e400' is not a number (not finite)"),
        (real("c"), "true", "c: 'true' is not a number"),
        (decimal("c", 5, 2), '{"a": 1}', "' is not a decimal(5,2)"),
        (text("c", missing=("", "n/a")), '""', None),
        (text("c", missing=("n/a",)), '"n/a"', None),
        (text("c", missing=("n/a",)), '""', ""),
        (json_column("c", missing=("n/a",)), '"n/a"', None),
        (json_column("c"), '"n/a"', '"n/a"'),
    ],
    ids=itertools.count(),
)
def test_each_type_takes_its_own_kinds_of_json_values(tmp_path: Path, column: Any, written: str, wanted: Any) -> None:
    log = World(tmp_path, prices(columns=[integer("id"), column]))
    log.deliver(A, f'{{"pos": 1, "op": "upsert", "version": 1, "row": {{"id": 1, "c": {written}}}}}\n')
    if isinstance(wanted, str) and " is " in wanted:
        refused(log, BadEvent, "line 1: ", wanted)
    else:
        log.load(A)
        assert log.sql("SELECT c FROM prices") == [(wanted,)]


def test_whether_an_empty_text_is_one_changes_the_fingerprint_of_a_log() -> None:
    columns = [integer("id"), text("item"), text("note")]
    said = [integer("id"), text("item"), text("note", missing=("",))]
    assert prices(columns=columns).code != prices(columns=said).code
    assert prices(columns=columns).code == prices(columns=columns).code


@pytest.mark.parametrize(
    "held",
    [
        "__debezium_unavailable_value",
        ["a", "__debezium_unavailable_value"],
        {"__debezium_unavailable_value": "__debezium_unavailable_value"},
        "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
    ],
)
@pytest.mark.parametrize("column", [text("bio"), json_column("bio"), integer("bio"), text("bio", aliases=("BIO",))])
def test_a_placeholder_of_an_unavailable_value_does_not_replace_the_real_one(
    tmp_path: Path, held: Any, column: Any
) -> None:
    log = World(tmp_path, prices(events=debezium(), columns=[integer("id"), column]))
    log.deliver(A, lines(envelope(1, "c", None, {"id": 1, "bio": 1 if column.type == "integer" else "long"})))
    log.load(A)
    log.deliver(B, lines(envelope(2, "u", None, {"id": 1, (*column.aliases, "bio")[0]: held})))
    refused(log, BadEvent, "line 1: bio: Debezium's placeholder", "REPLICA IDENTITY FULL", scope=B)
    log.deliver(B, lines(envelope(2, "d", {"id": 1, "bio": "__debezium_unavailable_value"}, None)))
    if column.type != "integer":
        assert done(log.load(B)) == [("committed", {"deleted": 1})]


def test_what_json_can_spell_and_no_text_can_hold_does_not_matter_where_nobody_takes_it(tmp_path: Path) -> None:
    log = World(tmp_path, prices(new_columns="ignore"))
    log.deliver(A, lines(upsert(1, 1, 1, colour="x").replace('"x"', r'"\ud800"')))
    log.load(A)
    assert live(log) == [(1, "pear", "1.0000")]


@pytest.mark.parametrize(
    "written, number",
    [
        ("7", 7),
        ('"7"', 7),
        ('"+7"', 7),
        ("-0", 0),
        (str(-(2**63)), -(2**63)),
        ("-1", None),
        ('"-1"', None),
        ('""', None),
    ],
    ids=itertools.count(),
)
def test_whole_numbers_are_read_alike_as_numbers_and_as_texts(tmp_path: Path, written: str, number: int | None) -> None:
    log = World(tmp_path, prices(columns=[integer("id"), integer("stock", missing=("", "-1"))]))
    events = [f'{{"pos": {n}, "op": "upsert", "version": 1, "row": {{"id": {n}, "stock": 3}}}}' for n in (1, 2)]
    log.deliver(A, lines(*events).replace("3", written, 1))
    log.load(A)
    assert log.sql("SELECT id, stock FROM prices ORDER BY id") == [(1, number), (2, 3)]


@pytest.mark.parametrize(
    "written, words",
    [
        (str(2**63), "needs more than 64 bits"),
        ("1.0", "'1.0' is not an integer"),
        ("true", "'true' is not an integer"),
        ("[1]", "'[1]' is not an integer"),
    ],
)
def test_a_value_that_is_no_whole_number_is_refused_by_its_line(tmp_path: Path, written: str, words: str) -> None:
    log = World(tmp_path, prices(columns=[integer("id"), integer("stock")]))
    events = [f'{{"pos": {n}, "op": "upsert", "version": 1, "row": {{"id": {n}, "stock": 3}}}}' for n in (1, 2)]
    log.deliver(A, lines(events[0], events[1].replace("3", written)))
    refused(log, BadEvent, f"line 2: stock: {words}" if words[0] == "'" else f"line 2: stock: '{written}'", words)


def test_optional_columns_may_be_absent_and_others_are_null_only_where_the_log_says_so(tmp_path: Path) -> None:
    columns = [integer("id"), text("item"), text("colour", optional=True), boolean("ripe", optional=True)]
    log = World(tmp_path, prices(columns=columns))
    rows = [{"id": 1, "item": "a", "colour": "red", "ripe": True}, {"id": 2, "item": None}, {"id": 3, "item": ""}]
    log.deliver(
        A, lines(*(json.dumps({"pos": n, "op": "upsert", "version": 1, "row": r}) for n, r in enumerate(rows, 1)))
    )
    log.load(A)
    assert log.sql("SELECT * FROM prices ORDER BY id") == [
        (1, "a", "red", 1, 1), (2, None, None, None, 1), (3, "", None, None, 1),
    ]  # fmt: skip
    replayed = {"pos": 4, "op": "upsert", "version": 1, "row": {"id": 1, "item": "a"}}
    log.deliver(B, lines(json.dumps(replayed)))
    assert done(log.load(B)) == [("committed", {"unchanged": 1})]


def test_a_new_optional_column_widens_the_table_and_its_view_and_leaves_old_batches_committed(tmp_path: Path) -> None:
    log = World(tmp_path, prices())
    log.deliver(A, lines(upsert(1, 1, 1), delete(2, 1, 9)))
    log.load(A)
    log.pipeline = prices(columns=[*prices().columns, text("colour", optional=True)])
    assert done(log.load(A)) == [("already committed", {"inserted": 1})]
    log.deliver(B, lines(upsert(3, 1, 2, colour="red"), upsert(4, 1, 1, colour="blue"), upsert(5, 2, 1)))
    log.load(B)
    assert log.sql("SELECT id, item, colour FROM prices ORDER BY id") == [(1, "pear", None), (2, "pear", "red")]
    assert log.rows() == [("red", 2, "pear", "1.0000"), (None, 1, "pear", "1.0000")]


def test_fields_that_the_contract_does_not_know_can_be_ignored(tmp_path: Path) -> None:
    log = World(tmp_path, prices(new_columns="ignore"))
    log.deliver(A, lines(upsert(1, 1, 1, colour="red")))
    log.load(A)
    assert live(log) == [(1, "pear", "1.0000")]


def test_bounds_and_required_columns_hold_for_rows_and_not_for_the_end_of_one(tmp_path: Path) -> None:
    columns = [integer("id"), text("item", required=True), integer("price", minimum=0)]
    log = World(tmp_path, prices(columns=columns))
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 2, 1, price="-1")))
    refused(log, BadEvent, "line 2: price is -1, less than 0")
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 2, 1).replace('"pear"', "null")))
    refused(log, BadEvent, "line 2: item is required and has no value")
    log.deliver(A, lines(upsert(1, 1, 1), delete(2, 2, 1)))
    assert done(log.load(A)) == [("committed", {})]


def test_the_reader_sees_live_rows_and_the_batch_that_last_changed_them(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 1, 3)))
    log.deliver(B, lines(upsert(4, 2, 2, "fig"), delete(5, 2, 3)))
    log.load(A, B)
    assert log.sql("SELECT * FROM prices ORDER BY id") == [(1, "pear", "1.0000", 1), (2, "fig", "1.0000", 2)]
    assert log.sql("SELECT type FROM sqlite_master WHERE name = 'prices'") == [("view",)]


# --------------------------------------------------------------------------- files


def test_byte_order_marks_blank_lines_and_windows_line_ends_are_no_events(log: World) -> None:
    log.deliver(A, b"\xef\xbb\xbf" + f"{upsert(1, 1, 1)}\r\n\r\n  \n{upsert(2, 1, 2)}".encode())
    assert done(log.load(A)) == [("committed", {"inserted": 2})]


@pytest.mark.parametrize("declared", [True, False])
def test_a_log_may_be_compressed_and_a_cut_off_one_is_refused(tmp_path: Path, declared: bool) -> None:
    log = World(tmp_path, prices(format={"gzip": True}) if declared else prices())
    name, packed = "1.jsonl" if declared else "1.jsonl.gz", gzip.compress(lines(upsert(1, 1, 1)).encode())
    log.deliver(A, packed[:-9], name)
    refused(log, BrokenDelivery, "not a whole gzip file")
    log.deliver(A, packed, name)
    assert done(log.load(A)) == [("committed", {"inserted": 1})]


def test_a_control_file_declares_how_many_events_there_are(tmp_path: Path) -> None:
    log = World(tmp_path, prices(landing="prices/{partition}/*.jsonl", row_count_file=".count"))
    log.deliver(A, lines(upsert(1, 1, 1)), "1.jsonl")
    log.deliver(A, "2", "1.jsonl.count")
    refused(log, ShrunkDelivery, "1 rows, but its control file", "declares 2")
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)), "1.jsonl")
    assert done(log.load(A)) == [("committed", {"inserted": 2})]


# --------------------------------------------------------------------------- contracts and truth


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"key": []}, "key: "),
        ({"transform": lambda frame: frame}, "transform: events are applied as they are"),
        ({"new_columns": "add"}, "new_columns: "),
        ({"format": {"delimiter": ";"}}, "format: delimiter is for delimited files"),
        ({"format": {"quote": None}}, "format: quote is for"),
        ({"format": {"encoding": "utf-16"}}, "format: encoding is for"),
        ({"format": {"skip_lines": 1, "gzip": True}}, "format: skip_lines is for"),
        ({"invalid_rows": quarantine(up_to=0.5)}, "invalid_rows: a log is consumed whole"),
    ],
)
def test_a_contract_that_promises_what_a_log_does_not_keep_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        prices(**fields)


@pytest.mark.parametrize(
    "statement, words",
    [
        ("DELETE FROM _versions_prices WHERE id = 1", "1 live rows, by the ledger 2"),
        (
            "INSERT INTO _versions_prices (id, _version, _deleted, _position, _batch) VALUES (7, 1, 0, 1, 1)",
            "3 live rows",
        ),
        ("UPDATE _versions_prices SET _deleted = 0 WHERE id = 3", "3 live rows, by the ledger 2"),
        ("UPDATE _versions_prices SET _batch = 99 WHERE id = 1", "1 rows of batches that are not in the ledger"),
        ("UPDATE etl_progress SET position = 2", "position 2, by the ledger 4"),
        (
            "UPDATE etl_batch SET lower = 3 WHERE id = 2",
            f"{B}/1.csv#1@1 begins after position 3, and the batch before it ended at 4",
        ),
        ("DROP VIEW prices", "its table cannot be read"),
        ("DROP TABLE _versions_prices", "its table cannot be read"),
    ],
)
def test_what_was_changed_around_the_ledger_is_found(log: World, statement: str, words: str) -> None:
    from etl_assets_tests.sink.test_tables import around

    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 1, 3), delete(4, 2, 3)))
    log.load(A)
    assert log.warehouse.verify(log.pipeline) == []
    if "etl_batch" in statement:
        log.deliver(B, lines(upsert(5, 2, 1)))
        log.load(B)
    around(log, statement)
    (difference,) = log.warehouse.verify(log.pipeline)
    assert words in difference


def test_a_log_whose_rows_were_dropped_goes_no_further(log: World) -> None:
    log.deliver(A, lines(upsert(1, 1, 1)), "1.jsonl")
    done(log.load(A))
    around(log, "DROP VIEW prices", "DROP TABLE _versions_prices")
    log.deliver(B, lines(upsert(2, 1, 2)), "1.jsonl")
    (outcome,) = log.load(B)
    assert isinstance(outcome.error, LedgerMismatch)
    assert position(log) == 1


def test_a_table_of_snapshots_does_not_become_one_of_events(tmp_path: Path) -> None:
    """A watermark is no position: positions of years would be taken for committed."""
    world = World(tmp_path, readings(name="prices", landing="prices/{partition}/*"))
    world.deliver(A, snapshot("a,01,1"))
    done(world.load(A))
    columns = [text("id"), text("item"), decimal("price", precision=20, scale=4)]
    world.deliver(B, lines(json.dumps({"pos": 1, "op": "upsert", "version": 1, "row": row("a")})), "1.jsonl")
    with pytest.raises(
        ContractError, match=r"told apart by the key \(id\), by merge.* says the key \(id\), by consume"
    ):
        world.load(B, pipeline=prices(columns=columns, events=native(first_position=1)), delivery="1.jsonl")
