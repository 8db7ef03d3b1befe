"""Which messages a publish writes, and when it says nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Notification, ReferenceTable, integer, repair, text, transform, window
from etl_assets.errors import BadMessage, BadNotification
from etl_assets_tests.outbox.shop import BUSY, LARGE, A, B, C, csv, said, shop, statuses
from etl_assets_tests.patterns.logs import delete, lines, prices, readings, snapshot, upsert
from etl_assets_tests.world import World

ROWS = csv(f"1,{A},pear,3", f"2,{A},fig,5", f"3,{A},nut,7")


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, shop())


def test_a_publish_writes_a_message_for_each_row_that_its_notifications_select(world: World) -> None:
    world.deliver(A, ROWS)
    world.load(A)
    assert said(world) == [
        ("2", {"id": 2, "item": "fig", "amount": 5}),
        ("3", {"id": 3, "item": "nut", "amount": 7}),
        (A, {"day": A, "total": 15}),
    ]
    rows = world.sql(
        "SELECT o.topic, o.notification, o.key, o.status, b.batch FROM etl_outbox o JOIN etl_batch b ON b.id = o.batch"
    )
    assert [(topic, kind, status, batch) for topic, kind, _, status, batch in rows] == [
        ("large-orders", "orders.large", "waiting", f"orders/{A}/1.csv#1@1"),
        ("large-orders", "orders.large", "waiting", f"orders/{A}/1.csv#1@1"),
        ("busy-days", "orders.busy", "waiting", f"orders/{A}/1.csv#1@1"),
    ]
    for _, kind, key, _, _ in rows:
        assert re.fullmatch(rf"{kind}/[!-~]+/[0-9a-f]{{40}}", key)


def test_a_payload_is_a_cloudevents_document_under_the_messages_key(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pêche,30"))
    world.load(A)
    ((key, payload),) = world.sql("SELECT key, payload FROM etl_outbox WHERE topic = 'large-orders'")
    assert json.loads(payload) == {
        "specversion": "1.0",
        "id": key,
        "source": "/etl_assets/orders",
        "type": "orders.large",
        "subject": "1",
        "datacontenttype": "application/json",
        "partition": A,
        "batch": f"orders/{A}/1.csv#1@1",
        "data": {"id": 1, "item": "pêche", "amount": 30},
    }


def test_a_run_again_and_a_backfill_with_the_same_content_say_nothing(world: World) -> None:
    world.deliver(A, ROWS)
    world.load(A)
    before = world.state()["etl_outbox"]
    world.load(A)
    world.deliver(A, ROWS.replace("pear", "apple"), "2.csv")  # no message is about this row
    world.load(A)
    world.load(A, restate="once more")
    newer = shop(transform=transform(lambda frame: frame, version=2))
    world.load(A, pipeline=newer)
    assert len(world.ledger()) == 4
    assert world.state()["etl_outbox"] == before


def test_a_correction_says_what_it_changes_and_nothing_else_and_going_back_says_the_old_again(world: World) -> None:
    world.deliver(A, ROWS)
    world.load(A)
    world.deliver(A, ROWS.replace("fig,5", "fig,6"), "2.csv")
    world.load(A)
    world.deliver(A, ROWS, "3.csv")
    world.load(A)
    assert said(world)[3:] == [
        ("2", {"id": 2, "item": "fig", "amount": 6}),
        (A, {"day": A, "total": 16}),
        ("2", {"id": 2, "item": "fig", "amount": 5}),
        (A, {"day": A, "total": 15}),
    ]
    keys = [key for (key,) in world.sql("SELECT key FROM etl_outbox")]
    assert len(set(keys)) == 7


def test_a_restatement_to_an_older_delivery_says_what_holds_again(world: World) -> None:
    world.deliver(A, ROWS)
    world.load(A)
    world.deliver(A, csv(f"2,{A},fig,8"), "2.csv")
    world.load(A)
    world.load(A, delivery="1.csv", restate="2.csv was wrong")
    assert said(world, "large-orders") == [
        ("2", {"id": 2, "item": "fig", "amount": 5}),
        ("3", {"id": 3, "item": "nut", "amount": 7}),
        ("2", {"id": 2, "item": "fig", "amount": 8}),
        ("2", {"id": 2, "item": "fig", "amount": 5}),
    ]


def test_what_no_longer_holds_is_not_said_and_said_again_only_when_it_differs_from_what_was_said_last(
    world: World,
) -> None:
    world.deliver(A, csv(f"1,{A},pear,20"))
    world.load(A)
    world.deliver(A, csv(f"1,{A},pear,1"), "2.csv")
    world.load(A)
    world.deliver(A, csv(f"1,{A},pear,20"), "3.csv")
    world.load(A)
    assert said(world) == [("1", {"id": 1, "item": "pear", "amount": 20}), (A, {"day": A, "total": 20})]


def test_in_its_sql_the_tables_name_is_the_published_partition_and_other_tables_are_whole(tmp_path: Path) -> None:
    compared = Notification(
        name="compared",
        topic="t",
        sql="""SELECT :partition AS day, count(*) AS here, (SELECT count(*) FROM main.orders) AS everywhere,
               (SELECT count(*) FROM etl_batch) AS batches FROM orders -- the partition's""",
        key=["day"],
    )
    world = World(tmp_path, shop(compared))
    world.deliver(A, ROWS)
    world.deliver(B, csv(f"7,{B},oak,1"))
    world.load(A, B)
    assert said(world) == [
        (A, {"day": A, "here": 3, "everywhere": 3, "batches": 1}),
        (B, {"day": B, "here": 1, "everywhere": 4, "batches": 2}),
    ]


