"""Any log, cut into deliveries anyhow and loaded in any order, with replays: the table is what a fold makes of it."""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from etl_assets.contract import native
from etl_assets_tests.patterns.logs import kept, lines, prices, readings, snapshot
from etl_assets_tests.world import World

KEYS = st.integers(1, 4)
DAYS = [f"2024-01-{day:02d}" for day in range(1, 31)]
Fold = dict[int, tuple[int, str | None]]


@dataclass(frozen=True)
class Change:
    """A change of one entity; ``item`` is None where it ends."""

    key: int
    version: int
    item: str | None

    def line(self, pos: int) -> str:
        row = {"id": self.key} | ({} if self.item is None else {"item": self.item, "price": f"{self.version}.5"})
        op = "delete" if self.item is None else "upsert"
        return json.dumps({"pos": pos, "op": op, "version": self.version, "row": row})


@st.composite
def logs(draw: st.DrawFn) -> list[Change]:
    """Changes in order, among them stale replays of any earlier one, and of the last one of its key."""
    log: list[Change] = []
    versions: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 25))):
        if log and draw(st.integers(0, 3)) == 0:
            log.append(draw(st.sampled_from(log)))
            continue
        key = draw(KEYS)
        versions[key] = versions.get(key, 7) + draw(st.integers(1, 3))  # 9 and 10 are among them
        log.append(Change(key, versions[key], draw(st.sampled_from([None, "a", "b"]))))
    return log


@st.composite
def cuts(draw: st.DrawFn, length: int) -> list[int]:
    inner = draw(st.sets(st.integers(1, length - 1), max_size=8)) if length > 1 else set()
    return [0, *sorted(inner), length]


def fold(log: list[Change]) -> Fold:
    """The newest version of each key."""
    state: Fold = {}
    for change in log:
        if change.version >= state.get(change.key, (0, None))[0]:
            state[change.key] = (change.version, change.item)
    return state


def counted(log: list[Change]) -> tuple[dict[str, int], Fold]:
    """A plain fold, an event after the other, that counts what is older than what stands at its moment."""
    state: Fold = {}
    stale = 0
    for change in log:
        if change.version < state.get(change.key, (0, None))[0]:
            stale += 1
        else:
            state[change.key] = (change.version, change.item)
    return {"source": len(log), "stale": stale}, state


def told(world: World, since: int) -> dict[str, int]:
    """The same, by the ledger's entries from one on."""
    counts = [b.counts for b in world.ledger()[since:]]
    return {"source": sum(c.source for c in counts), "stale": sum(c.stale for c in counts)}


def seen(world: World) -> Fold:
    found = world.sql("SELECT id, _version, CASE WHEN _deleted THEN NULL ELSE item END FROM _versions_prices")
    return {key: (version, item) for key, version, item in found}


