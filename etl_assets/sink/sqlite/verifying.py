"""Whether a table of versions is what the ledger says: counted anew, inside a read transaction."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from etl_assets.errors import UnknownPipeline
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.staging.folding import VERSION


def verify_versions(connection: sqlite3.Connection, pipeline: str, table: str) -> list[str]:
    """Live rows against what the ledger says came and went, and progress against its batches; differences in words."""
    count, wanted = connection.execute(
        "SELECT count(*), coalesce(sum(inserted) + sum(restored) - sum(deleted), 0) FROM etl_batch WHERE pipeline = ?",
        (pipeline,),
    ).fetchone()
    if not count:
        return []
    # A restatement makes the table anew, and progress begins with it.
    upper = connection.execute(
        "SELECT max(upper) FROM etl_batch WHERE pipeline = ?1 AND id >= "
        "(SELECT coalesce(max(id), 0) FROM etl_batch WHERE pipeline = ?1 AND operation = 'restate')",
        (pipeline,),
    ).fetchone()[0]
    differences = []
    try:
        found = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
        batches = "SELECT id FROM etl_batch WHERE pipeline = ?"
        unknown = connection.execute(
            f"SELECT count(*) FROM {versions_table(table)} WHERE _batch NOT IN ({batches})", (pipeline,)
        ).fetchone()[0]
    except sqlite3.OperationalError as error:
        return [f"{pipeline}: the ledger has batches, but its table cannot be read ({error})"]
    if found != wanted:
        differences.append(f"{pipeline}: {found:,} live rows, by the ledger {wanted:,}")
    if unknown:
        differences.append(f"{pipeline}: {unknown:,} rows of batches that are not in the ledger")
    position = ledger.position(connection, pipeline)
    if position != upper:
        differences.append(f"{pipeline}: position {position}, by the ledger {upper}")
    return differences


def versions_table(table: str) -> str:
    """The table behind a view of live rows, quoted."""
    return quoted(f"_versions_{table}")


def versions_profile(connection: sqlite3.Connection, pipeline: str, table: str, identity: str) -> dict[str, Any]:
    """Rows, missing watermarks and repeated keys of a table, its last batches, and whether all is as it should be.

    Raises :class:`UnknownPipeline` for a table that is replaced by partition.
    """
    facts = json.loads(identity)
    if not facts.get("versions"):
        raise UnknownPipeline(f"{pipeline!r} is a pipeline's table of partitions, not a source of snapshots")
    differences = verify_versions(connection, pipeline, table)
    count = connection.execute("SELECT count(*) FROM etl_batch WHERE pipeline = ?", (pipeline,)).fetchone()[0]
    control = {"batches": count, "position": ledger.position(connection, pipeline), "differences": differences}
    try:
        total, blank, repeated, batches = _figures(connection, pipeline, table, facts["key"])
    except sqlite3.OperationalError:  # the differences say that it cannot be read
        total, blank, repeated, batches = 0, 0, 0, []
    return {
        "source": pipeline,
        "control": control,
        "total_rows": total,
        "null_watermarks": blank,
        "duplicate_natural_keys": repeated,
        "top_batches": batches,
        "status": "DEGRADED" if blank or repeated or differences else "OK",
    }


def _figures(
    connection: sqlite3.Connection, pipeline: str, table: str, key: list[str]
) -> tuple[int, int, int, list[dict[str, Any]]]:
    versions, keys = versions_table(table), ", ".join(map(quoted, key))
    total = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    blank = connection.execute(f"SELECT count(*) FROM {versions} WHERE {quoted(VERSION)} IS NULL").fetchone()[0]
    repeated = connection.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM {versions} GROUP BY {keys} HAVING count(*) > 1)"
    ).fetchone()[0]
    batches = connection.execute(
        f"SELECT b.batch, b.committed_at, coalesce(t.rows, 0) AS rows FROM etl_batch b "
        f"LEFT JOIN (SELECT _batch, count(*) AS rows FROM {quoted(table)} GROUP BY _batch) t ON t._batch = b.id "
        "WHERE b.pipeline = ? ORDER BY coalesce(t.rows, 0) DESC, b.id DESC LIMIT 5",
        (pipeline,),
    ).fetchall()
    return total, blank, repeated, [{"batch": b, "committed_at": at, "rows": rows} for b, at, rows in batches]