def test_where_a_key_moves_both_partitions_are_said(tmp_path: Path) -> None:
    world = World(tmp_path, shop(BUSY, moved_keys=repair(order="delivery")))
    world.deliver(A, csv(f"1,{A},pear,10", f"2,{A},fig,10"), "1.csv")
    world.load(A)
    world.deliver(B, csv(f"2,{B},fig,30"), "2.csv")
    world.load(B)
    world.deliver(B, csv(f"9,{B},oak,40"), "3.csv")  # drops key 2, which comes back to A
    world.load(B)
    assert said(world) == [
        (A, {"day": A, "total": 20}),
        (B, {"day": B, "total": 30}),
        (A, {"day": A, "total": 10}),
        (B, {"day": B, "total": 40}),
        (A, {"day": A, "total": 20}),
    ]
    assert [b for (b,) in world.sql("SELECT batch FROM etl_outbox ORDER BY id")] == [1, 2, 2, 3, 3]


def test_a_table_whose_name_is_one_of_publishings_own_is_read_as_it_is(tmp_path: Path) -> None:
    everything = Notification(name="all", topic="t", sql='SELECT id, amount FROM "plan" ORDER BY id', key=["id"])
    world = World(tmp_path, shop(everything, table="plan"))
    world.deliver(A, csv(f"1,{A},pear,3", f"2,{A},fig,5"))
    world.load(A)
    world.deliver(A, csv(f"1,{A},pear,3", f"2,{A},fig,6"), "2.csv")
    world.load(A)
    assert said(world) == [("1", {"id": 1, "amount": 3}), ("2", {"id": 2, "amount": 5}), ("2", {"id": 2, "amount": 6})]


def test_of_a_change_log_only_live_rows_that_the_batch_changed_are_said(tmp_path: Path) -> None:
    told = Notification(name="told", topic="t", sql="SELECT id, item FROM prices ORDER BY id", key=["id"])
    world = World(tmp_path, prices(notifications=[told]))
    world.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, "fig"), upsert(3, 5, 3)))
    world.load(A)
    first = said(world)
    assert [subject for subject, _ in first] == ["1", "2", "3"]
    world.deliver(B, lines(upsert(4, 2, 1, "plum"), delete(5, 2, 2), upsert(6, 4, 3, "old"), upsert(7, 1, 4, "new")))
    world.load(B)
    assert said(world)[3:] == [("1", {"id": 1, "item": "plum"}), ("4", {"id": 4, "item": "new"})]


def test_of_a_change_log_the_name_stands_for_what_this_batch_changed_and_main_for_all_live_rows(tmp_path: Path) -> None:
    sql = "SELECT :partition AS day, count(*) AS changed, (SELECT count(*) FROM main.prices) AS live FROM prices"
    world = World(tmp_path, prices(notifications=[Notification(name="told", topic="t", sql=sql, key=["day"])]))
    world.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2), upsert(3, 1, 3)))
    world.deliver(B, lines(upsert(4, 2, 1, "plum"), delete(5, 2, 2)))
    world.load(A, B)
    assert [data for _, data in said(world)] == [
        {"day": A, "changed": 3, "live": 3},
        {"day": B, "changed": 1, "live": 2},
    ]


def test_of_a_complete_snapshot_rows_that_came_changed_or_came_back_are_said(tmp_path: Path) -> None:
    told = Notification(name="told", topic="t", sql="SELECT id, value FROM readings ORDER BY id", key=["id"])
    world = World(tmp_path, readings(complete=window("value"), notifications=[told]))
    world.deliver(A, snapshot("a,01,10", "b,01,20", "c,01,30"))
    world.deliver(B, snapshot("a,02,11", "c,01,30"))
    world.deliver(C, snapshot("a,02,11", "b,01,20", "c,01,30"))
    world.load(A, B, C)
    assert [s for s, _ in said(world)] == ["a", "b", "c", "a"]  # b is back as it was last said


def test_of_a_reference_table_the_whole_table_is_looked_at(tmp_path: Path) -> None:
    told = Notification(
        name="told", topic="t", sql="SELECT code, :partition AS p FROM codes WHERE id > 1", key=["code"]
    )
    codes = ReferenceTable(
        name="codes", landing="codes/*.csv", columns=[integer("id"), text("code")], key=["id"], notifications=[told]
    )
    world = World(tmp_path, codes)
    (world.landing / "codes").mkdir()
    (world.landing / "codes" / "1.csv").write_text("id,code\n1,AA\n2,BB\n")
    world.load("all")
    assert said(world) == [("BB", {"code": "BB", "p": "all"})]


