"""A full disk and failing writes in the middle of a load: the old state, a clear error, exit code 2 (case 10)."""

from __future__ import annotations

import gzip
import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import WarehouseError
from etl_assets.sink.sqlite import connection as connections
from etl_assets_tests.faults.scenarios import ALL, Stage
from etl_assets_tests.world import World

DAY = "2024-01-01"
COMMAND = str(Path(sys.executable).with_name("etl-assets"))
PIPELINE = """
from etl_assets.contract import Daily, PartitionedTable, date, integer, text
orders = PartitionedTable(
    name="orders", partitions=Daily(start="2024-01-01", end="2024-02-01"), landing="orders/{partition}/*",
    columns=[integer("id"), date("day"), text("item"), integer("amount")], key=["id"], partition_by="day",
)
"""


def full_at(pages: int) -> Callable[..., sqlite3.Connection]:
    """``sqlite3.connect`` for a disk on which the warehouse can grow by so many pages more."""
    connect = sqlite3.connect

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
            if sql == "BEGIN IMMEDIATE":
                used = super().execute("PRAGMA main.page_count").fetchone()[0]
                super().execute(f"PRAGMA main.max_page_count = {used + pages}")
            return super().execute(sql, *rest)

    return lambda *args, **options: connect(*args, **{**options, "factory": Full})


@pytest.mark.parametrize("scenario", ["first load", "moved keys", "new column"])
def test_a_disk_that_is_full_leaves_the_old_state_and_says_so(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(ALL[scenario], tmp_path)
    filled = 0
    for pages in range(12):
        stage.reset()
        with monkeypatch.context() as patch:
            patch.setattr(connections.sqlite3, "connect", full_at(pages))
            raised = ""
            try:
                stage.scenario.publish(stage.world)
            except WarehouseError as error:
                raised = str(error)
        if not raised:
            break
        filled += 1
        assert "the disk is full: free some space and run again" in raised
        assert not stage.check_old_or_new()
        stage.check_retry(False)
    assert stage.check_old_or_new()
    assert filled or scenario != "first load"


def content(version: int, rows: int = 3_000) -> str:
    lines = (f"{i},{DAY},item number {i * 7919 % 10_007} of {version},{i * version}\n" for i in range(1, rows))
    return "id,day,item,amount\n" + "".join(lines)


def run_limited(world: World, limit: int | None, *options: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process that can write no file larger than ``limit`` bytes."""
    (world.root / "pipelines").mkdir(exist_ok=True)
    (world.root / "pipelines" / "orders.py").write_text(PIPELINE)
    places = {"LANDING": world.settings.landing, "STAGED": world.settings.staged, "WAREHOUSE": world.settings.warehouse}
    environment = {**os.environ, **{f"ETL_{k}": v for k, v in places.items()}}
    environment |= {"ETL_PIPELINES": str(world.root / "pipelines"), "SQLITE_TMPDIR": str(world.root)}

    def limited() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    return subprocess.run(
        [COMMAND, "run", "orders", "--partition", DAY, *options],
        env=environment,
        cwd=world.root,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        check=False,
    )


def check_limits(world: World, limits: list[int]) -> set[str]:
    """Load a correction under each of these limits; the rooms whose writes failed, by what they said."""
    world.deliver(DAY, content(1))
    assert run_limited(world, None).returncode == 0
    before, ledger = world.rows(), world.ledger()
    said = set()
    for number, limit in enumerate(limits, start=2):
        world.deliver(DAY, content(number), f"{number}.csv")
        found = run_limited(world, limit)
        assert "Traceback" not in found.stderr
        assert found.returncode == 2, (limit, found.stdout, found.stderr)
        assert found.stderr.startswith("error: ")
        said.add("warehouse" if "warehouse.sqlite" in found.stderr else "staged" if "staged" in found.stderr else "?")
        assert world.rows() == before
        assert world.ledger() == ledger
        assert world.warehouse.verify(world.pipeline) == []
    assert run_limited(world, None).returncode == 0
    assert [r[0] for r in world.rows()] == sorted((i * number for i in range(1, 3_000)), key=repr)
    assert [b.delivery for b in world.ledger()] == ["1.csv", f"{number}.csv"]
    assert list((world.root / "staged" / ".incoming").iterdir()) == []
    return said


def test_writes_that_fail_in_any_room_are_named_and_leave_the_old_state(world: World) -> None:
    assert check_limits(world, [1_000, 100_000, 160_000]) == {"warehouse", "staged"}


@pytest.mark.long
def test_writes_that_fail_at_any_size_are_named_and_leave_the_old_state(world: World) -> None:
    check_limits(world, [*range(0, 10_000, 1_000), *range(10_000, 170_000, 8_000)])


def test_a_delivery_that_cannot_be_unpacked_for_want_of_space_is_not_the_deliverys_fault(world: World) -> None:
    world.deliver(DAY, content(1, rows=3), "1.csv")
    assert run_limited(world, None).returncode == 0
    before, ledger = world.rows(), world.ledger()
    world.deliver(DAY, gzip.compress(content(1, rows=12_000).encode()), "2.csv.gz")
    found = run_limited(world, 200_000, "--json")
    assert found.returncode == 2
    assert "Traceback" not in found.stderr
    error = json.loads(found.stdout)["error"]
    assert error.startswith("StagingFailed: ")
    assert "File too large" in error
    assert (world.rows(), world.ledger()) == (before, ledger)
    assert [r.refusal for r in world.warehouse.deliveries("orders")] == [None]
    assert run_limited(world, None).returncode == 0
    assert sorted(r[2] for r in world.rows()) == list(range(1, 12_000))
