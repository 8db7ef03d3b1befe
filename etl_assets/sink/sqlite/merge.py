"""Merge the last states of keys into a table of versions: the newer version stands, and an end is remembered.

Runs inside publish's transaction, on candidate rows attached as ``stage``. Rows lie in ``_versions_<table>`` with their
version and whether they are deleted; the table's own name is a view of those that are not, so that readers see live rows
and a stale event still meets the tombstone that it must not undo.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from etl_assets.errors import VersionConflict
from etl_assets.model import Changes, Counts
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.staging_file import TABLE as CANDIDATE
from etl_assets.staging.events import DELETED, VERSION


@dataclass(frozen=True, slots=True)
class Merge:
    """A table of versions, and the batch that is merged into it. ``columns`` are all of the candidate's."""

    table: str
    key: tuple[str, ...]
    columns: tuple[str, ...]
    batch: int

    @property
    def same_key(self) -> str:
        return " AND ".join(f"t.{quoted(k)} = c.{quoted(k)}" for k in self.key)

    def of(self, alias: str, columns: Sequence[str]) -> str:
        return ", ".join(f"{alias}.{quoted(c)}" for c in columns)


def merge_versions(connection: sqlite3.Connection, merge: Merge) -> tuple[Counts, Changes]:
    """Apply candidate rows, one a key. Raises :class:`VersionConflict` where a version has two different states."""
    version, deleted = quoted(VERSION), quoted(DELETED)
    connection.execute(
        f"CREATE TEMP TABLE plan AS SELECT c.rowid AS candidate, t.{deleted} IS NULL OR t.{deleted} AS was_gone, "
        f"c.{deleted} AS goes, coalesce(c.{version} > t.{version}, 1) AS newer, coalesce(c.{version} = t.{version}, 0) AS same "
        f"FROM {CANDIDATE} c LEFT JOIN main.{merge.table} t ON {merge.same_key} ORDER BY c.rowid"
    )
    _refuse_conflict(connection, merge)
    inserted, updated, gone, unchanged, stale = (
        int(n)
        for n in connection.execute(
            "SELECT total(newer AND was_gone AND NOT goes), total(newer AND NOT was_gone AND NOT goes), "
            "total(newer AND NOT was_gone AND goes), total(same), total(NOT newer AND NOT same) FROM temp.plan"
        ).fetchone()
    )
    names = ", ".join(map(quoted, merge.columns))
    settings = ", ".join(
        f"{quoted(c)} = excluded.{quoted(c)}" for c in (*merge.columns, "_batch") if c not in merge.key
    )
    connection.execute(
        f"INSERT INTO main.{merge.table} ({names}, _batch) SELECT {merge.of('c', merge.columns)}, ? "
        f"FROM temp.plan p CROSS JOIN {CANDIDATE} c WHERE p.newer AND c.rowid = p.candidate ORDER BY p.candidate "
        f"ON CONFLICT ({', '.join(map(quoted, merge.key))}) DO UPDATE SET {settings}",
        (merge.batch,),
    )
    return Counts(inserted=inserted, updated=updated, deleted=gone, unchanged=unchanged, stale=stale), Changes()


def _refuse_conflict(connection: sqlite3.Connection, merge: Merge) -> None:
    """An equal version with another state: which one holds cannot be told. Two ends of a row are the same end."""
    payload = [c for c in merge.columns if c not in merge.key and c not in (VERSION, "_position")]
    old, new = merge.of("t", payload), merge.of("c", payload)
    joined = (
        f"FROM temp.plan p CROSS JOIN {CANDIDATE} c CROSS JOIN main.{merge.table} t WHERE p.same AND c.rowid = p.candidate "
        f"AND {merge.same_key} AND NOT (t.{quoted(DELETED)} AND c.{quoted(DELETED)}) AND ({old}) IS NOT ({new})"
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
