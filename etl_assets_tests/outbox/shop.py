"""Small pipelines with notifications, and what tests ask of an outbox."""

from __future__ import annotations

import json
from typing import Any

from etl_assets.contract import Notification, PartitionedTable
from etl_assets_tests.world import World, orders

A, B, C = "2024-01-01", "2024-01-02", "2024-01-03"

#: A message for each order of more than 4, and one for the day where it sums up to more than 9.
LARGE = Notification(
    name="large", topic="large-orders", sql="SELECT id, item, amount FROM orders WHERE amount > 4", key=["id"]
)
BUSY = Notification(
    name="busy",
    topic="busy-days",
    sql="SELECT :partition AS day, sum(amount) AS total FROM orders GROUP BY 1 HAVING sum(amount) > 9",
    key=["day"],
)


def shop(*notifications: Notification, **changes: Any) -> PartitionedTable:
    return orders(notifications=notifications or (LARGE, BUSY), **changes)


def csv(*rows: str, header: str = "id,day,item,amount") -> str:
    return "\n".join([header, *rows]) + "\n"


def said(world: World, topic: str | None = None) -> list[tuple[str, Any]]:
    """What was said so far, in order: subject and data."""
    rows = world.sql("SELECT subject, payload, topic FROM etl_outbox ORDER BY id")
    return [(subject, json.loads(payload)["data"]) for subject, payload, t in rows if topic in (None, t)]


def statuses(world: World) -> list[tuple[str, str, int]]:
    """Subject, status and attempts of every message."""
    return world.sql("SELECT subject, status, attempts FROM etl_outbox ORDER BY id")
