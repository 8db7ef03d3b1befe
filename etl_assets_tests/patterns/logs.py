"""Small change logs and snapshots to load, and what a plain fold makes of them.

Belongs here: what the tests of several patterns need to arrange and to compare.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from etl_assets.contract import ChangeLogTable, Daily, WatermarkTable, decimal, integer, text, timestamp
from etl_assets.loading import Outcome
from etl_assets_tests.world import World

A, B, C, D = "2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"
YEAR = Daily(start="2024-01-01", end="2024-02-01")
State = dict[str, list[tuple[Any, ...]]]


def prices(**changes: Any) -> ChangeLogTable:
    """A log of prices: ``id`` is the key, ``price`` an exact decimal."""
    fields: dict[str, Any] = {
        "name": "prices",
        "partitions": YEAR,
        "landing": "prices/{partition}/*",
        "columns": [integer("id"), text("item"), decimal("price", precision=20, scale=4)],
        "key": ["id"],
    }
    return ChangeLogTable(**(fields | changes))


def readings(**changes: Any) -> WatermarkTable:
    """Snapshots of readings: ``id`` is the key, ``updated`` says when a row last changed."""
    fields: dict[str, Any] = {
        "name": "readings",
        "partitions": YEAR,
        "landing": "readings/{partition}/*.csv",
        "columns": [text("id"), timestamp("updated", resolution="s"), integer("value")],
        "key": ["id"],
        "updated": "updated",
    }
    return WatermarkTable(**(fields | changes))


def upsert(pos: int, version: int, key: int, item: str = "pear", price: str = "1", **more: Any) -> str:
    """A line of a native log."""
    row = {"id": key, "item": item, "price": price} | more
    return json.dumps({"pos": pos, "op": "upsert", "version": version, "row": row})


def delete(pos: int, version: int, key: int) -> str:
    return json.dumps({"pos": pos, "op": "delete", "version": version, "row": {"id": key}})


def lines(*events: str) -> str:
    return "".join(f"{event}\n" for event in events)


def snapshot(*rows: str, header: str = "id,updated,value") -> str:
    """Rows such as ``a,03,7``: changed on the third of January, at midnight UTC."""
    full = []
    for row in rows:
        key, day, *rest = row.split(",")
        full.append(",".join([key, f"2024-01-{day}T00:00:00Z" if day.isdigit() else day, *rest]))
    return "\n".join([header, *full]) + "\n"


def done(outcomes: Iterable[Outcome]) -> list[tuple[str, dict[str, int]]]:
    """Status of each outcome, and its counts but ``source`` and those that are zero."""
    return [(o.status, {k: v for k, v in o.counts.as_dict().items() if v and k != "source"}) for o in outcomes]


def refused(world: World, kind: type[Exception], *words: str, scope: str = A, **load: Any) -> str:
    """The last delivery of a scope is refused with these words, and nothing of the target has changed."""
    before = kept(world)
    outcome = world.load(scope, **load)[-1]
    assert isinstance(outcome.error, kind), outcome
    for word in words:
        assert word in str(outcome.error), outcome.error
    assert kept(world) == before
    return str(outcome.error)


def kept(world: World) -> State:
    """The whole state without who may write and what was read, which a refusal may well note."""
    noted = ("etl_writer", "etl_delivery", "etl_schema")
    return {name: rows for name, rows in world.state().items() if name not in noted and rows}


def position(world: World) -> int | None:
    found = world.sql("SELECT position FROM etl_progress")
    return found[0][0] if found else None


def versions(world: World) -> list[tuple[Any, ...]]:
    """Key, version and whether deleted, of every key that was ever met."""
    return world.sql(f"SELECT id, _version, _deleted FROM _versions_{world.pipeline.table} ORDER BY id")
