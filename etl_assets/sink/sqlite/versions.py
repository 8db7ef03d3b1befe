"""Merge the last states of keys into a table of versions: the newer version stands, and an end is remembered.

Runs inside publish's transaction, on candidate rows attached as ``stage``. Rows lie in ``_versions_<table>`` with their
version and whether they are deleted; the table's own name is a view of those that are not, so that readers see live rows
and a stale event still meets the tombstone that it must not undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from etl_assets.errors import VersionConflict
from etl_assets.model import DELETED, POSITION, VERSION, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.said import Said
from etl_assets.sink.sqlite.stage_file import DISPUTED, EARLIER, LEAST
from etl_assets.sink.sqlite.stage_file import TABLE as CANDIDATE


@dataclass(frozen=True, slots=True)
class Merge:
    """A table of versions, and the batch that is merged into it. ``columns`` are all of the
    candidate's, ``absent`` those that only the table has: a new version has no value there.

    Candidates below the version ``least`` are skipped; those at ``watermark`` are counted as ties. With ``lift``, a
    candidate brings back a deleted row of the same version: a complete snapshot says that it is there. ``lenient`` are
    columns that a delivery may lack: having no value there contradicts nothing; the contract's own among them,
    ``optional``, take a value from whichever delivery of a version has one. With ``events`` a candidate is the last of what
    a log says of its key: the versions before it lie beside it, and their states are read again where they matter.
    Rows that were last written before the batch
    ``since`` are by older logic: they give way to a candidate of the same version. Rows that the batches ``kept`` wrote give
    way to none, and those of ``later`` ones not to a newer version. Without ``adds``, keys that the table lacks are passed over.
    """

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    absent: tuple[str, ...]
    batch: int
    least: int | None = None
    watermark: int | None = None
    lift: bool = False
    lenient: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()
    events: Said | None = None
    since: int = 0
    kept: tuple[int, ...] = ()
    later: tuple[int, ...] = ()
    adds: bool = True

    @property
    def same_key(self) -> str:
        return " AND ".join(f"t.{quoted(k)} = c.{quoted(k)}" for k in self.key)

    @property
    def filling(self) -> tuple[str, ...]:
        """Columns in which a candidate may add to a row of its own version."""
        return tuple(c for c in self.columns if c in self.optional and c not in self.key)

    def of(self, alias: str, columns: Sequence[str]) -> str:
        return ", ".join(f"{alias}.{quoted(c)}" for c in columns)


def merge_versions(connection: sqlite3.Connection, merge: Merge) -> Counts:
    """Apply candidate rows, one a key. Raises :class:`VersionConflict` where a version has two different states."""
    version, deleted = quoted(VERSION), quoted(DELETED)
    beyond = f"WHERE c.{version} >= {merge.least} " if merge.least is not None else ""
    # The table's version where one that stood before the candidate's is not newer: seldom.
    ahead = f"CASE WHEN c.{LEAST} <= t.{version} THEN t.{version} END" if merge.events else "NULL"
    older = f"c.{version} = t.{version} AND t._batch < {merge.since}"
    newer = f"c.{version} > t.{version}{_but(merge.later)}"
    # A complete snapshot brings back a row that had ended, also in an older version: it says that it is there.
    back = f"t.{deleted} AND c.{version} < t.{version}" if merge.lift else "0"
    redone = older if merge.lift else f"{older} AND NOT t.{deleted}"
    ended = "0" if merge.lift else f"{older} AND t.{deleted} AND NOT c.{deleted}{_but(merge.kept)}"
    fills = f"NOT c.{deleted} AND {_fills(merge)}" if merge.filling else "0"
    connection.execute(
        f"CREATE TEMP TABLE plan AS SELECT c._rowid_ AS _candidate, t.{deleted} IS NULL OR t.{deleted} AS _was_gone, "
        f"c.{deleted} AS _goes, coalesce(({newer} OR ({redone})){_but(merge.kept)}, {int(merge.adds)}) AS _newer, "
        f"coalesce(c.{version} = t.{version} AND t._batch >= {merge.since}, 0) AS _same, {ahead} AS _ahead, {fills} AS _fills, "
        f"coalesce({back}, 0) AS _back, coalesce({ended}, 0) AS _ended "
        f"FROM {CANDIDATE} c LEFT JOIN main.{merge.table} t ON {merge.same_key} {beyond}ORDER BY c._rowid_"
    )
    if merge.events:
        _refuse_disputed(connection, merge)
    _refuse_conflict(connection, merge, f"temp.plan p CROSS JOIN {CANDIDATE} c", "p._same AND c._rowid_ = p._candidate")
    lifted = "((p._same AND p._was_gone AND NOT p._goes) OR p._back)" if merge.lift else "0"
    inserted, restored, updated, gone, unchanged, filled, stale, planned, ahead_of, redone_ended, filled_any = (
        int(n)
        for n in connection.execute(
            f"SELECT total(p._newer AND p._was_gone AND NOT p._goes), total({lifted}), "
            "total(p._newer AND NOT p._was_gone AND NOT p._goes), total(p._newer AND NOT p._was_gone AND p._goes), "
            f"total(p._same AND NOT ({lifted})), total(p._same AND p._fills AND NOT p._was_gone), "
            "total(NOT p._newer AND NOT p._same AND NOT p._back), count(*), count(p._ahead), total(p._ended), "
            "total(p._same AND p._fills) FROM temp.plan p"
        ).fetchone()
    )
    if ahead_of and merge.events:
        stale += _count_stale_before(connection)
        _refuse_contradicted(connection, merge, merge.events)
    names = ", ".join(map(quoted, merge.columns))
    settings = ", ".join(_setting(merge, c) for c in (*merge.columns, "_batch") if c not in merge.key)
    settings += "".join(f", {quoted(c)} = NULL" for c in merge.absent)
    connection.execute(
        f"INSERT INTO main.{merge.table} AS t ({names}, _batch) SELECT {merge.of('c', merge.columns)}, ? "
        f"FROM temp.plan p CROSS JOIN {CANDIDATE} c WHERE (p._newer OR ({lifted})) AND c._rowid_ = p._candidate "
        f"ORDER BY p._candidate ON CONFLICT ({', '.join(map(quoted, merge.key))}) DO UPDATE SET {settings}",
        (merge.batch,),
    )
    if filled_any:
        _fill(connection, merge)
    if redone_ended:
        _redo_ended(connection, merge)
    rows, ties = connection.execute(
        f"SELECT count(*), total({version} IS ?) FROM {CANDIDATE}", (merge.watermark,)
    ).fetchone()
    return Counts(
        inserted=inserted,
        updated=updated + filled,
        deleted=gone,
        unchanged=unchanged - filled,
        restored=restored,
        stale=stale,
        skipped=rows - planned,
        missed=count_missed(connection, merge) if rows > planned else 0,
        ties=int(ties) if merge.watermark is not None else 0,
    )


def _setting(merge: Merge, column: str) -> str:
    """What a column becomes. Of a row that is brought back in its own version, what was said of it before still holds."""
    name = quoted(column)
    if not merge.lift or column not in merge.filling:
        return f"{name} = excluded.{name}"
    own = f"t.{quoted(VERSION)} = excluded.{quoted(VERSION)} AND t._batch >= {merge.since}"
    return f"{name} = CASE WHEN {own} THEN coalesce(excluded.{name}, t.{name}) ELSE excluded.{name} END"


def _but(batches: Sequence[int]) -> str:
    """The condition that none of these batches wrote the table's row."""
    return f" AND t._batch NOT IN ({', '.join(map(str, batches))})" if batches else ""


