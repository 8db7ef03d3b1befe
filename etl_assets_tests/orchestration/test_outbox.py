"""Messages in Dagster: the asset that relays them, what asks for it, and what is told of failures."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from etl_assets.orchestration import Rooms, build_defs, relaying
from etl_assets.outbox import Patience, deliver
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.outbox.receiver import Receiver, receiving
from etl_assets_tests.outbox.shop import A, B, csv, shop, statuses
from etl_assets_tests.world import World, orders


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with receiving() as running:
        yield running


@pytest.fixture
def desk(world: World, instance: dg.DagsterInstance, receiver: Receiver) -> Desk:
    world.settings = replace(world.settings, relay=receiver.url)
    return Desk(world, instance, shop())


def load(desk: Desk, scope: str = A, content: str = csv(f"1,{A},pear,3", f"2,{A},fig,5", f"3,{A},nut,7")) -> None:
    desk.world.deliver(scope, content)
    assert desk.launch(scope).success


def impatient(monkeypatch: pytest.MonkeyPatch, attempts: int) -> None:
    """A relay that parks after so many attempts, without a pause between them."""
    patience = Patience(attempts, first=0.0, longest=0.0)
    monkeypatch.setattr(relaying, "deliver", lambda sink, relay: deliver(sink, relay, patience))


def test_the_outbox_is_downstream_of_the_tables_that_have_notifications_and_of_no_other(world: World) -> None:
    rooms = Rooms(landing="landing", staged="staged", warehouse="w.sqlite")
    defs = build_defs([shop(), orders(name="quiet", landing="quiet/{partition}/*")], rooms)
    dg.Definitions.validate_loadable(defs)
    node = defs.resolve_asset_graph().get(dg.AssetKey("outbox"))
    assert {k.to_user_string() for k in node.parent_keys} == {"orders"}
    assert node.partitions_def is None
    assert defs.resolve_job_def("relay_outbox").executor_def.name == "in_process"
    assert defs.resolve_assets_def("outbox").op.pool == "outbox"


def test_a_run_delivers_what_is_due_and_shows_what_it_sent(desk: Desk, receiver: Receiver) -> None:
    load(desk)
    assert desk.job("relay_outbox").success
    ((_, shown),) = desk.materializations("outbox")
    table = shown.pop("messages")
    assert shown == {"sent": 3, "not_taken": 0, "waiting": 0, "parked": 0}
    assert table == (
        "**3 messages tried**\n\n| topic | subject | status | why |\n| --- | --- | --- | --- |\n"
        f"| large-orders | 2 | sent |  |\n| large-orders | 3 | sent |  |\n| busy-days | {A} | sent |  |"
    )
    assert receiver.told("busy-days") == [{"day": A, "total": 15}]
    assert statuses(desk.world) == [("2", "sent", 1), ("3", "sent", 1), (A, "sent", 1)]


def test_a_run_whose_message_is_not_taken_succeeds_and_says_so(desk: Desk, receiver: Receiver) -> None:
    load(desk)
    receiver.script = [503]
    result = desk.job("relay_outbox")
    assert result.success
    ((_, shown),) = desk.materializations("outbox")
    assert {k: shown[k] for k in ("sent", "not_taken", "waiting")} == {"sent": 1, "not_taken": 1, "waiting": 2}
    assert "| large-orders | 2 | waiting | 503 Service Unavailable |" in shown["messages"]
    assert "not taken, attempt 1, tried again in 15 s: 503 Service Unavailable" in desk.logged(result.run_id)


def test_a_run_that_parks_a_message_fails_naming_it_once_and_the_others_are_sent(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, attempts=1)
    load(desk)
    receiver.script = [422]
    result = desk.job("relay_outbox")
    (key,) = desk.world.sql("SELECT key FROM etl_outbox WHERE status = 'parked'")[0]
    said = desk.failure(result)
    assert said.startswith("1 messages were not taken after their last attempt, and are parked.")
    assert said.endswith(f"large-orders: {key}: 422 Unprocessable Entity")
    ((_, shown),) = desk.materializations("outbox")
    assert (shown["sent"], shown["parked"], shown["waiting"]) == (2, 1, 0)
    assert "etl-assets outbox --release KEY" in shown["parked_messages"]
    assert desk.job("relay_outbox").success
    assert desk.materializations("outbox")[-1][1]["parked"] == 1


def test_the_sensor_asks_once_while_messages_are_due_and_says_why_it_does_not(desk: Desk, receiver: Receiver) -> None:
    def tick() -> Any:
        return desk.tick(sensor="outbox_waiting")

    assert tick().skip_message == "nothing is due: 0 messages wait, 0 are parked"
    load(desk)
    first = tick()
    assert [r.run_key for r in first.run_requests] == [None]
    run = desk.instance.create_run_for_job(
        desk.defs.resolve_job_def("relay_outbox"), status=dg.DagsterRunStatus.STARTED
    )
    assert tick().skip_message == "a run is in flight: 3 messages wait, 0 are parked"
    desk.instance.report_run_failed(run, "killed: out of memory")
    assert len(tick().run_requests) == 1  # the run died: what is due is still due
    receiver.script = [503]
    desk.job("relay_outbox")
    assert tick().skip_message == "nothing is due: 2 messages wait, 0 are parked"


def test_the_sensor_sees_a_run_of_the_asset_that_a_person_launched(desk: Desk) -> None:
    load(desk)
    job = desk.defs.resolve_job_def("__ASSET_JOB")
    desk.instance.create_run_for_job(
        job.get_subset(asset_selection={dg.AssetKey("outbox")}),
        status=dg.DagsterRunStatus.STARTED,
        asset_selection=frozenset({dg.AssetKey("outbox")}),
    )
    assert "a run is in flight" in desk.tick(sensor="outbox_waiting").skip_message


def test_without_a_relay_the_sensor_waits_and_a_run_fails_without_a_retry(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, shop())
    load(desk)
    said = "no relay is set, so messages wait. Set ETL_RELAY"
    assert said in desk.tick(sensor="outbox_waiting").skip_message
    assert said in desk.failure(desk.job("relay_outbox"))
    assert statuses(world) == [("2", "waiting", 0), ("3", "waiting", 0), (A, "waiting", 0)]


def test_while_another_process_relays_a_run_does_nothing_and_says_so(desk: Desk, receiver: Receiver) -> None:
    load(desk)
    with desk.world.warehouse.relaying() as alone:
        assert alone
        assert desk.job("relay_outbox").success
    ((_, shown),) = desk.materializations("outbox")
    assert "another process relays the messages of this warehouse" in shown["note"]
    assert receiver.requests == []


def test_a_message_is_written_by_a_run_for_what_it_commits_though_other_days_are_refused(desk: Desk) -> None:
    desk.world.deliver(A, csv(f"2,{A},fig,5"))
    desk.world.deliver(B, b"")
    assert not desk.launch(A, B).success
    assert statuses(desk.world) == [("2", "waiting", 0)]


# --------------------------------------------------------------------------- what needs attention, what failed


def told(world: World, topic: str) -> list[dict[str, Any]]:
    rows = world.sql("SELECT payload FROM etl_outbox WHERE topic = ? ORDER BY id", topic)
    return [json.loads(payload)["data"] for (payload,) in rows]


def test_a_delivery_that_needs_attention_is_told_once_in_the_transaction_that_refuses_it(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, orders(attention_topic="attention", attempts=2))
    world.deliver(A, b"")
    for _ in range(3):
        desk.launch(A)
    (one,) = told(world, "attention")
    reason = one.pop("reason")
    assert "zero bytes" in reason
    assert one == {
        "pipeline": "orders",
        "partition": A,
        "delivery": "1.csv",
        "revision": 1,
        "kind": "ZeroBytes",
    }
    widened = Desk(world, instance, orders(attention_topic="attention", attempts=2, min_rows=1))
    for _ in range(2):
        widened.launch(A)
    assert len(told(world, "attention")) == 2  # another contract has refused it, too


def test_a_contract_that_does_not_ask_for_it_tells_nothing_of_refusals(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, orders(attempts=1))
    world.deliver(A, b"")
    desk.launch(A)
    assert world.sql("SELECT * FROM etl_outbox") == []


def failures(desk: Desk, cursor: str | None) -> str | None:
    """One tick of the sensor on failed runs; returns its cursor."""
    tick = desk.tick(cursor, sensor="failed_runs")
    return tick.cursor


def test_each_failed_run_is_told_once_with_its_reason(desk: Desk, receiver: Receiver) -> None:
    cursor = failures(desk, None)
    load(desk)
    desk.world.deliver(B, b"")
    failed = desk.launch(B)
    before = cursor
    for _ in range(4):
        cursor = failures(desk, cursor)
    while before != (after := failures(desk, before)):  # the cursor was reset: told again, written once
        before = after
    (one,) = told(desk.world, "failed-runs")
    reason = one.pop("reason")
    assert reason.startswith("1 of 1 partitions of orders were not loaded\n2024-01-02: ZeroBytes:")
    assert one == {"run": failed.run_id, "job": "orders_job", "assets": [], "partitions": B}
    assert desk.job("relay_outbox").success
    assert [r.document["subject"] for r in receiver.taken if r.topic == "failed-runs"] == [failed.run_id]


def test_a_failed_run_of_the_relay_is_not_told_since_that_would_make_the_next_one_fail(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, attempts=1)
    cursor = failures(desk, None)
    load(desk)
    receiver.script = [400] * 3
    assert not desk.job("relay_outbox").success
    for _ in range(3):
        cursor = failures(desk, cursor)
    assert told(desk.world, "failed-runs") == []


def test_a_fault_in_a_notification_fails_the_run_and_nothing_is_committed(
    world: World, instance: dg.DagsterInstance
) -> None:
    broken = shop().notifications[0].model_copy(update={"sql": "SELECT id FROM orders JOIN stock USING (id)"})
    desk = Desk(world, instance, shop(broken))
    world.deliver(A, csv(f"1,{A},pear,3"))
    said = desk.failure(desk.launch(A))
    assert said.startswith(f"BadNotification: orders/{A}: notification 'large': no such table: stock.")
    assert world.ledger() == []
    assert world.rows() == []


def test_dagster_shows_no_password_of_the_relays_url(
    desk: Desk, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(desk)
    secret = receiver.url.replace("//", "//me:s3cret@") + "/t0ken-Abc123"
    for name, value in (("LANDING", desk.world.settings.landing), ("STAGED", desk.world.settings.staged)):
        monkeypatch.setenv(f"ETL_{name}", value)
    monkeypatch.setenv("ETL_WAREHOUSE", desk.world.settings.warehouse)
    monkeypatch.setenv("ETL_RELAY", secret)
    defs = build_defs([shop()])
    assert not defs.resources  # Dagster shows their values
    receiver.script = [500]
    result = defs.resolve_job_def("relay_outbox").execute_in_process(instance=desk.instance)
    assert result.success
    assert [r.topic for r in receiver.requests] == ["t0ken-Abc123/large-orders", "t0ken-Abc123/busy-days"]
    logged = "\n".join(str(e) for e in desk.instance.all_logs(result.run_id))
    assert "not taken" in logged
    assert "s3cret" not in logged
    assert "t0ken" not in logged
