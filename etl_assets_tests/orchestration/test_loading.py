"""Runs of the loading op: what is committed, what Dagster shows of it, and what a failed run says."""

import json
import os
import signal
import time
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator

from etl_assets.contract import quarantine, repair
from etl_assets.errors import SinkBusy, WarehouseError
from etl_assets.orchestration import loading
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite import publish as publishing
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import DAYS, World, orders

HEADER = "id,day,item,amount\n"


def deliver_three(world: World) -> None:
    for number, day in enumerate(DAYS, 1):
        world.deliver(day, f"{HEADER}{number},{day},pear,{number}\n")


def test_a_range_run_with_a_corrupt_day_in_the_middle_is_green_for_the_others_and_names_the_one(desk: Desk) -> None:
    deliver_three(desk.world)
    desk.world.deliver(DAYS[1], f"{HEADER}2,{DAYS[1]},pear\n")
    result = desk.launch(*DAYS)
    said = desk.failure(result)
    assert said.startswith(
        "1 of 3 partitions of orders were not loaded; the other 2 are committed\n2024-01-02: RaggedRow:"
    )
    assert "2024-01-03" not in said
    assert desk.world.rows() == [(1, DAYS[0], 1, "pear"), (3, DAYS[2], 3, "pear")]
    wanted = {DAYS[0]: "MATERIALIZED", DAYS[1]: "FAILED", DAYS[2]: "MATERIALIZED"}
    assert desk.status("orders") == desk.status("orders_extract") == wanted
    assert desk.evaluations(result.run_id) == [
        ("delivery_accepted", DAYS[0], True),
        ("delivery_accepted", DAYS[1], False),
        ("delivery_accepted", DAYS[2], True),
    ]
    assert [p for p, _ in desk.materializations("orders")] == [DAYS[0], DAYS[2]]
    assert [b.batch for b in desk.world.ledger()] == [f"orders/{day}/1.csv#1@1" for day in (DAYS[0], DAYS[2])]


def test_each_partition_of_a_run_has_its_own_metadata_and_one_materialisation(desk: Desk) -> None:
    deliver_three(desk.world)
    assert desk.launch(*DAYS).success
    shown = desk.materializations("orders")
    assert [p for p, _ in shown] == list(DAYS)
    for (day, metadata), batch in zip(shown, desk.world.ledger(), strict=True):
        assert metadata["batch"] == batch.batch
        assert metadata["digest"] == batch.digest
        assert (metadata["delivery"], metadata["status"]) == ("1.csv#1", "committed")
        counts = {k: metadata[k] for k in ("inserted", "updated", "deleted", "unchanged", "moved", "rejected")}
        assert counts == {"inserted": 1, "updated": 0, "deleted": 0, "unchanged": 0, "moved": 0, "rejected": 0}
        assert (metadata["dagster/partition_row_count"], metadata["dagster/row_count"]) == (1, 3), day
    assert [p for p, _ in desk.materializations("orders_extract")] == list(DAYS)


