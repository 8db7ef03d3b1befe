"""What the sensor and the schedule ask for: all that has arrived, once, however it came to wait."""

import datetime as dt
import os
import time

import dagster as dg
import pytest
from dagster._core.definitions.selector import (
    PartitionRangeSelector,
    PartitionsByAssetSelector,
    PartitionsSelector,
)
from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

from etl_assets.contract import Daily, transform
from etl_assets.errors import LandingUnreachable
from etl_assets.orchestration import requests
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG, Tried
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import DAYS, World, orders

HEADER = "id,day,item,amount\n"


def rows_of(day: str, amount: int = 1) -> str:
    return f"{HEADER}{int(day[-2:])},{day},pear,{amount}\n"


def days(first: int, last: int) -> list[str]:
    return [f"2024-01-{day:02d}" for day in range(first, last + 1)]


def asked(tick: dg.SensorResult) -> list[str]:
    """The requests of a tick, as a partition or as first..last."""
    found = []
    for request in tick.run_requests or ():
        found.append(request.partition_key or f"{request.tags[RANGE_START_TAG]}..{request.tags[RANGE_END_TAG]}")
    return found


def reason(tick: dg.SensorResult) -> str:
    assert not tick.run_requests
    return str(tick.skip_message).removeprefix("orders: ")


def test_contiguous_partitions_go_in_one_request_and_each_is_loaded_once(desk: Desk) -> None:
    for day in (*days(1, 3), *days(6, 7), *days(9, 9)):
        desk.world.deliver(day, rows_of(day))
    tick = desk.tick()
    assert asked(tick) == ["2024-01-01..2024-01-03", "2024-01-06..2024-01-07", "2024-01-09"]
    assert all(r.success for r in desk.carry_out(tick))
    assert [b.scope for b in desk.world.ledger()] == [*days(1, 3), *days(6, 7), *days(9, 9)]
    assert reason(desk.tick()) == (
        "nothing to ask for: 6 partitions are committed with their newest delivery. "
        "no delivery for 2024-01-04..2024-01-05, 2024-01-08"
    )


