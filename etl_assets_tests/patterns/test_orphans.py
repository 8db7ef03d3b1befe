"""A process that outlives its run: fenced at the commit by its successor, whatever the pattern (case 4)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import SinkBusy
from etl_assets.sink import SQLiteWarehouse
from etl_assets_tests.patterns.kinds import KINDS, Kind
from etl_assets_tests.world import World

PROJECT = Path(__file__).parents[2]


def some(*sampled: str) -> list[Any]:
    """Each pattern's name, of which these are tried by default."""
    return [n if n in sampled else pytest.param(n, marks=pytest.mark.long) for n in KINDS]


class Orphan:
    """A process that is stopped in its publish."""

    def __init__(self, kind: Kind, world: World, number: int, point: str) -> None:
        command = [
            sys.executable,
            "-m",
            "etl_assets_tests.patterns.orphan",
            kind.name,
            str(world.root),
            str(number),
            point,
        ]
        self.process = subprocess.Popen(
            command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # It has stopped, or it has ended.
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), self.process.communicate()[0]

    def wake(self) -> list[list[Any]]:
        """Let it go on; what it says has become of its scope."""
        self.process.send_signal(signal.SIGCONT)
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, said
        return list(json.loads(said))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@contextmanager
def orphan(kind: Kind, world: World, number: int, point: str) -> Iterator[Orphan]:
    made = Orphan(kind, world, number, point)
    try:
        yield made
    finally:
        made.kill()


def prepared(name: str, root: Path) -> tuple[Kind, World]:
    """One delivery is committed and the second has arrived."""
    kind = KINDS[name]
    world = kind.world(root)
    kind.deliver(world, 1)
    world.load(kind.scope(1))
    kind.deliver(world, 2)
    return kind, world


@pytest.mark.parametrize("name", some("partitioned", "log", "whole"))
def test_a_process_that_was_stopped_before_its_publish_is_refused_at_the_commit_after_a_successor_published(
    name: str, tmp_path: Path
) -> None:
    kind, world = prepared(name, tmp_path)
    with orphan(kind, world, 2, "before") as stopped:
        (outcome,) = world.load(kind.scope(2), run="successor")
        assert outcome.status == "committed"
        # It goes on to what comes next, and the orphan still sleeps.
        kind.deliver(world, 3)
        assert world.load(kind.scope(3), run="successor")[-1].status == "committed"
        before = world.state()
        ((status, error, message),) = stopped.wake()
    assert (status, error) == ("refused", "StaleWriter")
    assert "run orphan holds generation" in message
    assert "but run successor has since claimed the scope as generation" in message
    assert world.state() == before
    assert world.rows() == kind.rows(3)
    assert [b.run for b in world.ledger()][1:] == ["successor", "successor"]
    assert world.warehouse.verify(kind.pipeline) == []


@pytest.mark.parametrize("name", some("log"))
def test_an_orphan_that_wakes_before_its_successor_publishes_is_refused_though_nothing_is_committed_yet(
    name: str, tmp_path: Path
) -> None:
    kind, world = prepared(name, tmp_path)
    with orphan(kind, world, 2, "before") as stopped:
        world.warehouse.claim(world.pipeline, [kind.scope(2)], "successor")  # a run begins with it
        before = world.state()
        ((status, error, _),) = stopped.wake()
    assert (status, error) == ("refused", "StaleWriter")
    assert world.state() == before
    (outcome,) = world.load(kind.scope(2), run="successor")
    assert (outcome.status, world.rows()) == ("committed", kind.rows(2))


@pytest.mark.parametrize("name", some("log"))
@pytest.mark.parametrize("then", ["woken", "killed"])
def test_a_process_that_was_stopped_within_its_publish_keeps_others_out_and_what_it_wrote_is_all_there_or_not_at_all(
    name: str, then: str, tmp_path: Path
) -> None:
    kind, world = prepared(name, tmp_path)
    before = world.state()
    with orphan(kind, world, 2, "within") as stopped:
        between = world.state()  # a reader is not kept waiting, and sees nothing of it
        assert {k: v for k, v in between.items() if k != "etl_writer"} == {
            k: v for k, v in before.items() if k != "etl_writer"
        }
        hasty = SQLiteWarehouse(world.settings.warehouse, busy_timeout=0.2)
        with pytest.raises(SinkBusy):
            hasty.claim(world.pipeline, [kind.scope(2)], "successor")
        if then == "woken":
            ((status, *_),) = stopped.wake()
            assert status == "committed"
            assert [b.run for b in world.ledger()][1:] == ["orphan"]
        else:
            stopped.kill()
            assert world.state() == between
    (outcome,) = world.load(kind.scope(2), run="successor")
    assert outcome.status == ("already committed" if then == "woken" else "committed")
    assert len(world.ledger()) == 2
    assert world.rows() == kind.rows(2)
    assert world.warehouse.verify(kind.pipeline) == []