def _redo_ended(connection: sqlite3.Connection, merge: Merge) -> None:
    """Let newer logic say what an ended row held: one that comes back in this version is then the same in any order."""
    settings = ", ".join(_setting(merge, c) for c in (*merge.columns, "_batch") if c not in (*merge.key, DELETED))
    connection.execute(
        f"INSERT INTO main.{merge.table} AS t ({', '.join(map(quoted, merge.columns))}, _batch) "
        f"SELECT {merge.of('c', merge.columns)}, ? FROM temp.plan p CROSS JOIN {CANDIDATE} c "
        "WHERE p._ended AND c._rowid_ = p._candidate ORDER BY p._candidate "
        f"ON CONFLICT ({', '.join(map(quoted, merge.key))}) DO UPDATE SET {settings}",
        (merge.batch,),
    )


def count_missed(connection: sqlite3.Connection, merge: Merge, inside: bool = False) -> int:
    """Count the candidates outside of the bounds (or ``inside`` of them) that the table lacks, or has in an older version."""
    version = quoted(VERSION)
    bounds = "1" if merge.least is None else f"c.{version} {'>=' if inside else '<'} {merge.least}"
    found = connection.execute(
        f"SELECT count(*) FROM {CANDIDATE} c LEFT JOIN main.{merge.table} t ON {merge.same_key} "
        f"WHERE {bounds} AND coalesce(c.{version} > t.{version}, 1)"
    ).fetchone()
    return int(found[0])


