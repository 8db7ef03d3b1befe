"""The death of the process at every statement of publish: all old or all new, and the retry completes (case 2)."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets_tests.faults.forking import DONE, Forks
from etl_assets_tests.faults.scenarios import ALL, Scenario, Stage
from etl_assets_tests.faults.victim import STRUCK

HOWS = ("SIGKILL", "SIGTERM", "SIGINT", "exit")


class Victims(Forks):
    """The process that forks those that die."""

    def __init__(self) -> None:
        super().__init__("etl_assets_tests.faults.victim")

    def die(self, stage: Stage, at: int, how: str, after: bool) -> int:
        root, name, module = str(stage.world.root), stage.scenario.name, stage.scenario.prepare.__module__
        return self.order(root=root, scenario=name, module=module, at=at, how=how, after=after)


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
