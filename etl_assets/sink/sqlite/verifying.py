"""Whether a table is what the ledger says: counted anew, inside a read transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from typing import Any

from etl_assets.contract import Pipeline, ReplacedTable
from etl_assets.model import VERSION
from etl_assets.sink.sqlite import ledger
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.tables import PARTITION, versions_name


def verify_versions(connection: sqlite3.Connection, pipeline: str, table: str) -> list[str]:
    """Live rows against what the ledger says came and went, and progress against its batches; differences in words."""
    count, wanted = connection.execute(
        "SELECT count(*), coalesce(sum(inserted) + sum(restored) - sum(deleted), 0) FROM etl_batch WHERE pipeline = ?",
        (pipeline,),
    ).fetchone()
    if not count:
        return []
    # Progress begins again with a restatement.
    uppers = connection.execute(
        "SELECT shard, max(upper) FROM etl_batch b WHERE pipeline = ?1 AND id >= (SELECT coalesce(max(id), 0) FROM etl_batch r "
        "WHERE r.pipeline = ?1 AND r.shard = b.shard AND r.operation IN ('restate', 'amend')) GROUP BY shard",
        (pipeline,),
    ).fetchall()
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
    positions = ledger.positions(connection, pipeline)
    for shard in sorted({*dict(uppers), *positions}):
        position, upper = positions.get(shard), dict(uppers).get(shard)
        if position != upper:
            of = f" of shard {shard}" if shard else ""
            differences.append(f"{pipeline}: position {position}{of}, by the ledger {upper}")
    return differences + _broken_chains(connection, pipeline)


def _broken_chains(connection: sqlite3.Connection, pipeline: str) -> list[str]:
    """Batches of a log that do not begin where the one before them in their shard ended, by nobody's decision."""
    rows = connection.execute(
        "SELECT batch, lower, ended FROM (SELECT id, batch, lower, operation, "
        "lag(upper) OVER (PARTITION BY shard ORDER BY id) AS ended "
        "FROM etl_batch WHERE pipeline = ? AND lower IS NOT NULL) WHERE lower <> ended AND operation = 'consume' ORDER BY id",
        (pipeline,),
    )
    return [
        f"{batch} begins after position {lower}, and the batch before it ended at {ended}"
        for batch, lower, ended in rows
    ]


def versions_table(table: str) -> str:
    """The table behind a view of live rows, quoted."""
    return quoted(versions_name(table))


def verify_partitions(connection: sqlite3.Connection, pipeline: str, table: str) -> list[str]:
    """Each partition's rows against those that the ledger committed; the differences in words."""
    wanted = dict(connection.execute("SELECT id, rows FROM etl_partition WHERE pipeline = ?", (pipeline,)).fetchall())
    scopes = dict(connection.execute("SELECT id, scope FROM etl_partition").fetchall())
    try:
        query = f"SELECT {PARTITION}, count(*) FROM {quoted(table)} GROUP BY {PARTITION}"
        found = dict(connection.execute(query).fetchall())
    except sqlite3.OperationalError as error:
        return [f"{pipeline}: the ledger has batches, but its table cannot be read ({error})"] if wanted else []
    return [
        f"{pipeline}/{scopes.get(i, i)}: {found.get(i, 0):,} rows, the ledger committed {wanted.get(i, 0):,}"
        for i in sorted({*found, *wanted})
        if found.get(i, 0) != wanted.get(i, 0)
    ]


def verify_table(connection: sqlite3.Connection, pipeline: str) -> list[str]:
    """The rows of a pipeline's table against the ledger, whatever its load pattern; none where it has no table yet."""
    row = connection.execute("SELECT name, identity FROM etl_table WHERE pipeline = ?", (pipeline,)).fetchone()
    if row is None:
        return []
    check = verify_partitions if json.loads(row[1])["operation"] == "replace" else verify_versions
    return check(connection, pipeline, row[0])


def differing_scopes(connection: sqlite3.Connection, pipeline: Pipeline, scopes: Sequence[str]) -> set[str]:
    """Scopes whose number of rows is not the ledger's; all of them where the contract's table is not there."""
    if not isinstance(pipeline, ReplacedTable):
        return set()
    try:
        rows = connection.execute(
            f"SELECT scope FROM etl_partition p WHERE pipeline = ? AND scope IN (SELECT value FROM json_each(?)) AND rows <> "
            f"(SELECT count(*) FROM main.{quoted(pipeline.table)} t WHERE t.{PARTITION} = p.id)",
            (pipeline.name, json.dumps(scopes)),
        ).fetchall()
    except sqlite3.OperationalError:
        return set(scopes)
    return {scope for (scope,) in rows}


def profile(connection: sqlite3.Connection, pipeline: str, table: str, identity: str) -> dict[str, Any]:
    """Rows, missing watermarks and repeated keys of a table, its last batches, and whether all is as it should be."""
    facts = json.loads(identity)
    versions = facts["operation"] != "replace"
    differences = verify_table(connection, pipeline)
    count = connection.execute("SELECT count(*) FROM etl_batch WHERE pipeline = ?", (pipeline,)).fetchone()[0]
    positions = ledger.positions(connection, pipeline)
    position = positions.get("") if positions.keys() <= {""} else positions  # of each shard, where there are several
    control = {"batches": count, "position": position, "differences": differences}
    try:
        total, blank, repeated, batches = _figures(connection, pipeline, table, facts, versions)
    except sqlite3.OperationalError:  # the differences say that it cannot be read
        total, blank, repeated, batches = 0, 0, 0, []
    if facts["operation"] == "merge" and not total and not differences:
        differences.append(f"{pipeline}: the table has no rows: load a snapshot that has some")
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
    connection: sqlite3.Connection, pipeline: str, table: str, facts: dict[str, Any], versions: bool
) -> tuple[int, int, int, list[dict[str, Any]]]:
    rows = versions_table(table) if versions else quoted(table)
    within = "" if versions or facts["movable"] else f", {PARTITION}"
    keys = ", ".join(map(quoted, facts["key"])) + within
    total = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    blank = repeated = 0
    if versions:
        blank = connection.execute(f"SELECT count(*) FROM {rows} WHERE {quoted(VERSION)} IS NULL").fetchone()[0]
    if facts["key"]:
        query = f"SELECT count(*) FROM (SELECT 1 FROM {rows} GROUP BY {keys} HAVING count(*) > 1)"
        repeated = connection.execute(query).fetchone()[0]
    batches = connection.execute(
        f"SELECT b.batch, b.committed_at, coalesce(t.rows, 0) AS rows FROM etl_batch b "
        f"LEFT JOIN (SELECT _batch, count(*) AS rows FROM {quoted(table)} GROUP BY _batch) t ON t._batch = b.id "
        "WHERE b.pipeline = ? ORDER BY coalesce(t.rows, 0) DESC, b.id DESC LIMIT 5",
        (pipeline,),
    ).fetchall()
    return total, blank, repeated, [{"batch": b, "committed_at": at, "rows": rows} for b, at, rows in batches]
