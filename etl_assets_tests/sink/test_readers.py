"""Readers need no right to write, leave nothing behind and migrate nothing; what they keep from being reset is said."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from etl_assets.errors import SinkBusy, WarehouseError
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite import schema
from etl_assets.sink.sqlite.connection import reading, writing
from etl_assets_tests.world import DAYS, World

DAY = DAYS[0]
NOBODY = 65534


def content(rows: int, amount: int) -> str:
    return "\n".join(["id,day,item,amount", *(f"{n},{DAY},pear,{amount}" for n in range(1, rows + 1))]) + "\n"


def as_nobody(work: Callable[[], str]) -> str:
    """What a function answers in a process of a user without rights."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(there, work().encode())
        except BaseException as error:
            os.write(there, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(there)
    with os.fdopen(here, "rb") as pipe:
        answer = pipe.read().decode()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def shut(world: World) -> Iterator[Path]:
    """The folder of a warehouse with one batch, which nobody may write to."""
    world.deliver(DAY, content(2, 1))
    world.load(DAY)
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory(prefix="etl-readers-") as place:
        folder = Path(place)
        shutil.copyfile(world.settings.warehouse, folder / "w.sqlite")
        (folder / "w.sqlite").chmod(0o444)
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)


READER = """
import sqlite3, sys
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute("BEGIN")
print(reader.execute("SELECT count(*) FROM orders").fetchone(), flush=True)
sys.stdin.read()
"""


def batches(path: Path) -> str:
    return ", ".join(batch.batch for batch in SQLiteWarehouse(path).ledger())


@pytest.mark.parametrize("folder_mode, file_mode", [(0o555, 0o444), (0o777, 0o444), (0o555, 0o666), (0o755, 0o644)])
def test_a_reader_without_the_right_to_write_leaves_nothing_behind(
    shut: Path, folder_mode: int, file_mode: int
) -> None:
    path = shut / "w.sqlite"
    shut.chmod(folder_mode)
    path.chmod(file_mode)
    assert as_nobody(lambda: batches(path)) == f"orders/{DAY}/1.csv#1@1"
    assert [file.name for file in shut.iterdir()] == ["w.sqlite"]


def test_a_reader_beside_a_writer_sees_what_is_committed_in_the_log(shut: Path) -> None:
    shut.chmod(0o755)
    path = shut / "w.sqlite"
    path.chmod(0o644)
    reader = subprocess.Popen([sys.executable, "-c", READER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert reader.stdout
    assert reader.stdout.readline()
    with writing(path) as connection:
        connection.execute("UPDATE etl_batch SET batch = 'changed'")
    assert (shut / "w.sqlite-wal").stat().st_size
    assert as_nobody(lambda: batches(path)) == "changed"
    # Without the index of the log, and without the right to make one, the last commit cannot be read.
    (shut / "w.sqlite-shm").chmod(0)
    if os.geteuid() == 0:
        assert as_nobody(lambda: batches(path)).startswith(f"WarehouseError: {path}: ")
    reader.communicate(b"end")


def test_a_file_that_is_written_while_it_is_read_alone_is_read_again(
    shut: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = shut / "w.sqlite"
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(SinkBusy, match="was written while it was read"), reading(path):
        os.utime(path, ns=(1, 1))
    with reading(path) as connection:
        assert connection is not None
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)


def test_an_index_of_the_log_that_cannot_be_written_is_named(shut: Path) -> None:
    path = shut / "w.sqlite"
    shut.chmod(0o777)
    path.chmod(0o666)
    (shut / "w.sqlite-shm").touch(0o444)

    def write() -> str:
        with writing(path) as connection:
            connection.execute("DELETE FROM etl_batch")
        return "written"

    if os.geteuid() == 0:
        answer = as_nobody(write)
        assert answer.startswith("WarehouseError: ")
        assert f"{path}-shm cannot be written" in answer


def test_a_reader_of_an_older_ledger_migrates_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.deliver(DAY, content(2, 1))
    world.load(DAY)
    step = "ALTER TABLE etl_batch ADD COLUMN tomorrow TEXT NOT NULL DEFAULT 'x'"
    more = ("CREATE TABLE etl_tomorrow (batch INTEGER NOT NULL REFERENCES etl_batch (id)) STRICT", step)
    fill = ("INSERT INTO etl_tomorrow SELECT id FROM etl_batch", "CREATE INDEX etl_t ON etl_tomorrow (batch)")
    monkeypatch.setattr(schema, "MIGRATIONS", [*schema.MIGRATIONS, (*more, *fill)])
    path = Path(world.settings.warehouse)
    before = path.read_bytes()
    with world.warehouse._reading() as connection:
        assert connection is not None
        assert connection.execute("SELECT tomorrow FROM etl_batch").fetchall() == [("x",)]
        assert connection.execute("SELECT batch FROM etl_tomorrow").fetchall() == [(1,)]
        assert connection.execute("SELECT max(version) FROM etl_schema").fetchone() == (len(schema.MIGRATIONS),)
        assert connection.execute("SELECT count(*) FROM orders").fetchone() == (2,)
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            connection.execute("DELETE FROM orders")
    assert [b.batch for b in world.ledger()] == [f"orders/{DAY}/1.csv#1@1"]
    assert [s.state for s in world.survey().statuses] == ["committed"]
    assert world.warehouse.verify(world.pipeline) == []
    assert path.read_bytes() == before
    world.deliver(DAY, content(2, 2), "2.csv")
    world.load_pending()
    assert world.sql("SELECT max(version) FROM etl_schema") == [(len(schema.MIGRATIONS),)]


def test_a_log_that_a_reader_lets_grow_is_told_and_cut_down_afterwards(world: World) -> None:
    world.deliver(DAY, content(2_000, 0))
    assert world.load(DAY)[0].message == "committed"
    path = Path(world.settings.warehouse)
    log = path.with_name(path.name + "-wal")
    reader, other = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM orders").fetchone()
    messages = []
    for number in range(1, 12):
        world.deliver(DAY, content(2_000, number))
        messages.append(world.load(DAY)[0].message)
    assert log.stat().st_size > max(path.stat().st_size, 1 << 20)
    assert messages[0] == "committed"
    assert "the write-ahead log has grown to" in messages[-1]
    assert "MB: a reader keeps it from being reset" in messages[-1]
    # The reader ends; another one stays, and holds no transaction.
    reader.close()
    other.execute("SELECT count(*) FROM orders").fetchone()
    for number in range(12, 15):
        world.deliver(DAY, content(2_000, number))
        (outcome,) = world.load(DAY)
    assert (outcome.message, log.stat().st_size <= 1 << 20) == ("committed", True)
    other.close()


def test_the_advice_is_that_of_the_kind_of_error(tmp_path: Path) -> None:
    (tmp_path / "w.sqlite").mkdir()
    with (
        pytest.raises(WarehouseError, match="the file cannot be opened: check the path"),
        reading(tmp_path / "w.sqlite"),
    ):
        pass
