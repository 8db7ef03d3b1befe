"""The commands, their exit codes and documents."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest

from etl_assets_tests.cli.shell import COMMAND, PIPELINES, Shell

DAY, NEXT = "2024-01-01", "2024-01-02"


def content(day: str, *rows: str) -> str:
    return "\n".join(["id,day,item,amount", *(r.replace("DAY", day) for r in rows)]) + "\n"


@pytest.fixture
def loaded(shell: Shell) -> Shell:
    """Two days delivered, and loaded."""
    shell.deliver(DAY, content(DAY, "1,DAY,pear,3", "2,DAY,fig,5"))
    shell.deliver(NEXT, content(NEXT, "3,DAY,oak,1"))
    answer = shell("run", "orders", "--pending")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines() == [
        f"orders/{DAY}/1.csv#1@1: committed (source=2 inserted=2)",
        f"orders/{NEXT}/1.csv#1@1: committed (source=1 inserted=1)",
    ]
    return shell


def rows(shell: Shell, table: str = "orders", columns: str = "id, item") -> list[tuple]:
    connection = sqlite3.connect(shell.warehouse)
    try:
        return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()
    finally:
        connection.close()


# --------------------------------------------------------------------------- exit codes


def test_done_is_0_also_when_there_was_nothing_to_do(loaded: Shell) -> None:
    again = loaded("run", "orders", "--partition", DAY)
    assert (again.code, again.out) == (0, f"orders/{DAY}/1.csv#1@1: already committed (source=2 inserted=2)\n")
    nothing = loaded("run", "orders", "--pending")
    assert (nothing.code, nothing.out) == (0, "orders: nothing is pending\n")
    document = loaded("run", "orders", "--pending", "--json")
    assert (document.code, document.document) == (0, {"batches": []})


def test_missing_and_refused_are_1_and_the_other_partitions_are_committed(shell: Shell) -> None:
    shell.deliver(DAY, "")
    shell.deliver("2024-01-03", content("2024-01-03", "1,DAY,pear,3"))
    answer = shell("run", "orders", "--from", DAY, "--to", "2024-01-03", "--json")
    assert answer.code == 1
    assert [(b["scope"], b["status"], (b["error"] or "").split(":")[0]) for b in answer.document["batches"]] == [
        (DAY, "refused", "ZeroBytes"),
        (NEXT, "refused", "MissingDelivery"),
        ("2024-01-03", "committed", ""),
    ]
    assert rows(shell) == [(1, "pear")]


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["run", "orders"],
        ["run", "orders", "--partition", DAY, "--pending"],
        ["run", "orders", "--from", DAY],
        ["run", "orders", "--to", DAY],
        ["run", "orders", "--from", NEXT, "--to", DAY],
        ["run", "orders", "--partition", DAY, "--restate"],
        ["run", "orders", "--partition", DAY, "--restate", "--reason", "  "],
        ["run", "orders", "--partition", DAY, "--reason", "because"],
        ["run", "orders", "--pending", "--delivery", "1.csv"],
        ["run", "orders", "--partition", "2025-01-01"],
        ["run", "orders", "--partition", "yesterday"],
        ["run", "orders", "--from", "2023-01-01", "--to", DAY],
        ["run", "nothing", "--pending"],
        ["ledger", "nothing"],
        ["deliveries", "nothing"],
        ["walk"],
        ["run", "orders", "--pending", "--sideways"],
    ],
)
def test_usage_is_2_and_says_what_was_wrong(shell: Shell, arguments: list[str]) -> None:
    answer = shell(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert "rror" in answer.err
    assert not shell.warehouse.exists()


def test_places_that_cannot_be_used_are_2_with_a_document_and_a_message(loaded: Shell) -> None:
    text = loaded.root / "text"
    text.write_text("not a database, and not a folder\n" * 200)
    before = rows(loaded)
    loaded.deliver(DAY, content(DAY, "9,DAY,new,9"), "2.csv")
    commands = {
        "batches": ["run", "orders", "--partition", DAY],
        "deliveries": ["deliveries", "orders"],
    }
    places = [
        ("--landing", loaded.root / "nowhere", "LandingUnreachable", "does not exist"),
        ("--landing", text, "LandingUnreachable", "not a folder"),
        ("--warehouse", text, "WarehouseError", "not a SQLite database"),
        ("--warehouse", loaded.landing, "WarehouseError", "cannot be opened"),
        ("--warehouse", "mysql://host/db", "WarehouseError", "no sink for"),
        ("--staged", text, "", "text"),
    ]
    for option, place, name, words in places:
        for key, command in commands.items():
            if option == "--staged" and key == "deliveries":
                continue
            answer = loaded(*command, option, str(place), "--json")
            assert answer.code == 2, (option, place, answer)
            assert answer.document[key] == []
            assert answer.document["error"].startswith(name)
            assert words in answer.document["error"]
            assert answer.err.startswith("error: ")
    assert text.read_text() == "not a database, and not a folder\n" * 200
    assert rows(loaded) == before


def test_what_the_system_says_of_a_damaged_folder_is_an_error_and_no_traceback(loaded: Shell) -> None:
    for extract in (loaded.root / "staged" / "orders").glob("*/*"):
        extract.unlink()
        extract.mkdir()
    loaded.deliver(DAY, content(DAY, "9,DAY,new,9"), "2.csv")
    for key, command in (("batches", ["run", "orders", "--partition", NEXT]), ("deliveries", ["deliveries", "orders"])):
        answer = loaded(*command, "--json")
        if answer.code:
            assert answer.code == 1
            assert ".tar.zst" in " ".join(str(one.get("error")) for one in answer.document[key])
        assert isinstance(answer.document[key], list)
    assert loaded("run", "orders", "--partition", NEXT, "--delivery", "1.csv#1", "--json").code == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folders_without_permission_are_2(loaded: Shell) -> None:
    loaded.deliver(DAY, content(DAY, "9,DAY,new,9"), "2.csv")
    for folder in (loaded.root / "staged" / "orders" / DAY, loaded.root):
        folder.chmod(0o500)
        try:
            answer = loaded("run", "orders", "--partition", DAY, "--json")
        finally:
            folder.chmod(0o700)
        assert answer.code == 2, answer
        assert "error" in answer.document


def test_a_warehouse_that_is_busy_is_told_from_one_that_is_broken(loaded: Shell) -> None:
    connection = sqlite3.connect(loaded.warehouse)
    with connection:
        connection.execute("INSERT INTO etl_schema VALUES (99, '9.9', 'later')")
    connection.close()
    for command in (["ledger"], ["deliveries"], ["run", "orders", "--pending"]):
        answer = loaded(*command, "--json")
        assert answer.code == 2
        assert answer.document["error"].startswith("LedgerTooNew: ")


# --------------------------------------------------------------------------- documents


def test_every_command_prints_one_document(loaded: Shell) -> None:
    ledger = loaded("ledger", "orders", "--partition", DAY, "--json").document
    (batch,) = ledger["batches"]
    assert batch["batch"] == f"orders/{DAY}/1.csv#1@1"
    assert (batch["pipeline"], batch["scope"], batch["operation"]) == ("orders", DAY, "replace")
    assert len(batch["digest"]) == 64
    assert batch["committed_at"].endswith("Z")
    pinned = {"source", "inserted", "updated", "deleted", "unchanged", "moved", "rejected", "aside", "restored"}
    assert pinned <= set(batch["counts"])
    assert {name: count for name, count in batch["counts"].items() if count} == {"source": 2, "inserted": 2}
    assert [b["scope"] for b in loaded("ledger", "--json").document["batches"]] == [DAY, NEXT]
    loaded.deliver("2024-01-05", "")
    listed = loaded("deliveries", "orders", "--json").document
    assert [(d["scope"], d["name"], d["revision"], d["state"]) for d in listed["deliveries"]] == [
        (DAY, "1.csv", 1, "committed"),
        (NEXT, "1.csv", 1, "committed"),
        ("2024-01-05", "1.csv", 1, "arrived"),
    ]
    assert listed["missing"] == {"orders": ["2024-01-03", "2024-01-04"]}
    run = loaded("run", "orders", "--partition", DAY, "--json").document["batches"]
    assert [(b["batch"], b["status"], b["error"], b["digest"]) for b in run] == [
        (batch["batch"], "already committed", None, batch["digest"])
    ]


def test_commands_without_a_warehouse_answer_that_there_is_nothing_and_make_none(shell: Shell) -> None:
    assert shell("ledger", "--json").document == {"batches": []}
    assert shell("ledger").code == 0
    assert shell("deliveries", "orders", "--json").document == {"deliveries": [], "missing": {}}
    assert shell("run", "orders", "--pending", "--json").document == {"batches": []}
    assert not shell.warehouse.exists()


def test_the_tables_for_people_name_every_batch_and_delivery(loaded: Shell) -> None:
    table = loaded("ledger", "orders")
    assert table.code == 0
    assert [line.split()[0] for line in table.out.splitlines()[1:]] == [
        f"orders/{DAY}/1.csv#1@1",
        f"orders/{NEXT}/1.csv#1@1",
    ]
    loaded.deliver("2024-01-04", "")
    listed = loaded("deliveries", "orders")
    assert [line.split()[1] for line in listed.out.splitlines()[1:4]] == [DAY, NEXT, "2024-01-04"]
    assert listed.out.splitlines()[-1] == "orders: 1 partitions in between have no delivery: 2024-01-03"


# --------------------------------------------------------------------------- restating and naming


def test_a_named_delivery_is_restated_with_a_reason_that_the_ledger_keeps(loaded: Shell) -> None:
    loaded.deliver(DAY, content(DAY, "1,DAY,plum,3"), "2.csv")
    assert loaded("run", "orders", "--pending").code == 0
    plain = loaded("run", "orders", "--partition", DAY, "--delivery", "1.csv", "--json")
    assert (plain.code, plain.document["batches"][0]["status"]) == (0, "already committed")
    assert plain.document["batches"][0]["superseded_by"] == f"orders/{DAY}/2.csv#1@1"
    assert rows(loaded) == [(1, "plum"), (3, "oak")]
    restated = loaded(
        "run", "orders", "--partition", DAY, "--delivery", "1.csv", "--restate", "--reason", "it's “withdrawn”"
    )
    assert restated.code == 0
    assert restated.out.startswith(f"orders/{DAY}/1.csv#1@1+1: committed")
    assert rows(loaded) == [(1, "pear"), (2, "fig"), (3, "oak")]
    last = loaded("ledger", "orders", "--json").document["batches"][-1]
    assert (last["operation"], last["reason"], last["supersedes"]) == (
        "restate",
        "it's “withdrawn”",
        f"orders/{DAY}/2.csv#1@1",
    )
    never = loaded("run", "orders", "--partition", DAY, "--delivery", "7.csv", "--json")
    assert (never.code, never.document["batches"][0]["error"].split(":")[0]) == (1, "MissingDelivery")


def test_an_earlier_revision_is_named_with_its_number(loaded: Shell) -> None:
    loaded.deliver(DAY, content(DAY, "1,DAY,plum,3"))
    assert loaded("run", "orders", "--pending").code == 0
    assert rows(loaded) == [(1, "plum"), (3, "oak")]
    answer = loaded(
        "run", "orders", "--partition", DAY, "--delivery", "1.csv#1", "--restate", "--reason", "revision 2 was wrong"
    )
    assert answer.code == 0, answer.err
    assert rows(loaded) == [(1, "pear"), (2, "fig"), (3, "oak")]


# --------------------------------------------------------------------------- odd names


def test_partition_keys_of_any_characters_can_be_named(shell: Shell) -> None:
    for folder, shop in (("north", "north"), ("it's south%2Fwest", "it's south/west"), ("Zürich", "Zürich")):
        shell.deliver(folder, f'shop,price\n"{shop}",7\n', pipeline="prices")
        answer = shell("run", "prices", "--partition", shop, "--json")
        assert (answer.code, answer.document["batches"][0]["scope"]) == (0, shop), answer
    assert {b["scope"] for b in shell("ledger", "prices", "--json").document["batches"]} == {
        "north", "it's south/west", "Zürich",
    }  # fmt: skip
    assert rows(shell, "prices", "shop, price") == [("Zürich", 7), ("it's south/west", 7), ("north", 7)]
    for odd in ("", "../north", "north'; DROP TABLE prices; --", "nörth", b"\xff\xfe"):
        answer = shell("run", "prices", "--partition", odd, "--json")
        assert answer.code == 2, answer
        assert answer.document["error"].startswith("UnknownScope")


def test_a_file_whose_name_is_no_text_is_listed_and_does_not_stop_the_others(loaded: Shell) -> None:
    loaded.deliver("2024-01-03", content("2024-01-03", "7,DAY,elm,1"), b"caf\xe9.csv")
    loaded.deliver("2024-01-04", content("2024-01-04", "8,DAY,ash,1"))
    listed = loaded("deliveries", "orders", "--json")
    assert listed.code == 0
    assert len(listed.document["deliveries"]) == 4
    assert loaded("deliveries", "orders").code == 0
    loaded("run", "orders", "--pending", "--json")
    assert (8, "ash") in rows(loaded)


# --------------------------------------------------------------------------- where pipelines are


def test_pipelines_are_found_in_a_folder_a_file_or_a_module(loaded: Shell) -> None:
    file = loaded.pipelines / "shop.py"
    for place in (str(loaded.pipelines), str(file), f"{file}{os.pathsep}{loaded.pipelines}"):
        assert loaded("run", "orders", "--partition", DAY, ETL_PIPELINES=place).code == 0, place
    module = loaded("run", "orders", "--partition", DAY, ETL_PIPELINES="shop", PYTHONPATH=str(loaded.pipelines))
    assert module.code == 0, module.err
    package = loaded("run", "orders", "--partition", DAY, ETL_PIPELINES="shop_pipelines", PYTHONPATH=str(loaded.root))
    assert package.code == 0, package.err


@pytest.mark.parametrize(
    "place, words",
    [("nowhere/at/all", "neither a folder nor a file"), ("no_such_module", "module that can be imported")],
)
def test_a_place_without_pipelines_is_2_and_named(shell: Shell, place: str, words: str) -> None:
    answer = shell("run", "orders", "--pending", "--json", ETL_PIPELINES=place)
    assert answer.code == 2
    assert place in answer.document["error"]
    assert words in answer.document["error"]


@pytest.mark.parametrize(
    "source, words",
    [
        ("def broken(:\n", "SyntaxError"),
        ("1 / 0\n", "ZeroDivisionError"),
        (PIPELINES.replace('key=["shop"]', 'key=["shoop"]'), "'shoop' is not one of the columns"),
        (PIPELINES.replace('name="prices"', 'name="orders"'), "two pipelines are named 'orders'"),
    ],
)
def test_a_pipeline_module_that_cannot_be_loaded_is_2_and_named(shell: Shell, source: str, words: str) -> None:
    Path(shell.pipelines / "shop.py").write_text(source)
    answer = shell("deliveries", "--json")
    assert answer.code == 2
    assert words in answer.document["error"]
    assert "shop" in answer.document["error"]


def test_the_version_and_the_help_are_printed(shell: Shell) -> None:
    assert shell("--version").out.startswith("etl-assets, version ")
    for command in ([], ["run"], ["deliveries"], ["ledger"]):
        answer = shell(*command, "--help")
        assert answer.code == 0
        assert answer.out.startswith("Usage: ")
    assert json.loads(shell("ledger", "--json").out) == {"batches": []}


def test_wrong_usage_is_a_document_too_where_one_is_asked_for(shell: Shell) -> None:
    found = shell("run", "orders", "--json")
    assert (found.code, found.document) == (
        2,
        {"error": "say which partitions, in one way: --partition KEY, or --from KEY --to KEY, or --pending"},
    )
    assert (shell("run", "orders").code, shell("run", "orders").out) == (2, "")


def test_what_lies_under_no_partition_is_passed_over_with_a_word(shell: Shell) -> None:
    path = shell.deliver("2031-01-01", "id,day,item,amount\n1,2031-01-01,pear,1\n")
    found = shell("run", "orders", "--pending")
    assert (found.code, found.out) == (0, "orders: nothing is pending\n")
    assert found.err.startswith(f"passed over: {path}: '2031-01-01' is not among the daily partitions")


def test_the_ledger_of_a_partition_that_is_none_is_wrong_usage(shell: Shell) -> None:
    found = shell("ledger", "orders", "--partition", "banana")
    assert found.code == 2
    assert "orders has no partition 'banana'" in found.err


def test_an_interrupted_run_says_so_keeps_what_is_committed_and_has_a_code_of_its_own(shell: Shell) -> None:
    shell.deliver("2024-01-01", "id,day,item,amount\n1,2024-01-01,pear,1\n")
    assert shell("run", "orders", "--pending").code == 0
    shell.deliver("2024-01-02", "id,day,item,amount\n" + "".join(f"{n},2024-01-02,fig,1\n" for n in range(200_000)))
    with subprocess.Popen(
        [COMMAND, "run", "orders", "--pending"], env=shell.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        incoming = shell.root / "staged" / ".incoming"
        while not any(incoming.glob("*/input")) and running.poll() is None:
            time.sleep(0.005)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=60)
    assert (running.returncode, said.decode().lstrip()) == (
        130,
        "interrupted: what is committed stays, and the next run goes on from there\n",
    )
    assert [b["scope"] for b in shell("ledger", "orders", "--json").document["batches"]] == ["2024-01-01"]
    assert shell("run", "orders", "--pending").code == 0