def test_a_request_has_as_many_partitions_as_the_contract_allows_and_a_tick_so_many_requests(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    monkeypatch.setattr(requests, "REQUESTS_PER_TICK", 2)
    desk = Desk(world, instance, orders(max_partitions_per_run=3))
    for day in days(1, 10):
        world.deliver(day, rows_of(day))
    tick = desk.tick()
    assert asked(tick) == ["2024-01-01..2024-01-03", "2024-01-04..2024-01-06"]
    desk.carry_out(tick)
    assert asked(desk.tick()) == ["2024-01-07..2024-01-09", "2024-01-10"]


def test_a_correction_asks_for_its_own_partition_only(desk: Desk) -> None:
    for day in DAYS:
        desk.world.deliver(day, rows_of(day))
    desk.carry_out(desk.tick())
    desk.world.deliver(DAYS[1], rows_of(DAYS[1], 9), "2.csv")
    tick = desk.tick()
    assert asked(tick) == [DAYS[1]]
    desk.carry_out(tick)
    assert desk.world.rows() == [(1, DAYS[0], 1, "pear"), (1, DAYS[2], 3, "pear"), (9, DAYS[1], 2, "pear")]


def test_a_file_with_an_old_time_that_arrives_after_a_tick_is_asked_for(desk: Desk) -> None:
    desk.world.deliver(DAYS[1], rows_of(DAYS[1]))
    desk.carry_out(desk.tick())
    path = desk.world.deliver(DAYS[0], rows_of(DAYS[0]))
    for place in (path, path.parent, path.parent.parent):
        os.utime(place, (946_684_800, 946_684_800))
    assert asked(desk.tick()) == [DAYS[0]]


def test_a_file_under_a_folder_whose_time_is_old_is_asked_for(world: World, instance: dg.DagsterInstance) -> None:
    desk = Desk(world, instance, orders(landing="orders/*/{partition}/*.csv"))
    folder = world.landing / "orders" / "shop 1" / DAYS[0]
    folder.mkdir(parents=True)
    (folder / "1.csv").write_text(rows_of(DAYS[0]))
    for place in (folder / "1.csv", folder, folder.parent, folder.parent.parent):
        os.utime(place, (946_684_800, 946_684_800))
    assert asked(desk.tick()) == [DAYS[0]]


def test_with_all_run_keys_used_and_the_cursor_reset_what_is_missing_is_still_loaded(desk: Desk) -> None:
    for day in DAYS:
        desk.world.deliver(day, rows_of(day))
    first = desk.tick()
    desk.carry_out(first)
    wanted = desk.world.rows()
    for file in desk.world.root.glob("warehouse.sqlite*"):
        file.unlink()
    tick = desk.tick(cursor=None)
    assert asked(tick) == ["2024-01-01..2024-01-03"]
    assert {r.run_key for r in tick.run_requests}.isdisjoint({r.run_key for r in first.run_requests})
    desk.carry_out(tick)
    assert desk.world.rows() == wanted


def test_content_a_then_b_then_a_under_one_name_is_three_deliveries_and_the_third_is_published(desk: Desk) -> None:
    for amount in (1, 2, 1):
        desk.world.deliver(DAYS[0], rows_of(DAYS[0], amount))
        tick = desk.tick()
        assert asked(tick) == [DAYS[0]]
        desk.carry_out(tick)
    assert [(b.delivery, b.revision) for b in desk.world.ledger()] == [("1.csv", 1), ("1.csv", 2), ("1.csv", 3)]
    assert desk.world.rows() == [(1, DAYS[0], 1, "pear")]


def test_the_same_bytes_under_a_new_name_are_a_delivery_and_change_no_row(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], rows_of(DAYS[0]))
    desk.carry_out(desk.tick())
    desk.world.deliver(DAYS[0], rows_of(DAYS[0]), "2.csv")
    desk.carry_out(desk.tick())
    assert [(b.delivery, b.counts.inserted, b.counts.unchanged) for b in desk.world.ledger()] == [
        ("1.csv", 1, 0),
        ("2.csv", 0, 1),
    ]
    assert desk.world.sql("SELECT id, _batch FROM orders") == [(1, 1)]


def test_two_identical_files_in_one_tick_are_both_loaded(desk: Desk) -> None:
    for day in DAYS[:2]:
        desk.world.deliver(day, HEADER)
    desk.carry_out(desk.tick())
    assert [(b.scope, b.rows) for b in desk.world.ledger()] == [(DAYS[0], 0), (DAYS[1], 0)]


def test_a_broken_delivery_is_asked_for_once_and_then_shown_with_its_reason(desk: Desk) -> None:
    for day in DAYS:
        desk.world.deliver(day, rows_of(day))
    desk.world.deliver(DAYS[1], b"")
    seen = []
    while (tick := desk.tick()).run_requests:
        seen.append(asked(tick))
        desk.carry_out(tick)
    assert seen == [["2024-01-01..2024-01-03"]]
    assert f"needs attention: {DAYS[1]}/1.csv#1 (refused once: " in reason(tick)
    assert "zero bytes" in reason(tick)


def test_a_new_delivery_after_one_that_needs_attention_is_asked_for_at_once(desk: Desk) -> None:
    desk.world.deliver(DAYS[1], b"")
    while (tick := desk.tick()).run_requests:
        desk.carry_out(tick)
    desk.world.deliver(DAYS[1], rows_of(DAYS[1]), "2.csv")
    tick = desk.tick()
    assert asked(tick) == [DAYS[1]]
    desk.carry_out(tick)
    assert desk.world.rows() == [(1, DAYS[1], 2, "pear")]


def die(desk: Desk, tick: dg.SensorResult) -> None:
    """What is asked for becomes runs whose process dies before it claims anything."""
    for request in tick.run_requests or ():
        tags = {**request.tags, "dagster/run_key": str(request.run_key)}
        run = desk.instance.create_run_for_job(
            desk.defs.resolve_job_def("orders_job"), tags=tags, status=dg.DagsterRunStatus.STARTED
        )
        desk.instance.report_run_failed(run, "killed: out of memory")