def test_a_subject_of_several_columns_is_never_that_of_others(tmp_path: Path) -> None:
    pairs = Notification(name="pairs", topic="t", sql="SELECT item, item || '/' AS b FROM orders", key=["item", "b"])
    world = World(tmp_path, shop(pairs))
    world.deliver(A, csv(f"1,{A},a/b,1", f"2,{A},50% é,1"))
    world.load(A)
    assert [s for s, _ in said(world)] == ["a%2Fb/a%2Fb%2F", "50%25%20%C3%A9/50%25%20%C3%A9%2F"]


@pytest.mark.parametrize(
    "sql, wrong",
    [
        ("SELECT id, temp FROM weather", "no such table: weather"),
        ("SELECT id FROM stage.candidate", "access to stage.candidate.id is prohibited"),
        ("SELECT seen_at AS id, colour FROM etl_delivery", "no such column: colour"),
    ],
)  # fmt: skip
def test_a_notification_that_cannot_be_run_ends_the_run_and_rolls_back(tmp_path: Path, sql: str, wrong: str) -> None:
    world = World(tmp_path, shop(Notification(name="bad", topic="t", sql=sql, key=["id"])))
    world.deliver(A, csv(f"1,{A},pear,3"))
    world.warehouse.claim(world.pipeline, [A], "run")
    before = world.state()
    with pytest.raises(BadNotification, match=re.escape(f"orders/{A}: notification 'bad': ")) as raised:
        world.load(A, run="run")
    assert wrong in str(raised.value)
    assert "Nothing was changed" in str(raised.value)
    assert raised.value.exit_code == 2
    assert world.state() == before
    world.load(A, pipeline=shop())
    assert world.rows() == [(3, A, 1, "pear")]


@pytest.mark.parametrize(
    "sql, wrong",
    [
        ("SELECT item AS id FROM orders, (SELECT 1 n UNION SELECT 2) WHERE n = 1 OR id = 1", "two rows of its result are about"),
        ("SELECT CASE id WHEN 1 THEN NULL ELSE id END AS id FROM orders", "has no value in its key"),
        ("SELECT CASE id WHEN 1 THEN '' ELSE id END AS id FROM orders", "has no value in its key"),
        ("SELECT id, CASE id WHEN 1 THEN x'00' END AS blob FROM orders", "has no place in JSON"),
        ("SELECT id, CASE id WHEN 1 THEN 9e999 END AS big FROM orders", "has no place in JSON"),
        ("SELECT id, abs(-9223372036854775807 - (id = 1)) AS big FROM orders", "integer overflow"),
        ("SELECT id, CASE id WHEN 1 THEN CAST(x'ff41' AS TEXT) END AS bad FROM orders", "Could not decode to UTF-8"),
        ("SELECT id, json(CASE id WHEN 1 THEN '{' ELSE '{}' END) AS bad FROM orders", "malformed JSON"),
    ],
)  # fmt: skip
def test_rows_that_are_no_messages_are_their_partitions_trouble(tmp_path: Path, sql: str, wrong: str) -> None:
    world = World(tmp_path, shop(Notification(name="bad", topic="t", sql=sql, key=["id"])))
    world.deliver(A, csv(f"1,{A},pear,3"))
    world.deliver(B, csv(f"2,{B},fig,4"))
    first, second = world.load(A, B)
    assert (first.status, second.status) == ("refused", "committed")
    assert isinstance(first.error, BadMessage)
    assert f"orders/{A}: notification 'bad': " in str(first.error)
    assert wrong in str(first.error)
    assert "Nothing was changed" in str(first.error)
    assert world.rows() == [(4, B, 2, "fig")]
    assert [s for s, _ in said(world)] == ["fig" if sql.startswith("SELECT item") else "2"]


def test_a_notification_that_is_added_later_speaks_of_what_is_published_from_then_on(tmp_path: Path) -> None:
    plain = World(tmp_path, shop(LARGE))
    silent = shop(LARGE).model_copy(update={"notifications": ()})
    plain.deliver(A, ROWS)
    plain.load(A, pipeline=silent)
    (again,) = plain.load(A)
    assert again.status == "already committed"  # a notification is no part of what makes an extract
    assert said(plain) == []
    plain.load(A, restate="say it now")
    assert [s for s, _ in said(plain)] == ["2", "3"]


def test_keys_are_the_same_in_another_warehouse_at_another_time(tmp_path: Path) -> None:
    keys: list[Any] = []
    for name in ("one", "two"):
        world = World(tmp_path / name, shop())
        world.deliver(A, ROWS)
        world.load(A)
        keys.append(world.sql("SELECT key, payload FROM etl_outbox ORDER BY id"))
    assert keys[0] == keys[1]
    assert len(keys[0]) == 3


def test_messages_lie_in_the_outbox_of_a_failed_run_for_what_it_committed_only(world: World) -> None:
    world.deliver(A, ROWS)
    world.deliver(B, b"")
    world.deliver(C, csv(f"8,{C},elm,5"))
    world.load(A, B, C)
    assert [s for s, _, _ in statuses(world)] == ["2", "3", A, "8"]
