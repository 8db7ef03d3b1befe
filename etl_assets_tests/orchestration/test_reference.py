"""Reference tables through Dagster: one partition, the newest list, and an empty one that does not empty the table."""

import shutil

import dagster as dg
import pytest

from etl_assets.orchestration import requests
from etl_assets.pipelines.countries import countries
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import SHOWCASE, World


@pytest.fixture
def desk(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    world.pipeline = countries
    return Desk(world, instance)


def deliver(desk: Desk, *dates: str) -> None:
    for date in dates:
        shutil.copytree(SHOWCASE / "countries" / date, desk.world.landing / "countries" / date)


def test_a_list_of_countries_without_a_row_fails_its_run_the_table_keeps_its_rows_and_the_next_list_loads(
    desk: Desk,
) -> None:
    deliver(desk, "2021-11-02", "2022-06-24")
    (request,) = desk.tick().run_requests
    assert request.partition_key == "all"
    desk.carry_out(desk.tick())
    rows = desk.world.rows()
    assert len(rows) == 248
    deliver(desk, "2025-01-31")
    (result,) = desk.carry_out(desk.tick())
    assert "all: EmptyDelivery" in desk.failure(result)
    assert "countries/all/2025-01-31/1.csv#1@1 has a header and no rows, and 'countries' has 248" in desk.failure(
        result
    )
    assert desk.world.rows() == rows
    assert desk.status("countries") == {"all": "FAILED"}
    deliver(desk, "2025-02-01")
    (result,) = desk.carry_out(desk.tick())
    assert result.success
    assert desk.status("countries") == {"all": "MATERIALIZED"}
    _, shown = desk.materializations("countries")[-1]
    assert (shown["supersedes"], shown["updated"], shown["unchanged"], shown["dagster/row_count"]) == (
        *("countries/all/2022-06-24/1.csv#1@1", 7, 241, 248),
    )


def test_the_only_partition_is_said_to_be_the_whole_table(desk: Desk) -> None:
    spec = desk.defs.resolve_asset_graph().get(dg.AssetKey("countries"))
    assert spec.partitions_def is not None
    assert list(spec.partitions_def.get_partition_keys()) == ["all"]
    assert spec.metadata["partitions"] == "one, all: the table is delivered whole"
