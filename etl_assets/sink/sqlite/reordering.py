"""Orders of names as the ledger's second version wrote them, written again as names are compared now."""

from __future__ import annotations

import re
import sqlite3

from etl_assets.naming import natural_order


def reorder_names(connection: sqlite3.Connection) -> None:
    """Rewrite the orders of all deliveries and batches, inside the caller's transaction."""
    connection.create_function("order_again", 1, _again, deterministic=True)
    connection.execute("UPDATE etl_batch SET delivery_order = order_again(delivery_order)")
    connection.execute("UPDATE etl_delivery SET name_order = order_again(name_order)")


def _again(order: str) -> str:
    """An order ended with the name that it was made of, behind a character that a name may hold, too."""
    ends = [match.end() for match in re.finditer("\x01", order)]
    return next((natural_order(order[end:]) for end in ends if _before(order[end:]) == order), order)


def _before(name: str) -> str:
    parts = []
    for digits, other in re.findall(r"(\d+)|(\D+)", name, flags=re.ASCII):
        number = digits.lstrip("0") or "0"
        parts.append(f"0{len(number):04d}{number}" if digits else other)
    return "".join(parts) + "\x01" + name