# --------------------------------------------------------------------------- Dagster's own processes

DEFINITIONS = '''
"""The pipelines of a test with Dagster's multiprocess executor; the first step to publish stops before it does."""
import os
import signal
from pathlib import Path

import dagster as dg

from etl_assets.orchestration import Rooms, build_defs, jobs
from etl_assets.sink import SQLiteWarehouse
from etl_assets_tests.patterns.kinds import KINDS

MARK, KIND, ROOT = (Path(os.environ["STOPPED"]), KINDS[os.environ["KIND"]], os.environ["ROOT"])
publish = SQLiteWarehouse.publish


def stopping(self, *rest):
    try:
        MARK.open("x").write(str(os.getpid()))
    except FileExistsError:
        return publish(self, *rest)
    os.kill(os.getpid(), signal.SIGSTOP)
    return publish(self, *rest)


SQLiteWarehouse.publish = stopping
rooms = Rooms(landing=f"{ROOT}/landing", staged=f"{ROOT}/staged", warehouse=f"{ROOT}/warehouse.sqlite")
jobs.EXECUTOR = dg.multiprocess_executor
defs = build_defs([KIND.pipeline], rooms)
'''


class Runs:
    """Runs of a pipeline's job in processes of their own, each with a process for its step."""

    def __init__(self, kind: Kind, world: World) -> None:
        self.kind, self.world = kind, world
        self.home, self.mark = world.root / "home", world.root / "stopped"
        self.home.mkdir()
        (self.home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
        self.module = world.root / "definitions.py"
        self.module.write_text(DEFINITIONS)

    def start(self, number: int) -> subprocess.Popen[str]:
        name = self.kind.pipeline.name
        tags = json.dumps({"dagster/partition": self.kind.scope(number)})
        command = [
            sys.executable,
            "-W",
            "ignore",
            "-m",
            "dagster",
            "job",
            "execute",
            "-f",
            str(self.module),
            "-j",
            f"{name}_job",
        ]
        own = {
            "DAGSTER_HOME": str(self.home),
            "STOPPED": str(self.mark),
            "KIND": self.kind.name,
            "ROOT": str(self.world.root),
        }
        return subprocess.Popen(
            [*command, "--tags", tags],
            env={**os.environ, **own},
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def wait_until(condition: Any, process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def state_of(pid: int) -> str:
    """The process's state by the kernel: T when it is stopped, Z or nothing when it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.mark.daemon
@pytest.mark.parametrize("name", some("log"))
def test_a_run_process_that_was_killed_leaves_a_step_behind_which_its_successor_fences(
    name: str, tmp_path: Path
) -> None:
    kind, world = prepared(name, tmp_path)
    runs = Runs(kind, world)
    first = runs.start(2)
    step = 0
    try:
        wait_until(lambda: runs.mark.exists() and runs.mark.read_text(), first)
        step = int(runs.mark.read_text())
        wait_until(lambda: state_of(step) == "T", first)
        assert step != first.pid
        first.send_signal(signal.SIGKILL)
        first.wait(60)
        assert state_of(step) == "T", "the step did not outlive its run"
        successor = runs.start(2)
        said, _ = successor.communicate(timeout=120)
        assert successor.returncode == 0, said
        before = world.state()
        assert [b.batch for b in world.ledger()] == [kind.batch(1), kind.batch(2)]
        os.kill(step, signal.SIGCONT)
        wait_until(lambda: state_of(step) in ("", "Z"))
    finally:
        for pid in (first.pid, step):
            if pid and state_of(pid) not in ("", "Z"):
                os.kill(pid, signal.SIGKILL)
        said = first.communicate(timeout=60)[0]
    assert "StaleWriter" in said
    assert world.state() == before
    assert world.rows() == kind.rows(2)
    assert world.warehouse.verify(kind.pipeline) == []
