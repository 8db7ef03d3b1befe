"""An exception and the death of the process at every statement of each pattern's publish (cases 2, 3 and 5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets_tests.faults import test_death as deaths
from etl_assets_tests.faults import test_exceptions as exceptions
from etl_assets_tests.faults.scenarios import Stage
from etl_assets_tests.patterns.scenarios import ALL


@pytest.fixture(scope="module")
def victims() -> Iterator[deaths.Victims]:
    victims = deaths.Victims()
    yield victims
    victims.close()


@pytest.mark.parametrize(
    "scenario", ["first events", "stale events", "empty interval", "new column", "reference table"]
)
def test_an_exception_before_any_statement_of_publish_changes_nothing(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions.sweep(ALL[scenario], "interrupt", False, tmp_path, monkeypatch)


@pytest.mark.parametrize("scenario", ["next events", "one of two shards", "complete snapshot"])
def test_an_exception_after_any_statement_but_commit_changes_nothing_and_after_commit_loses_only_the_answer(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions.sweep(ALL[scenario], "terminate", True, tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "scenario, how, after",
    [
        ("next events", "SIGKILL", True),
        ("derived table", "SIGKILL", False),
        ("two batches", "SIGKILL", False),
        ("complete snapshot", "exit", False),
        ("restated snapshot", "SIGTERM", True),
        ("newer logic", "SIGKILL", False),
    ],
)
def test_a_process_that_dies_at_any_statement_leaves_all_old_or_all_new_and_a_retry_completes(
    victims: deaths.Victims, scenario: str, how: str, after: bool, tmp_path: Path
) -> None:
    deaths.sweep(victims, ALL[scenario], how, after, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", exceptions.KINDS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_kind_of_exception_at_every_statement_of_every_publish_leaves_all_old_or_all_new(
    scenario: str, kind: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions.sweep(ALL[scenario], kind, after, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("how", deaths.HOWS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_way_to_die_at_every_statement_of_every_publish_leaves_all_old_or_all_new(
    victims: deaths.Victims, scenario: str, how: str, after: bool, tmp_path: Path
) -> None:
    deaths.sweep(victims, ALL[scenario], how, after, tmp_path)


def test_the_scenarios_do_what_they_are_named_for(tmp_path: Path) -> None:
    counts = {name: Stage(s, tmp_path / name).counts.as_dict() for name, s in ALL.items()}
    assert {name: {k: v for k, v in c.items() if v and k != "source"} for name, c in counts.items()} == {
        "first events": {"inserted": 3},
        "next events": {"inserted": 1, "updated": 1, "deleted": 1, "stale": 1},
        "two batches": {"updated": 1, "deleted": 1, "stale": 1},
        "empty interval": {},
        "one of two shards": {"inserted": 1, "updated": 1, "stale": 1},
        "stale events": {"stale": 2},
        "complete snapshot": {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1, "restored": 1, "ties": 1},
        "new column": {"inserted": 1, "updated": 1},
        "restated snapshot": {"inserted": 1, "updated": 1, "unchanged": 2},
        "newer logic": {"updated": 2, "deleted": 1, "ties": 1},
        "reference table": {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1},
        "derived table": {"inserted": 1, "updated": 1, "unchanged": 1},
    }
