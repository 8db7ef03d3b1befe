"""What publish costs: its work grows with the rows, not with their square. Counted in steps of the database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import PartitionedTable, repair
from etl_assets.sink.sqlite import connection as connections
from etl_assets_tests.world import World, orders

A, B, C = "2024-01-01", "2024-01-02", "2024-01-03"


class Counting(sqlite3.Connection):
    """Counts the virtual machine's steps, in hundreds, from the statement that attaches the stage file on."""

    hundreds = 0

    def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
        if sql.startswith("ATTACH"):
            self.set_progress_handler(self.count, 100)
        return super().execute(sql, *rest)

    def count(self) -> int:
        Counting.hundreds += 1
        return 0


def put(world: World, scope: str, name: str, ids: Iterable[int], amount: int = 1) -> None:
    rows = "".join(f"{i},{scope},item {i},{amount}\n" for i in ids)
    world.deliver(scope, f"id,day,item,amount\n{rows}", name)


def half_deleted(world: World, n: int) -> str:
    put(world, A, "1.csv", range(n))
    world.load(A)
    put(world, A, "2.csv", range(0, n, 2), 2)
    return A


def unexpected_rows(world: World, n: int) -> str:
    """The ledger knows of no rows when the stage file is made, and the table has some when it is published."""
    put(world, A, "1.csv", [])
    put(world, B, "1.csv", range(n))
    world.load(A, B)
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        connection.execute("UPDATE orders SET _partition = 1 WHERE id % 2 = 0")
        connection.execute("UPDATE etl_partition SET rows = 0")
    connection.close()
    put(world, A, "2.csv", range(1, n, 2) if not world.pipeline.keys_can_move else range(n, 2 * n))
    return A


def given_back(world: World, n: int) -> str:
    put(world, A, "1.csv", range(n))
    put(world, B, "2.csv", range(n))
    world.load(A, B)
    put(world, B, "3.csv", range(n // 2, n))
    return B


def lost(world: World, n: int) -> str:
    put(world, A, "9.csv", range(n))
    put(world, B, "2.csv", range(n, 2 * n))
    world.load(A, B)
    put(world, B, "3.csv", range(n // 2, n + n // 2))
    return B


def all_taken(world: World, n: int) -> str:
    put(world, A, "1.csv", range(n))
    world.load(A)
    put(world, B, "2.csv", range(n))
    return B


REPAIR, FIXED, BAG = orders(moved_keys=repair()), orders(key=["day", "id"]), orders(key=[])
CASES: list[tuple[PartitionedTable, Callable[[World, int], str]]] = [
    *((REPAIR, case) for case in (half_deleted, unexpected_rows, given_back, lost, all_taken)),
    *((FIXED, case) for case in (half_deleted, unexpected_rows)),
    (orders(), half_deleted),
    (BAG, half_deleted),
]


@pytest.mark.parametrize("pipeline, case", CASES)
def test_four_times_the_rows_take_about_four_times_the_work(
    pipeline: PartitionedTable, case: Callable[[World, int], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = sqlite3.connect
    work = []
    for n in (500, 2_000):
        world = World(tmp_path / str(n), pipeline)
        scope = case(world, n)
        with monkeypatch.context() as patch:
            counting = lambda *args, **options: connect(*args, **{**options, "factory": Counting})  # noqa: E731
            patch.setattr(connections.sqlite3, "connect", counting)
            Counting.hundreds = 0
            (outcome,) = world.load(scope, restate="as it is" if case is unexpected_rows else None)
            assert outcome.status == "committed", outcome.message
            work.append(Counting.hundreds)
    assert work[0] > 50
    assert work[1] < 6 * work[0]
