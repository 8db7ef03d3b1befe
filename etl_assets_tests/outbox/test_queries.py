"""SQL of contracts: it does not ask the clock in any form, comes to an end, and can be interrupted."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from etl_assets.contract import DerivedTable, Notification, date, integer, same_partition, text
from etl_assets.contract.queries import reading
from etl_assets.errors import BadMessage, ContractError, TransformFailed
from etl_assets.sink.sqlite import notify
from etl_assets_tests.outbox.shop import A, B, csv, said, shop
from etl_assets_tests.world import World, orders

#: Endless only where the table has rows: on an empty one it ends at once.
ENDLESS = "WITH RECURSIVE n (i) AS (SELECT id FROM orders UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS id FROM n"
CLOCKS = [
    '"date"()',
    "[date]()",
    "`datetime`()",
    "date('n' || 'ow')",
    "date(lower('NOW'))",
    "datetime(replace('nox', 'x', 'w'), '+1 day')",
    "strftime('%Y-%m-%d', substr('xnow', 2))",
    "strftime('%Y' || '-%m')",
    "time(item || 'w')",
    "julianday('no' || char(119))",
    "unixepoch('n' || 'ow')",
    "date('2024-01-01', 'local' || 'time')",
    "datetime('2024-01-01', 'u' || 'tc')",
]


def allow(*_: object) -> int:
    return sqlite3.SQLITE_OK


@pytest.mark.parametrize("clock", CLOCKS)
def test_the_clock_is_refused_in_whatever_words_it_is_asked_for(tmp_path: Path, clock: str) -> None:
    sql = f"SELECT id, {clock} AS at FROM orders"
    try:
        pipeline = shop(Notification(name="told", topic="t", sql=sql, key=["id"]))
        derived = summed(f"SELECT :partition AS day, {clock} AS item, 1 AS total FROM orders")
    except ContractError as error:
        assert "clock" in str(error) or "another time" in str(error) or "zone" in str(error)  # noqa: PT017
        return
    world = World(tmp_path, pipeline)
    world.deliver(A, csv(f"1,{A},no,3"))
    (outcome,) = world.load(A)
    assert isinstance(outcome.error, BadMessage)
    assert "not a function of the tables" in str(outcome.error) or "zone of the machine" in str(outcome.error)
    world.load(A, pipeline=shop())
    (outcome,) = world.load(A, pipeline=derived)
    assert isinstance(outcome.error, TransformFailed)


def test_functions_of_time_that_ask_no_clock_give_what_sqlite_gives() -> None:
    calls = [
        "date('2024-02-28', '+2 days')", "date(NULL)", "date(2460000.5)", "datetime(0, 'unixepoch')", "date('nonsense')",
        "time('2024-01-01T10:11:12')", "julianday('2024-01-01')", "unixepoch('2024-01-01')", "strftime('%H', '10:00')",
        "strftime('%J', 2460000)", "strftime(NULL, 1)", "date(x'323032342d30312d3031')", "date('now ')",
    ]  # fmt: skip
    query = f"SELECT {', '.join(calls)}"
    with closing(sqlite3.connect(":memory:")) as connection:
        plain = connection.execute(query).fetchall()
        with reading(connection, allow):
            watched = connection.execute(query).fetchall()
        assert watched == plain
        assert connection.execute("SELECT date('now') IS NOT NULL").fetchall() == [(1,)]


def test_a_query_that_does_not_end_on_an_empty_table_is_a_fault_of_the_contract() -> None:
    endless = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) AS id FROM n"
    with pytest.raises(ContractError, match="does not end"):
        shop(Notification(name="endless", topic="t", sql=endless, key=["id"]))


def test_an_endless_query_is_its_partitions_trouble_and_lets_the_lock_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "SECONDS", 0.3)
    sql = f"{ENDLESS} WHERE i < 100 OR :partition = '{A}'"
    sql = sql.replace("SELECT id FROM orders UNION", f"SELECT id FROM orders WHERE :partition = '{A}' UNION")
    world = World(tmp_path, shop(Notification(name="endless", topic="t", sql=sql, key=["id"])))
    world.deliver(A, csv(f"1,{A},pear,3"))
    world.deliver(B, csv(f"2,{B},fig,4"))
    first, second = world.load(A, B)
    assert isinstance(first.error, BadMessage)
    assert "took longer than 0.3 s" in str(first.error)
    assert isinstance(second.error, BadMessage)  # max() of nothing is no subject
    assert world.rows() == []
    world.load(A, B, pipeline=shop())
    assert len(world.rows()) == 2


def test_a_result_of_too_many_rows_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notify, "MOST", 3)
    sql = "WITH RECURSIVE n (i) AS (SELECT id FROM orders UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n"
    world = World(tmp_path, shop(Notification(name="many", topic="t", sql=sql, key=["id"])))
    world.deliver(A, csv(f"1,{A},pear,3"))
    (outcome,) = world.load(A)
    assert "more than 3 rows" in str(outcome.error)
    assert said(world) == []


def summed(sql: str) -> DerivedTable:
    shown = orders()
    return DerivedTable(
        name="summed",
        partitions=shown.partitions,
        upstream=[same_partition(shown)],
        sql=sql,
        columns=[date("day"), text("item"), integer("total")],
        key=["day", "item"],
    )


LOADING = """
import sys
from pathlib import Path
from etl_assets_tests.outbox import test_queries
from etl_assets_tests.world import World
world = World(Path(sys.argv[1]))
print("begin", flush=True)
try:
    world.load(sys.argv[2], pipeline=getattr(test_queries, sys.argv[3])())
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def endless_notification() -> object:
    return shop(Notification(name="endless", topic="t", sql=ENDLESS, key=["id"]))


def endless_table() -> object:
    return summed(f"SELECT :partition AS day, '' AS item, id AS total FROM ({ENDLESS})")


@pytest.mark.parametrize("pipeline", ["endless_notification", "endless_table"])
def test_an_endless_query_is_interrupted_and_changes_nothing(tmp_path: Path, pipeline: str) -> None:
    world = World(tmp_path)
    world.deliver(A, csv(f"1,{A},pear,3"))
    world.load(A)
    world.deliver(A, csv(f"1,{A},pear,4"), "2.csv")
    before = world.rows(), world.ledger()
    command = [sys.executable, "-c", LOADING, str(tmp_path), A, pipeline]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begin\n"
        time.sleep(2.0)
        os.kill(process.pid, signal.SIGINT)
        try:
            assert process.communicate(timeout=15)[0] == "interrupted\n"
        finally:
            process.kill()
    assert (world.rows(), world.ledger()) == before


@pytest.mark.parametrize("bad", ["CAST(x'ff41' AS TEXT)", "CAST(x'c0' || item AS TEXT)", "CAST(x'eda080' AS TEXT)"])
def test_text_that_is_not_utf_8_refuses_its_derived_partition_only(tmp_path: Path, bad: str) -> None:
    world = World(tmp_path)
    world.deliver(A, csv(f"1,{A},pear,3"))
    world.deliver(B, csv(f"2,{B},fig,4"))
    world.load(A, B)
    sql = (
        f"SELECT :partition AS day, CASE :partition WHEN '{A}' THEN {bad} ELSE 'x' END AS item, 1 AS total FROM orders"
    )
    first, second = world.load(A, B, pipeline=summed(sql))
    assert isinstance(first.error, TransformFailed)
    assert "UTF-8" in str(first.error)
    assert second.status == "committed"
