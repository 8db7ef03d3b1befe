"""Eight processes publish different pipelines into one warehouse while a reader reads: it sees whole batches (case 9)."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl_assets_tests.patterns.kinds import KINDS, Kind, Rows, instant
from etl_assets_tests.patterns.logs import lines, snapshot, upsert
from etl_assets_tests.world import World

PROJECT = Path(__file__).parents[2]
ROWS, DELIVERIES = 300, 6
SIDES = ("partitioned", "reference", "log", "log", "inclusive", "unbounded", "whole", "window")


def busy(name: str, own: str) -> Kind:
    """A pipeline of this pattern under a name of its own. Each row tells the delivery that it is of; so does their number."""
    base = KINDS[name]
    fields: dict[str, Any] = {n: getattr(base.pipeline, n) for n in type(base.pipeline).model_fields}
    fields |= {"name": own, "table": own, "landing": f"{own}/{'{partition}' if name != 'reference' else 'all'}/*"}
    pipeline = type(base.pipeline)(**fields)

    def keys(number: int) -> list[int]:
        """Complete ones lack one key, and bring back the one before it."""
        return [k for k in range(ROWS) if k != number] if name in ("whole", "window") else list(range(ROWS + number))

    def content(number: int) -> str:
        if name == "log":
            first = 1 + sum(len(keys(n)) for n in range(1, number))
            return lines(*(upsert(first + i, number, key, f"item {number}") for i, key in enumerate(keys(number))))
        if base.replaces:
            return "id,value\n" + "".join(f"{key},{number}\n" for key in keys(number))
        within = {"window": lambda key: key}.get(name, lambda key: number)
        return snapshot(*(f"k{key},{number:02d},{within(key)}" for key in keys(number)))

    def after(number: int) -> Rows:
        if name == "log":
            return [(key, f"item {number}", "1.0000") for key in keys(number)]
        if base.replaces:
            return [(key, number) for key in keys(number)]
        return [(f"k{key}", instant(number), key if name == "window" else number) for key in keys(number)]

    return Kind(own, pipeline, content, after, base.by_day, base.suffix)


@contextlib.contextmanager
def reading(world: World) -> Iterator[sqlite3.Connection | None]:
    """One read transaction as any reader may have it; None before there is anything to read."""
    if not Path(world.settings.warehouse).exists():
        yield None
        return
    connection = sqlite3.connect(world.settings.warehouse, timeout=60, isolation_level=None)
    try:
        connection.execute("BEGIN")
        yield (
            connection
            if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'etl_batch'").fetchone()
            else None
        )
    finally:
        connection.close()


def look(world: World, kinds: list[Kind]) -> dict[str, int]:
    """How many batches of each pipeline a reader sees; its rows and its progress are those of that many."""
    with reading(world) as connection:
        if connection is None:
            return {}
        seen = {}
        for kind in kinds:
            name = kind.pipeline.name
            count, upper = connection.execute(
                "SELECT count(*), max(upper) FROM etl_batch WHERE pipeline = ?", (name,)
            ).fetchone()
            position = connection.execute("SELECT position FROM etl_progress WHERE pipeline = ?", (name,)).fetchone()
            assert position == ((upper,) if upper is not None else None)
            if count:
                columns = sorted(c.name for c in kind.pipeline.columns)
                rows = connection.execute(f"SELECT {', '.join(columns)} FROM {name}").fetchall()
                assert sorted(rows, key=repr) == kind.rows(count), f"{name} after {count}"
            seen[name] = count
        return seen


def test_eight_pipelines_of_all_patterns_are_published_side_by_side_and_a_reader_sees_only_whole_batches(
    tmp_path: Path,
) -> None:
    kinds = [busy(name, f"side{number}") for number, name in enumerate(SIDES)]
    world = World(tmp_path)
    command = [sys.executable, "-m", "etl_assets_tests.patterns.publisher"]
    processes = [
        subprocess.Popen(
            [*command, name, kind.name, str(tmp_path), str(DELIVERIES)],
            cwd=PROJECT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for name, kind in zip(SIDES, kinds, strict=True)
    ]
    glimpses: set[tuple[tuple[str, int], ...]] = set()
    before: dict[str, int] = {}
    try:
        while any(p.poll() is None for p in processes):
            seen = look(world, kinds)
            assert all(seen[name] >= count for name, count in before.items()), "a batch went away"
            before = seen
            glimpses.add(tuple(sorted(seen.items())))
    finally:
        said = {p.args[4]: p.communicate()[0] for p in processes}  # type: ignore[index]
    assert [p.returncode for p in processes] == [0] * len(SIDES), said
    assert len(glimpses) > 3, "the reader saw nothing change"
    assert look(world, kinds) == dict.fromkeys((k.name for k in kinds), DELIVERIES)
    for kind in kinds:
        # Nothing is lost, and nothing is there twice.
        assert [b.batch for b in world.warehouse.ledger(kind.name)] == [kind.batch(n) for n in range(1, DELIVERIES + 1)]
        assert world.warehouse.verify(kind.pipeline) == []


@pytest.mark.parametrize("name", ["log", pytest.param("whole", marks=pytest.mark.long)])
def test_six_processes_that_load_the_same_ordered_deliveries_commit_each_once_and_in_order(
    name: str, tmp_path: Path
) -> None:
    kind = KINDS[name]
    world = kind.world(tmp_path)
    for number in range(1, 5):
        kind.deliver(world, number)
    code = (
        "import sys; from pathlib import Path; from etl_assets_tests.patterns.kinds import KINDS; "
        "w = KINDS[sys.argv[1]].world(Path(sys.argv[2])); "
        "print(sorted({type(o.error).__name__ for o in w.load_pending() if o.error}))"
    )
    command = [sys.executable, "-c", code, name, str(tmp_path)]
    started = [
        subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for _ in range(6)
    ]
    for process in started:
        said, _ = process.communicate()
        assert process.returncode == 0, said
        # Whoever lost a scope to a later run may find that what comes next is not its turn, or no longer.
        assert set(said.strip("[]\n").replace("'", "").split(", ")) <= {
            "",
            "StaleWriter",
            "UnexpectedCursor",
            "Superseded",
        }
    while world.load_pending():
        pass
    assert [b.scope for b in world.ledger()] == [kind.scope(n) for n in range(1, 5)]
    assert world.rows() == kind.rows(4)
    assert {s.state for s in world.survey().statuses} == {"committed"}
    assert world.warehouse.verify(kind.pipeline) == []