def test_a_run_that_died_before_it_claimed_is_asked_for_again_alone_and_without_end(desk: Desk) -> None:
    for day in DAYS[:2]:
        desk.world.deliver(day, rows_of(day))
    seen = []
    keys = []
    for _ in range(6):
        tick = desk.tick()
        seen.append(asked(tick))
        keys += [r.run_key for r in tick.run_requests]
        die(desk, tick)
    assert seen == [["2024-01-01..2024-01-02"], *[[*DAYS[:2]]] * 5]
    assert len(keys) == len(set(keys))
    desk.carry_out(desk.tick())
    assert reason(desk.tick()).startswith("nothing to ask for: 2 partitions are committed")


def test_after_failed_runs_the_pause_doubles_up_to_an_hour_and_is_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "PAUSE_SECONDS", 30.0)
    desk.world.deliver(DAYS[0], rows_of(DAYS[0]))
    die(desk, desk.tick())
    die(desk, desk.tick())  # the first failure may be a short trouble: the next tick asks again
    said = reason(desk.tick())
    assert f"waits: {DAYS[0]}/1.csv#1 (tried 2 times without a commit, see its runs; next after " in said
    now = dt.datetime.now(dt.UTC)
    pauses = [requests._pause(Tried(n, n, now - dt.timedelta(seconds=s))) for n, s in ((3, 59), (3, 61), (99, 3601))]
    assert [pause is None for pause in pauses] == [False, True, True]
    desk.world.deliver(DAYS[0], rows_of(DAYS[0], 2))  # other bytes have not been tried
    assert asked(desk.tick()) == [DAYS[0]]


def test_a_staged_folder_that_is_no_folder_for_some_ticks_loses_nothing(desk: Desk) -> None:
    for day in DAYS[:2]:
        desk.world.deliver(day, rows_of(day))
    staged = desk.world.root / "staged"
    staged.mkdir(exist_ok=True)
    staged.rename(desk.world.root / "aside")
    staged.write_text("no folder")
    for _ in range(4):
        assert not any(r.success for r in desk.carry_out(desk.tick()))
    staged.unlink()
    (desk.world.root / "aside").rename(staged)
    assert all(r.success for r in desk.carry_out(desk.tick()))
    assert [b.scope for b in desk.world.ledger()] == [*DAYS[:2]]


def test_names_with_line_breaks_and_separators_have_labels_of_their_own(desk: Desk) -> None:
    names = ["1.csv", "1\n.csv", "1#1@1.csv", "a b.csv"]
    for number, name in enumerate(names, 1):
        desk.world.deliver(f"2024-01-{number:02}", rows_of(f"2024-01-{number:02}"), name)
    tick = desk.tick()
    (request,) = tick.run_requests
    assert len(request.tags["etl/deliveries"].splitlines()) == len(names)
    die(desk, tick)
    alone = desk.tick().run_requests
    assert len({r.run_key for r in alone}) == len(names)
    assert not any("\n" in r.run_key for r in alone)


def test_after_eight_days_without_a_daemon_all_that_arrived_is_asked_for_and_the_gap_is_listed(desk: Desk) -> None:
    desk.world.deliver("2024-01-01", rows_of("2024-01-01"))
    desk.carry_out(desk.tick())
    for day in (*days(2, 5), *days(7, 9)):
        desk.world.deliver(day, rows_of(day))
    tick = desk.tick()
    assert asked(tick) == ["2024-01-02..2024-01-05", "2024-01-07..2024-01-09"]
    desk.carry_out(tick)
    assert reason(desk.tick()).endswith("no delivery for 2024-01-06")


