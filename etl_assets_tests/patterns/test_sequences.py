"""Logs and snapshots against models of a few dictionaries, by sequences that nobody thinks of.

Files arrive, late, broken, rewritten and copied; runs load them in any order, are cut off, paused, or struck at any statement;
snapshots are restated, and logic gets newer. The models know nothing of transactions, extracts or files.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from etl_assets.contract import integer, text, transform
from etl_assets.loading import Outcome
from etl_assets.model import Restatement
from etl_assets.sink.sqlite import connection as connections
from etl_assets_tests.faults.scenarios import connecting, faulty
from etl_assets_tests.patterns.kinds import day
from etl_assets_tests.patterns.logs import delete, lines, prices, readings, upsert
from etl_assets_tests.world import World

DAYS = [day(n) for n in (1, 2, 3)]
scopes = st.sampled_from(DAYS)
orders = st.lists(scopes, min_size=1, max_size=4).map(lambda days: list(dict.fromkeys(days)))
names = st.integers(1, 3)
keys = st.sampled_from("abcd")
BROKEN = "no such columns\n"
Place = tuple[str, int, int]  # scope, number of the name, revision


class Struck(BaseException):
    """As Dagster's terminate is one."""


class Files(RuleBasedStateMachine):
    """What arrives and what runs do; a pattern adds contents, and :meth:`publish` of one of them."""

    pipeline: Any
    suffix = ".csv"

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="model-"))
        self.world = World(self.root, self.pipeline)
        self.runs = 0
        self.arrived: dict[str, dict[int, str]] = {scope: {} for scope in DAYS}
        #: The last revision of each name that is on record, and its content.
        self.recorded: dict[tuple[str, int], tuple[int, str]] = {}
        self.committed: list[tuple[Place, int]] = []
        self.ledger: list[Any] = []
        self.logic = 1

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    def publish(self, place: Place, content: str, restated: bool = False) -> str:
        """Take a content into the model; the status or the name of the error that this must have."""
        raise NotImplementedError

    # ------------------------------------------------------------------ what arrives

    def put(self, scope: str, number: int, content: str) -> None:
        self.arrived[scope][number] = content
        self.world.deliver(scope, content, f"{number}{self.suffix}")

    @rule(scope=scopes, number=st.just(4))
    def a_broken_file_arrives(self, scope: str, number: int) -> None:
        self.put(scope, number, BROKEN)

    @rule(data=st.data(), scope=scopes, number=st.integers(1, 4))
    def a_copy_arrives(self, data: st.DataObject, scope: str, number: int) -> None:
        contents = [c for files in self.arrived.values() for c in files.values()]
        if contents:
            self.put(scope, number, data.draw(st.sampled_from(contents)))

    # ------------------------------------------------------------------ what runs do

    def place(self, scope: str, number: int) -> Place:
        revision, content = self.recorded.get((scope, number), (0, ""))
        return scope, number, revision + (content != self.arrived[scope][number])

    def settle(self, outcome: Outcome, number: int, restated: bool = False) -> str:
        """One outcome is what the model says of the delivery, which is on record from now on."""
        place, content = self.place(outcome.scope, number), self.arrived[outcome.scope][number]
        wanted = "refused" if content == BROKEN else self.publish(place, content, restated)
        kind = type(outcome.error).__name__
        found = outcome.status if outcome.error is None or content == BROKEN else kind
        assert (found, outcome.delivery and outcome.delivery.revision) == (wanted, place[2]), outcome.message
        self.recorded[place[:2]] = (place[2], content)
        return wanted

    def follow(self, scope: str, outcomes: Iterator[Outcome]) -> None:
        """All that a run says of a scope: each of its files in their order, up to one that is refused."""
        if not self.arrived[scope]:
            assert type(next(outcomes).error).__name__ == "MissingDelivery"
        for number in sorted(self.arrived[scope]):
            if self.stops(scope, number, self.settle(next(outcomes), number)):
                return

    def stops(self, scope: str, number: int, verdict: str) -> bool:
        """Whether the later files of a scope wait for this one; for one that is behind what is committed they do not."""
        return verdict not in ("committed", "already committed", "Superseded")

    def begin(self, order: list[str]) -> Iterator[Outcome]:
        self.runs += 1
        return self.world.engine().load(order, f"run {self.runs}")

    @rule(order=orders)
    def load(self, order: list[str]) -> None:
        outcomes = self.begin(order)
        for scope in order:
            self.follow(scope, outcomes)
        assert list(outcomes) == []

    @rule(order=orders)
    def load_twice(self, order: list[str]) -> None:
        self.load(order)
        before = self.rows()
        again = [o.status for o in self.begin(order)]
        assert "committed" not in again
        assert self.rows() == before

    @rule()
    def load_what_waits(self) -> None:
        waiting = list(dict.fromkeys(s.scope for s in self.world.survey().waiting()))
        if waiting:
            self.load(waiting)

    @rule(order=orders, finished=st.integers(1, 2), only_claims=st.booleans())
    def a_run_is_paused_and_another_one_takes_over(self, order: list[str], finished: int, only_claims: bool) -> None:
        zombie = self.begin(order)
        for scope in order[:finished]:
            self.follow(scope, zombie)
        if only_claims:
            self.runs += 1
            self.world.warehouse.claim(self.world.pipeline, DAYS, f"run {self.runs}")
        else:
            self.load(DAYS)
        before = self.world.state()
        assert "committed" not in {o.status for o in zombie}
        assert self.world.state() == before

    @rule(scope=scopes, at=st.integers(0, 40), after=st.booleans())
    def a_run_is_struck_at_a_statement(self, scope: str, at: int, after: bool) -> None:
        def strike(sql: str) -> None:
            raise Struck

        done: list[Outcome] = []
        before, connect = len(self.world.ledger()), connections.sqlite3.connect
        connections.sqlite3.connect = connecting(faulty(at, strike, after))  # type: ignore[assignment]
        try:
            with contextlib.suppress(Struck):
                for outcome in self.begin([scope]):
                    done.append(outcome)
        finally:
            connections.sqlite3.connect = connect
        self.catch_up(scope, done, before)

    def catch_up(self, scope: str, done: list[Outcome], before: int) -> None:
        """Bring the model to where a run was struck: after its answers, and perhaps after a commit without one."""
        outcomes = iter(done)
        for number in sorted(self.arrived[scope]):
            outcome = next(outcomes, None)
            if outcome is not None:
                if self.stops(scope, number, self.settle(outcome, number)):
                    return
                continue
            # Whether the answer was lost, or the commit: the ledger knows.
            known = {o.batch for o in done}
            last = self.world.ledger()[-1:] if len(self.world.ledger()) > before else []
            if last and last[0].batch not in known:
                assert self.publish(self.place(scope, number), self.arrived[scope][number]) == "committed"
            revisions = [
                r.delivery
                for r in self.world.warehouse.deliveries(self.world.pipeline.name, [scope])
                if r.delivery.name == f"{number}{self.suffix}"
            ]
            if revisions and revisions[-1].revision == self.place(scope, number)[2]:
                self.recorded[scope, number] = (revisions[-1].revision, self.arrived[scope][number])
            return

    # ------------------------------------------------------------------ what is always true

    def rows(self) -> list[tuple[Any, ...]]:
        """The whole table of versions, and which batch made each row."""
        names = [n for (n,) in self.world.sql("SELECT name FROM sqlite_master WHERE name LIKE '_versions_%'")] if (
            Path(self.world.settings.warehouse).exists()
        ) else []  # fmt: skip
        return sorted(self.world.sql(f"SELECT * FROM {names[0]}"), key=repr) if names else []

    @invariant()
    def the_ledger_only_grows_and_holds_what_was_committed(self) -> None:
        ledger = self.world.ledger()
        assert ledger[: len(self.ledger)] == self.ledger
        self.ledger = ledger
        told = [((b.scope, int(b.delivery.removesuffix(self.suffix)), b.revision), b.transform_version) for b in ledger]
        assert told == self.committed

    @invariant()
    def the_ledger_agrees_with_the_rows(self) -> None:
        assert self.world.warehouse.verify(self.world.pipeline) == []


