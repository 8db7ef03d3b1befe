"""With a real daemon, webserver and run processes: corrections in, requests and messages out, a failure asked for again."""

import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from etl_assets.orchestration.demo.dev import DagsterDev
from etl_assets.settings import LANDING, RELAY, STAGED, WAREHOUSE
from etl_assets_tests.outbox.receiver import receiving
from etl_assets_tests.world import DAYS, World

PROJECT = Path(__file__).parents[2]
HEADER = "id,day,item,amount\n"
PIPELINE = """
from etl_assets_tests.outbox.shop import LARGE, shop

orders = shop(LARGE)
"""


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.5)


@pytest.mark.daemon
@pytest.mark.xdist_group("daemon")
def test_the_daemon_loads_what_arrives_and_tells_of_it_and_of_what_failed(world: World) -> None:
    pipelines = world.root / "pipelines"
    pipelines.mkdir()
    (pipelines / "orders.py").write_text(PIPELINE)
    home = world.root / "home"
    home.mkdir()
    places = world.settings
    environment = {
        "ETL_PIPELINES": str(pipelines),
        LANDING: places.landing,
        STAGED: places.staged,
        WAREHOUSE: places.warehouse,
        "NO_PROXY": "127.0.0.1",
    }
    for number, day in enumerate(DAYS, 1):
        world.deliver(day, f"{HEADER}{number},{day},pear,{number}\n")
    world.load(*DAYS)
    world.deliver(DAYS[0], f"{HEADER}1,{DAYS[0]},pear,9\n", "2.csv")
    world.deliver(DAYS[2], b"", "2.csv")
    with receiving() as receiver, DagsterDev(PROJECT, home, environment | {RELAY: receiver.url}) as dagster:
        for sensor in ("failed_runs", "outbox_waiting", "deliveries"):
            dagster.start_sensor(sensor)
        wait_for(lambda: bool(dagster.runs("FAILURE")) and bool(dagster.runs("SUCCESS")), 120)
        (failed,) = dagster.runs("FAILURE")
        assert failed["jobName"] == "orders_job"
        # The correction is in, the broken delivery changed nothing, and the third partition was left alone.
        assert world.rows() == [(2, DAYS[1], 2, "pear"), (3, DAYS[2], 3, "pear"), (9, DAYS[0], 1, "pear")]
        assert [b.batch for b in world.ledger()[3:]] == [f"orders/{DAYS[0]}/2.csv#1@1"]
        assert _run_keys(home) == [
            f"orders/{DAYS[0]}/2.csv#1@1 attempt 1",
            f"orders/{DAYS[2]}/2.csv#1@1 attempt 1",
        ]
        wait_for(lambda: bool(receiver.told("failed-runs")) and bool(receiver.told("large-orders")), 120)
        assert receiver.told("large-orders") == [{"id": 1, "item": "pear", "amount": 9}]
        assert {(told["job"], told["partitions"]) for told in receiver.told("failed-runs")} == {("orders_job", DAYS[2])}
        wait_for(lambda: "relay_outbox" in {run["jobName"] for run in dagster.runs("SUCCESS")}, 60)


def _run_keys(home: Path) -> list[str]:
    connection = sqlite3.connect(home / "history" / "runs.db")
    try:
        query = "SELECT value FROM run_tags WHERE key = 'dagster/run_key' ORDER BY value"
        return [value for (value,) in connection.execute(query)]
    finally:
        connection.close()