def test_partitions_in_flight_are_not_asked_for_however_they_were_launched(desk: Desk) -> None:
    for day in days(1, 8):
        desk.world.deliver(day, rows_of(day))
    job = desk.defs.resolve_job_def("orders_job")
    started = dg.DagsterRunStatus.STARTED
    desk.instance.create_run_for_job(job, tags={"dagster/partition": "2024-01-02"}, status=started)
    asset_job = desk.defs.resolve_implicit_global_asset_job_def()
    desk.instance.create_run_for_job(
        asset_job,
        asset_selection=frozenset({dg.AssetKey("orders")}),
        tags={RANGE_START_TAG: "2024-01-04", RANGE_END_TAG: "2024-01-05"},
        status=dg.DagsterRunStatus.NOT_STARTED,
    )
    tick = desk.tick()
    assert asked(tick) == ["2024-01-01", "2024-01-03", "2024-01-06..2024-01-08"]


def test_partitions_of_a_requested_backfill_are_not_asked_for(desk: Desk) -> None:
    for day in days(1, 4):
        desk.world.deliver(day, rows_of(day))
    graph = desk.defs.resolve_asset_graph()
    keys = [dg.AssetKey("orders_extract"), dg.AssetKey("orders")]
    backfill = PartitionBackfill.from_partitions_by_assets(
        backfill_id="b1",
        asset_graph=graph,
        backfill_timestamp=time.time(),
        tags={},
        dynamic_partitions_store=desk.instance,
        partitions_by_assets=[
            PartitionsByAssetSelector(
                asset_key=key,
                partitions=PartitionsSelector(ranges=[PartitionRangeSelector(start="2024-01-02", end="2024-01-03")]),
            )
            for key in keys
        ],
        title=None,
        description=None,
        run_config=None,
    )
    assert backfill.status is BulkActionStatus.REQUESTED
    desk.instance.add_backfill(backfill)
    assert asked(desk.tick()) == ["2024-01-01", "2024-01-04"]


def test_a_file_that_was_written_just_now_waits_until_it_holds_still(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance)
    path = world.deliver(DAYS[0], rows_of(DAYS[0]))
    assert f"waits: {DAYS[0]}/1.csv#1 (written " in reason(desk.tick())
    past = time.time() - 2 * requests.SETTLE_SECONDS
    os.utime(path, (past, past))
    assert asked(desk.tick()) == [DAYS[0]]


def test_what_is_still_arriving_and_what_is_in_no_partition_is_said(desk: Desk) -> None:
    desk.world.deliver(DAYS[0], rows_of(DAYS[0]), "1.csv.part")
    desk.world.deliver("2031-01-01", rows_of(DAYS[0]))
    said = reason(desk.tick())
    assert f"still arriving: {DAYS[0]}/1.csv.part#1 (its name says that it is being written" in said
    assert "unknown partition: 2031-01-01/1.csv#1 ('2031-01-01' is not among the daily partitions" in said


def test_an_unreachable_landing_fails_the_tick_with_its_message(desk: Desk) -> None:
    desk.world.landing.rename(desk.world.root / "elsewhere")
    with pytest.raises(LandingUnreachable, match=r"orders: cannot be looked at: .* does not exist or is not a folder"):
        desk.tick()


def test_an_earlier_start_and_a_raised_transform_version_keep_the_ledger_and_a_backfill_replaces_each_once(
    world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    desk = Desk(world, instance)
    for day in DAYS:
        world.deliver(day, rows_of(day))
    desk.carry_out(desk.tick())
    old = world.ledger()
    doubled = transform(lambda frame: frame.assign(amount=frame["amount"] * 2), version=2)
    raised = orders(partitions=Daily(start="2023-12-01", end="2024-02-01"), transform=doubled)
    newer = Desk(world, instance, raised)
    said = [s.reason for s in world.survey(raised).statuses]
    assert all("by transform version 1, the contract has 2" in one for one in said), said
    assert newer.launch(*DAYS).success
    assert newer.launch(*DAYS).success
    assert world.ledger()[:3] == old
    assert [(b.scope, b.transform_version) for b in world.ledger()[3:]] == [(day, 2) for day in DAYS]
    assert world.rows() == [(2, DAYS[0], 1, "pear"), (2, DAYS[1], 2, "pear"), (2, DAYS[2], 3, "pear")]
    world.deliver("2023-12-31", f"{HEADER}31,2023-12-31,pear,1\n")
    assert asked(newer.tick()) == ["2023-12-31"]
