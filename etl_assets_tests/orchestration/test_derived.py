"""Derived tables in Dagster: lineage to the tables, and a sensor that asks for what is stale, and for nothing else."""

import dagster as dg
import pytest

from etl_assets.contract import DerivedTable, date, integer, partitions_around, repair, same_partition, text
from etl_assets.orchestration import build_defs
from etl_assets.orchestration.jobs import CHECKS_JOB
from etl_assets.orchestration.reconcile import RECONCILE_JOB
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.orchestration.test_requests import asked, reason
from etl_assets_tests.world import DAYS, World, orders

ORDERS = orders(moved_keys=repair(order="delivery"))
HEADER = "id,day,item,amount\n"


def totals(sql: str = "SELECT :partition AS day, item, sum(amount) AS total FROM orders GROUP BY item") -> DerivedTable:
    return DerivedTable(
        name="totals",
        partitions=ORDERS.partitions,
        upstream=[same_partition(ORDERS)],
        sql=sql,
        columns=[date("day"), text("item"), integer("total")],
        key=["day", "item"],
    )


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    world = World(tmp_path_factory.mktemp("world"), ORDERS)
    for day in DAYS:
        world.deliver(day, f"{HEADER}{day[-2:]},{day},pear,3\n")
    world.load(*DAYS)
    return world


@pytest.fixture
def desk(world: World, instance: dg.DagsterInstance) -> Desk:
    return Desk(world, instance, totals(), beside=[ORDERS])


def test_lineage_goes_from_table_to_table_and_its_mapping_is_the_contracts(
    world: World, instance: dg.DagsterInstance
) -> None:
    around = totals().model_copy(update={"upstream": (partitions_around(ORDERS, before=1, after=1),)})
    graph = Desk(world, instance, around, beside=[ORDERS]).defs.resolve_asset_graph()
    table = graph.get(dg.AssetKey("totals"))
    assert table.parent_keys == {dg.AssetKey("orders")}
    mapping = graph.get_partition_mapping(table.key, dg.AssetKey("orders"))
    seen = mapping.get_upstream_mapped_partitions_result_for_partitions(
        table.partitions_def.subset_with_partition_keys([DAYS[1]]),
        table.partitions_def,
        graph.get(dg.AssetKey("orders")).partitions_def,
    )
    assert sorted(seen.partitions_subset.get_partition_keys()) == list(DAYS)


def test_a_derived_table_alone_loads_with_its_upstream_elsewhere() -> None:
    dg.Definitions.validate_loadable(build_defs([totals()]))


def test_the_sensor_asks_for_what_is_stale_and_only_for_that_old_days_too(desk: Desk) -> None:
    tick = desk.tick()
    assert asked(tick) == [f"{DAYS[0]}..{DAYS[2]}"]
    assert all(r.success for r in desk.carry_out(tick))
    assert desk.status("totals") == dict.fromkeys(DAYS, "MATERIALIZED")
    assert "3 partitions are committed" in reason(desk.tick())
    desk.world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,9\n", "2.csv")
    desk.world.load(DAYS[0])
    tick = desk.tick()
    assert asked(tick) == [DAYS[0]]
    assert all(r.success for r in desk.carry_out(tick))
    assert desk.world.rows("totals") == [(DAYS[0], "pear", 9), (DAYS[1], "pear", 3), (DAYS[2], "pear", 3)]
    scope, shown = desk.materializations("totals")[-1]
    assert (scope, shown["batch"], shown["updated"]) == (DAYS[0], f"totals/{DAYS[0]}/upstream#2@1", 1)
    assert f"| orders | {DAYS[0]} | orders/{DAYS[0]}/2.csv#1@1 |" in shown["computed_of"]


def test_the_sensor_asks_for_both_days_of_a_row_that_moved(desk: Desk) -> None:
    desk.carry_out(desk.tick())
    desk.world.deliver(DAYS[2], f"{HEADER}03,{DAYS[2]},pear,3\n01,{DAYS[2]},fig,1\n", "2.csv")
    desk.world.load(DAYS[2])
    tick = desk.tick()
    assert asked(tick) == [DAYS[0], DAYS[2]]
    desk.carry_out(tick)
    assert desk.world.rows("totals") == [(DAYS[1], "pear", 3), (DAYS[2], "fig", 1), (DAYS[2], "pear", 3)]


def test_sql_that_fails_fails_its_partition_with_the_reason_and_is_asked_for_a_bounded_number_of_times(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, totals("SELECT :partition AS day, item, price AS total FROM orders"), beside=[ORDERS])
    for _ in range(3):
        for result in desk.carry_out(desk.tick()):
            assert "no such column: price" in desk.failure(result)
    assert desk.status("totals") == dict.fromkeys(DAYS, "FAILED")
    assert "needs attention" in reason(desk.tick())


def test_a_partition_that_was_computed_from_the_command_line_is_reported_and_a_stale_one_is_told(desk: Desk) -> None:
    desk.world.load(*DAYS, pipeline=desk.pipeline)  # type: ignore[arg-type]
    assert desk.job(RECONCILE_JOB).success
    assert desk.status("totals") == dict.fromkeys(DAYS, "MATERIALIZED")
    checked = desk.job(CHECKS_JOB)
    evaluations = {name: passed for name, _, passed in desk.evaluations(checked.run_id)}
    assert evaluations["ledger_matches_rows"]
    assert evaluations["nothing_waits"]
    desk.world.deliver(DAYS[1], f"{HEADER}2,{DAYS[1]},pear,9\n", "2.csv")
    desk.world.load(DAYS[1])
    told = [
        e.description
        for e in desk.job(CHECKS_JOB).get_asset_check_evaluations()
        if e.asset_key == dg.AssetKey("totals") and e.check_name == "nothing_waits"
    ]
    assert told == [f"{DAYS[1]}/upstream#2: arrived: stale: a batch that it was computed of has a successor"]


def test_a_person_computes_a_range_again_and_it_says_that_it_is_there(desk: Desk) -> None:
    assert desk.launch(DAYS[0], DAYS[2]).success
    before = desk.world.state()
    again = desk.launch(DAYS[0], DAYS[2])
    assert again.success
    assert desk.world.state() == before
    statuses = [shown["status"] for _, shown in desk.materializations("totals")]
    assert statuses == ["committed"] * 3 + ["already committed"] * 3
    assert asked(desk.tick()) == []
