"""The ledger is right: what it has and Dagster was not told of is reported, and its checks ask it."""

import sqlite3

import dagster as dg

from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import DAYS

HEADER = "id,day,item,amount\n"


def deliver(desk: Desk, day: str, amount: int = 1, name: str = "1.csv") -> None:
    desk.world.deliver(day, f"{HEADER}{int(day[-2:])},{day},pear,{amount}\n", name)


def test_a_commit_whose_event_was_lost_is_reported_from_the_ledger(desk: Desk) -> None:
    for day in DAYS:
        deliver(desk, day)
    desk.launch(DAYS[0])
    desk.world.load(*DAYS[1:])
    before = desk.world.state()
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED"}
    result = desk.job("reconcile_with_ledger")
    assert result.success
    assert desk.world.state() == before
    assert desk.status("orders") == desk.status("orders_extract") == dict.fromkeys(DAYS, "MATERIALIZED")
    shown = dict(desk.materializations("orders")[1:])
    assert {day: shown[day]["batch"] for day in DAYS[1:]} == {b.scope: b.batch for b in desk.world.ledger()[1:]}
    assert shown[DAYS[1]]["digest"] == desk.world.ledger()[1].digest
    assert "3 partitions committed, 2 reported to Dagster" in desk.logged(result.run_id)


def test_reconciling_again_reports_nothing(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.world.load(DAYS[0])
    desk.job("reconcile_with_ledger")
    events = len(desk.materializations("orders"))
    assert desk.job("reconcile_with_ledger").success
    assert len(desk.materializations("orders")) == events == 1


def test_a_correction_whose_event_was_lost_is_reported_over_the_older_one(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.launch(DAYS[0])
    deliver(desk, DAYS[0], 2, "2.csv")
    desk.world.load(DAYS[0])
    desk.job("reconcile_with_ledger")
    assert [m["delivery"] for _, m in desk.materializations("orders")] == ["1.csv#1", "2.csv#1"]


def test_a_partition_that_failed_and_was_loaded_elsewhere_since_is_green_again(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], b"")
    desk.launch(DAYS[0])
    assert desk.status("orders") == {DAYS[0]: "FAILED"}
    deliver(desk, DAYS[0], 2, "2.csv")
    desk.world.load(DAYS[0])
    desk.job("reconcile_with_ledger")
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED"}


def test_partitions_of_a_running_run_are_left_to_it(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.world.load(DAYS[0])
    job = desk.defs.resolve_job_def("orders_job")
    running = dg.DagsterRunStatus.STARTED
    desk.instance.create_run_for_job(job, tags={"dagster/partition": DAYS[0]}, status=running)
    desk.job("reconcile_with_ledger")
    assert desk.materializations("orders") == []


def test_partitions_that_dagster_shows_and_the_ledger_does_not_have_are_named(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.launch(DAYS[0])
    for file in desk.world.root.glob("warehouse.sqlite*"):
        file.unlink()
    result = desk.job("reconcile_with_ledger")
    assert f"Dagster shows 1 partitions as materialised that are not in the ledger: {DAYS[0]}" in desk.logged(
        result.run_id
    )


def checks(desk: Desk) -> dict[str, tuple[bool, str | None]]:
    result = desk.job("check_ledger")
    assert result.success
    return {e.check_name: (e.passed, e.description) for e in result.get_asset_check_evaluations()}


def test_the_checks_say_that_nothing_waits_and_what_is_missing(desk: Desk) -> None:
    for day in (DAYS[0], DAYS[2]):
        deliver(desk, day)
    found = checks(desk)
    assert found["nothing_waits"][0] is False
    assert str(found["nothing_waits"][1]).splitlines()[0] == f"{DAYS[0]}/1.csv#1: arrived: not read yet"
    desk.carry_out(desk.tick())
    assert checks(desk) == {
        "ledger_matches_rows": (True, "2 rows in 2 partitions"),
        "newest_partition_loaded": (
            False,
            f"2024-01-31 is not loaded; the newest loaded partition is {DAYS[2]}",
        ),
        "nothing_waits": (True, "All that has arrived is committed"),
    }
    deliver(desk, "2024-01-31")
    desk.carry_out(desk.tick())
    assert checks(desk)["newest_partition_loaded"] == (
        True,
        "2024-01-31 is committed as orders/2024-01-31/1.csv#1@1",
    )


def test_a_row_that_was_deleted_around_the_ledger_is_found(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.launch(DAYS[0])
    connection = sqlite3.connect(desk.world.settings.warehouse)
    connection.execute("DELETE FROM orders")
    connection.commit()
    connection.close()
    assert checks(desk)["ledger_matches_rows"] == (False, f"orders/{DAYS[0]}: 0 rows, the ledger committed 1")