# --------------------------------------------------------------------------- logs


class LogMachine(Files):
    pipeline = prices()
    suffix = ".jsonl"

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[int, int]] = []  # key and version of each event, from position 1 on
        self.consumed = 0

    @staticmethod
    def ends(version: int) -> bool:
        return version % 3 == 0

    @rule(
        scope=scopes,
        number=names,
        ahead=st.integers(0, 3).map(lambda n: n == 0),
        loaded=st.booleans(),
        events=st.lists(st.tuples(st.integers(1, 3), st.integers(7, 12)), min_size=1, max_size=4),
    )
    def the_next_events_arrive(
        self, scope: str, number: int, ahead: bool, loaded: bool, events: list[tuple[int, int]]
    ) -> None:
        """What follows the log's end, stale versions among it; or all that is not consumed yet."""
        self.log += events
        first = len(self.log) - len(events) if ahead else self.consumed
        cut = list(enumerate(self.log[first:], first + 1))
        self.put(scope, number, lines(*(self.line(pos, *event) for pos, event in cut)))
        if loaded:
            self.load([scope])

    def line(self, pos: int, key: int, version: int) -> str:
        return delete(pos, version, key) if self.ends(version) else upsert(pos, version, key, f"by {version}")

    def first(self, events: list[str]) -> int:
        """The position at which a delivery begins."""
        return next(p for p in range(1, len(self.log) + 1) if self.line(p, *self.log[p - 1]) == events[0])

    def follow(self, scope: str, outcomes: Iterator[Outcome]) -> None:
        """All that a run says of a scope: each of its files, in the order of their positions; what waits comes last."""
        if not self.arrived[scope]:
            assert type(next(outcomes).error).__name__ == "MissingDelivery"
        for _ in self.arrived[scope]:
            self.answer(next(outcomes))

    def answer(self, outcome: Outcome) -> None:
        assert outcome.delivery
        self.settle(outcome, int(outcome.delivery.name.removesuffix(self.suffix)))

    @rule(order=orders)
    def load_twice(self, order: list[str]) -> None:
        """A day that waits for a later one is consumed by the next run."""
        for _ in range(len(order) - 1):
            self.load(order)
        super().load_twice(order)

    def catch_up(self, scope: str, done: list[Outcome], before: int) -> None:
        """Some answers of a run that was struck are lost, and with the last of them perhaps a commit is."""
        for outcome in done if self.arrived[scope] else ():
            self.answer(outcome)
        known = {outcome.batch for outcome in done}
        last = self.world.ledger()[-1:] if len(self.world.ledger()) > before else []
        if last and last[0].batch not in known:
            number = int(last[0].delivery.removesuffix(self.suffix))
            assert self.publish(self.place(scope, number), self.arrived[scope][number]) == "committed"
        for delivery in (r.delivery for r in self.world.warehouse.deliveries("prices", [scope])):
            number = int(delivery.name.removesuffix(self.suffix))
            if delivery.revision == self.place(scope, number)[2]:
                self.recorded[scope, number] = (delivery.revision, self.arrived[scope][number])

    def publish(self, place: Place, content: str, restated: bool = False) -> str:
        if (place, 1) in self.committed:
            return "already committed"
        events = content.splitlines()
        if self.first(events) > self.consumed + 1:
            return "UnexpectedCursor"
        # What is consumed already says the same here, and the rest of it is taken.
        self.consumed = max(self.consumed, self.first(events) + len(events) - 1)
        self.committed.append((place, 1))
        return "committed"

    @invariant()
    def the_table_is_the_fold_of_what_is_consumed(self) -> None:
        newest: dict[int, int] = {}
        for key, version in self.log[: self.consumed]:
            newest[key] = max(version, newest.get(key, 0))
        found = {r[0]: r for r in self.rows()}
        assert {k: (r[3], r[4]) for k, r in found.items()} == {k: (v, int(self.ends(v))) for k, v in newest.items()}
        live = [(k, f"by {v}", "1.0000") for k, v in newest.items() if not self.ends(v)]
        assert self.world.rows() == sorted(live, key=repr)

    @invariant()
    def the_positions_of_batches_follow_one_another(self) -> None:
        bounds = [(b.lower, b.upper) for b in self.world.ledger()]
        assert [lower for lower, _ in bounds] == [0, *(upper for _, upper in bounds)][: len(bounds)]
        assert self.world.warehouse.position("prices") == (self.consumed or None)
        assert sum(b.counts.source for b in self.world.ledger()) == self.consumed


