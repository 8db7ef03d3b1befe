"""Keys that two partitions claim: settle them before the rows are applied, and give back what comes free.

Where a key is unique in the table, two partitions' current deliveries may both hold it. The later claim
(by the contract's order) is in the table, the other one is kept aside as its partition's, and comes back when the
winner's partition drops the key. So the table is a function of the current deliveries, not of the order in which
they were published. An equal order is undecidable and refused.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from etl_assets.contract import Repair, ReplacedTable
from etl_assets.errors import MovedKeys
from etl_assets.naming import is_later
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.stage_file import TABLE as CANDIDATE
from etl_assets.sink.sqlite.tables import BATCH, PARTITION
from etl_assets.sink.sqlite.target import Target, copy_standing


@dataclass(frozen=True, slots=True)
class Moves:
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


def _comparable(pipeline: ReplacedTable, column: str, value: str) -> str:
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


@functools.lru_cache(maxsize=4096)
def _names_are_tied(theirs: str | None, mine: str) -> bool:
    return theirs is not None and is_later(theirs, mine) is None


def settle_moves(connection: sqlite3.Connection, target: Target) -> Moves:
    """Compare the candidates with other partitions' claims on the same keys; make way for those that win."""
    if not target.table.repaired:
        _refuse_claimed(connection, target)
        return Moves()
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
    tied = "_theirs IS _mine"
    if policy.order == "delivery":
        # Names that do not tell which is later are no order, though their texts differ.
        tied = "names_are_tied(_theirs, _mine)"
        connection.create_function("names_are_tied", 2, _names_are_tied, deterministic=True)
    tie = connection.execute(f"SELECT _candidate, _other FROM temp.contested WHERE {tied} LIMIT 1").fetchone()
    if tie:
        count = connection.execute(f"SELECT count(*) FROM temp.contested WHERE {tied}").fetchone()[0]
        raise MovedKeys(_describe_tie(connection, target, tie, count, "the order that the contract declares is equal"))
    if not connection.execute("SELECT 1 FROM temp.contested LIMIT 1").fetchone():
        return Moves()
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
        source = copy_standing(connection, target, f"c._rowid_ NOT IN ({losing})")
    return Moves(source, moved, aside, taken)


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


def keep_aside(connection: sqlite3.Connection, target: Target) -> None:
    """Keep the candidates that lost their key to another partition as this partition's."""
    connection.execute(
        f"INSERT INTO main.{target.table.aside} ({target.names}, {PARTITION}, {BATCH}) "
        f"SELECT {target.of('c')}, ?, ? FROM {CANDIDATE} c "
        "WHERE c._rowid_ IN (SELECT _candidate FROM temp.contested WHERE _theirs > _mine)",
        (target.partition, target.batch),
    )


def give_back(connection: sqlite3.Connection, target: Target) -> dict[int, int]:
    """Put back the best claim of every key that is kept aside and no longer in the table; rows by partition."""
    table = target.table
    order = _order_of(target, "a")
    keys = ", ".join(f"a.{quoted(k)}" for k in table.key)
    connection.execute(
        f"CREATE TEMP TABLE coming_back AS SELECT {keys}, _other FROM (SELECT {keys}, a.{PARTITION} AS _other, "
        f"row_number() OVER (PARTITION BY {keys} ORDER BY {order} DESC) AS _place FROM main.{table.aside} a "
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


def touched_by(
    connection: sqlite3.Connection, taken: Sequence[tuple[int, int]], restored: dict[int, int]
) -> tuple[tuple[str, int, int], ...]:
    """Other partitions that changed: (scope, rows taken from it, rows given back to it)."""
    by_taken = dict(taken)
    found = []
    for partition in sorted({*by_taken, *restored}):
        scope = connection.execute("SELECT scope FROM etl_partition WHERE id = ?", (partition,)).fetchone()[0]
        found.append((scope, by_taken.get(partition, 0), restored.get(partition, 0)))
    return tuple(found)
