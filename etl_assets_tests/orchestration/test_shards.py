"""A log in shards through Dagster: partitions of two dimensions, an order for each shard, and one name everywhere."""

import os
import time

import dagster as dg
import pytest
from dagster._core.definitions.automation_tick_evaluation_context import build_run_requests_with_backfill_policies
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.definitions.selector import PartitionRangeSelector, PartitionsByAssetSelector, PartitionsSelector
from dagster._core.execution.backfill import PartitionBackfill

from etl_assets.contract import Daily, Sharded
from etl_assets.orchestration import requests
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.orchestration.test_order import asked, said
from etl_assets_tests.patterns.logs import YEAR, A, B, C, delete, lines, prices, upsert, versions
from etl_assets_tests.world import World

EU, US = "eu", "us"
A_EU, A_US, B_EU, B_US, C_EU, C_US = (f"{day}|{shard}" for day in (A, B, C) for shard in (EU, US))
EVENTS = {
    A_EU: lines(upsert(1, 1, 1), upsert(2, 1, 2)),
    A_US: lines(upsert(1, 1, 7)),
    B_EU: lines(upsert(3, 2, 2, "fig")),
    B_US: lines(delete(2, 2, 7)),
    C_EU: lines(delete(4, 2, 1)),
    C_US: lines(upsert(3, 1, 8)),
}
STATE = [(1, 2, 1), (2, 2, 0), (7, 2, 1), (8, 1, 0)]


