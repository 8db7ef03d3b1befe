"""A warehouse that an earlier commit wrote is read, migrated and carried on by this one.

``data/ledgers/b53e22e.tar.gz`` holds landing, extracts and warehouse as commit b53e22e made them: every load pattern, a
restatement, a refused delivery, a log in several batches and one in shards, a derived table, and messages of every status.
"""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import (
    Daily,
    DerivedTable,
    Notification,
    Pipeline,
    Sharded,
    date,
    integer,
    repair,
    same_partition,
)
from etl_assets_tests.patterns.kinds import KINDS
from etl_assets_tests.patterns.logs import lines, prices, upsert
from etl_assets_tests.world import World, orders

OLD = Path(__file__).parents[1] / "data" / "ledgers" / "b53e22e.tar.gz"
MONTH = Daily(start="2024-01-01", end="2024-02-01")
TOTAL = Notification(
    name="total",
    topic="totals",
    sql="SELECT :partition AS day, sum(amount) AS total FROM orders GROUP BY 1",
    key=["day"],
)
ORDERS = orders(moved_keys=repair(order="amount"), notifications=[TOTAL], attention_topic="attention")
PIPELINES: dict[str, Pipeline] = {
    "orders": ORDERS,
    "daily": KINDS["partitioned"].pipeline,
    "codes": KINDS["reference"].pipeline,
    "prices": KINDS["log"].pipeline,
    "readings": KINDS["strict"].pipeline,
    "parts": prices(name="parts", table="parts", batch_events=2, landing="parts/{partition}/*.jsonl"),
    "sharded": prices(
        name="sharded",
        table="sharded",
        partitions=Sharded(MONTH, "eu", "us"),
        landing="sharded/{partition}/{shard}/*.jsonl",
    ),
    "per_day": DerivedTable(
        name="per_day",
        partitions=ORDERS.partitions,
        upstream=[same_partition(ORDERS)],
        sql="SELECT :partition AS day, count(*) AS n, sum(amount) AS total FROM orders",
        columns=[date("day"), integer("n"), integer("total")],
        key=["day"],
    ),
}


def old(root: Path) -> dict[str, list[dict[str, Any]]]:
    """Every table of the old warehouse, read without any code of ours."""
    with tarfile.open(OLD) as archive:
        archive.extractall(root, filter="data")
    return contents(root)


def contents(root: Path) -> dict[str, list[dict[str, Any]]]:
    connection = sqlite3.connect(root / "warehouse.sqlite")
    connection.row_factory = sqlite3.Row
    try:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: [dict(row) for row in connection.execute(f'SELECT * FROM "{name}"')] for name in names}
    finally:
        connection.close()


def worlds(root: Path) -> dict[str, World]:
    return {name: World(root, pipeline) for name, pipeline in PIPELINES.items()}  # type: ignore[arg-type]


#: What a later version of the ledger works out for itself.
RECOMPUTED = {"delivery_order", "name_order"}


def narrowed(new: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """The columns that both have, but for recomputed ones."""
    return {name: new[name] for name in before if name not in RECOMPUTED}


def test_an_old_ledger_is_read_before_anything_migrates_it(tmp_path: Path) -> None:
    before = old(tmp_path)
    for name, world in worlds(tmp_path).items():
        stored = [row["batch"] for row in before["etl_batch"] if row["pipeline"] == name]
        assert [batch.batch for batch in world.ledger()] == stored
        assert {s.state for s in world.survey().statuses} <= {"committed", "superseded", "needs attention", "arrived"}
    assert contents(tmp_path) == before


@pytest.fixture
def migrated(tmp_path: Path) -> tuple[dict[str, list[dict[str, Any]]], dict[str, World]]:
    """The old contents, and the worlds after a run that brings the ledger to this version."""
    before = old(tmp_path)
    found = worlds(tmp_path)
    found["daily"].deliver("2024-01-31", "id,value\n7,7\n", "1.csv")
    assert [o.status for o in found["daily"].load("2024-01-31")] == ["committed"]
    return before, found


def test_migration_keeps_rows_batches_and_messages(
    migrated: tuple[dict[str, list[dict[str, Any]]], dict[str, World]], tmp_path: Path
) -> None:
    before, _ = migrated
    after = contents(tmp_path)
    for table, rows in before.items():
        if table in ("etl_schema", "etl_writer"):
            continue
        kept = after[table][: len(rows)] if table != "etl_delivery" else after[table]
        found = [narrowed(row, rows[0]) for row in kept] if rows else []
        assert all(narrowed(row, row) in found for row in rows), table


def test_what_the_old_commit_loaded_is_committed_and_true(
    migrated: tuple[dict[str, list[dict[str, Any]]], dict[str, World]],
) -> None:
    _, found = migrated
    for name, world in found.items():
        assert world.warehouse.verify(world.pipeline) == [], name
        if name == "orders":  # has a delivery to load, by the new order of names
            continue
        scopes = list(dict.fromkeys(batch.scope for batch in world.ledger()))
        loaded = [o for scope in scopes for o in world.load(scope)]
        assert {o.status for o in loaded} == {"already committed"}, (name, [o.message for o in loaded])
        assert world.survey().waiting() == []


def test_the_correction_that_the_old_order_of_names_hid_is_loaded(
    migrated: tuple[dict[str, list[dict[str, Any]]], dict[str, World]],
) -> None:
    world = migrated[1]["orders"]
    states = {(s.scope, s.name): s.state for s in world.survey().statuses}
    assert states["2024-01-01", "sales.csv"] == "committed"
    assert states["2024-01-01", "sales.1.csv"] == "arrived"
    assert states["2024-01-02", "1.csv"] == "committed"  # restated
    assert states["2024-01-02", "10.csv"] == "superseded"
    assert states["2024-01-03", "1.csv"] == "needs attention"
    assert [(o.status, o.batch) for o in world.load_pending() if not o.error] == [
        ("committed", "orders/2024-01-01/sales.1.csv#1@1")
    ]
    assert (1, "2024-01-01", 1, "pear") not in world.rows()
    assert (5, "2024-01-01", 1, "pear") in world.rows()


def test_old_logs_and_snapshots_go_on(
    migrated: tuple[dict[str, list[dict[str, Any]]], dict[str, World]],
) -> None:
    _, found = migrated
    found["parts"].deliver("2024-01-02", lines(upsert(6, 6, 1, "next")), "1.jsonl")
    assert [(o.status, o.batch) for o in found["parts"].load_pending()] == [
        ("committed", "parts/2024-01-02/1.jsonl#1@1")
    ]
    kind = KINDS["strict"]
    kind.deliver(found["readings"], 4)
    assert [o.status for o in found["readings"].load_pending()] == ["committed"]
    assert found["readings"].rows() == kind.rows(4)
