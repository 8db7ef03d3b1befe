"""``etl-assets outbox`` and ``etl-assets relay``, as the installed command."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from etl_assets_tests.cli.shell import Shell
from etl_assets_tests.outbox.receiver import Receiver
from etl_assets_tests.outbox.shop import LARGE, shop
from etl_assets_tests.outbox.test_deliver import another_process_relays
from etl_assets_tests.world import World

DAY = "2024-01-01"
HEADER = "id,day,item,amount\n"
#: A pipeline whose notification reads a table that is not there.
BROKEN = """
from etl_assets.contract import Daily, Notification, PartitionedTable, date, integer, text

orders = PartitionedTable(
    name="orders", partitions=Daily(start="2024-01-01", end="2024-02-01"), landing="orders/{partition}/*",
    columns=[integer("id"), date("day"), text("item"), integer("amount")], key=["id"], partition_by="day",
    notifications=[
        Notification(name="large", topic="t", sql="SELECT id FROM orders JOIN stock USING (id)", key=["id"])
    ],
)
"""


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two messages wait."""
    world = World(tmp_path, shop(LARGE))
    world.deliver(DAY, f"{HEADER}1,{DAY},pear,5\n2,{DAY},fig,1\n3,{DAY},oak,7\n")
    world.load(DAY)
    return world


@pytest.fixture
def shell(world: World, tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def keys(world: World) -> list[str]:
    return [key for (key,) in world.sql("SELECT key FROM etl_outbox ORDER BY id")]


def topics(world: World) -> dict[str, dict[str, int]]:
    return world.warehouse.message_counts("waiting", "parked", "sent", "discarded")


def test_the_outbox_is_listed_by_topic_and_by_message(world: World, shell: Shell) -> None:
    document = shell("outbox", "--json").document
    assert document["topics"] == {"large-orders": {"waiting": 2}}
    first = document["messages"][0]
    assert first["payload"]["data"] == {"id": 1, "item": "pear", "amount": 5}
    assert {k: first[k] for k in ("topic", "notification", "subject", "status", "attempts", "batch")} == {
        "topic": "large-orders",
        "notification": "orders.large",
        "subject": "1",
        "status": "waiting",
        "attempts": 0,
        "batch": f"orders/{DAY}/1.csv#1@1",
    }
    listed = shell("outbox").out.splitlines()
    assert listed[0].split() == ["topic", "waiting", "parked", "sent", "discarded"]
    assert listed[1].split() == ["large-orders", "2", "0", "0", "0"]
    assert [line.split()[:3] for line in listed[4:]] == [[k, "large-orders", "waiting"] for k in keys(world)]


def test_relay_sends_what_is_due_and_then_has_nothing_to_do(world: World, shell: Shell, receiver: Receiver) -> None:
    known = keys(world)
    answer = shell("relay", "--relay", receiver.url)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.splitlines() == [f"large-orders: {key}: sent" for key in known]
    assert receiver.told("large-orders") == [
        {"id": 1, "item": "pear", "amount": 5},
        {"id": 3, "item": "oak", "amount": 7},
    ]
    again = shell("relay", ETL_RELAY=receiver.url)
    assert (again.code, again.out) == (0, "nothing is due\n")
    assert topics(world) == {"large-orders": {"sent": 2}}


def test_relay_says_what_was_not_taken_with_exit_code_1(world: World, shell: Shell, receiver: Receiver) -> None:
    receiver.script = [503]
    answer = shell("relay", "--json", ETL_RELAY=receiver.url)
    assert answer.code == 1
    assert answer.document == {
        "attempts": [
            {
                "key": keys(world)[0],
                "topic": "large-orders",
                "subject": "1",
                "status": "waiting",
                "attempt": 1,
                "retry_after": 15.0,
                "reason": "503 Service Unavailable",
            }
        ]
    }
    again = shell("relay", ETL_RELAY=receiver.url)
    (following,) = world.sql("SELECT next_attempt_at FROM etl_outbox WHERE next_attempt_at IS NOT NULL")[0]
    assert again.out == f"nothing is due: 2 wait, the next is tried at {following}\n"
    missing = shell("outbox", "--release", keys(world)[0], "--warehouse", str(world.root / "typo.sqlite"))
    assert (missing.code, (world.root / "typo.sqlite").exists()) == (1, False) or missing.code == 2
    assert not (world.root / "typo.sqlite").exists()


@pytest.mark.parametrize(
    "url, said",
    [("", "no relay is set, so messages wait"), ("amqp://name:secret@h/path", "no relay for amqp://h (ETL_RELAY)")],
)
def test_without_a_relay_messages_wait_and_the_exit_code_is_2(world: World, shell: Shell, url: str, said: str) -> None:
    answer = shell("relay", ETL_RELAY=url)
    assert answer.code == 2
    assert said in answer.err
    document = shell("relay", "--json", ETL_RELAY=url).document
    assert (document["attempts"], document["error"].partition(":")[0]) == ([], "RelayUnavailable")
    assert topics(world) == {"large-orders": {"waiting": 2}}


def test_a_second_relay_says_that_another_one_works_and_is_no_fault(
    world: World, shell: Shell, receiver: Receiver
) -> None:
    with another_process_relays(world):
        answer = shell("relay", ETL_RELAY=receiver.url)
    assert (answer.code, answer.out) == (0, "")
    assert "another process relays the messages of this warehouse" in answer.err
    assert receiver.requests == []


def park(world: World, key: str) -> None:
    """As if the last attempt had been refused; how that comes about the tests of delivering show."""
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        connection.execute(
            "UPDATE etl_outbox SET status = 'parked', last_error = '400', attempts = 30 WHERE key = ?", (key,)
        )
    connection.close()


def test_a_person_releases_or_discards_a_parked_message_by_its_key(
    world: World, shell: Shell, receiver: Receiver
) -> None:
    one, two = keys(world)
    for key in (one, two):
        park(world, key)
    assert shell("relay", ETL_RELAY=receiver.url).out == "nothing is due\n"
    assert shell("outbox", "--release", two).out == f"{two} is due now\n"
    assert shell("outbox", "--discard", one, "--json").document == {"key": one, "status": "discarded"}
    assert shell("relay", ETL_RELAY=receiver.url).out == f"large-orders: {two}: sent\n"
    assert topics(world) == {"large-orders": {"discarded": 1, "sent": 1}}
    refused = shell("outbox", "--release", one)
    assert (refused.code, refused.out) == (2, "")
    assert f"the message {one!r} is discarded, neither parked nor waiting" in refused.err
    assert shell("outbox", "--release", one, "--discard", one).code == 2


def test_an_outbox_that_is_empty_or_not_there_yet_is_no_error(tmp_path: Path) -> None:
    shell = Shell(tmp_path)
    assert json.loads(shell("outbox", "--json").out) == {"topics": {}, "messages": []}
    assert shell("outbox").code == 0
    assert not shell.warehouse.exists()


def test_a_fault_in_a_notifications_sql_ends_the_run_with_its_name_and_exit_code_2(world: World, shell: Shell) -> None:
    (shell.pipelines / "shop.py").write_text(BROKEN)
    shell.deliver(DAY, f"{HEADER}9,{DAY},elm,9\n", "2.csv")
    before = world.state()["orders"]
    answer = shell("run", "orders", "--pending")
    assert answer.code == 2
    assert f"orders/{DAY}: notification 'large': no such table: stock. Nothing was changed" in answer.err
    assert world.state()["orders"] == before
