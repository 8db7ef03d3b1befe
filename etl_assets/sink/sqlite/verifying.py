"""Whether a table of versions is what the ledger says: counted anew, inside a read transaction."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.staging.folding import VERSION


def verify_versions(connection: sqlite3.Connection, pipeline: str, table: str) -> list[str]:
    """Live rows against what the ledger says came and went, and progress against the last batch; differences in words."""
    wanted, upper = connection.execute(
        "SELECT coalesce(sum(inserted) + sum(restored) - sum(deleted), 0), max(upper) FROM etl_batch WHERE pipeline = ?",
        (pipeline,),
    ).fetchone()
    if upper is None:
        return []
    try:
        found = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    except sqlite3.OperationalError as error:
        return [f"{pipeline}: the ledger has batches, but its table cannot be read ({error})"]
    position = ledger.position(connection, pipeline)
    differences = []
    if found != wanted:
        differences.append(f"{pipeline}: {found:,} live rows, by the ledger {wanted:,}")
    if position != upper:
        differences.append(f"{pipeline}: position {position}, by the ledger {upper}")
    return differences


def versions_profile(connection: sqlite3.Connection, pipeline: str, table: str, identity: str) -> dict[str, Any]:
    """Rows, missing watermarks and repeated keys of a table, its last batches, and whether all is as it should be."""
    versions = quoted(f"_versions_{table}")
    keys = ", ".join(map(quoted, json.loads(identity)["key"]))
    total = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    blank = connection.execute(f"SELECT count(*) FROM {versions} WHERE {quoted(VERSION)} IS NULL").fetchone()[0]
    repeated = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {versions} GROUP BY {keys} HAVING count(*) > 1)"
    ).fetchone()[0]
    differences = verify_versions(connection, pipeline, table)
    batches = connection.execute(
        "SELECT b.batch, b.committed_at, (SELECT count(*) FROM " + quoted(table) + " t WHERE t._batch = b.id) AS rows "
        "FROM etl_batch b WHERE b.pipeline = ? ORDER BY rows DESC, b.id DESC LIMIT 5",
        (pipeline,),
    ).fetchall()
    count = connection.execute("SELECT count(*) FROM etl_batch WHERE pipeline = ?", (pipeline,)).fetchone()[0]
    return {
        "source": pipeline,
        "control": {"batches": count, "position": ledger.position(connection, pipeline), "differences": differences},
        "total_rows": total,
        "null_watermarks": blank,
        "duplicate_natural_keys": repeated,
        "top_batches": [{"batch": b, "committed_at": at, "rows": rows} for b, at, rows in batches],
        "status": "DEGRADED" if blank or repeated or differences else "OK",
    }
