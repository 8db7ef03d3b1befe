"""Replace one partition, set-wise: write what changed, repair keys that moved, count everything.

Everything here runs inside publish's transaction, on candidate rows attached as ``stage``. Nothing is decided row by
row in Python; what may be large stays in the database.

Moved keys. Where a key is unique in the table, two partitions' current deliveries may both hold it. The later claim
(by the contract's order) is in the table, the other one is kept aside as its partition's, and comes back when the
winner's partition drops the key. So the table is a function of the current deliveries, not of the order in which
they were published. An equal order is undecidable and refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, replace

from etl_assets.contract import PartitionedTable, Repair
from etl_assets.errors import MovedKeys
from etl_assets.model import Change, Changes, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.staging_file import TABLE as CANDIDATE
from etl_assets.sink.sqlite.tables import BATCH, PARTITION, Table

#: How many updated rows a receipt shows.
SAMPLE = 10
#: How many sums one statement takes; SQLite's own limit is 2,000 terms of all kinds.
TERMS = 500


@dataclass(frozen=True, slots=True)
class Replacement:
    """What replacing did, and how many rows of the partition are in the table now."""

    counts: Counts
    changes: Changes
    rows: int


@dataclass(frozen=True, slots=True)
class Target:
    """One partition of a table, and the batch that replaces it. ``order`` is its delivery's, as text."""

    table: Table
    pipeline: PartitionedTable
    partition: int
    scope: str
    batch: int
    order: str
    columns: tuple[str, ...]

    @property
    def names(self) -> str:
        return ", ".join(map(quoted, self.columns))

    def of(self, alias: str, columns: Sequence[str] | None = None) -> str:
        return ", ".join(f"{alias}.{quoted(c)}" for c in (self.columns if columns is None else columns))

    def same_key(self, one: str, two: str) -> str:
        return " AND ".join(f"{one}.{quoted(k)} = {two}.{quoted(k)}" for k in self.table.key)

    @property
    def compared(self) -> tuple[str, ...]:
        """Columns whose change makes a row an updated one: all of the table's but the key."""
        return tuple(c for c in self.table.columns if c not in self.table.key)


def replace_partition(connection: sqlite3.Connection, target: Target, rows_before: int, candidates: int) -> Replacement:
    """Make the partition hold the candidate rows. ``rows_before`` are its rows now."""
    if not target.table.key:
        return _replace_bag(connection, target, rows_before, candidates)
    moves = _settle_moves(connection, target) if target.table.movable else _Moves()
    source, standing = moves.source, candidates - moves.aside
    if rows_before and source == CANDIDATE and not _indexed(connection):
        source = _copy_standing(connection, target, "1")
    inserted = updated = deleted = 0
    changes = Changes()
    if rows_before == 0:
        inserted = _insert_all(connection, target, source)
    else:
        inserted, updated, changes = _apply_differences(connection, target, source)
        kept = standing - inserted
        if kept < rows_before:
            deleted = _delete_absent(connection, target, source)
    restored = _give_back(connection, target) if target.table.repaired else {}
    if moves.aside:
        _keep_aside(connection, target)
    touched = _touched(connection, moves.taken, restored)
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


def _copy_standing(connection: sqlite3.Connection, target: Target, which: str) -> str:
    """The candidates that may stand, indexed by key. Comparing without an index would take time by their square."""
    connection.execute(f"CREATE TEMP TABLE standing AS SELECT c.* FROM {CANDIDATE} c WHERE {which} ORDER BY c._rowid_")
    keys = ", ".join(map(quoted, target.table.key))
    connection.execute(f"CREATE UNIQUE INDEX temp.standing_key ON standing ({keys})")
    return "temp.standing"


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


# --------------------------------------------------------------------------- keys that may move


@dataclass(frozen=True, slots=True)
class _Moves:
    """What was settled before the rows are applied: where candidate rows are read from, and who lost what."""

    source: str = CANDIDATE
    moved: int = 0
    aside: int = 0
    taken: tuple[tuple[int, int], ...] = ()


def _order_of(target: Target, alias: str) -> str:
    """The order of a claim that is in the database: its row's version, or its partition's current delivery."""
    policy = target.pipeline.moved_keys
    assert isinstance(policy, Repair)
    if policy.order != "delivery":
        return _comparable(target.pipeline, policy.order, f"{alias}.{quoted(policy.order)}")
    return (
        "(SELECT b.delivery_order FROM etl_partition q JOIN etl_batch b ON b.id = q.batch "
        f"WHERE q.id = {alias}.{PARTITION})"
    )


