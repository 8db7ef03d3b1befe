"""Snapshots through random histories: any order of arrival, late and broken files, restatements, versions and outages.

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
from typing import Any, Literal

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from etl_assets.contract import WatermarkTable, transform
from etl_assets.errors import OperationalError
from etl_assets_tests.patterns.logs import readings, snapshot
from etl_assets_tests.world import World

DAYS = ("2024-01-10", "2024-01-11", "2024-01-12", "2024-01-13")
Rows = dict[str, int]  # key to the day of January on which it last changed; the value follows from the two
Place = tuple[str, str]

contents = st.none() | st.dictionaries(st.sampled_from("abcd"), st.integers(1, 9), min_size=1)


@dataclass(frozen=True)
class Entry:
    """A batch of the ledger: of which delivery, and whether it is a restatement."""

    place: Place
    rows: tuple[tuple[str, int], ...]
    sha256: str
    restated: bool
    version: int


def value(key: str, changed: int) -> int:
    return 100 * (ord(key) - 96) + changed


class SnapshotMachine(RuleBasedStateMachine):
    complete: Literal["no", "whole"] = "no"
    #: Of one partition's snapshots one name goes on where the other ends: the order that complete ones need.
    names: tuple[str, ...] = ("7f3a.csv", "c01e.csv", "day#1", "day@2.csv")

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="history-"))
        self.version = 1
        self.world = World(self.root, self._labelled())  # type: ignore[arg-type]
        self.files: dict[Place, Rows | None] = {}
        self.contents: dict[str, Rows] = {}
        self.ledger: list[Entry] = []

    def _labelled(self) -> WatermarkTable:
        def same(frame: pd.DataFrame) -> pd.DataFrame:
            return frame

        how = transform(same, version=self.version)
        return readings(complete=self.complete, transform=how, landing="readings/{partition}/*")

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # ------------------------------------------------------------------ what arrives

    @rule(day=st.sampled_from(DAYS), data=st.data(), rows=contents)
    def a_snapshot_arrives(self, day: str, data: st.DataObject, rows: Rows | None) -> None:
        name = data.draw(st.sampled_from(self.names))
        listed = "no,snapshot\n" if rows is None else self._content(rows)
        self.files[day, name] = rows
        if rows is not None:
            self.contents[hashlib.sha256(listed.encode()).hexdigest()] = rows
        self.world.deliver(day, listed, name)

    @staticmethod
    def _content(rows: Rows) -> str:
        return snapshot(*(f"{key},{day:02d},{value(key, day)}" for key, day in rows.items()))

    # ------------------------------------------------------------------ what is done

    def _load(self, *days: str, **how: Any) -> None:
        try:
            self.world.load(*days, **how)
        finally:
            self._follow()

    def _follow(self) -> None:
        for batch in self.world.ledger()[len(self.ledger) :]:
            rows = tuple(self.contents[batch.input_sha256].items())
            restated = batch.operation != "merge"
            place = (batch.scope, batch.delivery)
            self.ledger.append(Entry(place, rows, batch.input_sha256, restated, batch.transform_version))

    @rule(day=st.sampled_from(DAYS))
    def a_day_is_run(self, day: str) -> None:
        self._load(day)

    @rule()
    def what_waits_is_run(self) -> None:
        days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
        if days:
            self._load(*days)

    @rule(times=st.integers(1, 4))
    def extracts_cannot_be_written_for_a_while(self, times: int) -> None:
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

    @rule()
    def the_version_is_raised(self) -> None:
        self.version += 1
        self.world.pipeline = self._labelled()  # type: ignore[assignment]

    @rule()
    def all_days_are_run_again(self) -> None:
        self._load(*DAYS)

    # ------------------------------------------------------------------ what is always true

    def _expected(self) -> Rows:
        """Of each key the newest change of all that was committed: no order of arrival loses a row."""
        newest: Rows = {}
        for entry in self.ledger:
            for key, changed in entry.rows:
                newest[key] = max(newest.get(key, 0), changed)
        return newest

    @invariant()
    def the_table_is_what_was_committed(self) -> None:
        expected = [(key, f"2024-01-{day:02d}T00:00:00Z", value(key, day)) for key, day in self._expected().items()]
        assert self.world.rows() == sorted(expected, key=repr)
        assert not self.ledger or self.world.warehouse.verify(self.world.pipeline) == []

    def _settle(self) -> None:
        for _ in range(len(self.files) + 1):
            entries = len(self.ledger)
            days = dict.fromkeys(s.scope for s in self.world.survey().waiting())
            if days:
                self._load(*days)
            if entries == len(self.ledger):
                return

    @precondition(lambda self: self.files)
    @rule()
    def every_snapshot_is_shown_as_what_it_is(self) -> None:
        """Once nothing more can be loaded, a snapshot that can be read is in the table, and one that cannot is named."""
        self._settle()
        shown = {(s.scope, s.name): s for s in self.world.survey().statuses if s.arrival is not None}
        assert shown.keys() == self.files.keys()
        for place, rows in self.files.items():
            assert shown[place].state in self._states(place, rows), (place, shown[place])

    def _states(self, place: Place, rows: Rows | None) -> tuple[str, ...]:
        return ("refused", "needs attention") if rows is None else ("committed",)


class WholeMachine(SnapshotMachine):
    """Complete snapshots: the last one in order says what is there, and a restatement begins the order again."""

    complete = "whole"
    names = ("day.csv", "day #2.csv", "day #10@2.csv")

    @precondition(lambda self: any(rows is not None for rows in self.files.values()))
    @rule(data=st.data())
    def one_is_restated(self, data: st.DataObject) -> None:
        day, name = data.draw(st.sampled_from([place for place, rows in self.files.items() if rows is not None]))
        entries = len(self.ledger)
        self._load(day, delivery=name, restate="the history says so")
        assert len(self.ledger) == entries + 1

    def _since(self) -> int:
        """Where the order began last: at a restatement, or at the first batch."""
        return max((number for number, entry in enumerate(self.ledger) if entry.restated), default=0)

    def _expected(self) -> Rows:
        """Of the last snapshot; a key that was live with a newer change keeps that."""
        live: Rows = {}
        last: tuple[str, int] | None = None
        for entry in self.ledger[self._since() :]:
            place = self._order(entry.place)
            if last is not None and place < last:
                continue  # newer logic over an earlier one: the later one says what is there
            rows = dict(entry.rows)
            live = {key: changed if entry.restated else max(changed, live.get(key, 0)) for key, changed in rows.items()}
            last = place
        return live

    def _order(self, place: Place) -> tuple[str, int]:
        return place[0], self.names.index(place[1])

    def _states(self, place: Place, rows: Rows | None) -> tuple[str, ...]:
        since = self._since()
        standing = self.ledger[since:]
        digest = hashlib.sha256(self._content(rows).encode()).hexdigest() if rows is not None else ""
        mine = [entry for entry in standing if (entry.place, entry.sha256) == (place, digest)]
        if mine:
            return ("committed",)
        away = [entry for entry in self.ledger[:since] if (entry.place, entry.sha256) == (place, digest)]
        last = max((self._order(entry.place) for entry in standing), default=None)
        if last is not None and last > self._order(place):
            return ("superseded", "refused", "needs attention") if rows is None else ("superseded",)
        if rows is None:
            return ("refused", "needs attention")
        if away:
            return ("superseded",)
        return ()  # nothing held it up


def explore(machine: type[SnapshotMachine], examples: int, steps: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=checks,
            **options,
        ),
    )


MACHINES = pytest.mark.parametrize("machine", [SnapshotMachine, WholeMachine])


@MACHINES
def test_snapshots_follow_the_model_through_a_sample_of_histories(machine: type[SnapshotMachine]) -> None:
    explore(machine, 12, 15, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@MACHINES
def test_snapshots_follow_the_model_through_thousands_of_steps(machine: type[SnapshotMachine]) -> None:
    explore(machine, 60, 40)
