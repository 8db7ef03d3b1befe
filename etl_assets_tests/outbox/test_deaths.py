"""Death at every step, of what writes messages and of what sends them."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from etl_assets_tests.cli.shell import COMMAND
from etl_assets_tests.faults import test_death as deaths
from etl_assets_tests.faults import test_exceptions as exceptions
from etl_assets_tests.faults.forking import DONE, Forks
from etl_assets_tests.faults.scenarios import Stage
from etl_assets_tests.outbox.receiver import Receiver
from etl_assets_tests.outbox.scenarios import ALL
from etl_assets_tests.outbox.shop import A, B, csv, said, shop, statuses
from etl_assets_tests.outbox.test_deliver import relay
from etl_assets_tests.world import World

# --------------------------------------------------------------------------- publish


@pytest.fixture(scope="module")
def publishers() -> Iterator[deaths.Victims]:
    victims = deaths.Victims()
    yield victims
    victims.close()


@pytest.mark.parametrize("scenario, after", [("moved keys, told", True)])
def test_a_message_is_there_if_and_only_if_its_batch_is_whatever_statement_the_process_dies_at(
    publishers: deaths.Victims, scenario: str, after: bool, tmp_path: Path
) -> None:
    deaths.sweep(publishers, ALL[scenario], "SIGKILL", after, tmp_path)


def test_an_exception_at_any_statement_takes_the_messages_back_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions.sweep(ALL["next events, told"], "terminate", False, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("how", deaths.HOWS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_way_to_die_at_every_statement_leaves_messages_as_it_leaves_rows(
    publishers: deaths.Victims, scenario: str, how: str, after: bool, tmp_path: Path
) -> None:
    deaths.sweep(publishers, ALL[scenario], how, after, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("kind", exceptions.KINDS)
@pytest.mark.parametrize("scenario", ALL)
def test_every_exception_at_every_statement_leaves_messages_as_it_leaves_rows(
    scenario: str, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exceptions.sweep(ALL[scenario], kind, False, tmp_path, monkeypatch)


def test_the_scenarios_say_what_they_are_named_for(tmp_path: Path) -> None:
    stages = {name: Stage(s, tmp_path / name) for name, s in ALL.items()}
    assert [[s for s, _ in said(stage.world)] for stage in stages.values()] == [
        ["2", "3", A],
        ["2", "3", A, "7", "7", B],
        ["1", "2", "1", "4"],
    ]
    assert said(stages["moved keys, told"].world)[4:] == [
        ("7", {"id": 7, "item": "oak", "amount": 8}),
        (B, {"day": B, "total": 15}),
    ]


# --------------------------------------------------------------------------- relay


class Relays(Forks):
    """The process that forks relays that die."""

    def __init__(self) -> None:
        super().__init__("etl_assets_tests.outbox.victim", NO_PROXY="127.0.0.1")

    def die(self, warehouse: Path, url: str, at: int) -> int:
        return self.order(warehouse=str(warehouse), url=url, at=at)


@pytest.fixture(scope="module")
def relays() -> Iterator[Relays]:
    relays = Relays()
    yield relays
    relays.close()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Two messages of one topic and one of another wait."""
    world = World(tmp_path, shop())
    world.deliver(A, csv(f"1,{A},pear,9", f"2,{A},fig,5"))
    world.load(A)
    return world


def restore(saved: Path, file: Path) -> None:
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(saved, file)


@pytest.mark.parametrize("refusals", [[], [500]])
def test_a_relay_that_is_killed_at_any_step_loses_no_message_and_the_receiver_takes_each_once_and_in_order(
    world: World, relays: Relays, receiver: Receiver, refusals: list[int]
) -> None:
    file, saved = Path(world.settings.warehouse), world.root / "before.sqlite"
    shutil.copyfile(file, saved)
    wanted = {
        topic: [json.loads(p)["data"] for (p,) in world.sql(QUERY, topic)] for topic in ("large-orders", "busy-days")
    }
    sent_twice = steps = 0
    for number in itertools.count():
        restore(saved, file)
        receiver.requests, receiver.taken, receiver.script = [], [], [*refusals]
        code = relays.die(file, receiver.url, number)
        assert code == (DONE if code == DONE else -signal.SIGKILL)
        while relay(world, receiver.url):  # a successor, until nothing is due
            pass
        assert {topic: receiver.told(topic) for topic in wanted} == wanted
        assert len({r.key for r in receiver.taken}) == len(receiver.taken) == 3
        assert [(s, status) for s, status, _ in statuses(world)] == [("1", "sent"), ("2", "sent"), (A, "sent")]
        sent_twice += len(receiver.requests) > 3 + len(refusals)
        if code == DONE:
            break
        steps += 1
    assert steps > 30
    assert sent_twice > 5  # between sending and marking there are steps at which it has to be sent again


QUERY = "SELECT payload FROM etl_outbox WHERE topic = ? ORDER BY id"


def test_the_command_that_is_killed_while_it_waits_for_the_answer_is_followed_by_one_that_completes(
    world: World, receiver: Receiver
) -> None:
    environment = {**os.environ, "ETL_WAREHOUSE": world.settings.warehouse, "ETL_RELAY": receiver.url}
    command = [str(COMMAND), "relay"]

    def take_and_kill(handler: object) -> None:
        receiver.taken.append(receiver.requests[-1])
        first.kill()
        first.wait()

    receiver.script = [take_and_kill]
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    assert first.wait(60) == -signal.SIGKILL
    assert statuses(world) == [("1", "waiting", 0), ("2", "waiting", 0), (A, "waiting", 0)]
    second = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (second.returncode, second.stderr) == (0, "")
    assert [line.rpartition(": ")[2] for line in second.stdout.splitlines()] == ["sent", "sent", "sent"]
    assert [r.document["subject"] for r in receiver.taken] == ["1", "2", A]


def test_publishing_and_relaying_at_once_lose_nothing_and_send_in_order(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path, shop())
    days = [f"2024-01-{n:02}" for n in range(1, 9)]
    for number, day in enumerate(days, 1):
        world.deliver(day, csv(f"{number},{day},pear,{10 + number}"))
    world.load(B)
    environment = {**os.environ, "ETL_WAREHOUSE": world.settings.warehouse, "ETL_RELAY": receiver.url}
    relays = [subprocess.Popen([str(COMMAND), "relay"], env=environment, stderr=subprocess.DEVNULL) for _ in range(2)]
    for day in days:
        world.load(day)
    assert [process.wait(60) for process in relays] == [0, 0]
    relay(world, receiver.url)
    assert len(receiver.requests) == len(receiver.taken) == 16
    for topic in ("large-orders", "busy-days"):
        rows = world.sql("SELECT payload FROM etl_outbox WHERE topic = ? ORDER BY id", topic)
        assert receiver.told(topic) == [json.loads(payload)["data"] for (payload,) in rows]