def test_a_correction_shows_which_columns_and_rows_it_changed(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n2,{DAYS[0]},a|b,5\n")
    desk.launch(DAYS[0])
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n2,{DAYS[0]},fig,6\n", "2.csv")
    desk.launch(DAYS[0])
    _, metadata = desk.materializations("orders")[-1]
    assert metadata["changes"] == (
        "**1 rows updated**, by column:\n\n"
        "| column | rows changed |\n| --- | --- |\n| item | 1 |\n| amount | 1 |\n\n"
        "The first 1 updated rows:\n\n"
        "| key | column | old | new |\n| --- | --- | --- | --- |\n| id=2 | item | a\\|b | fig |\n|  | amount | 5 | 6 |"
    )
    assert metadata["supersedes"] == f"orders/{DAYS[0]}/1.csv#1@1"


def test_a_correction_that_takes_a_key_from_another_partition_names_that_partition(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, orders(moved_keys=repair()))
    for day, content in ((DAYS[0], "1,2024-01-01,pear,3\n"), (DAYS[1], "2,2024-01-02,fig,4\n")):
        world.deliver(day, HEADER + content)
    desk.launch(*DAYS[:2])
    world.deliver(DAYS[1], f"{HEADER}1,{DAYS[1]},pear,3\n2,{DAYS[1]},fig,4\n", "2.csv")
    desk.launch(DAYS[1])
    _, metadata = desk.materializations("orders")[-1]
    assert metadata["changes"] == (
        "**Other partitions**, because keys moved:\n\n"
        "| partition | rows taken from it | rows given back to it |\n| --- | --- | --- |\n| 2024-01-01 | 1 | 0 |"
    )
    assert (metadata["moved"], metadata["unchanged"], metadata["dagster/partition_row_count"]) == (1, 1, 2)


def test_rejected_rows_are_shown_with_line_and_reason(world: World, instance: dg.DagsterInstance) -> None:
    desk = Desk(world, instance, orders(invalid_rows=quarantine(up_to=0.5)))
    world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n2,{DAYS[0]},fig,many\n")
    assert desk.launch(DAYS[0]).success
    _, metadata = desk.materializations("orders_extract")[-1]
    assert (metadata["rejected_rows"], metadata["source_rows"], metadata["dagster/partition_row_count"]) == (1, 2, 1)
    assert metadata["rejects"].startswith("| line | why | row |\n| --- | --- | --- |\n| 3 | amount: ")
    assert "id=2, day=2024-01-01, item=fig, amount=many" in metadata["rejects"]


def test_executing_a_finished_run_again_is_a_no_op_that_says_so(desk: Desk) -> None:
    deliver_three(desk.world)
    desk.launch(*DAYS)
    before = desk.world.state()
    again = desk.launch(*DAYS)
    assert again.success
    assert desk.world.state() == before
    assert [m["status"] for _, m in desk.materializations("orders")] == ["committed"] * 3 + ["already committed"] * 3
    assert desk.logged(again.run_id).count("already committed") == 3


def re_execute(desk: Desk, result: dg.ExecuteInProcessResult, **config: str | bool) -> dg.DagsterRun:
    """What "Re-execute" in the UI does: a new run that knows the run it descends from."""
    parent = desk.instance.get_run_by_id(result.run_id)
    assert parent is not None
    root = parent.root_run_id or parent.run_id
    job = desk.defs.resolve_job_def("orders_job")
    run = desk.instance.create_run_for_job(
        job, run_config=desk.config(**config), tags=parent.tags, parent_run_id=parent.run_id, root_run_id=root
    )
    list(execute_run_iterator(InMemoryJob(job), run, desk.instance))
    found = desk.instance.get_run_by_id(run.run_id)
    assert found is not None
    assert found.root_run_id == root
    return found


def test_executing_a_finished_restatement_again_restates_nothing(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n")
    desk.launch(DAYS[0])
    first = desk.launch(DAYS[0], restate=True, reason="new prices")
    before = desk.world.state()
    again = re_execute(desk, first, restate=True, reason="new prices")
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert desk.world.state() == before
    assert "already committed" in desk.logged(again.run_id)
    desk.launch(DAYS[0], restate=True, reason="new prices")
    assert [b.ordinal for b in desk.world.ledger()] == [0, 1, 2]


def test_an_old_run_executed_again_after_a_newer_one_can_write(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], b"")
    old = desk.launch(DAYS[0])
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n", "2.csv")
    desk.launch(DAYS[0])
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,4\n", "3.csv")
    again = re_execute(desk, old)
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert desk.world.rows() == [(4, DAYS[0], 1, "pear")]


def test_an_older_delivery_is_refused_as_superseded_and_published_when_restated_with_a_reason(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n")
    desk.launch(DAYS[0])
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,4\n", "2.csv")
    desk.launch(DAYS[0])
    superseded = desk.launch(DAYS[0], delivery="1.csv")
    assert superseded.success
    assert desk.materializations("orders")[-1][1]["superseded_by"] == f"orders/{DAYS[0]}/2.csv#1@1"
    assert desk.world.rows() == [(4, DAYS[0], 1, "pear")]
    assert desk.launch(DAYS[0], delivery="1.csv", restate=True, reason="the vendor withdrew 2.csv").success
    assert desk.world.rows() == [(3, DAYS[0], 1, "pear")]
    last = desk.world.ledger()[-1]
    assert (last.operation, last.reason, last.delivery) == ("restate", "the vendor withdrew 2.csv", "1.csv")
    assert desk.materializations("orders")[-1][1]["restated_because"] == "the vendor withdrew 2.csv"


def test_an_old_delivery_that_was_never_published_is_refused_by_name_after_a_newer_one(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,4\n", "2.csv")
    desk.launch(DAYS[0])
    before = desk.world.rows(), desk.world.ledger()
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n", "1.csv")
    result = desk.launch(DAYS[0], delivery="1.csv")
    assert f"{DAYS[0]}: Superseded: orders/{DAYS[0]}/1.csv#1@1 is superseded" in desk.failure(result)
    assert (desk.world.rows(), desk.world.ledger()) == before
    # Nothing is wrong with the delivery: it is not its turn.
    assert desk.evaluations(result.run_id) == []


@pytest.mark.parametrize("config", [{"restate": True}, {"reason": "because"}, {"restate": True, "reason": "  "}])
def test_restate_and_reason_only_go_together(desk: Desk, config: dict[str, str | bool]) -> None:
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,3\n")
    assert "restate and reason go together" in desk.failure(desk.launch(DAYS[0], **config))
    assert desk.world.state() == {}


def test_a_delivery_is_named_for_one_partition_only(desk: Desk) -> None:
    deliver_three(desk.world)
    assert "names a file of one partition, and this run has 3" in desk.failure(desk.launch(*DAYS, delivery="1.csv"))
    assert desk.world.state() == {}


def test_the_extract_alone_is_frozen_and_not_published_and_the_table_alone_is_loaded(desk: Desk) -> None:
    deliver_three(desk.world)
    assert desk.select("orders_extract", partition=DAYS[0]).success
    assert desk.world.ledger() == []
    assert desk.status("orders_extract") == {DAYS[0]: "MATERIALIZED"}
    assert desk.status("orders") == {}
    assert desk.world.survey().waiting()[0].state == "staged"
    assert desk.select("orders", partition=DAYS[0]).success
    assert desk.world.rows() == [(1, DAYS[0], 1, "pear")]
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED"}


def test_an_unreachable_landing_fails_the_run_in_its_own_words_and_changes_nothing(desk: Desk) -> None:
    deliver_three(desk.world)
    desk.launch(DAYS[0])
    before = desk.world.state()
    desk.world.landing.rename(desk.world.root / "elsewhere")
    said = desk.failure(desk.launch(DAYS[1]))
    assert said.startswith(f"LandingUnreachable: landing {desk.world.landing} does not exist")
    assert desk.world.state() == before


def test_a_disk_that_is_full_halfway_leaves_committed_partitions_materialised(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_three(desk.world)
    publish = SQLiteWarehouse.publish

    def fails_on_the_second(self, pipeline, claim, *rest):
        if claim.scope == DAYS[1]:
            raise WarehouseError("the disk is full: free some space and run again")
        return publish(self, pipeline, claim, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", fails_on_the_second)
    said = desk.failure(desk.launch(*DAYS))
    assert said == (
        "WarehouseError: the disk is full: free some space and run again\n"
        f"Not tried any more: {DAYS[1]}, {DAYS[2]}; the other 1 are committed"
    )
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED", DAYS[1]: "FAILED", DAYS[2]: "FAILED"}


def test_a_warehouse_that_breaks_in_mid_run_leaves_committed_days_green_in_our_words(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_three(desk.world)
    publish = SQLiteWarehouse.publish

    def breaks(self, pipeline, claim, delivery, *rest):
        if delivery.scope == DAYS[1]:
            for file in desk.world.root.glob("warehouse.sqlite*"):
                file.unlink()
            (desk.world.root / "warehouse.sqlite").write_bytes(b"no database at all" * 100)
        return publish(self, pipeline, claim, delivery, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", breaks)
    said = desk.failure(desk.launch(*DAYS))
    assert said.startswith("WarehouseError: ")
    assert said.endswith(f"Not tried any more: {DAYS[1]}, {DAYS[2]}; the other 1 are committed")
    assert desk.status("orders") == {DAYS[0]: "MATERIALIZED", DAYS[1]: "FAILED", DAYS[2]: "FAILED"}
    ((_, shown),) = desk.materializations("orders")
    assert shown["batch"] == f"orders/{DAYS[0]}/1.csv#1@1"
    assert "dagster/row_count" not in shown


def test_a_terminated_run_keeps_what_it_committed_and_rolls_back_what_it_was_at(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_three(desk.world)
    desk.world.load(DAYS[0])
    insert = publishing.publish

    def terminated_on_the_second(connection, pipeline, claim, *rest):
        receipt = insert(connection, pipeline, claim, *rest)
        if claim.scope == DAYS[1]:
            # What "Terminate" in the UI does: it records the wish, and interrupts the process.
            asked = desk.instance.get_run_by_id(claim.run)
            assert asked is not None
            desk.instance.report_run_canceling(asked)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        return receipt

    monkeypatch.setattr(publishing, "publish", terminated_on_the_second)
    result = desk.launch(*DAYS)
    run = desk.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.status is dg.DagsterRunStatus.CANCELED
    assert desk.world.rows() == [(1, DAYS[0], 1, "pear")]
    assert [b.scope for b in desk.world.ledger()] == [DAYS[0]]
    assert desk.status("orders")[DAYS[0]] == "MATERIALIZED"
    monkeypatch.undo()
    assert desk.launch(*DAYS).success
    assert [r[2] for r in desk.world.rows()] == [1, 2, 3]


def test_a_busy_warehouse_is_tried_again_and_then_the_run_is_one_materialisation_each(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "BUSY_PAUSE_SECONDS", 0)
    deliver_three(desk.world)
    publish, busy = SQLiteWarehouse.publish, [DAYS[1]]

    def busy_once(self, pipeline, claim, *rest):
        if claim.scope in busy:
            busy.remove(claim.scope)
            raise SinkBusy("another writer held the warehouse")
        return publish(self, pipeline, claim, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", busy_once)
    assert desk.launch(*DAYS).success
    assert [p for p, _ in desk.materializations("orders")] == list(DAYS)
    assert [b.scope for b in desk.world.ledger()] == list(DAYS)


def test_a_warehouse_that_stays_busy_fails_the_run_and_shows_what_was_committed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "BUSY_PAUSE_SECONDS", 0)
    deliver_three(desk.world)
    publish = SQLiteWarehouse.publish

    def always_busy(self, pipeline, claim, *rest):
        if claim.scope == DAYS[1]:
            raise SinkBusy("another writer held the warehouse")
        return publish(self, pipeline, claim, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", always_busy)
    said = desk.failure(desk.launch(*DAYS))
    assert said.startswith("SinkBusy: another writer held the warehouse")
    assert desk.status("orders")[DAYS[0]] == "MATERIALIZED"


def test_an_orphaned_run_is_refused_at_its_commit_when_a_successor_has_claimed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver_three(desk.world)
    publish = SQLiteWarehouse.publish

    def successor_comes_first(self, pipeline, claim, *rest):
        if claim.scope == DAYS[1] and not claim.run.startswith("test-"):
            monkeypatch.setattr(SQLiteWarehouse, "publish", publish)
            desk.world.load(*DAYS)
        return publish(self, pipeline, claim, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", successor_comes_first)
    result = desk.launch(*DAYS)
    said = desk.failure(result)
    assert said.count("StaleWriter") == 2
    assert [r[2] for r in desk.world.rows()] == [1, 2, 3]
    # Who may write says nothing about the delivery.
    assert desk.evaluations(result.run_id) == [("delivery_accepted", DAYS[0], True)]


def test_dagsters_view_can_be_read_by_a_machine(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], b"")
    result = desk.launch(DAYS[0])
    failed = next(e for e in result.all_events if e.event_type_value == "STEP_FAILURE")
    metadata = failed.step_failure_data.user_failure_data.metadata
    assert json.loads(json.dumps(metadata["refused_partitions"].value)) == [DAYS[0]]
    assert metadata["refused"].value.startswith("| partition | kind | why |")


def test_by_asset_by_job_by_sensor_by_schedule_and_without_dagster_give_the_same_warehouse(
    desk: Desk, tmp_path: Path
) -> None:
    worlds = {name: World(tmp_path / name) for name in ("asset", "job", "sensor", "schedule", "engine")}
    for name, world in worlds.items():
        deliver_three(world)
        with dg.DagsterInstance.ephemeral() as instance:
            there = Desk(world, instance)
            if name == "asset":
                for day in DAYS:
                    there.select("orders_extract", "orders", partition=day)
            elif name == "job":
                there.launch(*DAYS)
            elif name == "sensor":
                there.carry_out(there.tick())
            elif name == "schedule":
                there.carry_out(there.scheduled(tmp_path))
            else:
                world.load(*DAYS)

    def seen(world: World) -> object:
        return (
            world.rows(),
            [(b.batch, b.digest, b.counts, b.generation, b.rows, b.code) for b in world.ledger()],
            world.warehouse.rows("orders"),
        )

    assert all(seen(world) == seen(worlds["engine"]) for world in worlds.values())
