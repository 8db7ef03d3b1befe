"""Several writers and readers on one warehouse: they wait, or say that it is busy; nobody sees half a partition (9)."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from etl_assets.errors import SinkBusy
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite import schema
from etl_assets_tests.world import DAYS, World, orders

DAY = DAYS[0]
PUBLISHERS, VERSIONS, ROWS = 8, 3, 400
PUBLISHER = """
import sys
from pathlib import Path
from etl_assets_tests.world import World
world, scope = World(Path(sys.argv[1])), sys.argv[2]
for version in range(1, int(sys.argv[3]) + 1):
    (outcome,) = world.load(scope, delivery=f"{version}.csv")
    assert outcome.status == "committed", outcome.message
"""


def day(number: int) -> str:
    return f"2024-01-{number:02}"


def content(number: int, version: int) -> str:
    """A delivery in which every row tells its version; the number of rows tells it, too."""
    ids = range(number * 10_000 + version, number * 10_000 + ROWS + 2 * version)
    return "id,day,item,amount\n" + "".join(f"{i},{day(number)},pear,{version}\n" for i in ids)


def test_eight_processes_publish_while_one_reader_never_sees_a_half_replaced_partition(world: World) -> None:
    for number in range(1, PUBLISHERS + 1):
        for version in range(1, VERSIONS + 1):
            world.deliver(day(number), content(number, version), f"{version}.csv")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PUBLISHER, str(world.root), day(number), str(VERSIONS)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for number in range(1, PUBLISHERS + 1)
    ]
    seen: dict[str, list[int]] = {}
    try:
        while any(p.poll() is None for p in processes):
            for (
                scope,
                least,
                most,
                count,
            ) in snapshot(world):
                assert least == most, f"{scope} holds rows of versions {least} and {most}"
                assert count == ROWS + least
                versions = seen.setdefault(scope, [])
                if not versions or versions[-1] != least:
                    versions.append(least)
    finally:
        output = {p.args[3]: p.communicate()[0] for p in processes}  # type: ignore[index]
    assert [p.returncode for p in processes] == [0] * PUBLISHERS, output
    for versions in seen.values():
        assert versions == sorted(versions), "an older version came back"
    assert len({v for versions in seen.values() for v in versions}) > 1, "the reader saw nothing change"
    last = [line.split(",") for n in range(1, PUBLISHERS + 1) for line in content(n, VERSIONS).splitlines()[1:]]
    wanted = sorted(((int(a), d, int(i), t) for i, d, t, a in last), key=repr)
    assert world.rows() == wanted
    assert {b.scope: [c.delivery for c in world.ledger(b.scope)] for b in world.ledger()} == {
        day(n): [f"{v}.csv" for v in range(1, VERSIONS + 1)] for n in range(1, PUBLISHERS + 1)
    }
    assert world.warehouse.verify(world.pipeline) == []


def snapshot(world: World) -> list[tuple[str, int, int, int]]:
    """What a reader with plain SQL sees of each partition: scope, least and greatest version, rows."""
    if not Path(world.settings.warehouse).exists():
        return []
    connection = sqlite3.connect(world.settings.warehouse, timeout=60)
    try:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
            return []
        found = connection.execute("SELECT day, min(amount), max(amount), count(*) FROM orders GROUP BY day").fetchall()
        return found
    finally:
        connection.close()


def test_six_processes_load_the_same_partitions_and_each_is_committed_once(world: World) -> None:
    for number in range(1, 4):
        world.deliver(day(number), content(number, 1))
    code = (
        "import sys; from pathlib import Path; from etl_assets_tests.world import World; "
        "w = World(Path(sys.argv[1])); print([type(o.error).__name__ for o in w.load_pending() if o.error])"
    )
    command = [sys.executable, "-c", code, str(world.root)]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for _ in range(6)]
    for process in started:
        output, _ = process.communicate()
        assert process.returncode == 0, output
        assert "Traceback" not in output
        assert set(output.strip("[]\n").replace("'", "").split(", ")) <= {"", "StaleWriter"}
    assert sorted(b.scope for b in world.ledger()) == [day(1), day(2), day(3)]
    assert [s.state for s in world.survey().statuses] == ["committed"] * 3
    assert len(world.rows()) == 3 * (ROWS + 1)


@contextmanager
def held(world: World, seconds: float | None = None) -> Iterator[None]:
    """Another writer holds the warehouse, for this long or until the block ends."""
    connection = sqlite3.connect(world.settings.warehouse, isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(seconds or 0, connection.rollback)
    if seconds:
        timer.start()
    try:
        yield
    finally:
        if seconds:
            timer.join()
        connection.close()


@pytest.fixture
def two_deliveries(world: World) -> World:
    world.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,3\n")
    world.load(DAY)
    world.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,4\n", "2.csv")
    return world


def test_a_writer_that_waits_longer_than_the_timeout_says_busy_and_changes_nothing(two_deliveries: World) -> None:
    world = two_deliveries
    engine = world.engine()
    engine.sink = SQLiteWarehouse(world.settings.warehouse, busy_timeout=0.2)
    (staged,) = engine.load([DAY], "one", publish=False)
    assert staged.extract is not None
    assert staged.delivery is not None
    before = world.state()
    claim = engine.sink.claim(world.pipeline, [DAY], "one")[DAY]
    stage = engine.sink.prepare(world.pipeline, staged.extract, world.root)
    with held(world):
        began = time.monotonic()
        for attempt in (
            lambda: engine.sink.claim(world.pipeline, [DAY], "two"),
            lambda: engine.sink.publish(world.pipeline, claim, staged.delivery, staged.extract, stage),
            lambda: list(engine.load([DAY], "one")),
        ):
            with pytest.raises(SinkBusy, match="longer than the busy timeout"):
                attempt()
        assert time.monotonic() - began >= 0.6
        assert world.state() == before  # and a reader was not kept waiting
    (outcome,) = engine.load([DAY], "one")
    assert outcome.status == "committed"
    assert world.rows() == [(4, DAY, 1, "pear")]


def test_a_writer_that_waits_less_than_the_timeout_goes_on(two_deliveries: World) -> None:
    world = two_deliveries
    with held(world, seconds=0.4):
        began = time.monotonic()
        (outcome,) = world.load(DAY)
        assert time.monotonic() - began >= 0.3
    assert outcome.status == "committed"
    assert world.rows() == [(4, DAY, 1, "pear")]


def test_a_reader_that_began_before_a_publish_reads_on_in_the_old_state(two_deliveries: World) -> None:
    world = two_deliveries
    reader = sqlite3.connect(world.settings.warehouse, isolation_level=None)
    reader.execute("BEGIN")
    assert reader.execute("SELECT amount FROM orders").fetchall() == [(3,)]
    (outcome,) = world.load(DAY)
    assert outcome.status == "committed"
    assert reader.execute("SELECT amount FROM orders").fetchall() == [(3,)]
    assert reader.execute("SELECT count(*) FROM etl_batch").fetchall() == [(1,)]
    reader.execute("COMMIT")
    assert reader.execute("SELECT amount FROM orders").fetchall() == [(4,)]
    reader.close()


def test_two_first_writers_may_begin_a_warehouse_at_the_same_moment(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.sqlite"
        barrier = threading.Barrier(4)
        failed: list[BaseException] = []

        def begin(run: str, path: Path = path, barrier: threading.Barrier = barrier, failed: list = failed) -> None:
            try:
                barrier.wait()
                SQLiteWarehouse(path).claim(orders(), [DAY], run)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=begin, args=(f"run {n}",)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT generation FROM etl_writer ORDER BY 1").fetchall() == [(1,), (2,), (3,), (4,)]
        assert connection.execute("SELECT count(*) FROM etl_schema").fetchall() == [(len(schema.MIGRATIONS),)]
        connection.close()
