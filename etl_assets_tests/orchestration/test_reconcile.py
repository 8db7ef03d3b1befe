"""The ledger is right: what it has and Dagster was not told of is reported, and its checks ask it."""

import sqlite3

import dagster as dg
import pytest
from dagster._core.definitions.data_version import extract_data_version_from_entry

from etl_assets.errors import LandingUnreachable
from etl_assets.orchestration import inflight, reconcile
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import DAYS, World, orders

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
    said = desk.failure(desk.job("reconcile_with_ledger"))
    assert f"orders: Dagster shows 1 partitions as materialised that are not in the ledger: {DAYS[0]}" in said
    assert "Was an older warehouse restored? Load them again" in said
    assert desk.launch(DAYS[0]).success
    assert desk.job("reconcile_with_ledger").success


def test_after_an_older_warehouse_was_restored_the_ways_back_that_are_advised_work(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.launch(DAYS[0])
    older = {file.name: file.read_bytes() for file in desk.world.root.glob("warehouse.sqlite*")}
    deliver(desk, DAYS[1])
    desk.launch(DAYS[1])
    deliver(desk, DAYS[0], 2, "2.csv")
    desk.launch(DAYS[0])
    for file in desk.world.root.glob("warehouse.sqlite*"):
        file.unlink()
    for name, content in older.items():
        (desk.world.root / name).write_bytes(content)
    assert f"not in the ledger: {DAYS[1]}." in desk.failure(desk.job("reconcile_with_ledger"))
    # The other day is in the ledger by an earlier batch, and is shown as that one.
    assert desk.materializations("orders")[-1][1]["delivery"] == "1.csv#1"
    desk.instance.wipe_assets([dg.AssetKey("orders"), dg.AssetKey("orders_extract")])
    assert desk.job("reconcile_with_ledger").success
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED"}
    desk.carry_out(desk.tick())
    assert desk.status("orders") == dict.fromkeys(DAYS[:2], "MATERIALIZED")


def test_commits_of_a_run_that_was_killed_and_stays_started_are_shown_and_the_run_is_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver(desk, DAYS[0])
    deliver(desk, DAYS[1])
    desk.world.load(DAYS[0])
    job = desk.defs.resolve_job_def("orders_job")
    tags = {RANGE_START_TAG: DAYS[0], RANGE_END_TAG: DAYS[1]}
    killed = desk.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert "left to the run that is in flight" in desk.logged(desk.job("reconcile_with_ledger").run_id)
    assert desk.materializations("orders") == []
    monkeypatch.setattr(inflight, "LONG_SECONDS", 0.0)
    result = desk.job("reconcile_with_ledger")
    advice = f"run {killed.run_id[:8]} has not ended since "
    assert advice in desk.logged(result.run_id)
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED", DAYS[1]: "IN_PROGRESS"}
    said = str(desk.tick().skip_message)
    assert advice in said
    assert "if its process is gone, terminate it in Dagster" in said
    desk.instance.report_run_canceled(killed)
    assert [r.partition_key for r in desk.tick().run_requests] == [DAYS[1]]


def test_one_pipeline_that_cannot_be_reconciled_stops_no_other(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = orders(name="others", table="others", landing="others/{partition}/*.csv")
    desk = Desk(world, instance, orders(), [other])
    deliver(desk, DAYS[0])
    world.load(DAYS[0])
    world.deliver(DAYS[0], (world.landing / "orders" / DAYS[0] / "1.csv").read_bytes(), pipeline="others")
    world.load(DAYS[0], pipeline=other)
    look = reconcile.survey

    def fails(settings, pipeline):
        if pipeline.name == "orders":
            raise LandingUnreachable("no such share")
        return look(settings, pipeline)

    monkeypatch.setattr(reconcile, "survey", fails)
    assert "orders: cannot be reconciled: LandingUnreachable" in desk.failure(desk.job("reconcile_with_ledger"))
    assert desk.status("others") == {DAYS[0]: "MATERIALIZED"}


@pytest.mark.parametrize("by", ["run", "range", "reconcile"])
def test_the_data_version_of_a_partition_is_the_digest_of_its_batch(desk: Desk, by: str) -> None:
    for day in DAYS:
        deliver(desk, day)
    if by == "run":
        for day in DAYS:
            desk.launch(day)
    elif by == "range":
        desk.launch(*DAYS)
    else:
        desk.world.load(*DAYS)
        desk.job("reconcile_with_ledger")
    wanted = {b.scope: b.digest for b in desk.world.ledger()}
    for asset in ("orders", "orders_extract"):
        assert versions(desk, asset) == wanted
        assert len(desk.materializations(asset)) == len(DAYS)


def versions(desk: Desk, asset: str) -> dict[str, str]:
    """The data version that Dagster has of each partition."""
    records = {day: desk.instance.get_latest_data_version_record(dg.AssetKey(asset), partition_key=day) for day in DAYS}
    found = {day: extract_data_version_from_entry(r.event_log_entry) for day, r in records.items() if r}
    return {day: version.value for day, version in found.items() if version}


def test_in_a_range_run_that_others_wait_for_the_last_word_is_the_ledgers(desk: Desk) -> None:
    for day in DAYS:
        deliver(desk, day)
    job = desk.defs.resolve_implicit_global_asset_job_def()
    keys = [dg.AssetKey("orders_extract"), dg.AssetKey("orders")]
    result = job.execute_in_process(
        instance=desk.instance, asset_selection=keys, tags={RANGE_START_TAG: DAYS[0], RANGE_END_TAG: DAYS[-1]}
    )
    assert {"ledger_matches_rows", "delivery_accepted"} <= {e.check_name for e in result.get_asset_check_evaluations()}
    assert versions(desk, "orders") == {b.scope: b.digest for b in desk.world.ledger()}


@pytest.mark.parametrize("check", ["ledger_matches_rows", "newest_partition_loaded", "nothing_waits"])
def test_a_tables_checks_are_executed_by_themselves(desk: Desk, check: str) -> None:
    assert executed(desk, "orders", check)[0] == (check != "newest_partition_loaded")


def test_whether_deliveries_are_accepted_is_executed_by_itself(desk: Desk) -> None:
    deliver(desk, DAYS[0])
    desk.world.deliver(DAYS[1], b"")
    assert executed(desk, "orders_extract", "delivery_accepted") == (True, "No delivery that counts is refused")
    desk.carry_out(desk.tick())
    passed, said = executed(desk, "orders_extract", "delivery_accepted")
    assert not passed
    assert str(said).startswith(f"{DAYS[1]}/1.csv#1: needs attention: refused once: ")


def executed(desk: Desk, asset: str, check: str) -> tuple[bool, str | None]:
    """Execute one check, as its button in the UI does: without its asset, and without a partition."""
    job = desk.defs.resolve_implicit_global_asset_job_def()
    alone = job.get_subset(asset_selection=set(), asset_check_selection={dg.AssetCheckKey(dg.AssetKey(asset), check)})
    (evaluation,) = alone.execute_in_process(instance=desk.instance).get_asset_check_evaluations()
    return evaluation.passed, evaluation.description


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
        "delivery_accepted": (True, "No delivery that counts is refused"),
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