def _comparable(pipeline: PartitionedTable, column: str, value: str) -> str:
    """A value in a form that compares as the column's type does: decimals are exact text, and 9.0 comes before 10.0.

    Of equal scale, a longer one is larger; for negative ones all is the other way round, digit by digit.
    """
    declared = pipeline.column(column)
    if declared is None or declared.type != "decimal":
        return value
    turned = value
    for digit, letter in zip("0123456789", "jihgfedcba", strict=True):
        turned = f"replace({turned}, '{digit}', '{letter}')"
    return (
        f"CASE WHEN {value} LIKE '-%' THEN '-' || printf('%02d', 99 - length({value})) || {turned} "
        f"ELSE printf('%02d', length({value})) || {value} END"
    )


def _settle_moves(connection: sqlite3.Connection, target: Target) -> _Moves:
    """Compare the candidates with other partitions' claims on the same keys; make way for those that win."""
    if not target.table.repaired:
        _refuse_claimed(connection, target)
        return _Moves()
    table, own = target.table, target.partition
    policy = target.pipeline.moved_keys
    assert isinstance(policy, Repair)
    mine = "?" if policy.order == "delivery" else _order_of(target, "c")
    mine_values = (target.order,) if policy.order == "delivery" else ()
    keys = target.of("c", table.key)
    connection.execute(f"DELETE FROM main.{table.aside} WHERE {PARTITION} = ?", (own,))
    connection.execute(
        f"CREATE TEMP TABLE contested AS "
        f"SELECT c._rowid_ AS _candidate, {keys}, t.{PARTITION} AS _other, {_order_of(target, 't')} AS _theirs, {mine} AS _mine "
        f"FROM {CANDIDATE} c CROSS JOIN main.{table.sql} t ON {target.same_key('t', 'c')} WHERE t.{PARTITION} <> {own} "
        f"UNION ALL "
        f"SELECT c._rowid_, {keys}, t.{PARTITION}, {_order_of(target, 't')}, {mine} "
        f"FROM main.{table.aside} t CROSS JOIN {CANDIDATE} c ON {target.same_key('t', 'c')}",
        mine_values * 2,
    )
    tie = connection.execute("SELECT _candidate, _other FROM temp.contested WHERE _theirs IS _mine LIMIT 1").fetchone()
    if tie:
        count = connection.execute("SELECT count(*) FROM temp.contested WHERE _theirs IS _mine").fetchone()[0]
        raise MovedKeys(_describe_tie(connection, target, tie, count, "the order that the contract declares is equal"))
    if not connection.execute("SELECT 1 FROM temp.contested LIMIT 1").fetchone():
        return _Moves()
    losing = "SELECT _candidate FROM temp.contested WHERE _theirs > _mine"
    aside = connection.execute(f"SELECT count(DISTINCT _candidate) FROM ({losing})").fetchone()[0]
    wins = (
        f"SELECT t._rowid_ AS _id, t.{PARTITION} AS _other FROM temp.contested k CROSS JOIN main.{table.sql} t "
        f"ON {target.same_key('t', 'k')} WHERE t.{PARTITION} <> {own} AND k._candidate NOT IN ({losing})"
    )
    connection.execute(f"CREATE TEMP TABLE demoted AS SELECT DISTINCT _id, _other FROM ({wins})")
    everything = ", ".join([*map(quoted, table.columns), PARTITION, BATCH])
    connection.execute(
        f"INSERT INTO main.{table.aside} ({everything}) SELECT {everything} FROM main.{table.sql} "
        "WHERE _rowid_ IN (SELECT _id FROM temp.demoted)"
    )
    moved = connection.execute(f"DELETE FROM main.{table.sql} WHERE _rowid_ IN (SELECT _id FROM temp.demoted)").rowcount
    taken = tuple(connection.execute("SELECT _other, count(*) FROM temp.demoted GROUP BY _other"))
    source = CANDIDATE
    if aside:
        source = _copy_standing(connection, target, f"c._rowid_ NOT IN ({losing})")
    return _Moves(source, moved, aside, taken)


def _refuse_claimed(connection: sqlite3.Connection, target: Target) -> None:
    joined = (
        f"FROM {CANDIDATE} c CROSS JOIN main.{target.table.sql} t ON {target.same_key('t', 'c')} "
        f"WHERE t.{PARTITION} <> {target.partition}"
    )
    found = connection.execute(f"SELECT c._rowid_, t.{PARTITION} {joined} LIMIT 1").fetchone()
    if found:
        count = connection.execute(f"SELECT count(*) {joined}").fetchone()[0]
        raise MovedKeys(
            _describe_tie(connection, target, found, count, "the contract refuses moves (moved_keys='refuse')")
        )


