"""A partitioned table against a model of a few dictionaries, by sequences that nobody thinks of.

The model knows the deliveries, which of them each partition stands for, and how a key that two partitions claim is
settled; it knows nothing of transactions, extracts or files.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from etl_assets.contract import PartitionedTable, repair, transform
from etl_assets.loading import Outcome
from etl_assets_tests.world import DAYS, World, orders

KEYS = range(1, 6)
scopes = st.sampled_from(DAYS)
orders_of_scopes = st.permutations(DAYS)
key_sets = st.sets(st.sampled_from(KEYS))
Place = tuple[int, int]  # number of the name, revision
Rows = dict[int, int]  # key to version


def labelled(version: int) -> PartitionedTable:
    """The pipeline under this version of its transform, which marks each row with it."""

    def label(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(item=f"by {version}")

    return orders(moved_keys=repair(order="amount"), transform=transform(label, version=version))


class PartitionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="model-"))
        self.world = World(self.root, labelled(1))
        self.version = 1
        self.clock = 0
        # What has been delivered: the newest content under each name; None is a broken file.
        self.delivered: dict[str, dict[int, tuple[int, Rows | None]]] = {scope: {} for scope in DAYS}
        # What each partition stands for, and everything that was ever committed.
        self.current: dict[str, tuple[Place, int, Rows]] = {}
        self.restated: set[str] = set()  # scopes whose rows are those of a restatement
        self.committed: set[tuple[str, Place, int]] = set()
        self.batches: list[tuple[str, Place, int]] = []
        self.ledger: list[Any] = []

    def teardown(self) -> None:
        shutil.rmtree(self.root)

    # ------------------------------------------------------------------ deliveries

    def _write(self, scope: str, number: int, revision: int, rows: Rows | None) -> None:
        self.delivered[scope][number] = (revision, rows)
        lines = [f"{key},{scope},item,{version}" for key, version in (rows or {}).items()]
        content = "id,day,item,amount\n" + ("not,a,row\n" if rows is None else "".join(f"{x}\n" for x in lines))
        # A comment of the clock in an ignored place would be no CSV: other bytes come from the rows, or from blank lines.
        self.world.deliver(scope, content + "\n" * (revision - 1), f"{number}.csv")

    def _rows(self, scope: str, keys: set[int], changed: set[int]) -> Rows:
        """Rows for these keys; those that are not changed keep the version that the scope delivered last."""
        self.clock += 1
        known: Rows = {}
        for _, rows in self.delivered[scope].values():
            known |= rows or {}
        place = DAYS.index(scope)
        fresh = dict.fromkeys(keys, self.clock * 10 + place)
        return {key: fresh[key] if key in changed else known.get(key, fresh[key]) for key in sorted(keys)}

    @rule(scope=scopes, keys=key_sets, changed=key_sets)
    def deliver(self, scope: str, keys: set[int], changed: set[int]) -> None:
        number = max(self.delivered[scope], default=0) + 1
        self._write(scope, number, 1, self._rows(scope, keys, changed))

    @rule(scope=scopes)
    def deliver_what_is_broken(self, scope: str) -> None:
        self._write(scope, max(self.delivered[scope], default=0) + 1, 1, None)

    @rule(scope=scopes, keys=key_sets, changed=key_sets)
    def deliver_again_under_the_last_name(self, scope: str, keys: set[int], changed: set[int]) -> None:
        if not self.delivered[scope]:
            return
        number = max(self.delivered[scope])
        revision, _ = self.delivered[scope][number]
        if (scope, number) in self._read:
            revision += 1
            self._read.discard((scope, number))
        self._write(scope, number, revision, self._rows(scope, keys, changed))

    @initialize()
    def begin(self) -> None:
        self._read: set[tuple[str, int]] = set()  # names whose present bytes a run has read

    @rule()
    def raise_the_transforms_version(self) -> None:
        self.version += 1
        self.world.pipeline = labelled(self.version)

    # ------------------------------------------------------------------ runs

    def _settle(self, outcome: Outcome, number: int | None = None, restated: bool = False) -> None:
        """Take one outcome into the model, having checked that it is the right one."""
        scope = outcome.scope
        names = self.delivered[scope]
        if not names:
            assert type(outcome.error).__name__ == "MissingDelivery"
            return
        number = number or max(names)
        revision, rows = names[number]
        place, kind = (number, revision), type(outcome.error).__name__
        self._read.add((scope, number))
        if rows is None:
            assert kind == "RaggedRow"
            return
        identity = (scope, place, self.version)
        if identity in self.committed and not restated:
            assert outcome.status == "already committed"
            return
        current = self.current.get(scope)
        if current and not restated and (place < current[0] or self.version < current[1]):
            assert kind == "Superseded"
            return
        withdrawn = (
            any((scope, place) == committed[:2] for committed in self.committed) and place != (current or [0])[0]
        )
        if scope in self.restated and not restated and withdrawn:
            assert kind == "Superseded"
            return
        assert outcome.status == "committed", outcome.message
        self.current[scope] = (place, self.version, rows)
        self.restated = self.restated | {scope} if restated else self.restated - {scope}
        self.batches.append(identity)
        self.committed.add(identity)

    @rule(order=orders_of_scopes)
    def load(self, order: list[str]) -> None:
        for outcome in self.world.load(*order):
            self._settle(outcome)

    @rule(order=orders_of_scopes)
    def load_twice(self, order: list[str]) -> None:
        self.load(order)
        before = (self.world.state() or {}) | {"etl_writer": [], "etl_delivery": []}
        again = self.world.load(*order)
        assert "committed" not in {o.status for o in again}
        assert (self.world.state() or {}) | {"etl_writer": [], "etl_delivery": []} == before

    @rule()
    def load_what_is_pending(self) -> None:
        for outcome in self.world.load_pending():
            self._settle(outcome)

    @rule(order=orders_of_scopes, finished=st.integers(0, 2))
    def a_run_is_cut_off(self, order: list[str], finished: int) -> None:
        run = self.world.engine().load(order, f"cut off at {self.clock}-{len(self.batches)}")
        for _ in range(finished):
            self._settle(next(run))
        run.close()

    @rule(order=orders_of_scopes, finished=st.integers(1, 2))
    def a_run_is_paused_and_another_one_does_it_all(self, order: list[str], finished: int) -> None:
        self.clock += 1
        zombie = self.world.engine().load(order, f"zombie {self.clock}")
        for _ in range(finished):
            self._settle(next(zombie))
        self.load(order)
        before = self.world.state()
        for outcome in zombie:
            assert outcome.status != "committed"
        assert self.world.state() == before

    @precondition(lambda self: any(rows is not None for d in self.delivered.values() for _, rows in d.values()))
    @rule(data=st.data())
    def restate(self, data: st.DataObject) -> None:
        good = [(s, n) for s, names in self.delivered.items() for n, (_, rows) in names.items() if rows is not None]
        scope, number = data.draw(st.sampled_from(good))
        self.clock += 1
        (outcome,) = self.world.load(scope, delivery=f"{number}.csv", restate="the model says so")
        self._settle(outcome, number, restated=True)

    # ------------------------------------------------------------------ what is always true

    def _claims(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """The rows that must be in the table, and those that must be kept aside."""
        claims: dict[int, list[tuple[int, str, str]]] = {}
        for scope, (_, version, rows) in self.current.items():
            for key, amount in rows.items():
                claims.setdefault(key, []).append((amount, scope, f"by {version}"))
        table, aside = [], []
        for key, claimed in claims.items():
            *lost, (amount, scope, item) = sorted(claimed)
            table.append((amount, scope, key, item))
            aside += [(a, s, key, i) for a, s, i in lost]
        return sorted(table, key=repr), sorted(aside, key=repr)

    @invariant()
    def the_table_is_a_function_of_the_current_deliveries(self) -> None:
        table, aside = self._claims()
        assert self.world.rows() == table
        assert self.world.rows("_aside_orders") == aside

    @invariant()
    def the_ledger_only_grows_and_holds_what_was_committed(self) -> None:
        ledger = self.world.ledger()
        assert ledger[: len(self.ledger)] == self.ledger
        self.ledger = ledger
        told = [(b.scope, (int(b.delivery.removesuffix(".csv")), b.revision), b.transform_version) for b in ledger]
        assert told == self.batches
        assert {s: (b.delivery, b.revision) for s, b in self.world.warehouse.current("orders").items()} == {
            scope: (f"{place[0]}.csv", place[1]) for scope, (place, _, _) in self.current.items()
        }

    @invariant()
    def progress_counts_the_rows(self) -> None:
        assert self.world.warehouse.verify(self.world.pipeline) == []
        held = dict.fromkeys(self.current, 0)
        for _, scope, _, _ in self._claims()[0]:
            held[scope] += 1
        assert self.world.warehouse.rows("orders") == held


def explore(examples: int, steps: int, **options: Any) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        PartitionsMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            suppress_health_check=checks,
            **options,
        ),
    )


def test_the_table_follows_the_model_through_any_sequence_of_deliveries_and_runs() -> None:
    explore(12, 15, derandomize=True)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(4))
def test_the_table_follows_the_model_through_many_more_sequences(part: int) -> None:
    explore(100, 30)
