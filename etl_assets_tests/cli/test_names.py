"""Names are data: whatever a file system allows is loaded, shown without what a terminal obeys, and never parsed."""

from __future__ import annotations

import gzip
import os
import pty
import re
import subprocess
from pathlib import Path

import pytest

from etl_assets.contract import ChangeLogTable, Daily, integer, text
from etl_assets_tests.cli.shell import COMMAND, Shell
from etl_assets_tests.world import DAYS, World

DAY = DAYS[0]
NAMES = [
    "events#1",
    "events#1#2",
    "a@2#3+4:5..6",
    "two\nlines",
    "trailing\n",
    "\x1b[2J\x1b]0;title\x07",
    "\u202egnp.csv",
    "tab\tand space ",
    "100%25",
    'it\'s "quoted" & <b>',
    "[red]markup",
    "-rf",
    "n" * 255,
    "é" * 127,
    "#1",
]


def log(**changes: object) -> ChangeLogTable:
    fields: dict[str, object] = {
        "name": "log",
        "partitions": Daily(start=DAY, end="2024-02-01"),
        "landing": "log/{partition}/*",
        "columns": [integer("id"), text("item")],
        "key": ["id"],
    }
    return ChangeLogTable(**(fields | changes))  # type: ignore[arg-type]


def event(position: int, item: str = "x") -> str:
    return f'{{"pos": {position}, "op": "upsert", "version": 1, "row": {{"id": {position}, "item": "{item}"}}}}\n'


def test_a_logs_file_called_as_a_revision_of_another_is_loaded(tmp_path: Path) -> None:
    world = World(tmp_path, log())  # type: ignore[arg-type]
    world.deliver(DAY, event(1), "events")
    world.load_pending()
    world.deliver(DAY, event(2), "events#1")
    assert [o.batch for o in world.load_pending() if o.status == "committed"] == [f"log/{DAY}/events%231#1@1"]
    assert len(world.rows()) == 2
    # A person names it, or its own first revision, or that of the other.
    for name in ("events#1", "events#1#1"):
        (outcome,) = world.load(DAY, delivery=name)
        assert (outcome.status, outcome.batch) == ("already committed", f"log/{DAY}/events%231#1@1")
    (world.landing / "log" / DAY / "events#1").unlink()
    (outcome,) = world.load(DAY, delivery="events#1")
    assert outcome.batch == f"log/{DAY}/events#1@1"


def test_a_log_of_names_of_every_kind_is_loaded_whole(tmp_path: Path) -> None:
    world = World(tmp_path, log())  # type: ignore[arg-type]
    for position, name in enumerate(NAMES, start=1):
        world.deliver(DAY, event(position), name)
    outcomes = world.load_pending()
    assert [o.message for o in outcomes] == ["committed"] * len(NAMES)
    assert sorted(i for i, _ in world.rows()) == list(range(1, len(NAMES) + 1))
    assert {s.name: s.state for s in world.survey().statuses} == dict.fromkeys(NAMES, "committed")
    assert world.load_pending() == []


@pytest.mark.parametrize("name", NAMES)
def test_a_correction_of_any_name_is_loaded_and_shown(shell: Shell, name: str) -> None:
    shell.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,3\n", name)
    run = shell("run", "orders", "--pending")
    assert (run.code, run.err) == (0, "")
    listed, ledger = shell("deliveries", "orders"), shell("ledger", "orders")
    for shown in (run.out, listed.out, ledger.out):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", shown)
    assert len(ledger.out.splitlines()) == len(listed.out.splitlines()) - listed.out.count("have no delivery") == 2
    (delivery,) = shell("deliveries", "orders", "--json").document["deliveries"]
    assert (delivery["name"], delivery["state"]) == (name, "committed")
    again = shell("run", "orders", "--partition", DAY, f"--delivery={name}")
    assert again.code == 0
    assert "already committed" in again.out
    missing = shell("run", "orders", "--partition", DAY, f"--delivery={name}x")
    assert missing.code == 1
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f\u202e]", missing.err)


def test_a_revision_of_a_compressed_log_is_unpacked(tmp_path: Path) -> None:
    world = World(tmp_path, log())  # type: ignore[arg-type]
    world.deliver(DAY, gzip.compress(event(1).encode()), "x.jsonl.gz")
    world.load_pending()
    newer = log(columns=[integer("id"), text("item"), text("more", optional=True)])
    (outcome,) = world.load(DAY, delivery="x.jsonl.gz#1", pipeline=newer)  # type: ignore[arg-type]
    assert (outcome.status, outcome.message) == ("already committed", "already committed")


def test_a_ledger_in_a_narrow_terminal_shows_the_names_of_batches(shell: Shell) -> None:
    shell.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,3\n", "a-delivery-with-a-longer-name.csv")
    shell("run", "orders", "--pending")
    master, slave = pty.openpty()
    environment = shell.environment | {"COLUMNS": "80", "TERM": "dumb"}
    subprocess.run([COMMAND, "ledger", "orders"], env=environment, cwd=shell.root, stdout=slave, check=True)
    os.close(slave)
    lines = os.read(master, 1 << 16).decode().splitlines()
    os.close(master)
    assert all(len(line) <= 80 for line in lines)
    first = "".join(line[: lines[0].index("rows")].strip() for line in lines[1:])
    assert first == f"orders/{DAY}/a-delivery-with-a-longer-name.csv#1@1"
    assert "inserted=1" in "".join(lines)