# --------------------------------------------------------------------------- snapshots


@dataclass
class Row:
    version: int
    alive: bool
    logic: int
    batch: int


@dataclass(frozen=True)
class Merged:
    place: Place
    logic: int
    upper: int | None
    content: str
    restated: bool = False


def logic(version: int, **changes: Any) -> Any:
    def label(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(by=version)

    columns = [text("id"), integer("updated"), integer("by", optional=True)]
    return readings(columns=columns, transform=transform(label, version=version), allow_empty=True, **changes)


class SnapshotMachine(Files):
    changes: dict[str, Any] = {}
    pipeline = None

    def __init__(self) -> None:
        self.pipeline = logic(1, **self.changes)
        super().__init__()
        self.clock = 0
        self.table: dict[str, Row] = {}
        self.merged: list[Merged] = []
        self.begun = 0

    @rule(scope=scopes, number=names, loaded=st.booleans(), rows=st.dictionaries(keys, st.integers(0, 3), min_size=1))
    def a_snapshot_arrives(self, scope: str, number: int, loaded: bool, rows: dict[str, int]) -> None:
        """Each of its rows is as new as can be, or some changes old."""
        self.clock += 1
        content = [f"{key},{max(self.clock - age, 0)}\n" for key, age in rows.items()]
        self.put(scope, number, "id,updated\n" + "".join(content))
        if loaded:
            self.load([scope])

    @rule(scope=scopes, number=names)
    def an_empty_snapshot_arrives(self, scope: str, number: int) -> None:
        self.put(scope, number, "id,updated\n")

    @rule()
    def logic_gets_newer(self) -> None:
        self.logic += 1
        self.world.pipeline = logic(self.logic, **self.changes)

    def publish(self, place: Place, content: str, restated: bool = False) -> str:
        rows = {k: int(v) for k, v in (line.split(",") for line in content.splitlines()[1:])}
        number = len(self.merged)
        complete = self.changes.get("complete") == "whole"
        if restated:
            if complete:
                self.begun, self.table = number, {}
            self.table |= {key: Row(version, True, self.logic, number) for key, version in rows.items()}
            newest = max((row.version for row in self.table.values() if row.alive), default=None)
            self.merged.append(Merged(place, self.logic, newest, content, restated=True))
            self.committed.append((place, self.logic))
            return "committed"
        if any((b.place, b.logic) == (place, self.logic) for b in self.merged):
            return "already committed"
        if complete and self.was_restated_away(place, content):
            return "Superseded"
        since = list(enumerate(self.merged))[self.begun :]
        later = {i for i, b in since if b.place > place}
        made = next((i for i, b in since if b.place == place), None)
        if complete and later and made is None:
            return "Superseded"
        last = complete and not later
        newer = next((i for i, b in since if b.logic == self.logic), number)
        left_out = self.left_out(rows, since[: None if made is None else made - self.begun])
        missed = [k for k in left_out if k not in self.table or rows[k] > self.table[k].version]
        if missed and left_out == rows.keys() and made is None:
            return "OutOfBounds"
        amended = {b.place: i for i, b in since if b.restated and not complete and made is not None and i > made}
        kept = {i for i, b in since if b.place != place and i >= amended.get(b.place, number)}
        for key, version in rows.items():
            row = self.table.get(key)
            if key in left_out or (row is None and complete and not last) or (row and row.batch in kept):
                continue
            newest = row is None or (version > row.version and not (complete and row.batch in later))
            if row is None or newest or (last and not row.alive):
                self.table[key] = Row(version, True, self.logic, number)
            elif version == row.version and row.batch < newer:
                self.table[key] = Row(version, row.alive, self.logic, number)
        for key, row in self.table.items():
            if row.alive and key not in rows and (last or (made is not None and row.batch == made)):
                row.alive = False
                row.batch = row.batch if row.batch < newer else number
        self.merged.append(Merged(place, self.logic, max(rows.values(), default=None), content))
        self.committed.append((place, self.logic))
        return "committed"

    def was_restated_away(self, place: Place, content: str) -> bool:
        """Whether the delivery, or its bytes under its name, were committed before the table was made of another one."""
        restated = next((i for i, b in reversed(list(enumerate(self.merged))) if b.restated), None)
        if restated is None or self.merged[restated].place == place:
            return False
        before, after = self.merged[:restated], self.merged[restated:]
        same = any(b.place == place or (b.place[:2], b.content) == (place[:2], content) for b in before)
        return same and not any(b.place == place for b in after)

    def left_out(self, rows: dict[str, int], before: list[tuple[int, Merged]]) -> set[str]:
        """The keys whose rows lie below the watermark that stood after these batches."""
        if self.changes.get("bounds") != "inclusive":
            return set()
        begun = max((n for n, (_, b) in enumerate(before) if b.restated), default=0)
        uppers = [b.upper for _, b in before[begun:] if b.upper is not None]
        return {key for key, version in rows.items() if uppers and version < max(uppers)}

    def stops(self, scope: str, number: int, verdict: str) -> bool:
        return False  # what is at fault, or comes too late, keeps no snapshot after it waiting

    @rule(data=st.data())
    def a_snapshot_is_restated(self, data: st.DataObject) -> None:
        good = [(s, n) for s, files in self.arrived.items() for n, c in files.items() if c != BROKEN]
        if not good:
            return
        scope, number = data.draw(st.sampled_from(good))
        self.runs += 1
        why = Restatement("the model says so", f"decision {self.runs}")
        (outcome,) = self.world.engine().load([scope], f"run {self.runs}", why, f"{number}.csv")
        self.settle(outcome, number, restated=True)

    @invariant()
    def the_table_is_what_the_model_says(self) -> None:
        wanted = [(k, r.version, r.logic, r.version, int(not r.alive), r.batch + 1) for k, r in self.table.items()]
        assert self.rows() == sorted(wanted, key=repr)


class WholeMachine(SnapshotMachine):
    changes = {"complete": "whole"}


class InclusiveMachine(SnapshotMachine):
    changes = {"bounds": "inclusive"}


class UnboundedMachine(SnapshotMachine):
    changes = {"bounds": "none"}


MACHINES: dict[str, type[Files]] = {
    "log": LogMachine, "whole": WholeMachine, "inclusive": InclusiveMachine, "unbounded": UnboundedMachine,
}  # fmt: skip


def explore(machine: type[Files], examples: int, steps: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    settled = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        suppress_health_check=checks,
        **options,
    )
    run_state_machine_as_test(machine, settings=settled)


@pytest.mark.parametrize("name", MACHINES)
def test_the_table_follows_the_model_through_any_sequence_of_arrivals_and_runs(name: str) -> None:
    explore(MACHINES[name], 6, 15, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("name", MACHINES)
def test_the_table_follows_the_model_through_many_more_sequences(name: str) -> None:
    explore(MACHINES[name], 100, 25)
