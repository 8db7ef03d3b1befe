"""Restate a snapshot: its rows stand as it has them, whatever versions the table has and whatever the bounds are.

Where a snapshot says all that there is (a complete one, or the only partition's), the table becomes that snapshot. Of any
other one only its own keys are restated, since what other snapshots said of the rest would be lost.
"""

from __future__ import annotations

import sqlite3

from etl_assets.model import DELETED, VERSION, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.stage_file import TABLE as CANDIDATE
from etl_assets.sink.sqlite.versions import Merge, any_of


def restate_versions(connection: sqlite3.Connection, merge: Merge, alone: bool, remember: bool) -> Counts:
    """Write all candidates over the table's rows, and count what changes.

    With ``alone``, keys that the snapshot lacks go. With ``remember`` they go as ended rows, so that an older file does not
    bring them back.
    """
    deleted = quoted(DELETED)
    values = [c for c in merge.columns if c not in merge.key and c != DELETED]
    differs = any_of(
        [f"t.{quoted(c)} IS NOT c.{quoted(c)}" for c in values] + [f"t.{quoted(c)} IS NOT NULL" for c in merge.absent]
    )
    inserted, updated, unchanged = (
        int(n)
        for n in connection.execute(
            f"SELECT total(t.{deleted} IS NOT 0), total(t.{deleted} IS 0 AND {differs}), "
            f"total(t.{deleted} IS 0 AND NOT {differs}) FROM {CANDIDATE} c LEFT JOIN main.{merge.table} t ON {merge.same_key}"
        ).fetchone()
    )
    gone = _end_absent(connection, merge, remember) if alone else 0
    # Every row is this batch's now, also one that has not changed: it is what the restatement says.
    names = ", ".join(map(quoted, merge.columns))
    settings = [f"{quoted(c)} = excluded.{quoted(c)}" for c in (*merge.columns, "_batch") if c not in merge.key]
    settings += [f"{quoted(c)} = NULL" for c in merge.absent]
    connection.execute(
        f"INSERT INTO main.{merge.table} ({names}, _batch) SELECT {merge.of('c', merge.columns)}, ? FROM {CANDIDATE} c "
        f"WHERE 1 ORDER BY c._rowid_ ON CONFLICT ({', '.join(map(quoted, merge.key))}) DO UPDATE SET {', '.join(settings)}",
        (merge.batch,),
    )
    return Counts(inserted=inserted, updated=updated, unchanged=unchanged, deleted=gone)


def _end_absent(connection: sqlite3.Connection, merge: Merge, remember: bool) -> int:
    """End the rows whose keys the snapshot lacks; how many of them were live."""
    deleted = quoted(DELETED)
    absent = f"({merge.of('t', merge.key)}) NOT IN (SELECT {merge.of('c', merge.key)} FROM {CANDIDATE} c)"
    where = f"main.{merge.table} AS t WHERE NOT t.{deleted} AND {absent}"
    gone = int(connection.execute(f"SELECT count(*) FROM {where}").fetchone()[0])
    if remember:
        connection.execute(
            f"UPDATE main.{merge.table} AS t SET {deleted} = 1, _batch = ? WHERE NOT t.{deleted} AND {absent}",
            (merge.batch,),
        )
    else:
        connection.execute(f"DELETE FROM main.{merge.table} AS t WHERE {absent}")
    return gone


def newest_live(connection: sqlite3.Connection, table: str) -> int | None:
    """The newest change among the live rows."""
    query = f"SELECT max({quoted(VERSION)}) FROM main.{table} WHERE NOT {quoted(DELETED)}"
    found = connection.execute(query).fetchone()[0]
    return None if found is None else int(found)