def _fills(merge: Merge) -> str:
    """Where the candidate has a value that the table lacks, though both are one version."""
    return any_of([f"(t.{quoted(c)} IS NULL AND c.{quoted(c)} IS NOT NULL)" for c in merge.filling])


def _fill(connection: sqlite3.Connection, merge: Merge) -> None:
    """Add values of columns that another delivery of the same version lacked: whichever came first, both have been heard."""
    settings = ", ".join(f"{quoted(c)} = coalesce(t.{quoted(c)}, excluded.{quoted(c)})" for c in merge.filling)
    connection.execute(
        f"INSERT INTO main.{merge.table} AS t ({', '.join(map(quoted, merge.columns))}, _batch) "
        f"SELECT {merge.of('c', merge.columns)}, ? FROM temp.plan p CROSS JOIN {CANDIDATE} c "
        "WHERE p._same AND p._fills AND c._rowid_ = p._candidate ORDER BY p._candidate "
        f"ON CONFLICT ({', '.join(map(quoted, merge.key))}) DO UPDATE SET {settings}, _batch = excluded._batch",
        (merge.batch,),
    )


def _count_stale_before(connection: sqlite3.Connection) -> int:
    """Of the versions that stood before the candidates, how many are older than the table's were."""
    connection.execute("CREATE TEMP TABLE ahead (_candidate INTEGER PRIMARY KEY, _ahead INTEGER NOT NULL)")
    connection.execute("INSERT INTO ahead SELECT _candidate, _ahead FROM temp.plan WHERE _ahead IS NOT NULL ORDER BY 1")
    query = f"SELECT count(*) FROM {EARLIER} e CROSS JOIN temp.ahead a WHERE a._candidate = e._candidate"
    return int(connection.execute(f"{query} AND e._version < a._ahead").fetchone()[0])


def _refuse_disputed(connection: sqlite3.Connection, merge: Merge) -> None:
    """Refuse two states of one version that the batch holds, if the table's version is not newer: then they are stale."""
    joined = (
        f"FROM {DISPUTED} d CROSS JOIN {CANDIDATE} c LEFT JOIN main.{merge.table} t ON {merge.same_key} "
        f"WHERE c._rowid_ = d._candidate AND (t.{quoted(VERSION)} IS NULL OR t.{quoted(VERSION)} <= d._version)"
    )
    count = connection.execute(f"SELECT count(*) {joined}").fetchone()[0]
    if count:
        (states,) = connection.execute(f"SELECT d._states {joined} ORDER BY d._candidate LIMIT 1").fetchone()
        raise VersionConflict(
            f"{count:,} rows have two different states under one version. First: {states}\n"
            "Nothing was changed; the source has to say which one holds"
        )


def _refuse_contradicted(connection: sqlite3.Connection, merge: Merge, said: Said) -> None:
    """Refuse a state that has the table's version and contradicts it, though a newer one of the batch stands after it."""
    keys = merge.of("c", merge.key)
    wanted = connection.execute(
        f"SELECT DISTINCT {keys}, a._ahead FROM {EARLIER} e CROSS JOIN temp.ahead a CROSS JOIN {CANDIDATE} c "
        f"WHERE a._candidate = e._candidate AND e._version = a._ahead AND c._rowid_ = a._candidate "
        f"AND c.{quoted(VERSION)} > a._ahead"
    ).fetchall()
    if not wanted:
        return
    connection.execute(f"CREATE TEMP TABLE said AS SELECT {merge.of('c', merge.columns)} FROM {CANDIDATE} c LIMIT 0")
    marks = ", ".join("?" * len(merge.columns))
    states = said.states({tuple(key): version for *key, version in wanted}, merge.key, merge.columns)
    connection.executemany(f"INSERT INTO temp.said VALUES ({marks})", states)
    _refuse_conflict(connection, merge, "temp.said c", f"c.{quoted(VERSION)} = t.{quoted(VERSION)}")