def check_log(log: list[Change], data: st.DataObject) -> None:
    root = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        world = World(root, prices())
        bounds = data.draw(cuts(len(log)))
        scopes = []
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            # Two deliveries a day, so that days and names both order them.
            scopes.append(DAYS[number // 2])
            events = (change.line(pos) for pos, change in enumerate(log[start:end], start + 1))
            world.deliver(scopes[-1], lines(*events), f"{number}.jsonl")
        scopes = list(dict.fromkeys(scopes))
        state: Fold = {}
        # Any order, repeats included, and what is left of it in its own.
        for order in (data.draw(st.lists(st.sampled_from(scopes), max_size=6)), scopes):
            for scope in order:
                world.load(scope)
                consumed = world.sql("SELECT max(position) FROM etl_progress")[0][0] or 0
                state = fold(log[:consumed])
                assert (seen(world) if consumed else {}) == state
        assert state == fold(log)
        live = [(key, item, f"{version}.5000") for key, (version, item) in state.items() if item is not None]
        assert world.rows() == sorted(live, key=repr)
        ledger = world.ledger()
        assert sum(b.counts.source for b in ledger) == len(log)
        assert [(b.lower, b.upper) for b in ledger] == list(itertools.pairwise(bounds))
        assert world.warehouse.verify(world.pipeline) == []
        before = kept(world)
        assert {o.status for o in world.load(*reversed(scopes))} == {"already committed"}
        assert kept(world) == before
    finally:
        shutil.rmtree(root)


def check_counts(log: list[Change], data: st.DataObject) -> None:
    """However a log is cut into deliveries and batches: each counts to the event what a plain fold does."""
    root = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        world = World(root, prices(batch_events=data.draw(st.sampled_from([1, 2, 3, 7, 100]))))
        bounds = data.draw(cuts(len(log)))
        live = 0
        for number, (start, end) in enumerate(itertools.pairwise(bounds)):
            since = len(world.ledger()) if number else 0
            events = (change.line(pos) for pos, change in enumerate(log[start:end], start + 1))
            world.deliver(DAYS[number], lines(*events))
            assert {o.status for o in world.load(DAYS[number])} == {"committed"}
            (before, _), (after, state) = counted(log[:start]), counted(log[:end])
            assert told(world, since) == {name: after[name] - before[name] for name in after}
            assert seen(world) == state
            came = [b.counts.inserted - b.counts.deleted for b in world.ledger()[since:]]
            was, live = live, sum(item is not None for _, item in state.values())
            assert sum(came) == live - was
        before_replay = kept(world)
        assert {o.status for o in world.load(*DAYS[: len(bounds) - 1])} == {"already committed"}
        assert kept(world) == before_replay
    finally:
        shutil.rmtree(root)


def check_interrupted(log: list[Change], data: st.DataObject) -> None:
    """Runs that end between two batches, bounds that change, extracts that are lost: nothing twice, nothing left out."""
    root = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        stated = data.draw(st.booleans())
        world = World(root, prices(events=native(bounds="stated" if stated else "contiguous")))
        bounds = data.draw(cuts(len(log)))
        scopes = DAYS[: len(bounds) - 1]
        for scope, (start, end) in zip(scopes, itertools.pairwise(bounds), strict=True):
            # Stated, every position is three further on, and the delivery ends one beyond its last event.
            first = [json.dumps({"lower": start * 3 + bool(start), "upper": end * 3 + 1})] if stated else []
            places = (number * 3 if stated else number for number in range(start + 1, end + 1))
            world.deliver(scope, lines(*first, *(c.line(pos) for pos, c in zip(places, log[start:end], strict=True))))
        for _ in range(data.draw(st.integers(0, 5))):
            sized = world.pipeline.model_copy(update={"batch_events": data.draw(st.integers(1, 5))})
            coming = world.engine(sized).load(scopes, f"run {uuid.uuid4().hex}")
            list(itertools.islice(coming, data.draw(st.integers(0, 8))))
            coming.close()  # type: ignore[attr-defined]
            if data.draw(st.booleans()):
                shutil.rmtree(root / "staged", ignore_errors=True)
            check_consumed(world, log)
        world.load(*scopes)
        assert check_consumed(world, log) == len(log)
        before = kept(world)
        assert {o.status for o in world.load(*scopes)} == {"already committed"}
        assert kept(world) == before
    finally:
        shutil.rmtree(root)


def check_consumed(world: World, log: list[Change]) -> int:
    """The ledger's batches are a chain, and the table is the fold of as many events as they count."""
    ledger = world.ledger()
    consumed = sum(b.counts.source for b in ledger)
    after, state = counted(log[:consumed])
    assert told(world, 0) == after
    assert (seen(world) if ledger else {}) == state
    assert all(one.upper == two.lower for one, two in itertools.pairwise(ledger))
    assert world.warehouse.verify(world.pipeline) == []
    return consumed


def check_snapshots(history: list[dict[str, int]], order: list[int]) -> None:
    """Partial snapshots converge by default, whatever their order of arrival; the newest version of each key stands."""
    root = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        world = World(root, readings())
        newest: dict[str, int] = {}
        for number, rows in enumerate(history):
            content = snapshot(*(f"{key},{day:02d},{day * 10}" for key, day in rows.items()))
            world.deliver(DAYS[number], content)
        # Any order, repeats included, and what is left in any order: the end is a function of the set of deliveries.
        for number in (*order, *reversed(range(len(history)))):
            world.load(DAYS[number])
            for key, day in history[number].items():
                newest[key] = max(newest.get(key, 0), day)
            found = {k: (u, v) for k, u, v in world.sql("SELECT id, updated, value FROM readings")}
            assert found == {k: (f"2024-01-{d:02d}T00:00:00Z", d * 10) for k, d in newest.items()}
            assert world.warehouse.verify(world.pipeline) == []
        assert {key for rows in history for key in rows} == set(newest)
        assert [b.counts.skipped for b in world.ledger()] == [0] * len(history)
    finally:
        shutil.rmtree(root)


def check_complete_snapshots(history: list[dict[str, int]], attempts: list[int]) -> None:
    """Whole snapshots: the table is always the last one committed, and older ones are superseded."""
    root = Path(tempfile.mkdtemp(prefix="model-"))
    try:
        world = World(root, readings(complete="whole", allow_empty=True))
        newest: int = -1
        current: dict[str, int] = {}
        for number, rows in enumerate(history):
            world.deliver(DAYS[number], snapshot(*(f"{key},{day:02d},{day * 10}" for key, day in rows.items())))
        for number in attempts:
            (outcome,) = world.load(DAYS[number])
            if number > newest:
                assert outcome.status == "committed", outcome.message
                # What is there is live: in an older version only if it was not there before.
                newest, current = number, {k: max(day, current.get(k, 0)) for k, day in history[number].items()}
            elif number == newest:
                assert outcome.status == "already committed"
            else:
                assert outcome.status == "already committed" or type(outcome.error).__name__ == "Superseded"
            assert dict(world.sql("SELECT id, value FROM readings")) == {k: d * 10 for k, d in current.items()}
            assert world.warehouse.verify(world.pipeline) == []
    finally:
        shutil.rmtree(root)


def explore(check: Any, examples: int, **strategies: st.SearchStrategy[Any]) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settled = settings(max_examples=examples, deadline=None, database=None, suppress_health_check=checks)
    seed(20240101 if examples < 100 else None)(settled(given(**strategies)(check)))()


KEYED = st.dictionaries(st.sampled_from("abcde"), st.integers(1, 9))
HISTORY = st.lists(KEYED, min_size=1, max_size=5)


def pairs(check: Any) -> Any:
    """A check of a history and the numbers of its snapshots in an order that is drawn."""

    def checked(history: list[dict[str, int]], data: st.DataObject) -> None:
        check(history, data.draw(st.lists(st.integers(0, len(history) - 1), max_size=8)))

    return checked


def test_any_cut_of_a_log_any_order_and_any_replay_converge_to_its_fold() -> None:
    explore(check_log, 25, log=logs(), data=st.data())


def test_stale_events_are_counted_as_a_plain_fold_counts_them_within_deliveries_and_between_them() -> None:
    explore(check_counts, 20, log=logs(), data=st.data())


def test_runs_that_end_between_two_batches_and_bounds_that_change_leave_nothing_out_and_count_nothing_twice() -> None:
    explore(check_interrupted, 15, log=logs(), data=st.data())


def test_partial_snapshots_converge_in_any_order_of_arrival() -> None:
    explore(pairs(check_snapshots), 12, history=HISTORY, data=st.data())


def test_whole_snapshots_make_the_table_the_last_of_them_whatever_is_tried_in_between() -> None:
    explore(pairs(check_complete_snapshots), 12, history=HISTORY, data=st.data())


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_more_logs_and_histories_converge() -> None:
    explore(check_log, 400, log=logs(), data=st.data())
    explore(check_counts, 1_000, log=logs(), data=st.data())
    explore(check_interrupted, 400, log=logs(), data=st.data())
    explore(pairs(check_snapshots), 200, history=HISTORY, data=st.data())
    explore(pairs(check_complete_snapshots), 200, history=HISTORY, data=st.data())
