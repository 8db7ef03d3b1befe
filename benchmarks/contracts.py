"""The contracts that are measured: two ways to tell rows apart, and one partition or one a day.

``fixed``: the partition is part of the key, so a key cannot leave it, and rows are stored in order of the key.
``movable``: the key is unique in the whole table and may move between partitions (repaired).
Also a module of pipelines for ``ETL_PIPELINES``: the Dagster figure loads ``orders`` from here.
"""

from __future__ import annotations

from typing import Any, Literal

from etl_assets.contract import Daily, PartitionedTable, Static, date, integer, real, repair, text, timestamp

Layout = Literal["fixed", "movable"]
COLUMNS = (
    date("day"),
    integer("id"),
    text("store"),
    text("item"),
    integer("customer"),
    integer("quantity"),
    real("price"),
    real("discount"),
    text("status"),
    text("region"),
    timestamp("updated", resolution="s"),
)


def contract(layout: Layout, daily: bool) -> PartitionedTable:
    """The pipeline ``orders``; with ``daily`` a partition a day, else one partition ``all``."""
    fields: dict[str, Any] = {"name": "orders", "landing": "orders/{partition}/*.csv", "columns": COLUMNS}
    fields["key"] = ("day", "id") if layout == "fixed" else ("id",)
    if daily:
        fields |= {"partitions": Daily(start="2020-01-01", end="2048-01-01"), "partition_by": "day"}
    else:
        fields |= {"partitions": Static("all"), "key_unique_in": "partition" if layout == "fixed" else "table"}
    if layout == "movable":
        fields["moved_keys"] = repair()
    return PartitionedTable(**fields)


#: The declared types, the key and the storage options of our table; without ``_partition`` and ``_batch``, which a
#: delivery does not hold, so that the floor writes less a row than we do.
FLOOR_COLUMNS = (
    "day TEXT NOT NULL, id INTEGER NOT NULL, store TEXT, item TEXT, customer INTEGER, quantity INTEGER, price REAL, "
    "discount REAL, status TEXT, region TEXT, updated TEXT"
)


def floor_ddl(layout: Layout) -> str:
    """The table that ``.import`` fills: our layout, and the index on ``day`` for ours on the partition."""
    if layout == "fixed":
        return f"CREATE TABLE orders ({FLOOR_COLUMNS}, PRIMARY KEY (day, id)) STRICT, WITHOUT ROWID;"
    return (
        f"CREATE TABLE orders ({FLOOR_COLUMNS}) STRICT; CREATE UNIQUE INDEX orders_key ON orders (id); "
        "CREATE INDEX orders_partition ON orders (day);"
    )


orders = contract("fixed", daily=True)
