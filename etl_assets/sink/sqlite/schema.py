"""The ledger's tables, documented for people who query them, and how an older ledger becomes a newer one."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Sequence

from etl_assets import __version__
from etl_assets.errors import LedgerTooNew
from etl_assets.sink.sqlite.reordering import reorder_names

#: A statement, or a function where SQL cannot say it.
Step = str | Callable[[sqlite3.Connection], None]

#: The ledger as it was first released. A later release appends a list of steps and never edits an earlier one.
_FIRST = (
    # One row a committed batch, in commit order. What is not in here did not happen.
    """CREATE TABLE etl_batch (
        id INTEGER PRIMARY KEY,
        batch TEXT NOT NULL UNIQUE,
        pipeline TEXT NOT NULL,
        scope TEXT NOT NULL,
        delivery TEXT NOT NULL,
        revision INTEGER NOT NULL,
        delivery_order TEXT NOT NULL,
        transform_version INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        operation TEXT NOT NULL,
        reason TEXT,
        operation_id TEXT,
        digest TEXT NOT NULL,
        input_sha256 TEXT NOT NULL,
        code TEXT NOT NULL,
        generation INTEGER NOT NULL,
        run TEXT NOT NULL,
        rows INTEGER NOT NULL,
        lower INTEGER,
        upper INTEGER,
        source INTEGER NOT NULL,
        rejected INTEGER NOT NULL,
        inserted INTEGER NOT NULL,
        updated INTEGER NOT NULL,
        deleted INTEGER NOT NULL,
        unchanged INTEGER NOT NULL,
        moved INTEGER NOT NULL,
        aside INTEGER NOT NULL,
        restored INTEGER NOT NULL,
        stale INTEGER NOT NULL,
        skipped INTEGER NOT NULL,
        ties INTEGER NOT NULL,
        supersedes INTEGER REFERENCES etl_batch (id),
        committed_at TEXT NOT NULL
    ) STRICT""",
    "CREATE INDEX etl_batch_scope ON etl_batch (pipeline, scope, id)",
    # One row a partition: progress. Its id is `_partition` in the pipeline's table; `batch` is what its rows stand for.
    """CREATE TABLE etl_partition (
        id INTEGER PRIMARY KEY,
        pipeline TEXT NOT NULL,
        scope TEXT NOT NULL,
        batch INTEGER REFERENCES etl_batch (id),
        rows INTEGER NOT NULL,
        UNIQUE (pipeline, scope)
    ) STRICT""",
    # How far a log or a series of snapshots is consumed: the last position, or the newest change, and the batch that
    # moved it there. Changes of timestamps count microseconds since 1970, of dates days.
    """CREATE TABLE etl_progress (
        pipeline TEXT PRIMARY KEY,
        position INTEGER NOT NULL,
        batch INTEGER NOT NULL REFERENCES etl_batch (id)
    ) STRICT, WITHOUT ROWID""",
    # Other partitions that a batch changed because keys moved: rows taken from them, rows given back to them.
    """CREATE TABLE etl_touched (
        batch INTEGER NOT NULL REFERENCES etl_batch (id),
        partition INTEGER NOT NULL REFERENCES etl_partition (id),
        taken INTEGER NOT NULL,
        restored INTEGER NOT NULL,
        PRIMARY KEY (batch, partition)
    ) STRICT, WITHOUT ROWID""",
    # Who may write to a scope: the highest generation. Earlier ones are fenced.
    """CREATE TABLE etl_writer (
        pipeline TEXT NOT NULL,
        scope TEXT NOT NULL,
        generation INTEGER NOT NULL,
        run TEXT NOT NULL,
        claimed_at TEXT NOT NULL,
        PRIMARY KEY (pipeline, scope, generation),
        UNIQUE (pipeline, scope, run)
    ) STRICT, WITHOUT ROWID""",
    # Every delivery that was read, by revision, and its last refusal.
    """CREATE TABLE etl_delivery (
        pipeline TEXT NOT NULL,
        scope TEXT NOT NULL,
        name TEXT NOT NULL,
        revision INTEGER NOT NULL,
        name_order TEXT NOT NULL,
        sha256 TEXT NOT NULL,
        size INTEGER NOT NULL,
        stamp TEXT NOT NULL,
        seen_at TEXT NOT NULL,
        refused_kind TEXT,
        refused_reason TEXT,
        refused_code TEXT,
        attempts INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (pipeline, scope, name, revision)
    ) STRICT, WITHOUT ROWID""",
    # Which pipeline owns a table, by what its rows are told apart, and how the values of its columns are written.
    """CREATE TABLE etl_table (
        name TEXT PRIMARY KEY,
        pipeline TEXT NOT NULL UNIQUE,
        identity TEXT NOT NULL,
        columns TEXT NOT NULL
    ) STRICT, WITHOUT ROWID""",
)

_SECOND = (
    # What a derived partition's batch was computed of: the last batch of each upstream partition that it saw; the scope is
    # empty where it saw a table as a whole.
    """CREATE TABLE etl_upstream (
        batch INTEGER NOT NULL REFERENCES etl_batch (id),
        pipeline TEXT NOT NULL,
        scope TEXT NOT NULL,
        seen INTEGER NOT NULL REFERENCES etl_batch (id),
        PRIMARY KEY (batch, pipeline, scope)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX etl_touched_partition ON etl_touched (partition, batch)",
    # A log may have shards, each with positions of its own; '' where it has one.
    "ALTER TABLE etl_batch ADD COLUMN shard TEXT NOT NULL DEFAULT ''",
    # 1 where a log's delivery goes on with a later batch: it is committed when its last one is.
    "ALTER TABLE etl_batch ADD COLUMN continues INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE etl_progress RENAME TO etl_progress_before",
    """CREATE TABLE etl_progress (
        pipeline TEXT NOT NULL,
        shard TEXT NOT NULL,
        position INTEGER NOT NULL,
        batch INTEGER NOT NULL REFERENCES etl_batch (id),
        PRIMARY KEY (pipeline, shard)
    ) STRICT, WITHOUT ROWID""",
    "INSERT INTO etl_progress SELECT pipeline, '', position, batch FROM etl_progress_before",
    "DROP TABLE etl_progress_before",
    # Rows that gave way to a newer one of their key in the same delivery.
    "ALTER TABLE etl_batch ADD COLUMN duplicates INTEGER NOT NULL DEFAULT 0",
    # One row a message. `payload` is what is sent, and never changes; `status` is waiting, sent, parked or discarded.
    """CREATE TABLE etl_outbox (
        id INTEGER PRIMARY KEY,
        topic TEXT NOT NULL,
        key TEXT NOT NULL UNIQUE,
        notification TEXT NOT NULL,
        subject TEXT NOT NULL,
        payload TEXT NOT NULL,
        batch INTEGER REFERENCES etl_batch (id),
        created_at TEXT NOT NULL,
        status TEXT NOT NULL DEFAULT 'waiting' CHECK (status IN ('waiting', 'sent', 'parked', 'discarded')),
        attempts INTEGER NOT NULL DEFAULT 0,
        next_attempt_at TEXT,
        last_error TEXT,
        settled_at TEXT
    ) STRICT""",
    "CREATE INDEX etl_outbox_said ON etl_outbox (notification, subject, id)",
    "CREATE INDEX etl_outbox_status ON etl_outbox (status, id, topic)",
)

