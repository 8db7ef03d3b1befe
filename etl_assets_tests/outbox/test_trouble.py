"""Receivers and people that stand in the way of a relay: no message is lost, none holds up others for ever, no secret shows."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from email.utils import format_datetime
from functools import partial
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import RelayAtWork
from etl_assets.model import Message
from etl_assets.outbox import Attempt, Patience, Refused, deliver
from etl_assets.outbox.http import HttpRelay
from etl_assets.outbox.masking import shown
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite.connection import writing
from etl_assets_tests.outbox.receiver import Receiver, hang_up, respond
from etl_assets_tests.outbox.shop import A, B, csv, shop, statuses
from etl_assets_tests.outbox.test_deliver import HASTY, LARGE_ORDERS, another_process_relays, relay
from etl_assets_tests.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three large orders and two busy days wait, the topics in turn."""
    world = World(tmp_path / "world", shop())
    world.deliver(A, csv(f"1,{A},pear,10", f"2,{A},fig,5"))
    world.deliver(B, csv(f"3,{B},oak,20"))
    world.load(A, B)
    return world


def first_refused(world: World, url: str) -> Attempt:
    with closing(HttpRelay(url, 5.0)) as out:
        return next(a for a in deliver(world.warehouse, out, Patience()) if isinstance(a.outcome, Refused))


def key_of(world: World, subject: str) -> str:
    return str(world.sql("SELECT key FROM etl_outbox WHERE subject = ?", subject)[0][0])


# --------------------------------------------------------------------------- what an answer proves


def test_409_says_that_the_first_request_is_under_way_and_proves_nothing(world: World, receiver: Receiver) -> None:
    receiver.script = [hang_up, 201, 201, 409, 500]
    assert relay(world, receiver.url)[0][1] == "waiting"
    assert relay(world, receiver.url)[0][:2] == ("1", "waiting")  # the receiver is at it, and then fails
    assert relay(world, receiver.url, Patience(attempts=9))[0][:2] == ("1", "waiting")
    world.warehouse.release(key_of(world, "1"))
    relay(world, receiver.url)
    assert receiver.told("large-orders") == LARGE_ORDERS


@pytest.mark.parametrize("status", [413, 414, 422, 431])
def test_what_can_never_succeed_is_parked_at_once(world: World, receiver: Receiver, status: int) -> None:
    receiver.script = [status]
    assert [s for s, _, _ in relay(world, receiver.url, Patience())] == ["1", "2", A, "3", B]
    assert statuses(world) == [("1", "parked", 1), ("2", "sent", 1), (A, "sent", 1), ("3", "sent", 1), (B, "sent", 1)]


def test_too_large_for_the_moment_is_tried_again_when_the_receiver_says_so(world: World, receiver: Receiver) -> None:
    receiver.script = [partial(respond, status=413, Retry_After="60")]
    assert first_refused(world, receiver.url).retry_after == 60.0


HTTP_DATES = [
    lambda moment: format_datetime(moment, usegmt=True),
    lambda moment: moment.strftime("%A, %d-%b-%y %H:%M:%S GMT"),
    lambda moment: moment.strftime("%a %b %e %H:%M:%S %Y"),
]


