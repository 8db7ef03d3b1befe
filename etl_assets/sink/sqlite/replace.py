"""Replace one partition, set-wise: write what changed, and count everything.

Everything here runs inside publish's transaction, on candidate rows attached as ``stage``. Nothing is decided row by
row in Python; what may be large stays in the database.
"""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from etl_assets.model import Change, Changes, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.moved_keys import Moves, give_back, keep_aside, settle_moves, touched_by
from etl_assets.sink.sqlite.stage_file import TABLE as CANDIDATE
from etl_assets.sink.sqlite.tables import BATCH, PARTITION
from etl_assets.sink.sqlite.target import Replacement, Target, copy_standing

#: How many updated rows a receipt shows.
SAMPLE = 10
#: How many sums one statement takes; SQLite's own limit is 2,000 terms of all kinds.
TERMS = 500


def replace_partition(connection: sqlite3.Connection, target: Target, rows_before: int, candidates: int) -> Replacement:
    """Make the partition hold the candidate rows. ``rows_before`` are its rows now."""
    if not target.table.key:
        return _replace_bag(connection, target, rows_before, candidates)
    moves = settle_moves(connection, target) if target.table.movable else Moves()
    source, standing = moves.source, candidates - moves.aside
    if rows_before and source == CANDIDATE and not _indexed(connection):
        source = copy_standing(connection, target, "1")
    inserted = updated = deleted = 0
    changes = Changes()
    if rows_before == 0:
        inserted = _insert_all(connection, target, source)
    else:
        inserted, updated, changes = _apply_differences(connection, target, source)
        kept = standing - inserted
        if kept < rows_before:
            deleted = _delete_absent(connection, target, source)
    restored = give_back(connection, target) if target.table.repaired else {}
    if moves.aside:
        keep_aside(connection, target)
    touched = touched_by(connection, moves.taken, restored)
    counts = Counts(
        inserted=inserted - moves.moved,
        updated=updated,
        deleted=deleted,
        unchanged=standing - inserted - updated,
        moved=moves.moved,
        aside=moves.aside,
        restored=sum(restored.values()),
    )
    return Replacement(counts, replace(changes, touched=touched), standing)


# --------------------------------------------------------------------------- keys that cannot move, or have been settled


def _indexed(connection: sqlite3.Connection) -> bool:
    """Whether the stage file has its index: it was made before the lock was taken, on what was known by then."""
    return connection.execute("SELECT 1 FROM stage.sqlite_master WHERE type = 'index'").fetchone() is not None


def _insert_all(connection: sqlite3.Connection, target: Target, source: str) -> int:
    statement = (
        f"INSERT INTO main.{target.table.sql} ({target.names}, {PARTITION}, {BATCH}) "
        f"SELECT {target.of('c')}, ?, ? FROM {source} c ORDER BY c._rowid_"
    )
    return connection.execute(statement, (target.partition, target.batch)).rowcount


def _apply_differences(connection: sqlite3.Connection, target: Target, source: str) -> tuple[int, int, Changes]:
    """Insert new rows and update changed ones; rows that are the same are read and not written."""
    here = f"t.{PARTITION} = {target.partition} AND {target.same_key('t', 'c')}"
    differs = f" OR {_differ(target)}" if target.compared else ""
    connection.execute(
        f"CREATE TEMP TABLE plan AS SELECT c._rowid_ AS _candidate, t.{BATCH} IS NULL AS _fresh "
        f"FROM {source} c LEFT JOIN main.{target.table.sql} t ON {here} WHERE t.{BATCH} IS NULL{differs} ORDER BY c._rowid_"
    )
    changes = _describe_changes(connection, target, source) if target.compared else Changes()
    inserted = int(connection.execute("SELECT count(*) FROM temp.plan WHERE _fresh").fetchone()[0])
    identity = target.table.key if target.table.movable else (PARTITION, *target.table.key)
    absent = [c for c in target.compared if c not in target.columns]
    settings = [f"{quoted(c)} = excluded.{quoted(c)}" for c in target.compared if c in target.columns]
    settings += [f"{quoted(c)} = NULL" for c in absent]
    settings += [f"{BATCH} = excluded.{BATCH}"]
    written = connection.execute(
        f"INSERT INTO main.{target.table.sql} ({target.names}, {PARTITION}, {BATCH}) "
        f"SELECT {target.of('c')}, ?, ? FROM temp.plan p CROSS JOIN {source} c "
        f"WHERE c._rowid_ = p._candidate ORDER BY p._candidate "
        f"ON CONFLICT ({', '.join(map(quoted, identity))}) DO UPDATE SET {', '.join(settings)}",
        (target.partition, target.batch),
    ).rowcount
    return inserted, written - inserted, changes


