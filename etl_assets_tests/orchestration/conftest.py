"""A desk for each test: a Dagster instance of its own, in memory, beside the small world."""

from collections.abc import Iterator

import dagster as dg
import pytest

from etl_assets.orchestration import requests
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import World


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture
def desk(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Files that were written just now are taken as settled, and what failed is asked for at once; two tests differ."""
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(requests, "PAUSE_SECONDS", 0.0)
    return Desk(world, instance)
