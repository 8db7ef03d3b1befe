"""The ledger's own tables: versions, migrations, and what reading and re-running leave untouched."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from etl_assets.errors import BrokenDelivery, LedgerTooNew, StaleWriter, WarehouseError
from etl_assets.model import Counts, Delivery
from etl_assets.sink import SQLiteWarehouse, open_sink
from etl_assets.sink.sqlite import schema
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import DAYS, World, orders

DAY = DAYS[0]
ROWS = f"id,day,item,amount\n1,{DAY},pear,3\n2,{DAY},fig,5\n"


def loaded(world: World) -> World:
    world.deliver(DAY, ROWS)
    (outcome,) = world.load(DAY)
    assert outcome.status == "committed", outcome.message
    return world


def files(world: World) -> dict[str, tuple[bytes, int]]:
    """The warehouse's files with their bytes and times of writing."""
    found = Path(world.settings.warehouse).parent.glob("warehouse.sqlite*")
    return {p.name: (p.read_bytes(), p.stat().st_mtime_ns) for p in found}


def test_a_ledger_from_a_newer_release_is_refused_by_every_method_and_left_alone(world: World) -> None:
    loaded(world)
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        connection.execute("INSERT INTO etl_schema VALUES (?, '9.9.9', 'later')", (len(schema.MIGRATIONS) + 1,))
    connection.close()
    before = world.state()
    sink = world.warehouse
    tries = [
        lambda: world.load(DAY),
        lambda: world.load(DAY, restate="why not"),
        lambda: world.survey(),
        lambda: sink.claim(world.pipeline, [DAY], "run"),
        lambda: sink.ledger(),
        lambda: sink.current("orders"),
        lambda: sink.rows("orders"),
        lambda: sink.deliveries("orders"),
        lambda: sink.verify(world.pipeline),
    ]
    for attempt in tries:
        with pytest.raises(LedgerTooNew, match=rf"version {len(schema.MIGRATIONS) + 1}, written by etl_assets 9\.9\.9"):
            attempt()
    assert world.state() == before


def test_an_older_ledger_is_migrated_once_and_keeps_what_it_holds(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(world)
    before, ledger = world.state(), world.ledger()
    known = list(range(1, len(schema.MIGRATIONS) + 1))
    added = ("CREATE TABLE etl_note (text TEXT) STRICT",)
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, added))
    assert world.ledger() == ledger  # reading it comes first, and must not fail on what the older one lacks
    assert world.state() == before
    world.warehouse.claim(world.pipeline, [], "migrates")
    after = world.state()
    assert [row[0] for row in after.pop("etl_schema")] == [*known, len(known) + 1]
    assert after.pop("etl_note") == []
    before.pop("etl_schema")
    assert after == before
    (again,) = world.load(DAY)
    assert again.status == "already committed"
    assert [row[0] for row in world.state()["etl_schema"]] == [*known, len(known) + 1]