@pytest.fixture
def log(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    partitions = Sharded(YEAR, EU, US)
    world.pipeline = prices(partitions=partitions, landing="prices/{partition}/{shard}/*.jsonl")  # type: ignore[assignment]
    return Desk(world, instance)


def deliver(log: Desk, *scopes: str) -> None:
    for scope in scopes or EVENTS:
        log.world.deliver(scope.replace("|", "/"), EVENTS[scope], "1.jsonl")


def progress(log: Desk) -> list[tuple[str, int]]:
    return log.world.sql("SELECT shard, position FROM etl_progress ORDER BY shard")


def green(*scopes: str) -> dict[str, str]:
    return dict.fromkeys(scopes, "MATERIALIZED")


@pytest.mark.parametrize("first, last", [(A_EU, C_US), (B_US, C_US), (A_US, C_US), (A_EU, A_US), (B_US, B_US)])
def test_dagster_and_the_contract_have_the_same_keys_and_the_same_ranges(log: Desk, first: str, last: str) -> None:
    partitions = Sharded(Daily(start=A, end="2024-01-04"), EU, US, "asia")
    desk = Desk(log.world, log.instance, prices(partitions=partitions, landing="{partition}/{shard}/*"))
    definition = desk.defs.resolve_asset_graph().get(dg.AssetKey("prices")).partitions_def
    assert definition is not None
    assert list(definition.get_partition_keys()) == list(partitions.keys())
    chosen = definition.get_partition_keys_in_range(dg.PartitionKeyRange(first, last))
    assert list(chosen) == list(partitions.between(first, last))


def test_a_partition_is_a_day_and_a_shard_and_has_that_name_in_ledger_and_ui(log: Desk) -> None:
    deliver(log, A_EU, A_US)
    assert log.launch(A_US).success
    assert [b.scope for b in log.world.ledger()] == [A_US]
    assert log.status("prices") == log.status("prices_extract") == green(A_US)
    (entry,) = log.instance.fetch_materializations(dg.AssetKey("prices"), limit=9).records
    key = entry.partition_key
    assert isinstance(key, dg.MultiPartitionKey)
    assert key.keys_by_dimension == {"arrival": A, "shard": US}
    assert log.launch(A_EU).success
    assert log.status("prices") == green(A_EU, A_US)


def test_a_range_over_days_and_shards_is_one_run(log: Desk) -> None:
    deliver(log)
    result = log.launch(A_EU, C_US)
    assert result.success
    assert (versions(log.world), progress(log)) == (STATE, [(EU, 4), (US, 3)])
    assert log.status("prices") == green(*EVENTS)


def test_a_gap_in_one_shard_fails_its_partition_and_no_other_shards(log: Desk) -> None:
    deliver(log, A_EU, C_EU, A_US, B_US, C_US)
    result = log.launch(A_EU, C_US)
    assert log.failure(result).startswith("1 of 5 partitions of prices were not loaded; the other 4 are committed\n")
    assert log.status("prices") == {**green(A_EU, A_US, B_US, C_US), B_EU: "FAILED", C_EU: "FAILED"}
    assert progress(log) == [(EU, 2), (US, 3)]
    assert f"waits: {C_EU}/1.jsonl#1 (its turn: positions 3 to 3 are missing)" in said(log.tick())
    deliver(log, B_EU)
    for scope in (B_EU, C_EU):
        tick = log.tick()
        assert asked(tick) == [f"{scope}..{scope}"]
        assert all(r.success for r in log.carry_out(tick))
    assert (versions(log.world), progress(log)) == (STATE, [(EU, 4), (US, 3)])


def test_each_shard_is_asked_for_from_its_oldest_partition_on_in_a_run_of_its_own(log: Desk) -> None:
    deliver(log, A_EU, B_EU, C_EU, A_US, C_US)
    tick = log.tick()
    assert asked(tick) == [f"{A_EU}..{C_EU}", f"{A_US}..{A_US}"]
    assert all(r.success for r in log.carry_out(tick))
    assert log.status("prices") == green(A_EU, B_EU, C_EU, A_US)
    deliver(log, B_US)
    tick = log.tick()
    assert asked(tick) == [f"{B_US}..{C_US}"]
    assert all(r.success for r in log.carry_out(tick))
    assert (versions(log.world), progress(log)) == (STATE, [(EU, 4), (US, 3)])
    assert said(log.tick()) == "nothing to ask for: 6 deliveries are committed"


@pytest.mark.parametrize("tags", [{"dagster/partition": A_EU}, {RANGE_START_TAG: A_EU, RANGE_END_TAG: C_EU}])
def test_a_run_of_one_shard_in_flight_holds_up_that_shard_only(log: Desk, tags: dict[str, str]) -> None:
    deliver(log)
    job = log.defs.resolve_job_def("prices_job")
    run = log.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    tick = log.tick()
    assert asked(tick) == [f"{A_US}..{C_US}"]
    log.instance.report_run_failed(run, "killed")
    assert asked(log.tick()) == [f"{A_EU}..{C_EU}", f"{A_US}..{C_US}"]


def test_a_run_of_all_shards_in_flight_holds_up_all_of_them_and_is_named_by_shard(log: Desk) -> None:
    deliver(log)
    job = log.defs.resolve_job_def("prices_job")
    tags = {RANGE_START_TAG: A_EU, RANGE_END_TAG: A_US}
    log.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert said(log.tick()).endswith(f"for the run in flight to end: {A_EU}..{C_EU}, {A_US}..{C_US}")


def test_a_backfill_is_a_run_for_each_shard_and_holds_up_what_it_has_not_begun(log: Desk) -> None:
    deliver(log)
    graph = log.defs.resolve_asset_graph()
    keys = [dg.AssetKey("prices_extract"), dg.AssetKey("prices")]
    assert graph.get(keys[0]).backfill_policy == dg.BackfillPolicy.single_run()
    wanted = [AssetKeyPartitionKey(key, scope) for key in keys for scope in EVENTS]
    planned = build_run_requests_with_backfill_policies(wanted, graph, log.instance)
    spans = sorted((r.tags[RANGE_START_TAG], r.tags[RANGE_END_TAG]) for r in planned)
    assert spans == [(A_EU, C_EU), (A_US, C_US)]
    chosen = PartitionsSelector(ranges=[PartitionRangeSelector(start=B_US, end=C_US)])
    backfill = PartitionBackfill.from_partitions_by_assets(
        backfill_id="b1",
        asset_graph=graph,
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=log.instance,
        partitions_by_assets=[PartitionsByAssetSelector(asset_key=key, partitions=chosen) for key in keys],
        title=None,
        description=None,
        run_config=None,
    )
    log.instance.add_backfill(backfill)
    assert asked(log.tick()) == [f"{A_EU}..{C_EU}"]


def test_a_file_of_one_shard_that_may_still_grow_holds_up_that_shard_only(
    log: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 60.0)
    deliver(log)
    past = time.time() - 120
    for file in log.world.landing.rglob("*.jsonl"):
        if file.parent != log.world.landing / "prices" / A / EU:
            os.utime(file, (past, past))
    assert asked(log.tick()) == [f"{A_US}..{C_US}"]


def test_reconciling_reports_shards_that_were_loaded_without_dagster_and_no_half_loaded_delivery(log: Desk) -> None:
    deliver(log, A_EU, A_US)
    log.world.load(A_EU, A_US)
    assert log.job("reconcile_with_ledger").success
    assert log.status("prices") == log.status("prices_extract") == green(A_EU, A_US)
    assert all(isinstance(p, dg.MultiPartitionKey) for p, _ in log.materializations("prices"))
    events = len(log.materializations("prices"))
    assert log.job("reconcile_with_ledger").success
    assert len(log.materializations("prices")) == events == 2
    checked = log.job("check_ledger")
    assert {e.check_name: (e.passed, e.description) for e in checked.get_asset_check_evaluations()} == {
        "delivery_accepted": (True, "No delivery that counts is refused"),
        "ledger_matches_rows": (True, "3 rows from 2 partitions"),
        "nothing_waits": (True, "All that has arrived is committed"),
    }
