"""What publish may have to do: each scenario is a prepared world, and one publish that is about to happen in it.

Everything before the publish is done under the run ``victim`` (claim, reading, freezing), so that the state before
and after differ by the publish alone. A scenario is named, so that another process can repeat it.
"""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.contract import PartitionedTable, repair
from etl_assets.loading import Outcome
from etl_assets.model import Restatement
from etl_assets_tests.world import World, orders

A, B, C = "2024-01-01", "2024-01-02", "2024-01-03"
RUN = "victim"
State = dict[str, list[tuple[Any, ...]]]


def csv(*rows: str, header: str = "id,day,item,amount") -> str:
    return "\n".join([header, *rows]) + "\n"


@dataclass(frozen=True)
class Scenario:
    """``prepare`` commits what is there before; ``arrive`` delivers what ``scope`` is to be published from."""

    name: str
    prepare: Callable[[World], None]
    arrive: Callable[[World], None]
    scope: str = A
    pipeline: PartitionedTable = field(default_factory=orders)
    restate: str | None = None
    delivery: str | None = None

    def world(self, root: Path) -> World:
        return World(root, self.pipeline)

    def publish(self, world: World, run: str = RUN, publish: bool = True) -> list[Outcome]:
        return list(self.publishing(world, run, publish))

    def publishing(self, world: World, run: str = RUN, publish: bool = True) -> Iterator[Outcome]:
        """One batch after the other; most scenarios are one."""
        reason = Restatement(self.restate, operation="on purpose") if self.restate else None
        return world.engine().load([self.scope], run, reason, self.delivery, publish)


def _nothing(world: World) -> None:
    """Before the first load there is no warehouse."""