def test_progress_of_the_first_release_is_that_of_a_log_without_shards(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as first:
        first.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        world.warehouse.claim(world.pipeline, [DAY], "run")
    columns = len(world.sql("SELECT * FROM pragma_table_info('etl_batch')"))
    entry = (
        f"1, 'prices/{DAY}/1#1@1', 'prices', '{DAY}', '1', 1, '1', 1, 0, 'consume', NULL, NULL, 'd', 's', 'c', 1, 'run'"
    )
    zeros = ", ".join("0" * (columns - 22))
    around(world, f"INSERT INTO etl_batch VALUES ({entry}, 3, 0, 4, {zeros}, NULL, 'then')")
    around(world, "INSERT INTO etl_progress VALUES ('prices', 4, 1)")
    assert world.warehouse.position("prices") == 4
    (batch,) = world.warehouse.ledger()
    assert (batch.lower, batch.upper, batch.shard, batch.continues, batch.committed_at) == (0, 4, "", False, "then")
    assert world.sql("SELECT * FROM etl_progress") == [("prices", 4, 1)]
    world.warehouse.claim(world.pipeline, [DAY], "migrates")
    assert world.sql("SELECT * FROM etl_progress") == [("prices", "", 4, 1)]


def test_the_ledger_of_the_first_release_is_read_and_written_by_this_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batches lie as that release wrote them: without the counts that were added since."""
    world.sql(
        "CREATE TABLE etl_schema (version INTEGER PRIMARY KEY, release TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT"
    )
    for statement in schema.MIGRATIONS[0]:
        world.sql(statement)
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        connection.execute("INSERT INTO etl_schema VALUES (1, '0.1.0', 'then')")
        connection.execute(
            "INSERT INTO etl_batch VALUES (1, 'other/a/1.csv#1@1', 'other', 'a', '1.csv', 1, '1', 1, 0, 'replace', NULL, NULL, "
            "'d', 's', 'c', 1, 'run', 1, NULL, NULL, 7, 1, 2, 3, 4, 5, 6, 0, 0, 0, 0, 9, NULL, 'then')"
        )
    connection.close()
    (old,) = world.warehouse.ledger("other")
    assert old.counts == Counts(7, 1, 2, 3, 4, 5, 6, ties=9)
    assert (old.supersedes, old.committed_at) == (None, "then")
    loaded(world)
    assert [b.batch for b in world.warehouse.ledger()] == ["other/a/1.csv#1@1", f"orders/{DAY}/1.csv#1@1"]
    assert world.ledger()[0].counts == Counts(source=2, inserted=2)
    assert world.sql("SELECT duplicates, committed_at > '2020' FROM etl_batch WHERE pipeline = 'orders'") == [(0, 1)]


def test_a_migration_that_fails_changes_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(world)
    before = world.state()
    broken = ("CREATE TABLE etl_note (text TEXT) STRICT", "ALTER TABLE nowhere ADD COLUMN x")
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, broken))
    with pytest.raises(WarehouseError, match="no such table: nowhere"):
        world.warehouse.claim(world.pipeline, [DAY], "run")
    assert world.state() == before


def test_running_committed_partitions_again_writes_no_page(world: World) -> None:
    loaded(world)
    world.deliver(DAYS[1], ROWS.replace(DAY, DAYS[1]).replace("\n1,", "\n3,").replace("\n2,", "\n4,"))
    world.load(DAYS[1])
    watcher = sqlite3.connect(world.settings.warehouse)
    watcher.execute("SELECT * FROM etl_batch").fetchall()
    version, before = watcher.execute("PRAGMA data_version").fetchone(), files(world)
    assert [o.status for o in world.load(*DAYS[:2])] == ["already committed"] * 2
    world.survey()
    assert watcher.execute("PRAGMA data_version").fetchone() == version
    assert {n: f for n, f in files(world).items() if not n.endswith("-shm")} == {
        n: f for n, f in before.items() if not n.endswith("-shm")
    }
    watcher.close()
    quiet = files(world)
    world.load(*DAYS[:2])
    assert files(world) == quiet


def test_running_a_committed_delivery_again_that_was_merely_touched_writes_no_page(world: World) -> None:
    loaded(world)
    path = world.landing / "orders" / DAY / "1.csv"
    path.write_bytes(path.read_bytes())
    os.utime(path, (0, 0))
    before, kept = files(world), world.state()
    for _ in range(2):
        (outcome,) = world.load(DAY)
        assert (outcome.status, outcome.batch) == ("already committed", f"orders/{DAY}/1.csv#1@1")
    assert files(world) == before
    path.write_bytes(path.read_bytes().replace(b"pear", b"plum"))  # of the same size
    (outcome,) = world.load(DAY)
    assert (outcome.status, outcome.batch) == ("committed", f"orders/{DAY}/1.csv#2@1")
    assert world.state() != kept


def test_reading_makes_no_warehouse_and_changes_no_other_database(tmp_path: Path) -> None:
    absent = SQLiteWarehouse(tmp_path / "absent.sqlite")
    assert (absent.ledger(), absent.current("x"), absent.deliveries("x"), absent.verify(orders())) == ([], {}, [], [])
    assert list(tmp_path.iterdir()) == []
    other = tmp_path / "other.sqlite"
    connection = sqlite3.connect(other)
    connection.execute("CREATE TABLE mine (x)")
    connection.close()
    empty = tmp_path / "empty.sqlite"
    empty.touch()
    before = other.read_bytes()
    assert (SQLiteWarehouse(other).ledger(), SQLiteWarehouse(empty).ledger()) == ([], [])
    assert other.read_bytes() == before
    assert empty.read_bytes() == b""
    assert {p.name for p in tmp_path.iterdir()} == {"other.sqlite", "empty.sqlite"}


def test_the_warehouse_may_lie_in_a_database_that_has_other_tables(world: World) -> None:
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        connection.execute("CREATE TABLE mine (x)")
        connection.execute("INSERT INTO mine VALUES (1)")
    connection.close()
    loaded(world)
    assert world.sql("SELECT * FROM mine") == [(1,)]
    assert world.rows() == [(3, DAY, 1, "pear"), (5, DAY, 2, "fig")]


@pytest.mark.parametrize(
    "name", ["ware house.sqlite", "a?b#c%20d.sqlite", "wäre.sqlite", "deep/er/w.sqlite", "mode=ro&x"]
)
def test_the_warehouse_may_lie_under_any_path(tmp_path: Path, name: str) -> None:
    world = World(tmp_path)
    path = tmp_path / name
    object.__setattr__(world.settings, "warehouse", str(path))
    loaded(world)
    assert path.is_file()
    assert world.rows() == [(3, DAY, 1, "pear"), (5, DAY, 2, "fig")]
    assert len(open_sink(f"sqlite:///{path}").ledger()) == 1
    assert {p.name for p in path.parent.iterdir()} <= {
        path.name, f"{path.name}-wal", f"{path.name}-shm", "landing", "staged",
    }  # fmt: skip


def test_a_destination_that_this_release_has_no_sink_for_is_an_error() -> None:
    with pytest.raises(WarehouseError, match="no sink for 'postgresql://host/db'"):
        open_sink("postgresql://host/db")


def test_what_is_not_a_database_is_an_error_and_is_left_alone(world: World) -> None:
    path = Path(world.settings.warehouse)
    path.write_text("this is a text file, and somebody may need it\n" * 100)
    before = path.read_bytes()
    world.deliver(DAY, ROWS)
    for attempt in (lambda: world.load(DAY), lambda: world.ledger(), lambda: world.survey()):
        with pytest.raises(WarehouseError, match="not a SQLite database"):
            attempt()
    assert path.read_bytes() == before


def test_a_folder_in_the_place_of_the_warehouse_is_an_error(world: World) -> None:
    Path(world.settings.warehouse).mkdir()
    world.deliver(DAY, ROWS)
    with pytest.raises(WarehouseError, match="cannot be opened"):
        world.load(DAY)


def test_a_generation_that_is_issued_twice_after_a_restore_lets_one_run_publish(world: World) -> None:
    world.deliver(DAYS[0], f"id,day,item,amount\n1,{DAYS[0]},pear,3\n")
    world.load(DAYS[0], run="earlier")
    file = Path(world.settings.warehouse)
    backup = file.read_bytes()
    first = world.warehouse.claim(world.pipeline, [DAYS[0]], "first")[DAYS[0]]
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    file.write_bytes(backup)
    second = world.warehouse.claim(world.pipeline, [DAYS[0]], "second")[DAYS[0]]
    assert first.generation == second.generation
    delivery = world.warehouse.deliveries("orders")[0].delivery
    before = world.state()
    with pytest.raises(StaleWriter, match="runs first and second both hold generation 2"):
        world.warehouse.record(first, delivery)
    assert world.warehouse.refuse(world.pipeline, first, delivery, StaleWriter("x")) is None
    assert world.state() == before
    world.deliver(DAYS[0], f"id,day,item,amount\n1,{DAYS[0]},fig,3\n", "2.csv")
    assert [o.status for o in world.load(DAYS[0], run="second")] == ["committed"]


def test_attempts_begin_again_under_another_contract(world: World) -> None:
    claim = world.warehouse.claim(world.pipeline, [DAYS[0]], "run")[DAYS[0]]
    delivery = Delivery("orders", DAYS[0], "1.csv", 1, "1", "0" * 64, 1, "stamp")
    error = BrokenDelivery("broken")
    changed = orders(min_rows=1)
    assert changed.code != world.pipeline.code
    counted = []
    for pipeline in (world.pipeline, world.pipeline, changed, changed, world.pipeline):
        refusal = world.warehouse.refuse(pipeline, claim, delivery, error)
        assert refusal is not None
        counted.append(refusal.attempts)
    assert counted == [1, 2, 1, 2, 1]


def test_revisions_of_a_name_are_listed_in_their_order(world: World) -> None:
    claim = world.warehouse.claim(world.pipeline, [DAYS[0]], "run")[DAYS[0]]
    placed = [("2.csv", 1), ("10.csv", 1), ("2.csv", 12), ("2.csv", 3), ("2.csv", 2)]
    for name, revision in placed:
        order = f"{int(name.removesuffix('.csv')):04}"
        delivery = Delivery("orders", DAYS[0], name, revision, order, f"{revision:064}", 1, f"{name}{revision}")
        world.warehouse.record(claim, delivery)
    listed = [(d.delivery.name, d.delivery.revision) for d in world.warehouse.deliveries("orders")]
    assert listed == [("2.csv", 1), ("2.csv", 2), ("2.csv", 3), ("2.csv", 12), ("10.csv", 1)]
