"""Delivering by HTTP to a real receiver: what is sent, in which order, what is tried again and what is parked."""

from __future__ import annotations

import base64
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from etl_assets.errors import RelayAtWork, RelayUnavailable, UnknownMessage
from etl_assets.outbox import Attempt, Patience, Refused, deliver, open_relay
from etl_assets.outbox.http import HttpRelay
from etl_assets_tests.outbox.receiver import Receiver, dawdle, hang_up, receiving, respond
from etl_assets_tests.outbox.shop import A, B, csv, said, shop, statuses
from etl_assets_tests.world import World

#: Three attempts without a pause: what is refused is due again at once, but not within the same run.
HASTY = Patience(attempts=3, first=0.0, longest=0.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three large orders and two busy days wait, the topics in turn."""
    world = World(tmp_path, shop())
    world.deliver(A, csv(f"1,{A},pear,10", f"2,{A},fig,5"))
    world.deliver(B, csv(f"3,{B},oak,20"))
    world.load(A, B)
    return world


def relay(world: World, url: str, patience: Patience = HASTY, timeout: float = 5.0) -> list[tuple[str, str, str]]:
    """Deliver what is due: subject, status and reason of each attempt."""
    with closing(HttpRelay(url, timeout)) as out:
        return [told(a) for a in deliver(world.warehouse, out, patience)]


def told(attempt: Attempt) -> tuple[str, str, str]:
    return (attempt.message.subject, attempt.status, attempt.reason or "")


LARGE_ORDERS = [
    {"id": 1, "item": "pear", "amount": 10},
    {"id": 2, "item": "fig", "amount": 5},
    {"id": 3, "item": "oak", "amount": 20},
]
BUSY_DAYS = [{"day": A, "total": 15}, {"day": B, "total": 20}]


def test_every_message_is_posted_to_its_topic_with_its_key_and_marked_as_sent(world: World, receiver: Receiver) -> None:
    done = relay(world, receiver.url)
    assert done == [(s, "sent", "") for s in ("1", "2", A, "3", B)]
    assert receiver.told("large-orders") == LARGE_ORDERS
    assert receiver.told("busy-days") == BUSY_DAYS
    assert {r.content_type for r in receiver.requests} == {"application/cloudevents+json"}
    assert [r.key for r in receiver.requests] == [k for (k,) in world.sql("SELECT key FROM etl_outbox ORDER BY id")]
    assert all(r.document["id"] == r.key for r in receiver.requests)
    assert statuses(world) == [(s, "sent", 1) for s in ("1", "2", A, "3", B)]
    assert world.sql("SELECT count(*) FROM etl_outbox WHERE settled_at IS NOT NULL") == [(5,)]
    assert relay(world, receiver.url) == []
    assert len(receiver.requests) == 5


def test_a_refused_message_holds_up_its_topic_and_no_other(world: World, receiver: Receiver) -> None:
    receiver.script = [500]
    slow = Patience(attempts=3, first=60.0)
    assert relay(world, receiver.url, slow) == [
        ("1", "waiting", "500 Internal Server Error"),
        (A, "sent", ""),
        (B, "sent", ""),
    ]
    assert relay(world, receiver.url, slow) == []  # not before its time
    assert statuses(world) == [
        ("1", "waiting", 1),
        ("2", "waiting", 0),
        (A, "sent", 1),
        ("3", "waiting", 0),
        (B, "sent", 1),
    ]
    world_clock(world, "2000-01-01T00:00:00.000Z")
    assert [s for s, _, _ in relay(world, receiver.url, slow)] == ["1", "2", "3"]
    assert receiver.told("large-orders") == LARGE_ORDERS


def world_clock(world: World, time: str) -> None:
    """As if the time for the next attempt had come."""
    import sqlite3

    with closing(sqlite3.connect(world.settings.warehouse)) as connection, connection:
        connection.execute("UPDATE etl_outbox SET next_attempt_at = ? WHERE next_attempt_at IS NOT NULL", (time,))


@pytest.mark.parametrize("status", [301, 307, 400, 401, 404, 409, 429, 500, 503])
def test_whatever_is_not_2xx_is_tried_again_up_to_the_limit_and_then_parked(
    world: World, receiver: Receiver, status: int
) -> None:
    rounds = []
    for _ in range(3):
        receiver.script = [status]
        rounds.append(relay(world, receiver.url))
    first = [one[0][:2] for one in rounds]
    assert first == [("1", "waiting"), ("1", "waiting"), ("1", "parked")]
    assert rounds[0][0][2].startswith(str(status))
    assert [s for s, _, _ in rounds[2]] == ["1", "2", "3"]  # a parked one holds up nothing
    assert statuses(world)[0] == ("1", "parked", 3)
    assert receiver.told("large-orders") == LARGE_ORDERS[1:]
    assert [r.topic for r in receiver.requests if r.key == receiver.requests[0].key] == ["large-orders"] * 3


def test_a_redirect_is_not_followed(world: World, receiver: Receiver) -> None:
    with receiving() as elsewhere:
        receiver.script = [partial(respond, status=307, Location=f"{elsewhere.url}/large-orders")]
        assert relay(world, receiver.url)[0][1] == "waiting"
        assert elsewhere.requests == []


def test_name_and_password_come_from_netrc(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    seen: list[str | None] = []

    def look(handler: BaseHTTPRequestHandler) -> None:
        seen.append(handler.headers["Authorization"])
        respond(handler, 201)

    receiver.script = [look]
    relay(world, receiver.url)
    assert seen == ["Basic " + base64.b64encode(b"me:secret").decode()]


def test_what_a_receiver_says_of_its_refusal_is_kept_for_the_person_who_looks(world: World, receiver: Receiver) -> None:
    receiver.script = [partial(respond, status=422, text='{"error":\n "no field amount"}')]
    relay(world, receiver.url)
    (reason,) = world.sql("SELECT last_error FROM etl_outbox WHERE id = 1")[0]
    assert reason == '422 Unprocessable Entity: {"error": "no field amount"}'


@pytest.mark.parametrize("asked, pause", [("120", 120.0), ("7", 7.0), ("999999999", 86_400.0)])
def test_a_receiver_that_says_how_long_to_wait_is_obeyed_up_to_a_day(
    world: World, receiver: Receiver, asked: str, pause: float
) -> None:
    receiver.script = [partial(respond, status=429, Retry_After=asked)]
    with closing(HttpRelay(receiver.url, 5.0)) as out:
        attempt = next(a for a in deliver(world.warehouse, out, Patience()) if isinstance(a.outcome, Refused))
    assert attempt.retry_after == pause
    query = "SELECT round((julianday(next_attempt_at) - julianday('now')) * 86400 / ?, 1) FROM etl_outbox WHERE id = 1"
    assert world.sql(query, pause) == [(1.0,)]


@pytest.mark.parametrize("asked", ["Wed, 21 Oct 2015 07:28:00 GMT", "-5", "soon", "1.5", ""])
def test_anything_else_in_retry_after_is_not_looked_at(world: World, receiver: Receiver, asked: str) -> None:
    receiver.script = [partial(respond, status=503, Retry_After=asked)]
    with closing(HttpRelay(receiver.url, 5.0)) as out:
        attempt = next(a for a in deliver(world.warehouse, out, Patience()) if isinstance(a.outcome, Refused))
    assert attempt.retry_after == Patience().first


def test_pauses_double_up_to_the_longest_and_end_with_the_last_attempt() -> None:
    patience = Patience(attempts=6, first=10.0, longest=60.0)
    assert [patience.pause(n, None) for n in range(1, 8)] == [10.0, 20.0, 40.0, 60.0, 60.0, None, None]
    assert Patience(attempts=10_000).pause(9_999, None) == 3_600.0


@pytest.mark.parametrize("trouble", [hang_up, dawdle])
def test_a_receiver_that_dies_or_does_not_answer_is_asked_again(
    world: World, receiver: Receiver, trouble: object
) -> None:
    receiver.script = [trouble]
    subject, status, reason = relay(world, receiver.url, timeout=0.2)[0]
    assert (subject, status) == ("1", "waiting")
    assert "ConnectionError" in reason or "ReadTimeout" in reason
    relay(world, receiver.url)
    assert receiver.told("large-orders") == LARGE_ORDERS


def test_a_receiver_that_took_the_message_and_died_before_it_said_so_gets_it_again_and_takes_it_once(
    world: World, receiver: Receiver
) -> None:
    def take_and_hang_up(handler: object) -> None:
        receiver.taken.append(receiver.requests[-1])
        hang_up(handler)  # type: ignore[arg-type]

    receiver.script = [take_and_hang_up]
    assert relay(world, receiver.url)[0][1] == "waiting"
    assert relay(world, receiver.url)[0] == ("1", "sent", "")
    assert receiver.told("large-orders") == LARGE_ORDERS


def stall(handler: BaseHTTPRequestHandler, status: int) -> None:
    """An answer whose text never comes to its end."""
    handler.send_response(status)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    time.sleep(1.0)
    handler.close_connection = True


@pytest.mark.parametrize(
    "status, said", [(201, ("1", "sent", "")), (500, ("1", "waiting", "500 Internal Server Error"))]
)
def test_the_status_counts_though_the_text_never_ends(
    world: World, receiver: Receiver, status: int, said: tuple[str, str, str]
) -> None:
    receiver.script = [partial(stall, status=status)]
    assert relay(world, receiver.url, timeout=0.2)[0] == said


def test_while_nobody_listens_all_messages_wait_and_none_is_lost(world: World, receiver: Receiver) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{free.getsockname()[1]}"
        assert [(s, status) for s, status, _ in relay(world, nobody)] == [("1", "waiting"), (A, "waiting")]
    relay(world, receiver.url)
    assert receiver.told("large-orders") == LARGE_ORDERS
    assert receiver.told("busy-days") == BUSY_DAYS


def test_messages_that_come_while_others_are_sent_are_sent_too(world: World, receiver: Receiver) -> None:
    def meanwhile(handler: object) -> None:
        world.deliver("2024-01-03", csv("4,2024-01-03,elm,6"))
        world.load("2024-01-03")
        receiver.taken.append(receiver.requests[-1])
        respond(handler, 201)  # type: ignore[arg-type]

    receiver.script = [meanwhile]
    relay(world, receiver.url)
    assert receiver.told("large-orders") == [*LARGE_ORDERS, {"id": 4, "item": "elm", "amount": 6}]


def test_more_messages_than_are_read_at_a_time_are_sent_in_their_order(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path, shop())
    world.deliver(A, csv(*(f"{n},{A},pear,9" for n in range(1, 131))))
    world.load(A)
    relay(world, receiver.url)
    assert [d["id"] for d in receiver.told("large-orders")] == [*range(1, 131)]
    assert len(receiver.requests) == 131


# --------------------------------------------------------------------------- parked


def park_first(world: World, receiver: Receiver) -> str:
    receiver.script = [400]
    relay(world, receiver.url, Patience(attempts=1))
    (key,) = world.sql("SELECT key FROM etl_outbox WHERE status = 'parked'")[0]
    return str(key)


def test_a_released_message_is_sent_after_later_ones_with_all_attempts_before_it(
    world: World, receiver: Receiver
) -> None:
    key = park_first(world, receiver)
    world.warehouse.release(key)
    assert statuses(world)[0] == ("1", "waiting", 0)
    assert relay(world, receiver.url) == [("1", "sent", "")]
    assert receiver.told("large-orders") == [*LARGE_ORDERS[1:], LARGE_ORDERS[0]]


def test_a_discarded_message_is_never_sent_and_stays_in_the_outbox(world: World, receiver: Receiver) -> None:
    world.warehouse.discard(park_first(world, receiver))
    assert relay(world, receiver.url) == []
    assert statuses(world)[0] == ("1", "discarded", 1)
    assert receiver.told("large-orders") == LARGE_ORDERS[1:]


def test_a_waiting_message_is_due_at_once_when_released_and_lets_its_topic_go_on_when_discarded(
    world: World, receiver: Receiver
) -> None:
    patient = Patience(attempts=3, first=3_600.0)
    receiver.script = [500, 201, 201, 500, 500]
    relay(world, receiver.url, patient)
    first, second, _ = (
        key for (key,) in world.sql("SELECT key FROM etl_outbox WHERE topic = 'large-orders' ORDER BY id")
    )
    assert relay(world, receiver.url, patient) == []
    world.warehouse.release(first)
    assert [(subject, status) for subject, status, _ in relay(world, receiver.url, patient)] == [("1", "waiting")]
    world.warehouse.discard(first)
    world.warehouse.release(second)
    assert [(subject, status) for subject, status, _ in relay(world, receiver.url, patient)] == [("2", "waiting")]
    world.warehouse.release(second)
    assert [(subject, status) for subject, status, _ in relay(world, receiver.url, patient)] == [
        ("2", "sent"),
        ("3", "sent"),
    ]
    assert receiver.told("large-orders") == LARGE_ORDERS[1:]


def test_only_a_message_that_is_not_settled_is_released_or_discarded(world: World, receiver: Receiver) -> None:
    key = park_first(world, receiver)
    sent = world.sql("SELECT key FROM etl_outbox WHERE status = 'sent'")[0][0]
    before = world.state()
    for decide in (world.warehouse.release, world.warehouse.discard):
        with pytest.raises(UnknownMessage, match="is sent, neither parked nor waiting"):
            decide(sent)
        with pytest.raises(UnknownMessage, match="is not in the outbox"):
            decide(key + "0")
    assert world.state() == before


# --------------------------------------------------------------------------- two relays, and none


@contextmanager
def another_process_relays(world: World) -> Iterator[subprocess.Popen[str]]:
    code = (
        "import sys, time; from etl_assets.sink import SQLiteWarehouse\n"
        f"with SQLiteWarehouse({world.settings.warehouse!r}).relaying() as alone: print(alone, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        try:
            yield process
        finally:
            process.kill()


def test_of_two_relays_at_once_the_second_says_so_and_sends_nothing_until_the_first_is_gone(
    world: World, receiver: Receiver
) -> None:
    with another_process_relays(world) as process:
        before = world.state()
        with pytest.raises(RelayAtWork, match="another process relays"):
            relay(world, receiver.url)
        assert (receiver.requests, world.state()) == ([], before)
        process.kill()
        process.wait()
        relay(world, receiver.url)
    assert receiver.told("large-orders") == LARGE_ORDERS


def test_two_threads_that_relay_send_each_message_once(world: World, receiver: Receiver) -> None:
    receiver.script = [lambda handler: (time.sleep(0.3), respond(handler, 500))]
    results: list[object] = []

    def run() -> None:
        try:
            results.append(relay(world, receiver.url))
        except RelayAtWork as error:
            results.append(error)

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    relay(world, receiver.url)
    assert any(isinstance(r, RelayAtWork) for r in results)
    assert len({r.key for r in receiver.requests}) == len(receiver.taken) == len(receiver.requests) - 1 == 5


@pytest.mark.parametrize(
    "url",
    [
        None,
        "",
        "ftp://host/x",
        "host:80",
        "http://",
        "http://user:secret@",
        "https://h/x?key=secret",
        "kafka://",
        "kafka://,",
    ],
)
def test_a_relay_that_is_not_set_or_not_known_is_said_without_its_secrets(url: str | None) -> None:
    with pytest.raises(RelayUnavailable, match="ETL_RELAY") as raised:
        open_relay(url)
    assert "secret" not in str(raised.value)


def test_without_a_warehouse_there_is_nothing_to_send_and_nothing_is_made(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path / "empty")
    assert relay(world, receiver.url) == []
    assert [p.name for p in world.root.iterdir()] == ["landing"]


def test_relaying_changes_nothing_but_what_became_of_the_messages(world: World, receiver: Receiver) -> None:
    before = world.state()
    relay(world, receiver.url)
    after = world.state()
    assert {n: r for n, r in after.items() if n != "etl_outbox"} == {
        n: r for n, r in before.items() if n != "etl_outbox"
    }
    assert [row[:8] for row in after["etl_outbox"]] == [row[:8] for row in before["etl_outbox"]]
    assert len(said(world)) == 5
