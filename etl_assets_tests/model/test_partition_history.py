"""Partitions through random histories: corrections, broken and rewritten files, restatements, versions and outages.

The model knows the files. From the ledger it takes only which file was committed when; which rows follow from that, and as
what each file must be shown, it works out by itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from etl_assets.contract import PartitionedTable, transform
from etl_assets.errors import OperationalError
from etl_assets_tests.world import World, orders

DAYS = ("2024-01-01", "2024-01-02")
#: Each goes on where the one before it ends, and looks like a label, or like a revision of it.
NAMES = ("day.csv", "day#1.csv", "day#2@1.csv", "day#10.csv")
Rows = dict[int, int]
Place = tuple[str, str]

#: Corrections share a key; files that share none are no corrections of each other. None is a broken file.
contents = (
    st.none() | st.just({}) | st.dictionaries(st.integers(2, 4), st.integers(1, 9)).map(lambda rows: {1: 7} | rows)
)


@dataclass(frozen=True)
class Entry:
    """A batch of the ledger: of which file with which bytes, by which logic, and whether it is a restatement."""

    name: str
    sha256: str
    version: int
    restated: bool


def content(day: str, rows: Rows | None) -> str:
    if rows is None:
        return "id,day\nbroken\n"
    return "id,day,item,amount\n" + "".join(f"{key},{day},pear,{amount}\n" for key, amount in rows.items())


def digest(day: str, rows: Rows | None) -> str:
    return hashlib.sha256(content(day, rows).encode()).hexdigest()


class PartitionMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="history-"))
        self.version = 1
        self.world = World(self.root, self._labelled())
        self.files: dict[Place, Rows | None] = {}
        self.contents: dict[str, Rows] = {}
        self.entries: dict[str, list[Entry]] = {day: [] for day in DAYS}
        self.known = 0

    def _labelled(self) -> PartitionedTable:
        version = self.version

        def label(frame: pd.DataFrame) -> pd.DataFrame:
            return frame.assign(item=f"by {version}")

        how = transform(label, version=version)
        return orders(transform=how, landing="orders/{partition}/*", key_unique_in="partition")

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # ------------------------------------------------------------------ what arrives

    @rule(day=st.sampled_from(DAYS), name=st.sampled_from(NAMES), rows=contents)
    def a_file_arrives(self, day: str, name: str, rows: Rows | None) -> None:
        self.files[day, name] = rows
        if rows is not None:
            self.contents[digest(day, rows)] = rows
        self.world.deliver(day, content(day, rows), name)

    # ------------------------------------------------------------------ what is done

    def _load(self, *days: str, **how: Any) -> None:
        try:
            self.world.load(*days, **how)
        finally:
            batches = self.world.ledger()
            for batch in batches[self.known :]:
                restated = batch.operation == "restate"
                entry = Entry(batch.delivery, batch.input_sha256, batch.transform_version, restated)
                self.entries[batch.scope].append(entry)
            self.known = len(batches)

    @rule(day=st.sampled_from(DAYS))
    def a_day_is_run(self, day: str) -> None:
        self._load(day)

    @rule()
    def what_waits_is_run(self) -> None:
        days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
        if days:
            self._load(*days)

    @rule()
    def all_days_are_run(self) -> None:
        self._load(*DAYS)

    @rule()
    def the_version_is_raised(self) -> None:
        self.version += 1
        self.world.pipeline = self._labelled()

    @precondition(lambda self: any(rows is not None for rows in self.files.values()))
    @rule(data=st.data())
    def one_is_restated(self, data: st.DataObject) -> None:
        good = [place for place, rows in self.files.items() if rows is not None]
        day, name = data.draw(st.sampled_from(good))
        known = self.known
        self._load(day, delivery=name, restate="the history says so")
        assert self.known == known + 1

    @rule(day=st.sampled_from(DAYS), raised=st.booleans(), data=st.data())
    def a_correction_is_restated_away(self, day: str, raised: bool, data: st.DataObject) -> None:
        """Two files come one after the other, the first one is restated, and all is run again, perhaps by newer logic."""
        earlier, later = sorted(data.draw(st.sets(st.sampled_from(range(len(NAMES))), min_size=2, max_size=2)))
        for number in (earlier, later):
            self.a_file_arrives(day, NAMES[number], {1: 7, 2: number, 3: data.draw(st.integers(1, 3))})
            self._load(day, delivery=NAMES[number], restate="first of all")
        self._load(day, delivery=NAMES[earlier], restate="the later one was withdrawn")
        if raised:
            self.the_version_is_raised()
        self.all_days_are_run()

    @rule(times=st.integers(1, 4))
    def extracts_cannot_be_written_for_a_while(self, times: int) -> None:
        """An outage is nobody's fault: nothing changes, and nothing is counted against a file."""
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
    def the_table_is_what_the_last_batches_are_of(self) -> None:
        expected = [
            (amount, day, key, f"by {entries[-1].version}")
            for day, entries in self.entries.items()
            if entries
            for key, amount in self.contents[entries[-1].sha256].items()
        ]
        assert self.world.rows() == sorted(expected, key=repr)
        assert not self.known or self.world.warehouse.verify(self.world.pipeline) == []

    @invariant()
    def what_was_restated_away_does_not_come_back(self) -> None:
        for entries in self.entries.values():
            for number, entry in enumerate(entries):
                away = self._away(entries[:number])
                assert entry.restated or (entry.name, entry.sha256) not in away, entries

    @staticmethod
    def _away(entries: list[Entry]) -> set[tuple[str, str]]:
        """Files that a restatement has put aside, as long as what was restated is current."""
        current = (entries[-1].name, entries[-1].sha256) if entries else None
        since = len(entries)
        while since and (entries[since - 1].name, entries[since - 1].sha256) == current:
            since -= 1
        if not any(entry.restated for entry in entries[since:]):
            return set()
        return {(e.name, e.sha256) for e in entries} - {current}  # type: ignore[arg-type]

    @precondition(lambda self: self.files)
    @rule()
    def every_file_is_shown_as_what_it_is(self) -> None:
        """Once nothing more can be loaded, the newest file that counts is committed, or named as what holds the day up."""
        for _ in range(len(self.files) + 1):
            known = self.known
            days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
            if days:
                self._load(*days)
            if known == self.known:
                break
        shown = {(s.scope, s.name): s for s in self.world.survey().statuses if s.arrival is not None}
        assert shown.keys() == self.files.keys()
        for place, rows in self.files.items():
            assert shown[place].state in self._states(place, rows), (place, shown[place], self.entries)

    def _states(self, place: Place, rows: Rows | None) -> tuple[str, ...]:
        day, name = place
        entries = self.entries[day]
        mine = (name, digest(day, rows))
        current = (entries[-1].name, entries[-1].sha256) if entries else None
        if mine == current:
            return ("committed",)
        away = self._away(entries)
        if mine in away:
            return ("superseded",)
        order = NAMES.index(name)
        if current and order < NAMES.index(current[0]):
            return ("superseded",)
        others = [n for d, n in self.files if d == day and (n, digest(day, self.files[d, n])) not in away]
        if any(NAMES.index(other) > order for other in others):
            return ("arrived", "refused", "needs attention", "superseded")
        return ("refused", "needs attention") if rows is None else ()


def explore(examples: int, steps: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        PartitionMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=checks,
            **options,
        ),
    )


def test_partitions_follow_the_model_through_a_sample_of_histories() -> None:
    explore(15, 20, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(2))
def test_partitions_follow_the_model_through_thousands_of_steps(part: int) -> None:
    explore(60, 40)
