"""One small pipeline of each load pattern, with deliveries in their order and what the table holds after each.

Belongs here: what a case needs that concerns every pattern. A delivery of any number can be made; the first one differs from the
rest only in what a rolling feed lets roll off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.contract import Daily, PartitionedTable, Pipeline, ReferenceTable, integer, lookback, text, window
from etl_assets_tests.patterns.logs import delete, lines, prices, readings, snapshot, upsert
from etl_assets_tests.world import World

MONTH = Daily(start="2024-01-01", end="2024-02-01")
State = dict[str, list[tuple[Any, ...]]]
Rows = list[tuple[Any, ...]]


def day(number: int) -> str:
    return f"2024-01-{number:02d}"


def instant(number: int) -> str:
    return f"{day(number)}T00:00:00Z"


@dataclass(frozen=True)
class Kind:
    """A load pattern: its pipeline, the content of delivery ``n`` (from 1), and all rows after it.

    Rows are in the order of the columns' names, as :meth:`World.rows` gives them.
    """

    name: str
    pipeline: Pipeline
    content: Callable[[int], str]
    after: Callable[[int], Rows]
    by_day: bool = True
    suffix: str = ".csv"

    @property
    def replaces(self) -> bool:
        """Whether the newest delivery alone counts."""
        return self.pipeline.newest_counts

    def world(self, root: Path) -> World:
        return World(root, self.pipeline)  # type: ignore[arg-type]

    def scope(self, number: int) -> str:
        return day(number) if self.by_day else self.pipeline.partitions.keys()[0]

    def file(self, number: int) -> str:
        return f"1{self.suffix}" if self.by_day else f"{number}{self.suffix}"

    def deliver(self, world: World, number: int, name: str | None = None) -> Path:
        return world.deliver(
            self.scope(number), self.content(number), name or self.file(number), pipeline=self.pipeline.name
        )

    def batch(self, number: int, revision: int = 1) -> str:
        return f"{self.pipeline.name}/{self.scope(number)}/{self.file(number)}#{revision}@1"

    def rows(self, number: int) -> Rows:
        return sorted(self.after(number), key=repr)


# --------------------------------------------------------------------------- deliveries, and what they add up to


def _listed(number: int) -> str:
    return f"id,value\n1,{number}\n{10 + number},{number}\n"


def _list_after(number: int) -> Rows:
    return [(1, number), (10 + number, number)]


def _events(number: int) -> str:
    """Key 1 changes, a key starts, and the one that started before it ends."""
    first = 3 * number - 2
    return lines(
        upsert(first, number, 1, f"item {number}"), upsert(first + 1, 1, 10 + number), delete(first + 2, 2, 9 + number)
    )


def _events_after(number: int) -> Rows:
    return [(1, f"item {number}", "1.0000"), (10 + number, "pear", "1.0000")]


def _changed(number: int) -> str:
    """What changed on a day: key a, and a new key."""
    return snapshot(f"a,{number:02d},{number}", f"k{number},{number:02d},{number}")


def _changed_after(number: int) -> Rows:
    return [("a", instant(number), number), *((f"k{n}", instant(n), n) for n in range(1, number + 1))]


def _whole_after(number: int) -> Rows:
    return [("a", instant(number), number), (f"k{number}", instant(number), number)]


def _rolling(number: int) -> str:
    """Complete between 1 and 99: what is there and absent is withdrawn. The first one holds a key that then rolls off."""
    rows = [f"a,{number:02d},1", f"z,{number:02d},99", f"k{number},{number:02d},50"]
    return snapshot(*rows, *(["r,01,200"] if number == 1 else []))


def _rolling_after(number: int) -> Rows:
    rows = [("a", 1), ("z", 99), (f"k{number}", 50)]
    return [*((key, instant(number), value) for key, value in rows), ("r", instant(1), 200)]


def _replaced(name: str, make: Callable[..., PartitionedTable], **fields: Any) -> PartitionedTable:
    return make(name=name, columns=[integer("id"), integer("value")], key=["id"], **fields)


KINDS = {
    kind.name: kind
    for kind in (
        Kind(
            "partitioned",
            # The deliveries are those of one partition.
            _replaced("daily", PartitionedTable, partitions=MONTH, landing="daily/{partition}/*.csv"),
            _listed,
            _list_after,
            by_day=False,
        ),
        Kind("reference", _replaced("codes", ReferenceTable, landing="codes/all/*.csv"), _listed, _list_after, by_day=False),
        Kind("log", prices(), _events, _events_after, suffix=".jsonl"),
        Kind("strict", readings(bounds="strict"), _changed, _changed_after),
        Kind("inclusive", readings(bounds="inclusive"), _changed, _changed_after),
        Kind("lookback", readings(bounds=lookback(hours=36)), _changed, _changed_after),
        Kind("unbounded", readings(bounds="none"), _changed, _changed_after),
        Kind("whole", readings(complete="whole"), _changed, _whole_after),
        Kind("window", readings(complete=window("value")), _rolling, _rolling_after),
    )
}  # fmt: skip
#: Those whose deliveries all count, in their order.
ORDERED = {name: kind for name, kind in KINDS.items() if not kind.replaces}
#: Snapshots, complete or not.
SNAPSHOTS = {name: kind for name, kind in ORDERED.items() if name != "log"}


def coded(name: str) -> Any:
    """A column of text that is part of a key."""
    return text(name, missing=())
