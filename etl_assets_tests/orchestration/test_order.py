"""Logs and snapshots through Dagster: every delivery counts, in its turn, one run at a time."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.errors import WarehouseError
from etl_assets.orchestration import requests
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets.pipelines.quakes import quakes
from etl_assets.sink import SQLiteWarehouse
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.patterns.logs import A, B, C, D, delete, lines, prices, readings, snapshot, upsert
from etl_assets_tests.world import SHOWCASE, World

EVENTS = {A: lines(upsert(1, 1, 7), upsert(2, 1, 8)), B: lines(upsert(3, 2, 7, price="2")), C: lines(delete(4, 2, 8))}
LIVE = [(7, "pear", "2.0000")]
ROWS = "SELECT id, item, price FROM prices"


@pytest.fixture
def log(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    world.pipeline = prices()  # type: ignore[assignment]
    return Desk(world, instance)


@pytest.fixture
def feed(world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    world.pipeline = readings(complete="whole")  # type: ignore[assignment]
    return Desk(world, instance)


def deliver(desk: Desk, *days: str) -> None:
    for day in days:
        desk.world.deliver(day, EVENTS[day], "1.jsonl")


def asked(tick: dg.SensorResult) -> list[str]:
    found = []
    for request in tick.run_requests or ():
        found.append(request.partition_key or f"{request.tags[RANGE_START_TAG]}..{request.tags[RANGE_END_TAG]}")
    return found


def said(tick: dg.SensorResult) -> str:
    assert not tick.run_requests
    return str(tick.skip_message).partition(": ")[2]


# ------------------------------------------------------------------ what is asked for


def test_partitions_of_a_log_requested_in_the_order_3_1_2_end_in_the_state_of_1_2_3(log: Desk) -> None:  # CASE 17
    deliver(log, A, B, C)
    gap = log.launch(C)
    assert f"{C}: UnexpectedCursor: prices/{C}/1.jsonl#1@1 holds positions 4 to 4" in log.failure(gap)
    assert log.world.ledger() == []
    assert log.status("prices") == {C: "FAILED"}
    # Nothing is wrong with the delivery: it is not its turn. It is frozen meanwhile.
    assert log.evaluations(gap.run_id) == []
    assert log.status("prices_extract") == {C: "MATERIALIZED"}
    assert log.launch(A).success
    assert log.launch(B).success
    assert log.launch(C).success
    assert log.world.sql(ROWS) == LIVE
    assert [(b.scope, b.lower, b.upper) for b in log.world.ledger()] == [(A, 0, 2), (B, 2, 3), (C, 3, 4)]
    assert log.status("prices") == dict.fromkeys((A, B, C), "MATERIALIZED")


def test_deliveries_of_a_log_that_arrive_in_the_order_3_1_2_are_asked_for_when_their_turn_has_come(log: Desk) -> None:
    deliver(log, C)
    tick = log.tick()
    assert asked(tick) == [C]
    log.carry_out(tick)
    assert said(log.tick()) == (
        f"nothing to ask for: 0 deliveries are committed. waits: {C}/1.jsonl#1 (its turn: positions 1 to 3 are missing)"
    )
    deliver(log, A)
    tick = log.tick()
    assert asked(tick) == [A]
    log.carry_out(tick)
    assert f"waits: {C}/1.jsonl#1 (its turn: positions 3 to 3 are missing)" in said(log.tick())
    deliver(log, B)
    tick = log.tick()
    assert asked(tick) == [B]
    log.carry_out(tick)
    tick = log.tick()
    assert asked(tick) == [C]
    assert all(r.success for r in log.carry_out(tick))
    assert log.world.sql(ROWS) == LIVE
    assert said(log.tick()) == "nothing to ask for: 3 deliveries are committed"


def test_one_run_is_asked_for_at_a_time_from_the_oldest_partition_on(log: Desk) -> None:
    deliver(log, A, B)
    log.world.deliver(D, EVENTS[C], "1.jsonl")
    tick = log.tick()
    assert asked(tick) == [f"{A}..{B}"]
    log.carry_out(tick)
    tick = log.tick()
    assert asked(tick) == [D]
    log.carry_out(tick)
    assert log.world.sql(ROWS) == LIVE


@pytest.mark.parametrize("where", [A, D])
def test_nothing_is_asked_for_while_a_run_of_the_pipeline_is_in_flight(log: Desk, where: str) -> None:
    deliver(log, A, B, C)
    job = log.defs.resolve_job_def("prices_job")
    tags = {"dagster/partition": where}
    run = log.instance.create_run_for_job(job, tags=tags, status=dg.DagsterRunStatus.STARTED)
    assert said(log.tick()).endswith(f"in flight, or waiting for the run in flight to end: {A}..{C}")
    log.instance.report_run_failed(run, "killed")
    assert asked(log.tick()) == [f"{A}..{C}"]


def test_what_comes_after_a_file_that_may_still_grow_waits_for_it(log: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 60.0)
    deliver(log, A, B, C)
    past = time.time() - 120
    for day in (A, C):
        os.utime(log.world.landing / "prices" / day / "1.jsonl", (past, past))
    tick = log.tick()
    assert asked(tick) == [A]
    log.carry_out(tick)
    assert f"{C}/1.jsonl#1 (its turn: {B}/1.jsonl comes first)" in said(log.tick())


def test_two_deliveries_of_one_partition_are_one_request_and_both_are_loaded(log: Desk) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    log.world.deliver(A, EVENTS[B], "2.jsonl")
    tick = log.tick()
    assert asked(tick) == [A]
    log.carry_out(tick)
    assert [b.delivery for b in log.world.ledger()] == ["1.jsonl", "2.jsonl"]
    log.world.deliver(A, EVENTS[C], "3.jsonl")
    tick = log.tick()
    assert asked(tick) == [A]
    log.carry_out(tick)
    assert log.world.sql(ROWS) == LIVE


# ------------------------------------------------------------------ what a run shows


def test_a_partition_of_several_deliveries_shows_each_and_their_sums(log: Desk) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    log.world.deliver(A, EVENTS[B], "2.jsonl")
    assert log.launch(A).success
    ((_, table),) = log.materializations("prices")
    assert table["deliveries"] == (
        "| delivery | status | positions | inserted | updated | source\\_rows |\n"
        "| --- | --- | --- | --- | --- | --- |\n"
        "| 1.jsonl#1 | committed | 1..2 | 2 | 0 | 2 |\n| 2.jsonl#1 | committed | 3..3 | 0 | 1 | 1 |"
    )
    assert (table["batch"], table["inserted"], table["updated"], table["source_rows"]) == (
        *(f"prices/{A}/2.jsonl#1@1", 2, 1, 3),
    )
    assert table["dagster/row_count"] == 2
    assert "dagster/partition_row_count" not in table
    ((_, extract),) = log.materializations("prices_extract")
    assert (extract["source_rows"], extract["dagster/partition_row_count"]) == (3, 3)


def test_with_its_second_delivery_refused_a_partition_is_not_green_and_the_first_stays_committed(log: Desk) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    bad = log.world.deliver(A, "{}\n", "2.jsonl")
    log.world.deliver(B, EVENTS[B], "1.jsonl")
    result = log.launch(A, B)
    assert log.failure(result).startswith("1 of 2 partitions of prices were not loaded; the other 1 are committed\n")
    assert log.status("prices") == {A: "FAILED", B: "MATERIALIZED"}
    assert log.evaluations(result.run_id) == [
        *(("delivery_accepted", A, passed) for passed in (True, False)),
        ("delivery_accepted", B, True),
    ]
    assert [(b.scope, b.delivery) for b in log.world.ledger()] == [(A, "1.jsonl"), (B, "1.jsonl")]
    # Reconciling with the ledger does not paint over it.
    assert log.job("reconcile_with_ledger").success
    assert log.status("prices") == {A: "FAILED", B: "MATERIALIZED"}
    bad.write_text(lines(upsert(4, 3, 7, price="5")))
    tick = log.tick()
    assert asked(tick) == [A]
    assert all(r.success for r in log.carry_out(tick))
    assert log.status("prices") == {A: "MATERIALIZED", B: "MATERIALIZED"}
    assert log.world.sql(ROWS) == [(7, "pear", "5.0000"), (8, "pear", "1.0000")]


def test_a_run_that_is_cut_off_within_a_partition_does_not_call_it_loaded(
    log: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    log.world.deliver(B, EVENTS[B], "1.jsonl")
    log.world.deliver(B, EVENTS[C], "2.jsonl")
    publish = SQLiteWarehouse.publish

    def full(self, pipeline, claim, delivery, *rest):
        if delivery.name == "2.jsonl":
            raise WarehouseError("the disk is full")
        return publish(self, pipeline, claim, delivery, *rest)

    monkeypatch.setattr(SQLiteWarehouse, "publish", full)
    assert log.failure(log.launch(A, B)) == (
        f"WarehouseError: the disk is full\nNot tried any more: {B}; the other 1 are committed"
    )
    assert log.status("prices") == {A: "MATERIALIZED", B: "FAILED"}


def test_a_run_that_names_one_delivery_does_not_make_the_day_of_another_green(log: Desk) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    log.world.deliver(A, EVENTS[B], "2.jsonl")
    result = log.launch(A, delivery="1.jsonl")
    assert result.success
    assert f"not shown as loaded, since other deliveries of theirs wait: {A}" in log.logged(result.run_id)
    assert log.status("prices") == {}
    assert log.job("reconcile_with_ledger").success
    assert log.status("prices") == {}
    assert log.launch(A).success
    assert log.status("prices") == {A: "MATERIALIZED"}


def test_a_day_with_a_gap_stays_failed_when_it_is_reconciled(log: Desk) -> None:
    log.world.deliver(A, EVENTS[A], "1.jsonl")
    log.world.deliver(A, EVENTS[C], "3.jsonl")
    assert "UnexpectedCursor" in log.failure(log.launch(A))
    assert [b.delivery for b in log.world.ledger()] == ["1.jsonl"]
    result = log.job("reconcile_with_ledger")
    assert result.success
    assert "not shown as loaded, since deliveries of theirs wait or were refused" in log.logged(result.run_id)
    assert log.status("prices") == {A: "FAILED"}
    log.world.deliver(A, EVENTS[B], "2.jsonl")
    assert all(r.success for r in log.carry_out(log.tick()))
    assert log.status("prices") == {A: "MATERIALIZED"}


def test_a_range_passes_over_days_without_a_delivery_and_leaves_them_as_they_are(log: Desk) -> None:
    deliver(log, A, C)
    log.world.deliver(C, lines(delete(3, 2, 8)), "1.jsonl")
    result = log.launch(A, B, C, D)
    assert result.success
    assert "2 of 4 partitions have no delivery and are passed over" in log.logged(result.run_id)
    assert log.status("prices") == log.status("prices_extract") == {A: "MATERIALIZED", C: "MATERIALIZED"}
    assert [p for p, _ in log.materializations("prices")] == [A, C]
    assert [p for _, p, _ in log.evaluations(result.run_id)] == [A, C]


def test_a_day_without_a_delivery_that_is_launched_alone_is_missing(log: Desk) -> None:
    assert "MissingDelivery" in log.failure(log.launch(A))


def test_a_person_begins_a_log_again_or_gives_positions_up_in_the_launchpad(log: Desk) -> None:
    deliver(log, A)
    log.launch(A)
    log.world.deliver(B, lines(upsert(1, 1, 9, "made again")), "1.jsonl")
    assert "RewrittenLog" in log.failure(log.launch(B))
    assert log.launch(B, restate=True, reason="made again").success
    assert [row[:2] for row in log.world.rows()] == [(9, "made again")]
    log.world.deliver(D, lines(upsert(5, 5, 9, "after a gap")), "1.jsonl")
    assert "positions 2 to 4 are missing: a gap" in log.failure(log.launch(D))
    assert log.launch(D, skip_gap=True, reason="lost at the source").success
    assert [(b.operation, b.reason) for b in log.world.ledger()] == [
        ("consume", None),
        ("restate", "made again"),
        ("skip", "lost at the source"),
    ]
    assert log.status("prices") == dict.fromkeys((A, B, D), "MATERIALIZED")
    assert log.world.warehouse.verify(log.world.pipeline) == []


# ------------------------------------------------------------------ snapshots


def test_snapshots_are_loaded_in_order_and_a_late_older_one_is_not_asked_for(feed: Desk) -> None:
    feed.world.deliver(A, snapshot("a,01,1", "b,01,2"))
    feed.world.deliver(C, snapshot("a,03,9"))
    tick = feed.tick()
    assert asked(tick) == [A]
    feed.carry_out(tick)
    feed.carry_out(feed.tick())
    assert feed.world.sql("SELECT id, value FROM readings") == [("a", 9)]
    feed.world.deliver(B, snapshot("a,02,5", "b,01,2"))
    assert said(feed.tick()) == "nothing to ask for: 2 deliveries are committed"
    assert "Superseded" in feed.failure(feed.launch(B))
    assert feed.world.sql("SELECT id, value FROM readings") == [("a", 9)]
    _, shown = feed.materializations("readings")[-1]
    assert (shown["newest_change"], shown["deleted"], shown["dagster/row_count"]) == (
        "2024-01-03T00:00:00.000Z",
        1,
        1,
    )


def test_a_broken_snapshot_beside_a_good_one_does_not_keep_it_waiting(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    world.pipeline = readings()  # type: ignore[assignment]
    feed = Desk(world, instance)
    world.deliver(A, b"no such columns\n", "a.csv")
    world.deliver(A, snapshot("a,02,5"), "b.csv")
    feed.carry_out(feed.tick())
    assert world.sql("SELECT id, value FROM readings") == [("a", 5)]
    assert f"needs attention: {A}/a.csv#1 (refused once: " in said(feed.tick())
    assert feed.status("readings") == {A: "FAILED"}


def test_a_snapshot_is_restated_with_a_reason(feed: Desk) -> None:
    for day, content in ((A, snapshot("a,01,1", "b,01,2")), (B, snapshot("a,02,5"))):
        feed.world.deliver(day, content)
    feed.launch(A, B)
    assert feed.launch(A, restate=True, reason="the second one was wrong").success
    assert feed.world.sql("SELECT id, value FROM readings ORDER BY id") == [("a", 1), ("b", 2)]
    assert feed.materializations("readings")[-1][1]["restated_because"] == "the second one was wrong"


def test_seven_snapshots_of_earthquakes_in_one_range_run_give_1603_events_of_which_2_are_withdrawn(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    world = World(tmp_path, quakes)  # type: ignore[arg-type]
    for file in sorted((SHOWCASE / "quakes").glob("*/*.csv")):
        world.deliver(file.parent.name, file.read_bytes(), file.name)
    desk = Desk(world, instance)
    days = sorted(folder.name for folder in (SHOWCASE / "quakes").iterdir())
    assert desk.launch(days[0], days[-1]).success
    assert desk.status("quakes") == desk.status("quakes_extract") == dict.fromkeys(days, "MATERIALIZED")
    counts = [b.counts for b in world.ledger()]
    assert (sum(c.inserted for c in counts), sum(c.deleted for c in counts)) == (1603, 2)
    assert desk.materializations("quakes")[-1][1]["dagster/row_count"] == 1601
    checked = desk.job("check_ledger")
    assert {e.check_name: (e.passed, e.description) for e in checked.get_asset_check_evaluations()} == {
        "delivery_accepted": (True, "No delivery that counts is refused"),
        "ledger_matches_rows": (True, "1,601 rows from 6 partitions"),
        "nothing_waits": (True, "All that has arrived is committed"),
    }


@pytest.mark.parametrize("way", ["job", "sensor", "engine"])
def test_by_job_by_sensor_and_without_dagster_a_log_gives_the_same_warehouse(log: Desk, way: str) -> None:
    deliver(log, A, B, C)
    ways: dict[str, Callable[[], object]] = {
        "job": lambda: log.launch(A, C),
        "sensor": lambda: log.carry_out(log.tick()),
        "engine": lambda: log.world.load(A, B, C),
    }
    ways[way]()
    assert log.world.sql(ROWS) == LIVE
    assert [(b.batch, b.lower, b.upper, b.rows) for b in log.world.ledger()] == [
        (f"prices/{A}/1.jsonl#1@1", 0, 2, 2),
        (f"prices/{B}/1.jsonl#1@1", 2, 3, 1),
        (f"prices/{C}/1.jsonl#1@1", 3, 4, 1),
    ]
