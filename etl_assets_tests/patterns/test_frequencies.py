"""The showcase's change log: 1,026 events of Debezium's envelope, in the order in which they were said and in others."""

from __future__ import annotations

import json
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import UnexpectedCursor
from etl_assets.pipelines.frequencies import frequencies
from etl_assets_tests.patterns.logs import kept, position
from etl_assets_tests.world import SHOWCASE, World

FILES = sorted((SHOWCASE / "frequencies_cdc").glob("*/*.jsonl"))
SCOPES = [file.parent.name for file in FILES]
EVENTS = [json.loads(line) for file in FILES for line in file.read_text().splitlines()]


@pytest.fixture
def log(tmp_path: Path) -> World:
    world = World(tmp_path, frequencies)
    shutil.copytree(SHOWCASE / "frequencies_cdc", world.landing / "frequencies_cdc")
    return world


def folded() -> list[tuple[Any, ...]]:
    """What a dictionary makes of the events, as rows in the order of the columns' names."""
    table: dict[str, dict[str, str]] = {}
    for event in EVENTS:
        if event["op"] == "d":
            del table[event["before"]["id"]]
        else:
            table[event["after"]["id"]] = event["after"]
    rows = [
        (
            *(r["airport_ident"], int(r["airport_ref"]), r["description"]),
            *(f"{Decimal(r['frequency_mhz']):.4f}", int(r["id"]), r["type"]),
        )
        for r in table.values()
    ]
    return sorted(rows, key=repr)


def test_the_table_is_what_a_plain_fold_makes_of_the_events(log: World) -> None:
    outcomes = log.load(*SCOPES)
    assert {o.status for o in outcomes} == {"committed"}
    assert len(EVENTS) == 1_026
    assert log.rows() == folded()
    assert log.warehouse.verify(frequencies) == []


def test_the_audit_of_committed_batches_adds_up_to_the_events(log: World) -> None:
    log.load(*SCOPES)
    assert sum(b.counts.source for b in log.ledger()) == 1_026
    assert [(b.lower, b.upper) for b in log.ledger()][:1] == [(0, 822)]
    assert all(one.upper == two.lower for one, two in zip(log.ledger(), log.ledger()[1:], strict=False))
    assert position(log) == 1_026


def test_in_batches_of_three_hundred_events_the_log_gives_the_same_table_and_the_audit_adds_up(log: World) -> None:
    bounded = frequencies.model_copy(update={"batch_events": 300})
    assert {o.status for o in log.load(*SCOPES, pipeline=bounded)} == {"committed"}
    assert log.rows() == folded()
    ledger = log.ledger()
    assert [(b.upper, b.continues) for b in ledger][:3] == [(300, True), (600, True), (822, False)]
    assert (sum(b.counts.source for b in ledger), max(b.counts.source for b in ledger)) == (1_026, 300)
    assert log.warehouse.verify(frequencies) == []
    before = log.state()
    assert {o.status for o in log.load(*SCOPES)} == {"already committed"}
    assert log.state() == before


def test_loading_the_log_again_is_already_committed_and_writes_nothing(log: World) -> None:
    log.load(*SCOPES)
    before = log.state()
    assert {o.status for o in log.load(*SCOPES)} == {"already committed"}
    assert {o.status for o in log.load(*reversed(SCOPES))} == {"already committed"}
    assert log.load_pending() == []
    assert log.state() == before


def test_deliveries_in_the_wrong_order_are_refused_by_name_and_succeed_in_their_turn(log: World) -> None:
    third, first, second = (log.load(SCOPES[i])[0] for i in (2, 0, 1))
    assert isinstance(third.error, UnexpectedCursor)
    assert f"frequencies/{SCOPES[2]}/1.jsonl#1@1 holds positions 825 to 827" in str(third.error)
    assert "positions 1 to 824 are missing: a gap" in str(third.error)
    assert (first.status, second.status) == ("committed", "committed")
    states = {s.scope: (s.state, s.attempts) for s in log.survey().statuses}
    assert states[SCOPES[2]] == ("staged", 0)
    assert {o.status for o in log.load_pending()} == {"committed"}
    assert log.rows() == folded()


def test_a_log_that_is_loaded_backwards_run_by_run_ends_as_in_order(log: World) -> None:
    for _ in SCOPES:
        for scope in reversed(SCOPES):
            log.load(scope)
        if position(log) == 1_026:
            break
    assert log.rows() == folded()
    assert [b.scope for b in log.ledger()] == SCOPES


def test_a_delivery_that_waits_for_its_turn_says_which_positions_it_waits_for(log: World) -> None:
    log.load(SCOPES[1])
    (status,) = (s for s in log.survey().statuses if s.scope == SCOPES[1])
    assert status.state == "staged"
    assert "positions 1 to 822 are missing" in status.reason
    assert kept(log) == {k: v for k, v in kept(log).items() if k in ("etl_schema", "etl_partition")}