_THIRD: tuple[Step, ...] = (
    # The sha256 of the manifest that the batch was published from.
    "ALTER TABLE etl_batch ADD COLUMN manifest TEXT",
    # Rows that a snapshot's bounds left out although the table lacks them.
    "ALTER TABLE etl_batch ADD COLUMN missed INTEGER NOT NULL DEFAULT 0",
    # Names are compared by their stems.
    reorder_names,
    # A contract, other than its batch's, under which a committed delivery was found to give the rows that are committed.
    "ALTER TABLE etl_delivery ADD COLUMN proved_code TEXT",
    # The sha256 of what the events of a log's batch say: an overlapping delivery is compared with it.
    "ALTER TABLE etl_batch ADD COLUMN events_sha256 TEXT",
    "CREATE INDEX etl_batch_positions ON etl_batch (pipeline, shard, upper) WHERE lower IS NOT NULL",
    "CREATE INDEX etl_batch_begun ON etl_batch (pipeline, shard, id) WHERE operation = 'restate'",
    "CREATE INDEX etl_delivery_refused ON etl_delivery (pipeline) WHERE refused_kind IS NOT NULL",
    "CREATE INDEX etl_batch_given_up ON etl_batch (pipeline, id) WHERE operation = 'skip'",
)

MIGRATIONS: Sequence[Sequence[Step]] = (_FIRST, _SECOND, _THIRD)


def version(connection: sqlite3.Connection) -> int:
    """The ledger's version; 0 where there is none yet. Raises :class:`LedgerTooNew`."""
    found = connection.execute("SELECT count(*) FROM main.sqlite_master WHERE name = 'etl_schema'").fetchone()[0]
    if not found:
        return 0
    number, release = connection.execute("SELECT max(version), release FROM etl_schema").fetchone()
    if number > len(MIGRATIONS):
        raise LedgerTooNew(
            f"the warehouse's ledger has version {number}, written by etl_assets {release}; this is {__version__}, "
            f"which knows versions up to {len(MIGRATIONS)}. Use the newer release; nothing was changed"
        )
    return int(number)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the ledger to this release's version, inside the caller's transaction."""
    have = version(connection)
    if have == len(MIGRATIONS):
        return
    if have == 0:
        connection.execute(
            "CREATE TABLE etl_schema (version INTEGER PRIMARY KEY, release TEXT NOT NULL, applied_at TEXT NOT NULL) STRICT"
        )
    _apply(connection, have)


def overlay(connection: sqlite3.Connection) -> None:
    """Show an older ledger as one of this release, in tables that only this connection sees: the ledger is not written."""
    have = version(connection)
    earlier = " ".join(step for steps in MIGRATIONS[:have] for step in steps if isinstance(step, str))
    known = {"etl_schema", *re.findall(r"CREATE TABLE (\w+)", earlier)}
    connection.execute("PRAGMA query_only = 0")
    connection.execute("PRAGMA defer_foreign_keys = 1")  # until a commit, which never comes
    found = connection.execute(
        "SELECT name, sql FROM main.sqlite_master WHERE type = 'table' ORDER BY rowid"
    ).fetchall()
    for name, statement in found:
        if name in known:
            connection.execute(re.sub("^CREATE TABLE", "CREATE TEMP TABLE", statement))
            connection.execute(f"INSERT INTO temp.{name} SELECT * FROM main.{name}")
    _apply(connection, have, lambda statement: re.sub("^CREATE TABLE", "CREATE TEMP TABLE", statement))
    connection.execute("PRAGMA query_only = 1")


def _apply(connection: sqlite3.Connection, have: int, worded: Callable[[str], str] = str) -> None:
    for number, steps in enumerate(MIGRATIONS[have:], start=have + 1):
        for step in steps:
            if isinstance(step, str):
                connection.execute(worded(step))
            else:
                step(connection)
        connection.execute(
            "INSERT INTO etl_schema VALUES (?, ?, strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))", (number, __version__)
        )
