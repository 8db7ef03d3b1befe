"""The demo tells what it waits for, gives up only at a standstill, and does not clear a Dagster that runs."""

import io
import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from etl_assets.locks import FolderInUse, using
from etl_assets.orchestration.demo.dev import DagsterFailed
from etl_assets.orchestration.demo.patience import Board, wait_until


def test_waiting_ends_at_a_standstill_and_not_while_something_moves() -> None:
    moves = itertools.chain(range(4), itertools.repeat(4))
    with pytest.raises(DagsterFailed, match="runs: nothing has moved for 1 s"):
        wait_until(lambda: False, lambda: next(moves), "runs", standstill=1.0)
    assert next(moves) == 4
    ends = iter([False] * 6 + [True])
    moving = itertools.count()
    wait_until(lambda: next(ends), lambda: next(moving), "runs", standstill=0.5)


def test_a_log_file_gets_a_line_for_each_change() -> None:
    file = io.StringIO()
    with Board(Console(file=file, width=200), {"flights": 2, "weather": 1}) as board:
        board.show({"flights": 0, "weather": 1}, "2 runs")
        board.show({"flights": 0, "weather": 1}, "2 runs")
        board.show({"flights": 2, "weather": 1}, "1 runs")
    assert [line.split("s  ")[1] for line in file.getvalue().splitlines()] == [
        "flights 0/2, weather 1/1; 2 runs",
        "flights 2/2, weather 1/1; 1 runs",
    ]


def test_a_home_is_used_by_one_program_until_that_ends(tmp_path: Path) -> None:
    home = tmp_path / "home"
    wait = "import sys; print('here', flush=True); sys.stdin.read()"
    command = [sys.executable, "-m", "etl_assets.locks", str(home), sys.executable, "-c", wait]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == b"here\n"
        with pytest.raises(FolderInUse, match="stop that one first"), using(home):
            pass
        second = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert (second.returncode, second.stdout) == (1, b"")
        assert b"in use by another `make dev` or `make demo`" in second.stderr
        holder.stdin.close()
    with using(home):
        assert not home.exists()


def test_the_demo_leaves_a_home_alone_that_is_in_use(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    environment = {
        "ETL_LANDING": str(tmp_path / "landing"),
        "ETL_STAGED": str(tmp_path / "staged"),
        "ETL_WAREHOUSE": str(tmp_path / "warehouse.sqlite"),
        "DAGSTER_HOME": str(home),
    }
    before = sorted(tmp_path.rglob("*"))
    with using(home):
        found = subprocess.run(
            [sys.executable, "-m", "etl_assets.orchestration.demo"],
            env=os.environ | environment,
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
    assert found.returncode == 1
    assert "stop that one first" in " ".join(found.stdout.split())
    assert [p for p in sorted(tmp_path.rglob("*")) if p.name != ".home.in-use"] == before