def withdraw_absent(
    connection: sqlite3.Connection, merge: Merge, counts: Counts, window: str | None, of: int | None = None
) -> Counts:
    """Mark live rows that a snapshot does not have as deleted; within a window, only those inside of it.

    Of all rows, or of those that the batch ``of`` wrote last.
    """
    inside = f"AND t._batch = {of} " if of is not None else ""
    if window is not None:
        column = quoted(window)
        inside += f"AND t.{column} BETWEEN (SELECT min({column}) FROM {CANDIDATE}) AND (SELECT max({column}) FROM {CANDIDATE}) "
    # Not a correlated NOT EXISTS: the candidate has no index by key, and would be read once for each row.
    gone = connection.execute(
        # A row by older logic stays one: in the state that it has, nothing that newer logic says contradicts it.
        f"UPDATE main.{merge.table} AS t SET {quoted(DELETED)} = 1, "
        f"_batch = CASE WHEN t._batch < {merge.since} THEN t._batch ELSE ? END WHERE NOT t.{quoted(DELETED)} {inside}"
        f"AND ({merge.of('t', merge.key)}) NOT IN (SELECT {merge.of('c', merge.key)} FROM {CANDIDATE} c)",
        (merge.batch,),
    ).rowcount
    return counts.plus(deleted=gone)


def clear_versions(connection: sqlite3.Connection, table: str, which: str = "1", values: tuple[Any, ...] = ()) -> int:
    """Forget all versions, or ``which`` of them; return how many of the rows were live."""
    query = f"SELECT count(*) FROM main.{table} WHERE NOT {quoted(DELETED)} AND {which}"
    live = connection.execute(query, values).fetchone()[0]
    connection.execute(f"DELETE FROM main.{table} WHERE {which}", values)
    return int(live)


def _refuse_conflict(connection: sqlite3.Connection, merge: Merge, candidates: str, which: str) -> None:
    """Refuse an equal version with another state: which one holds cannot be told. Two ends of a row are the same end.

    Only a log says with a version that a row ends; that a snapshot lacks a key contradicts no version of it.
    ``candidates`` are the rows ``c`` to compare with the table's ``t``, and ``which`` of them.
    """
    own = (VERSION, POSITION, *(() if merge.events else (DELETED,)))
    payload = [c for c in merge.columns if c not in merge.key and c not in own]
    if not payload:
        return
    old, new = merge.of("t", payload), merge.of("c", payload)
    differs = _differ(merge, payload)
    joined = (
        f"FROM {candidates} CROSS JOIN main.{merge.table} t WHERE {which} "
        f"AND {merge.same_key} AND NOT (t.{quoted(DELETED)} AND c.{quoted(DELETED)}) AND {differs}"
    )
    count = connection.execute(f"SELECT count(*) {joined}").fetchone()[0]
    if not count:
        return
    keys, version = merge.of("c", merge.key), f"c.{quoted(VERSION)}"
    row = connection.execute(f"SELECT {keys}, {version}, {old}, {new} {joined} LIMIT 1").fetchone()
    width = len(merge.key)
    shown = ", ".join(f"{k}={v!r}" for k, v in zip(merge.key, row, strict=False))
    states = row[width + 1 :]
    theirs = dict(zip(payload, states[: len(payload)], strict=True))
    mine = dict(zip(payload, states[len(payload) :], strict=True))
    raise VersionConflict(
        f"{count:,} rows have another state than the table under the same version. First: {shown}, version {row[width]}\n"
        f"  in the table: {theirs}\n  delivered: {mine}\nNothing was changed; the source has to say which one holds"
    )


def _differ(merge: Merge, payload: Sequence[str]) -> str:
    """Where the states ``t`` and ``c`` contradict each other. Row values keep the expression flat for wide tables."""
    strict = [c for c in payload if c not in merge.lenient]
    parts = [f"t.{quoted(c)} <> c.{quoted(c)}" for c in payload if c in merge.lenient]
    if len(strict) > 1:
        parts.append(f"({merge.of('t', strict)}) IS NOT ({merge.of('c', strict)})")
    elif strict:
        parts.append(f"{merge.of('t', strict)} IS NOT {merge.of('c', strict)}")
    return f"({any_of(parts)})"


def any_of(parts: Sequence[str]) -> str:
    """``OR`` as a balanced tree: SQLite bounds how deep an expression nests."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return f"({any_of(parts[:half])} OR {any_of(parts[half:])})"
