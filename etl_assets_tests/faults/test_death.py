"""The death of the process at every statement of publish: all old or all new, and the retry completes (case 2)."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets_tests.faults.scenarios import ALL, Scenario, Stage
from etl_assets_tests.faults.victim import DONE, STRUCK

HOWS = ("SIGKILL", "SIGTERM", "SIGINT", "exit")


class Victims:
    """The process that forks those that die."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "etl_assets_tests.faults.victim"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def die(self, stage: Stage, at: int, how: str, after: bool) -> int:
        order = {"root": str(stage.world.root), "scenario": stage.scenario.name, "at": at, "how": how, "after": after}
        order["module"] = stage.scenario.prepare.__module__
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    victims = Victims()
    yield victims
    victims.close()


def sweep(victims: Victims, scenario: Scenario, how: str, after: bool, root: Path) -> None:
    stage = Stage(scenario, root)
    wanted = STRUCK if how in ("exit", "SIGINT") else -getattr(signal, how)
    verdicts = []
    for number in itertools.count():
        stage.reset()
        code = victims.die(stage, number, how, after)
        if code == DONE:
            break
        assert code == wanted
        verdicts.append(stage.check_old_or_new())
        stage.check_retry(verdicts[-1], run="successor" if number % 3 == 2 and not verdicts[-1] else "victim")
    assert len(verdicts) > 12
    batches = len(stage.states) - 1
    assert verdicts == sorted(verdicts)
    assert {*verdicts} == {*range(batches + after)}
    assert verdicts.count(batches) == after


@pytest.mark.parametrize(
    "scenario, how, after",
    [
        ("first load", "SIGKILL", False),
        ("correction", "SIGKILL", True),
        ("moved keys", "exit", False),
        ("moved keys", "SIGINT", True),
        ("restated", "SIGTERM", True),
    ],
)
def test_a_process_that_dies_at_any_statement_leaves_all_old_or_all_new_and_a_retry_completes(
    victims: Victims, scenario: str, how: str, after: bool, tmp_path: Path
) -> None:
    sweep(victims, ALL[scenario], how, after, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_way_to_die_at_every_statement_of_every_publish_leaves_all_old_or_all_new(
    victims: Victims, scenario: str, how: str, after: bool, tmp_path: Path
) -> None:
    sweep(victims, ALL[scenario], how, after, tmp_path)