def _differ(target: Target) -> str:
    """A row in the table (t) and its candidate (c) have other values. One comparison: a chain of ORs has a depth limit."""
    new = ", ".join(f"c.{quoted(c)}" if c in target.columns else "NULL" for c in target.compared)
    old = target.of("t", target.compared)
    return f"({old}) IS NOT ({new})" if len(target.compared) > 1 else f"{old} IS NOT {new}"


def _describe_changes(connection: sqlite3.Connection, target: Target, source: str) -> Changes:
    """Count the updated rows per column and show some; read before they are written."""
    new = [f"c.{quoted(c)}" if c in target.columns else "NULL" for c in target.compared]
    joined = (
        f"FROM temp.plan p CROSS JOIN {source} c CROSS JOIN main.{target.table.sql} t WHERE NOT p._fresh "
        f"AND c._rowid_ = p._candidate AND t.{PARTITION} = {target.partition} AND {target.same_key('t', 'c')}"
    )
    terms = [f"total(t.{quoted(c)} IS NOT {n})" for c, n in zip(target.compared, new, strict=True)]
    totals: list[float] = []
    for start in range(0, len(terms), TERMS):
        totals += connection.execute(f"SELECT {', '.join(terms[start : start + TERMS])} {joined}").fetchone()
    counted = tuple((c, int(n)) for c, n in zip(target.compared, totals, strict=True) if n)
    if not counted:
        return Changes()
    changed = [c for c, _ in counted][:40]
    values = ", ".join(f"t.{quoted(c)}, {new[target.compared.index(c)]}" for c in changed)
    keys = target.of("c", target.table.key)
    sample = []
    for row in connection.execute(f"SELECT {keys}, {values} {joined} ORDER BY p._candidate LIMIT {SAMPLE}"):
        width = len(target.table.key)
        pairs = zip(changed, row[width::2], row[width + 1 :: 2], strict=True)
        key = tuple(zip(target.table.key, row[:width], strict=True))
        sample.append(Change(key, tuple((c, old, now) for c, old, now in pairs if old != now)))
    return Changes(columns=counted, sample=tuple(sample))


def _delete_absent(connection: sqlite3.Connection, target: Target, source: str) -> int:
    return connection.execute(
        f"DELETE FROM main.{target.table.sql} AS t WHERE t.{PARTITION} = ? "
        f"AND NOT EXISTS (SELECT 1 FROM {source} c WHERE {target.same_key('c', 't')})",
        (target.partition,),
    ).rowcount


# --------------------------------------------------------------------------- no key: a bag of rows


def _replace_bag(connection: sqlite3.Connection, target: Target, rows_before: int, candidates: int) -> Replacement:
    """Rows without a key are compared as a bag: of equal rows, as many stay as are delivered."""
    if rows_before == 0:
        inserted = _insert_all(connection, target, CANDIDATE)
        return Replacement(Counts(inserted=inserted), Changes(), candidates)
    columns = target.table.columns
    named = ", ".join(map(quoted, columns))
    delivered = ", ".join(f"{quoted(c)}" if c in target.columns else f"NULL AS {quoted(c)}" for c in columns)
    connection.execute(
        "CREATE TEMP TABLE plan AS SELECT _fresh, _id FROM ("
        "SELECT _fresh, _id, "
        f"row_number() OVER (PARTITION BY {named}, _fresh ORDER BY _id) AS _place, "
        f"count(*) FILTER (WHERE NOT _fresh) OVER (PARTITION BY {named}) AS _here, "
        f"count(*) FILTER (WHERE _fresh) OVER (PARTITION BY {named}) AS _wanted FROM ("
        f"SELECT 0 AS _fresh, _rowid_ AS _id, {named} FROM main.{target.table.sql} WHERE {PARTITION} = {target.partition} "
        f"UNION ALL SELECT 1, _rowid_, {delivered} FROM {CANDIDATE})) "
        "WHERE _place > CASE WHEN _fresh THEN _here ELSE _wanted END"
    )
    deleted = connection.execute(
        f"DELETE FROM main.{target.table.sql} WHERE _rowid_ IN (SELECT _id FROM temp.plan WHERE NOT _fresh)"
    ).rowcount
    inserted = connection.execute(
        f"INSERT INTO main.{target.table.sql} ({target.names}, {PARTITION}, {BATCH}) "
        f"SELECT {target.of('c')}, ?, ? FROM temp.plan p CROSS JOIN {CANDIDATE} c WHERE p._fresh AND c._rowid_ = p._id "
        "ORDER BY p._id",
        (target.partition, target.batch),
    ).rowcount
    counts = Counts(inserted=inserted, deleted=deleted, unchanged=candidates - inserted)
    return Replacement(counts, Changes(), candidates)
