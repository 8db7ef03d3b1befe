"""An exception at every statement of publish: all old or all new, and the retry completes (cases 2, 3 and 5)."""

from __future__ import annotations

import itertools
import sqlite3
from pathlib import Path

import pytest

from etl_assets.errors import WarehouseError
from etl_assets.sink.sqlite import connection as connections
from etl_assets_tests.faults.scenarios import ALL, Scenario, Stage, connecting, faulty

#: What may come up inside a statement: the database's own error, a defect, Dagster's terminate, Ctrl-C, an exit.
KINDS = {
    "database": sqlite3.OperationalError,
    "defect": RuntimeError,
    "interrupt": KeyboardInterrupt,
    "exit": SystemExit,
    "terminate": type("DagsterExecutionInterruptedError", (BaseException,), {}),
}


def sweep(
    scenario: Scenario, kind: str, after: bool, root: Path, monkeypatch: pytest.MonkeyPatch, ever_after: bool = False
) -> None:
    """Strike statement 0, 1, 2 … until publish completes, and look at the warehouse each time."""
    stage = Stage(scenario, root)
    raised = KINDS[kind]

    def strike(sql: str) -> None:
        raise raised(f"struck at {sql[:60]}")

    verdicts = []
    for number in itertools.count():
        stage.reset()
        striking = faulty(number, strike, after, ever_after)
        with monkeypatch.context() as patch:
            patch.setattr(connections.sqlite3, "connect", connecting(striking))
            came_up, outcomes = None, []
            try:
                outcomes = stage.scenario.publish(stage.world)
            except BaseException as error:
                came_up = type(error), str(error)  # the error itself would keep the connection's cursors alive
        if came_up is None:
            assert {o.status for o in outcomes} == {"committed"}
            assert len(striking.seen) == number, "a strike was swallowed"
            break
        assert "struck at" in came_up[1]
        assert issubclass(came_up[0], WarehouseError if kind == "database" else raised)
        verdicts.append(stage.check_old_or_new())
        stage.check_retry(verdicts[-1], run="successor" if number % 3 == 2 and not verdicts[-1] else "victim")
    statements = striking.seen
    assert statements[0].startswith("ATTACH")
    assert statements[-1] == "COMMIT"
    assert len(statements) > 12
    # Only a strike after COMMIT itself leaves the new state: the answer is lost, the commit is not.
    assert verdicts == [statements[: number + after].count("COMMIT") for number in range(len(statements))]
    assert statements.count("COMMIT") == len(stage.states) - 1


@pytest.mark.parametrize(
    "scenario, kind", [*((name, "interrupt") for name in ALL), ("moved keys", "database"), ("new column", "database")]
)
def test_an_exception_before_any_statement_of_publish_changes_nothing(
    scenario: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(ALL[scenario], kind, False, tmp_path, monkeypatch)


@pytest.mark.parametrize("scenario", ["correction", "moved keys"])
def test_an_exception_after_any_statement_but_commit_changes_nothing_and_after_commit_loses_only_the_answer(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(ALL[scenario], "terminate", True, tmp_path, monkeypatch)


@pytest.mark.parametrize("scenario", ["moved keys"])
def test_when_the_rollback_fails_too_the_old_state_stands(
    scenario: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(ALL[scenario], "database", False, tmp_path, monkeypatch, ever_after=True)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_kind_of_exception_at_every_statement_of_every_publish_leaves_all_old_or_all_new(
    scenario: str, kind: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep(ALL[scenario], kind, after, tmp_path, monkeypatch)


def test_the_scenarios_do_what_they_are_named_for(tmp_path: Path) -> None:
    counts = {name: Stage(s, tmp_path / name).counts.as_dict() for name, s in ALL.items()}
    done = {name: {k: v for k, v in c.items() if v and k != "source"} for name, c in counts.items()}
    assert done == {
        "first load": {"inserted": 3},
        "correction": {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1},
        "explicitly empty": {"deleted": 3},
        "moved keys": {"updated": 1, "deleted": 1, "moved": 1, "aside": 1, "restored": 1},
        "bag of rows": {"inserted": 2, "deleted": 2, "unchanged": 2},
        "new column": {"updated": 1, "deleted": 1, "unchanged": 1},
        "restated": {"inserted": 1, "updated": 1, "deleted": 1, "unchanged": 1},
    }
