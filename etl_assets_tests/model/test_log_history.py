"""A change log through random histories: cuts, names, days, gaps, rewritten and grown files, outages and decisions.

The model knows the log of each source and the files that were delivered. From the ledger it takes only which file was
committed when; which rows follow from that, and as what each file must be shown, it works out by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from etl_assets.contract import native
from etl_assets.errors import OperationalError
from etl_assets.loading import Outcome
from etl_assets_tests.patterns.logs import lines, prices
from etl_assets_tests.world import World

DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")
#: Names that give no order, names that look like labels, and names that a shell or a terminal would mistake.
NAMES = ("7f3a.jsonl", "c01e.jsonl", "events.jsonl", "events#1", "events@2.jsonl", "a\nb.jsonl", "events-2.jsonl")
KEYS = st.integers(1, 3)


@dataclass(frozen=True)
class Event:
    """A state of a key, or its end where ``item`` is None; its position is its version."""

    key: int
    item: str | None

    def line(self, pos: int) -> str:
        row: dict[str, Any] = {"id": self.key}
        if self.item is not None:
            row |= {"item": self.item, "price": "1.5"}
        return json.dumps({"pos": pos, "op": "delete" if self.item is None else "upsert", "row": row})


@dataclass(frozen=True)
class File:
    """Events of a delivery, the first of them at position ``first``."""

    first: int
    events: tuple[Event, ...]

    @property
    def last(self) -> int:
        return self.first + len(self.events) - 1

    def placed(self) -> dict[int, Event]:
        return dict(enumerate(self.events, self.first))

    def content(self) -> str:
        return lines(*(event.line(pos) for pos, event in self.placed().items()))


Place = tuple[str, str]  # day and name
events = st.builds(Event, KEYS, st.sampled_from([None, "a", "b", "c"]))


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="history-"))
        self.world = World(self.root, prices(events=native(version=None)))
        self.source: list[Event] = []
        self.files: dict[Place, File] = {}
        #: Every content that was delivered, by the digest that the ledger keeps.
        self.contents: dict[str, File] = {}
        #: What the ledger's batches add up to: events by position, and how far the log is consumed.
        self.accepted: dict[int, Event] = {}
        self.position = 0
        self.entries = 0

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # ------------------------------------------------------------------ what arrives

    def _deliver(self, day: str, name: str, file: File) -> None:
        self.files[day, name] = file
        self.contents[hashlib.sha256(file.content().encode()).hexdigest()] = file
        self.world.deliver(day, file.content(), name)

    @rule(new=st.lists(events, min_size=1, max_size=4))
    def events_happen(self, new: list[Event]) -> None:
        self.source += new

    @precondition(lambda self: self.source)
    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES), data=st.data())
    def a_cut_is_delivered(self, day: str, name: str, data: st.DataObject) -> None:
        """Any part of the log: what comes next, a gap, an overlap, what is long committed, or a file that has grown."""
        first = data.draw(st.integers(1, len(self.source)))
        last = data.draw(st.integers(first, len(self.source)))
        self._deliver(day, name, File(first, tuple(self.source[first - 1 : last])))

    @precondition(lambda self: len(self.source) > self.position)
    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES))
    def what_comes_next_is_delivered(self, day: str, name: str) -> None:
        self._deliver(day, name, File(self.position + 1, tuple(self.source[self.position :])))

    @precondition(lambda self: len(self.source) > 6)
    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES), other=events, data=st.data())
    def a_cut_is_delivered_with_another_event(self, day: str, name: str, other: Event, data: st.DataObject) -> None:
        first = data.draw(st.integers(1, len(self.source)))
        cut = self.source[first - 1 :]
        cut[data.draw(st.integers(0, len(cut) - 1))] = other
        self._deliver(day, name, File(first, tuple(cut)))

    # ------------------------------------------------------------------ what is done

    def _load(self, *days: str, batch_events: int = 100, **how: Any) -> list[Outcome]:
        sized = self.world.pipeline.model_copy(update={"batch_events": batch_events})
        outcomes = self.world.load(*days, pipeline=sized, **how)
        self._follow()
        return outcomes

    def _follow(self) -> None:
        """Take what was committed since from the ledger, having checked that each batch may follow."""
        ledger = self.world.ledger()
        for batch in ledger[self.entries :]:
            file = self.contents[batch.input_sha256]
            assert batch.lower is not None
            assert batch.upper is not None
            placed = file.placed()
            assert batch.lower == self.position, batch
            # What the file repeats of the committed log says the same.
            assert all(self.accepted.get(p, e) == e for p, e in placed.items() if p <= batch.lower), batch
            self.accepted |= {p: placed[p] for p in range(batch.lower + 1, batch.upper + 1)}
            assert batch.counts.source == batch.upper - batch.lower
            self.position = batch.upper
        self.entries = len(ledger)

    @rule(day=st.sampled_from(DAYS), batch_events=st.sampled_from([1, 2, 100]))
    def a_day_is_run(self, day: str, batch_events: int) -> None:
        self._load(day, batch_events=batch_events)

    @rule(batch_events=st.sampled_from([1, 2, 100]))
    def what_waits_is_run(self, batch_events: int) -> None:
        days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
        if days:
            self._load(*days, batch_events=batch_events)

    @rule(batch_events=st.sampled_from([1, 100]), finished=st.integers(0, 2))
    def a_run_is_cut_off(self, batch_events: int, finished: int) -> None:
        sized = self.world.pipeline.model_copy(update={"batch_events": batch_events})
        run = self.world.engine(sized).load(DAYS, f"cut off at {self.entries}-{len(self.source)}")
        for _ in range(finished):
            next(run, None)
        run.close()  # type: ignore[attr-defined]
        self._follow()

    @rule()
    def the_extracts_are_lost(self) -> None:
        shutil.rmtree(self.root / "staged", ignore_errors=True)

    @rule(times=st.integers(1, 4))
    def extracts_cannot_be_written_for_a_while(self, times: int) -> None:
        """An outage is nobody's fault: nothing changes, and nothing is counted against a delivery."""
        staged, aside = self.root / "staged", self.root / "staged-aside"
        if staged.exists():
            staged.rename(aside)
        staged.write_text("in the way")
        before = {(s.scope, s.name, s.revision): s.attempts for s in self.world.survey().statuses}
        for _ in range(times):
            with contextlib.suppress(OperationalError):
                self._load(*DAYS)
        after = {(s.scope, s.name, s.revision): s.attempts for s in self.world.survey().statuses}
        assert all(after.get(place, attempts) == attempts for place, attempts in before.items())
        staged.unlink()
        if aside.exists():
            aside.rename(staged)

    # ------------------------------------------------------------------ what is always true

    @invariant()
    def the_table_is_the_fold_of_the_committed_events(self) -> None:
        standing: dict[int, tuple[str | None, int]] = {}
        for pos in sorted(self.accepted):
            event = self.accepted[pos]
            standing[event.key] = (event.item, pos)
        live = [(key, item, "1.5000") for key, (item, _) in standing.items() if item is not None]
        assert self.world.rows() == sorted(live, key=repr)
        found = self.world.sql("SELECT max(position) FROM etl_progress")[0][0] if self.entries else None
        assert (found or 0) == self.position
        assert not self.entries or self.world.warehouse.verify(self.world.pipeline) == []

    @rule()
    def every_delivery_is_shown_as_what_it_is(self) -> None:
        """Once nothing more can be loaded: no delivery that follows is left out, and none that contradicts is hidden."""
        for _ in range(len(self.files) + 1):
            entries = self.entries
            days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
            if days:
                self._load(*days)
            if entries == self.entries:
                break
        shown = {(s.scope, s.name): s for s in self.world.survey().statuses if s.arrival is not None}
        assert shown.keys() == self.files.keys()
        # A file that contradicts the committed log holds it up, until it is put right or a person decides.
        held = any(self._contradicts(file) for file in self.files.values())
        for place, file in self.files.items():
            state, what = shown[place].state, (place, file, self.position, shown[place])
            if self._contradicts(file):
                assert state in ("refused", "needs attention"), what
            elif file.last <= self.position:
                assert held or state in ("committed", "superseded"), what
            elif file.first > self.position + 1:
                assert state == "staged", what
                assert shown[place].waits, what
            else:
                assert held, what
                assert state not in ("committed", "superseded"), what

    def _contradicts(self, file: File) -> bool:
        """Whether a file says something else than the log that is committed."""
        return any(self.accepted.get(pos, event) != event for pos, event in file.placed().items())


def explore(examples: int, steps: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        LogMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=checks,
            **options,
        ),
    )


def test_a_log_follows_the_model_through_a_sample_of_histories() -> None:
    explore(15, 20, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(2))
def test_a_log_follows_the_model_through_thousands_of_steps(part: int) -> None:
    explore(60, 40)
