"""A log's delivery of several batches through Dagster: its partition is green with the last of them."""

import dagster as dg
import pytest

from etl_assets.errors import WarehouseError
from etl_assets.sink import SQLiteWarehouse
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.patterns.logs import A, B, lines, position, prices, upsert
from etl_assets_tests.world import World

FIRST, LAST = f"prices/{A}/1.jsonl#1@1:1..2", f"prices/{A}/1.jsonl#1@1:3..3"


@pytest.fixture
def log(world: World, instance: dg.DagsterInstance) -> Desk:
    world.pipeline = prices(batch_events=2)  # type: ignore[assignment]
    world.deliver(A, lines(upsert(1, 1, 7), upsert(2, 1, 8), upsert(3, 2, 7, "fig")), "1.jsonl")
    return Desk(world, instance)


def cut_off_after(batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    publish, left = SQLiteWarehouse.publish, iter(range(batches))

    def full(self, *rest):
        if next(left, None) is None:
            raise WarehouseError("the disk is full")
        return publish(self, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", full)


def test_a_partition_of_several_batches_shows_each_and_their_sums(log: Desk) -> None:
    result = log.launch(A)
    assert result.success
    assert log.evaluations(result.run_id) == [("delivery_accepted", A, True)]
    ((_, table),) = log.materializations("prices")
    assert table["deliveries"] == (
        "| delivery | status | positions | inserted | updated | source\\_rows |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 1.jsonl#1 | committed | 1..2 | 2 | 0 | 2 |\n| 1.jsonl#1 | committed | 3..3 | 0 | 1 | 1 |"
    )
    assert (table["batch"], table["source_rows"], table["inserted"], table["updated"]) == (LAST, 3, 2, 1)
    ((_, extract),) = log.materializations("prices_extract")
    size = (log.world.landing / "prices" / A / "1.jsonl").stat().st_size
    assert (extract["source_rows"], extract["input_bytes"]) == (3, size)
    assert log.launch(A).success
    assert log.materializations("prices")[-1][1]["source_rows"] == 3


def test_a_run_that_is_cut_off_between_two_batches_leaves_the_partition_open_and_the_next_one_completes_it(
    log: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cut_off_after(1, patch)
        assert log.failure(log.launch(A)) == f"WarehouseError: the disk is full\nNot tried any more: {A}"
    assert ([b.batch for b in log.world.ledger()], position(log.world)) == ([FIRST], 2)
    assert log.status("prices") == {A: "FAILED"}
    # Reconciling with the ledger does not paint over it.
    assert log.job("reconcile_with_ledger").success
    assert log.status("prices") == {A: "FAILED"}
    checks = {e.check_name: e.description for e in log.job("check_ledger").get_asset_check_evaluations()}
    assert "committed up to position 2, and the rest of it is not published yet" in str(checks["nothing_waits"])
    assert log.launch(A).success
    assert log.status("prices") == {A: "MATERIALIZED"}
    ((_, table),) = log.materializations("prices")
    assert table["status"] == "committed"
    assert ([b.batch for b in log.world.ledger()], position(log.world)) == ([FIRST, LAST], 3)


def test_what_is_completed_without_dagster_is_reported_with_the_last_batch(
    log: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cut_off_after(1, patch)
        log.launch(A)
    log.world.load(A)
    assert log.job("reconcile_with_ledger").success
    assert log.status("prices") == {A: "MATERIALIZED"}
    assert [m["batch"] for _, m in log.materializations("prices")] == [LAST]
    log.world.deliver(B, lines(upsert(4, 1, 9)), "1.jsonl")
    assert log.launch(A, B).success
    assert log.status("prices") == {A: "MATERIALIZED", B: "MATERIALIZED"}