def _first(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3", f"2,{A},fig,5", f"3,{A},nut,1"))


def _two_days(world: World) -> None:
    _first(world)
    world.deliver(B, csv(f"7,{B},oak,7"))
    world.load(A, B, run="earlier")


def _correction(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3", f"2,{A},fig,6", f"4,{A},elm,"), "2.csv")


def _wider(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3,red", f"2,{A},fig,5,", header="id,day,item,amount,colour"), "2.csv")


def _empty(world: World) -> None:
    world.deliver(A, csv(), "2.csv")


def _corrected(world: World) -> None:
    _two_days(world)
    _correction(world)
    world.load(A, run="correction")


def _claimed_by_three(world: World) -> None:
    """Key 1 stands in B and is aside for A; key 2 stands in A; key 3 stands in C, by its fourth release."""
    world.deliver(A, csv(f"1,{A},of A,1", f"2,{A},of A,2", f"5,{A},of A,5"), "1.csv")
    world.deliver(B, csv(f"1,{B},of B,1", f"6,{B},of B,6"), "2.csv")
    world.deliver(C, csv(f"3,{C},of C,3"), "4.csv")
    world.load(A, B, C, run="earlier")


def _moves(world: World) -> None:
    """B drops 1 (back to A), takes 2 (from A), and loses 3 (to C)."""
    world.deliver(B, csv(f"2,{B},of B,2", f"3,{B},of B,3", f"6,{B},of B,7"), "3.csv")


def _bag(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3", f"1,{A},pear,3", f"1,{A},pear,3", f"2,{A},fig,5"), "1.csv")
    world.load(A, run="earlier")


def _other_bag(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3", f"1,{A},pear,3", f"2,{A},fig,6", f"2,{A},fig,6"), "2.csv")


REPAIRED = orders(moved_keys=repair(order="delivery"))
ALL = {
    s.name: s
    for s in (
        Scenario("first load", _nothing, _first),
        Scenario("correction", _two_days, _correction),
        Scenario("explicitly empty", _two_days, _empty),
        Scenario("moved keys", _claimed_by_three, _moves, scope=B, pipeline=REPAIRED),
        Scenario("bag of rows", _bag, _other_bag, pipeline=orders(key=[])),
        Scenario("new column", _two_days, _wider, pipeline=orders(new_columns="add")),
        Scenario("restated", _corrected, _nothing, restate="the correction was wrong", delivery="1.csv"),
    )
}

CLOCK = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def timeless(state: State) -> State:
    """A state without the times of the database's clock, which are evidence and differ between two publishes."""
    return {
        name: sorted(
            (tuple("(time)" if isinstance(v, str) and CLOCK.fullmatch(v) else v for v in row) for row in rows), key=repr
        )
        for name, rows in state.items()
    }


def told(state: State) -> State:
    """A timeless state without who wrote it: what another run must arrive at too."""
    kept = {name: rows for name, rows in state.items() if name not in ("etl_writer", "etl_batch")}
    return timeless(kept)


class Stage:
    """A scenario set up in a folder: the state before, the state after each of its batches, and the way back to before."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario, self.world = scenario, scenario.world(root)
        scenario.prepare(self.world)
        scenario.arrive(self.world)
        (staged,) = scenario.publish(self.world, publish=False)
        assert staged.status == "staged", staged.message
        self.file = Path(self.world.settings.warehouse)
        self.saved = root / "before.sqlite"
        shutil.copyfile(self.file, self.saved)
        self.before = self.world.state()
        self.states = [timeless(self.before)]
        for outcome in scenario.publishing(self.world):
            assert outcome.status == "committed", outcome.message
            self.counts = outcome.counts
            self.states.append(timeless(self.world.state()))
        self.after = self.states[-1]
        self.after_told = told(self.world.state())
        self.contents = self.world.rows()
        assert self.after != timeless(self.before)

    def reset(self) -> None:
        for suffix in ("-wal", "-shm"):
            self.file.with_name(self.file.name + suffix).unlink(missing_ok=True)
        shutil.copyfile(self.saved, self.file)

    def check_old_or_new(self) -> int:
        """How many batches are committed; anything between all and nothing of one is an assertion error."""
        now = self.world.state()
        assert self.world.warehouse.verify(self.scenario.pipeline) == []
        if now == self.before:
            return 0
        assert timeless(now) in self.states
        return self.states.index(timeless(now))

    def check_retry(self, committed: int, run: str = RUN) -> None:
        """The retry completes to the same contents, and says so if there was nothing left to do."""
        outcomes = self.scenario.publish(self.world, run)
        wanted = ["already committed"] * committed + ["committed"] * (len(self.states) - 1 - committed)
        assert [o.status for o in outcomes] == wanted, [o.message for o in outcomes]
        if run == RUN:
            assert timeless(self.world.state()) == self.after
        assert told(self.world.state()) == self.after_told
        assert self.world.rows() == self.contents
        assert self.world.warehouse.verify(self.scenario.pipeline) == []


class Faulty(sqlite3.Connection):
    """A connection that is struck at one of its statements, counted from the one that attaches the stage file."""

    strike: Callable[[str], None] = staticmethod(lambda sql: None)
    at = -1
    after = False  # once the statement is done, instead of before it
    ever_after = False  # at every following statement too
    seen: list[str] = []

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
        cls = type(self)
        if not (sql.startswith("ATTACH") or cls.seen):
            return super().execute(sql, *rest)
        number = len(cls.seen)
        cls.seen.append(sql)
        struck = number == cls.at or (cls.ever_after and number > cls.at)
        if struck and not cls.after:
            cls.strike(sql)
        cursor = super().execute(sql, *rest)
        if struck and cls.after:
            cls.strike(sql)
        return cursor


def connecting(faulty: type[Faulty]) -> Callable[..., sqlite3.Connection]:
    """What replaces ``sqlite3.connect``."""
    connect = sqlite3.connect

    def connected(*args: Any, **options: Any) -> sqlite3.Connection:
        return connect(*args, **{**options, "factory": faulty})

    return connected


def faulty(at: int, strike: Callable[[str], None], after: bool = False, ever_after: bool = False) -> type[Faulty]:
    fields = {"at": at, "strike": staticmethod(strike), "after": after, "ever_after": ever_after, "seen": []}
    return type("Faulty", (Faulty,), fields)