@pytest.mark.parametrize("form", HTTP_DATES)
@pytest.mark.parametrize("hours", [2, 48])
def test_a_date_in_retry_after_is_obeyed_by_the_receivers_clock(
    world: World, receiver: Receiver, form: Callable[[dt.datetime], str], hours: int
) -> None:
    wrong = dt.datetime(2031, 3, 4, 5, 6, 7, tzinfo=dt.UTC)  # a clock far from ours

    def limited(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(429)
        handler.send_header("Date", form(wrong))
        handler.send_header("Retry-After", form(wrong + dt.timedelta(hours=hours)))
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    receiver.script = [limited]
    assert first_refused(world, receiver.url).retry_after == min(hours, 24) * 3600.0


def test_without_a_date_of_the_answer_our_clock_counts(world: World, receiver: Receiver) -> None:
    def limited(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response_only(503)
        handler.send_header(
            "Retry-After", format_datetime(dt.datetime.now(dt.UTC) + dt.timedelta(hours=1), usegmt=True)
        )
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    receiver.script = [limited]
    asked = first_refused(world, receiver.url).retry_after
    assert asked is not None
    assert 3500 < asked <= 3600


@pytest.mark.parametrize(
    "asked", ["0", "00", "Thu, 01 Jan 1970 00:00:00 GMT", "Thu, 99 Foo 2040", "Fri, 31 Dec 9999999 1"]
)
def test_no_pause_a_past_one_and_nonsense_are_the_usual_pause(world: World, receiver: Receiver, asked: str) -> None:
    receiver.script = [partial(respond, status=503, Retry_After=asked)]
    assert first_refused(world, receiver.url).retry_after == Patience().first


def test_a_receiver_that_asks_for_short_pauses_does_not_park_its_messages_within_minutes() -> None:
    patience = Patience()
    pauses = [patience.pause(attempt, 1.0) for attempt in range(1, 31)]
    assert pauses[:5] == [1.0] * 5
    assert pauses[-1] is None
    assert sum(p for p in pauses if p) > 20 * 3600


# --------------------------------------------------------------------------- answers that never end


def drip(handler: BaseHTTPRequestHandler, each: bytes, first: bytes = b"") -> None:
    """Send a little now and then, each time within a socket's timeout; for longer than any attempt may take."""
    handler.close_connection = True
    until = time.monotonic() + 5.0
    try:
        handler.connection.sendall(first)
        while time.monotonic() < until:
            handler.connection.sendall(each)
            time.sleep(0.05)
    except OSError:
        pass


OK = b"HTTP/1.1 200 OK\r\n"
ENDLESS = {
    "a status line": (b"1", b""),
    "a header": (b"x", OK + b"X-Long: "),
    "headers": (b"X-A: b\r\n", OK),
    "100 Continue": (b"HTTP/1.1 100 Continue\r\n\r\n", b""),
    "lengths of chunks": (b"0", b"HTTP/1.1 500 No\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "nothing, a connection that closes": (b"", b"HTTP/1.1 500 No\r\nConnection: close\r\n\r\n"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_that_drips_for_ever_ends_with_the_attempt(world: World, receiver: Receiver, what: str) -> None:
    each, start = ENDLESS[what]
    receiver.script = [partial(drip, each=each, first=start)]
    began = time.monotonic()
    with closing(HttpRelay(receiver.url, 0.5)) as out:
        first = next(iter(deliver(world.warehouse, out, HASTY)))
    assert time.monotonic() - began < 4.0
    assert (first.message.subject, first.status) == ("1", "waiting")
    assert statuses(world)[0] == ("1", "waiting", 1)


def test_what_follows_an_early_hint_is_no_answer_to_the_next_message(world: World, receiver: Receiver) -> None:
    def hint(handler: BaseHTTPRequestHandler) -> None:
        handler.connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n")
        time.sleep(0.1)
        handler.connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    receiver.script = [hint, 500]
    relay(world, receiver.url)
    relay(world, receiver.url)
    assert receiver.told("busy-days") == [{"day": A, "total": 15}, {"day": B, "total": 20}]
    assert receiver.told("large-orders") == LARGE_ORDERS


# --------------------------------------------------------------------------- decisions while a relay works


def decide_and(receiver: Receiver, decide: Callable[[], object], status: int) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        decide()
        if status < 300:
            receiver.taken.append(receiver.requests[-1])
        respond(handler, status)

    return answer


@pytest.mark.parametrize("status, said", [(201, "sent, though someone decided"), (500, "discarded meanwhile: 500")])
def test_a_message_discarded_on_its_way_stays_discarded_and_lets_its_topic_go_on(
    world: World, receiver: Receiver, status: int, said: str
) -> None:
    receiver.script = [decide_and(receiver, lambda: world.warehouse.discard(key_of(world, "1")), status)]
    with closing(HttpRelay(receiver.url, 5.0)) as out:
        attempts = list(deliver(world.warehouse, out, Patience(attempts=1)))
    assert (attempts[0].message.subject, attempts[0].status) == ("1", "discarded")
    assert said in attempts[0].said
    assert statuses(world)[:2] == [("1", "discarded", 0), ("2", "sent", 1)]


def test_a_message_that_is_discarded_before_its_turn_is_not_sent(world: World, receiver: Receiver) -> None:
    receiver.script = [decide_and(receiver, lambda: world.warehouse.discard(key_of(world, "2")), 201)]
    relay(world, receiver.url)
    assert receiver.told("large-orders") == [LARGE_ORDERS[0], LARGE_ORDERS[2]]
    assert statuses(world)[1] == ("2", "discarded", 0)


def test_a_message_that_is_released_during_its_last_attempt_is_not_parked(world: World, receiver: Receiver) -> None:
    receiver.script = [500]
    relay(world, receiver.url, Patience(attempts=2, first=0.0))
    receiver.script = [decide_and(receiver, lambda: world.warehouse.release(key_of(world, "1")), 500)]
    relay(world, receiver.url, Patience(attempts=2, first=0.0))
    assert statuses(world)[0] == ("1", "waiting", 0)


# --------------------------------------------------------------------------- one relay


def linked(world: World, how: Callable[[Any, Any], None]) -> SQLiteWarehouse:
    link = world.root / "elsewhere" / "linked.sqlite"
    link.parent.mkdir()
    how(world.settings.warehouse, link)
    return SQLiteWarehouse(link)


@pytest.mark.parametrize("how", [os.symlink, os.link])
def test_a_link_to_the_warehouse_allows_no_second_relay(world: World, how: Callable[[Any, Any], None]) -> None:
    with another_process_relays(world), linked(world, how).relaying() as alone:
        assert alone is False
    with linked_again(world).relaying() as alone:
        assert alone is True


def linked_again(world: World) -> SQLiteWarehouse:
    return SQLiteWarehouse(world.root / "elsewhere" / "linked.sqlite")


def test_there_is_no_lock_file_whose_removal_allows_a_second_relay(world: World, receiver: Receiver) -> None:
    with another_process_relays(world):
        for file in Path(world.settings.warehouse).parent.glob("*.relay"):
            file.unlink()
        with pytest.raises(RelayAtWork):
            relay(world, receiver.url)
    assert receiver.requests == []


def test_locks_of_sqlite_outlive_a_relay_of_another_thread(world: World) -> None:
    with writing(Path(world.settings.warehouse)) as connection:
        with world.warehouse.relaying() as alone:
            assert alone
        probe = (
            f"import sqlite3; c = sqlite3.connect({world.settings.warehouse!r}, timeout=0.1)\n"
            "try: c.execute('BEGIN IMMEDIATE')\nexcept sqlite3.OperationalError as e: print(e)"
        )
        said = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True).stdout
        assert said == "database is locked\n"
        assert connection.in_transaction


def test_a_relay_stops_when_the_warehouse_is_replaced_under_it(world: World, receiver: Receiver) -> None:
    file = Path(world.settings.warehouse)

    def replace() -> None:
        shutil.copyfile(file, copy)
        copy.replace(file)

    copy = file.with_name("copy.sqlite")
    receiver.script = [decide_and(receiver, replace, 201)]
    with pytest.raises(RelayAtWork, match="was replaced"):
        relay(world, receiver.url)
    assert len(receiver.requests) == 1


# --------------------------------------------------------------------------- secrets

SECRETS = ["t0ken-Abc123", "jane.doe", "pa%24s:w", "pa$s:w"]


def everything_shown(world: World, url: str, timeout: float = 5.0) -> str:
    with closing(HttpRelay(url, timeout)) as out:
        attempts = list(deliver(world.warehouse, out, HASTY))
    return "\n".join([*(a.said for a in attempts), *map(str, world.sql("SELECT last_error FROM etl_outbox"))])


@pytest.mark.parametrize("trouble", ["nobody listens", "echo", "redirect", "echo cut", "dawdle", "garbage"])
def test_no_secret_of_the_url_shows_in_what_is_said_and_stored(world: World, receiver: Receiver, trouble: str) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        if trouble == "garbage":
            handler.connection.sendall(f"{handler.path} is no status\r\n\r\n".encode())
            handler.close_connection = True
        elif trouble == "dawdle":
            time.sleep(0.5)
            handler.close_connection = True
        else:
            before = "x" * 290 if trouble == "echo cut" else f"{handler.headers['Authorization']} jane.doe pa$s:w "
            respond(
                handler,
                307 if trouble == "redirect" else 404,
                f"{before}Cannot POST {handler.path}",
                Location=handler.path,
            )

    host = receiver.url.partition("//")[2].partition("/")[0]
    place = "127.0.0.1:1" if trouble == "nobody listens" else host
    receiver.script = [answer, answer]
    said = everything_shown(
        world, f"http://jane.doe:pa%24s%3Aw@{place}/hooks/t0ken-Abc123", 0.3 if trouble == "dawdle" else 5.0
    )
    assert "not taken" in said
    for secret in [*SECRETS, "t0ken", "amFuZS5kb2U6cGEkczp3"]:
        assert secret not in said


@pytest.mark.parametrize(
    "url, wanted",
    [
        ("https://hooks.example/services/t0ken", "https://hooks.example"),
        ("https://me:secret@hooks.example:8443/x?key=secret#secret", "https://hooks.example:8443"),
        ("https://me:se@cret@hooks.example/x", "https://hooks.example"),
        ("https://me:se/cret@hooks.example/x", "https://…"),
        ("kafka://me:secret@a:9092,b:9092?sasl.password=secret", "kafka://a:9092,b:9092"),
        ("me:secret@host", "what is set"),
        ("se cret://x", "what is set"),
        ("", "what is set"),
    ],
)
def test_of_a_url_the_scheme_and_the_host_are_shown(url: str, wanted: str) -> None:
    assert shown(url) == wanted


def test_a_message_is_told_apart_by_its_key_and_not_by_its_number(world: World) -> None:
    first = world.warehouse.due()[0]
    other = Message(**{f: getattr(first, f) for f in first.__dataclass_fields__} | {"key": "another/1/0"})
    assert world.warehouse.sent(other) == "gone"
    assert {status for _, status, _ in statuses(world)} == {"waiting"}