def _describe_tie(connection: sqlite3.Connection, target: Target, pair: tuple[int, int], count: int, why: str) -> str:
    """The error for keys that two partitions claim, showing the first pair (candidate row, other partition) whole."""
    candidate, other = pair
    mine = connection.execute(f"SELECT {target.names} FROM {CANDIDATE} WHERE _rowid_ = ?", (candidate,)).fetchone()
    key = dict(zip(target.columns, mine, strict=True))
    scope = connection.execute("SELECT scope FROM etl_partition WHERE id = ?", (other,)).fetchone()[0]
    match = " AND ".join(f"{quoted(k)} = ?" for k in target.table.key)
    theirs = None
    for table in (target.table.sql, *((target.table.aside,) if target.table.repaired else ())):
        query = f"SELECT {target.of('x', target.table.columns)} FROM main.{table} x WHERE {match} AND {PARTITION} = ?"
        theirs = theirs or connection.execute(query, (*(key[k] for k in target.table.key), other)).fetchone()
    shown = ", ".join(f"{k}={key[k]!r}" for k in target.table.key)
    return (
        f"{target.pipeline.name}/{target.scope}: {count:,} keys are held by another partition too, and {why}. "
        f"First: {shown} is also in {scope}.\n  {target.scope}: {_row(target.columns, mine)}\n"
        f"  {scope}: {_row(target.table.columns, theirs or ())}\n"
        "Deliver the other partition without it, or declare moved_keys=repair(order=…) with an order that decides"
    )


def _row(columns: Sequence[str], values: Sequence[object]) -> str:
    pairs = [f"{c}={v!r}" for c, v in zip(columns, values, strict=False) if v is not None]
    return ", ".join(pairs[:12]) + (", …" if len(pairs) > 12 else "")


def _keep_aside(connection: sqlite3.Connection, target: Target) -> None:
    """Keep the candidates that lost their key to another partition as this partition's."""
    connection.execute(
        f"INSERT INTO main.{target.table.aside} ({target.names}, {PARTITION}, {BATCH}) "
        f"SELECT {target.of('c')}, ?, ? FROM {CANDIDATE} c "
        "WHERE c._rowid_ IN (SELECT _candidate FROM temp.contested WHERE _theirs > _mine)",
        (target.partition, target.batch),
    )


def _give_back(connection: sqlite3.Connection, target: Target) -> dict[int, int]:
    """Put back the best claim of every key that is kept aside and no longer in the table; rows by partition."""
    table = target.table
    order = _order_of(target, "a")
    keys = ", ".join(f"a.{quoted(k)}" for k in table.key)
    connection.execute(
        f"CREATE TEMP TABLE coming_back AS SELECT {keys}, {PARTITION} AS _other FROM ("
        f"SELECT a.*, row_number() OVER (PARTITION BY {keys} ORDER BY {order} DESC) AS _place FROM main.{table.aside} a "
        f"WHERE NOT EXISTS (SELECT 1 FROM main.{table.sql} t WHERE {target.same_key('t', 'a')})) a WHERE _place = 1"
    )
    returned = dict(connection.execute("SELECT _other, count(*) FROM temp.coming_back GROUP BY _other").fetchall())
    if returned:
        back = f"{target.same_key('a', 'r')} AND a.{PARTITION} = r._other"
        everything = ", ".join(map(quoted, table.columns))
        connection.execute(
            f"INSERT INTO main.{table.sql} ({everything}, {PARTITION}, {BATCH}) "
            f"SELECT {target.of('a', table.columns)}, a.{PARTITION}, ? FROM temp.coming_back r "
            f"CROSS JOIN main.{table.aside} a ON {back}",
            (target.batch,),
        )
        identity = ", ".join([*map(quoted, table.key), PARTITION])
        connection.execute(f"DELETE FROM main.{table.aside} WHERE ({identity}) IN (SELECT * FROM temp.coming_back)")
    return returned


def _touched(
    connection: sqlite3.Connection, taken: Sequence[tuple[int, int]], restored: dict[int, int]
) -> tuple[tuple[str, int, int], ...]:
    """Other partitions that changed: (scope, rows taken from it, rows given back to it)."""
    by_taken = dict(taken)
    found = []
    for partition in sorted({*by_taken, *restored}):
        scope = connection.execute("SELECT scope FROM etl_partition WHERE id = ?", (partition,)).fetchone()[0]
        found.append((scope, by_taken.get(partition, 0), restored.get(partition, 0)))
    return tuple(found)


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
