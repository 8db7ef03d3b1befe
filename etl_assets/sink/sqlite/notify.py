"""Notifications: what they say of the rows that are being published, inside publish's transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from etl_assets.contract import Notification
from etl_assets.contract.notification import reading_only
from etl_assets.contract.table import Table
from etl_assets.errors import BadMessage, BadNotification
from etl_assets.model import Batch
from etl_assets.sink.sqlite import outbox
from etl_assets.sink.sqlite.connection import quoted, undecodable
from etl_assets.sink.sqlite.tables import BATCH, PARTITION

#: SQLite's codes for what is wrong with a statement or its values; the others are about the disk or the lock.
_STATEMENT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
#: Seconds that a notification's query may hold up other writers, and the most messages that it may write.
SECONDS = 20.0
MOST = 1_000_000


def write_messages(connection: sqlite3.Connection, pipeline: Table, batch: Batch, touched: Sequence[str]) -> None:
    """Run the table's notifications for what ``batch`` published, inside its transaction, after its ledger entry.

    ``touched`` are the other partitions that it changed. Raises :class:`BadNotification` where the SQL can't be run at all,
    and :class:`BadMessage` where it fails on these rows.
    """
    if not pipeline.notifications:
        return
    # What publishing has set aside for itself would hide tables of the same name from the queries.
    for (name,) in connection.execute("SELECT name FROM temp.sqlite_master WHERE type = 'table'").fetchall():
        connection.execute(f"DROP TABLE temp.{quoted(name)}")
    for scope in (batch.scope, *touched):
        connection.execute(
            f"CREATE TEMP VIEW {quoted(pipeline.table)} AS SELECT * FROM main.{quoted(pipeline.table)} "
            f"WHERE {_published(connection, pipeline, batch, scope)}"
        )
        for notification in pipeline.notifications:
            for subject, data in _ask(connection, pipeline, notification, scope):
                _say(connection, pipeline, notification, batch, scope, subject, data)
        connection.execute(f"DROP VIEW temp.{quoted(pipeline.table)}")


def _published(connection: sqlite3.Connection, pipeline: Table, batch: Batch, scope: str) -> str:
    """The condition for the rows that the table's name stands for."""
    if pipeline.operation != "replace":
        return f"{BATCH} = {batch.id}"
    query = "SELECT id FROM etl_partition WHERE pipeline = ? AND scope = ?"
    (partition,) = connection.execute(query, (pipeline.name, scope)).fetchone()
    return f"{PARTITION} = {partition}"


def _ask(
    connection: sqlite3.Connection, pipeline: Table, notification: Notification, scope: str
) -> list[tuple[str, dict[str, Any]]]:
    """The messages of one partition: subject and data, in the order of the query."""
    place = f"{pipeline.name}/{scope}: notification {notification.name!r}"
    watched, explained = None, False
    try:
        with reading_only(connection, SECONDS) as watched:
            values = {"partition": scope}
            connection.execute(f"EXPLAIN {notification.sql}", values)  # a fault of the SQL itself shows without a row
            explained = True
            cursor = connection.execute(notification.sql, values)
            names = [column[0] for column in cursor.description or ()]
            notification.check_columns(names)
            rows = cursor.fetchmany(MOST + 1)
    except (ValueError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
        raise BadNotification(f"{place}: {error}. Nothing was changed; mend its SQL") from error
    except sqlite3.DatabaseError as error:
        if watched is not None and watched.late:
            raise BadMessage(
                f"{place}: its query took longer than {SECONDS:g} s, while all other writers wait. Nothing was changed; mend "
                "its SQL"
            ) from error
        if getattr(error, "sqlite_errorcode", -1) & 0xFF not in _STATEMENT and not undecodable(error):
            raise
        said = (watched and watched.denied) or str(error)
        kind = BadMessage if explained else BadNotification
        raise kind(f"{place}: {said}. Nothing was changed; mend its SQL, which only reads") from error
    if len(rows) > MOST:
        raise BadMessage(
            f"{place}: its result has more than {MOST:,} rows, each a message. Nothing was changed; mend its SQL"
        )
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        data = dict(zip(names, row, strict=True))
        _check_values(place, data)
        subject = _subject(place, notification, data)
        if subject in found:
            raise BadMessage(
                f"{place}: two rows of its result are about {subject!r}: {found[subject]} and {data}. A subject has one "
                f"message; its key is {', '.join(notification.key)}. Nothing was changed"
            )
        found[subject] = data
    return list(found.items())


def _check_values(place: str, data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        if isinstance(value, bytes) or value in (float("inf"), float("-inf")):
            raise BadMessage(f"{place}: {name}={value!r} has no place in JSON. Nothing was changed; mend its SQL")


def _subject(place: str, notification: Notification, data: Mapping[str, Any]) -> str:
    """The key's values, escaped where they hold the separator, so that two subjects are never one."""
    parts = [data[name] for name in notification.key]
    if any(part is None or part == "" for part in parts):
        raise BadMessage(
            f"{place}: the row {dict(data)} has no value in its key ({', '.join(notification.key)}), so it is about nothing. "
            "Nothing was changed; leave such rows out"
        )
    return "/".join(quote(str(part), safe=outbox.PLAIN) for part in parts)


def _say(
    connection: sqlite3.Connection,
    pipeline: Table,
    notification: Notification,
    batch: Batch,
    scope: str,
    subject: str,
    data: dict[str, Any],
) -> None:
    """Write a message, unless it says what was said last about the subject."""
    kind = f"{pipeline.name}.{notification.name}"
    last = outbox.last_payload(connection, kind, subject)
    said = outbox.canonical(data)
    if last is not None and outbox.canonical(json.loads(last)["data"]) == said:
        return
    draft = outbox.Draft(
        topic=notification.topic,
        notification=kind,
        subject=subject,
        source=f"/etl_assets/{pipeline.name}",
        data=data,
        identity=(batch.batch, scope, said),
        batch=batch.id,
        extensions={"partition": scope, "batch": batch.batch},
    )
    outbox.write(connection, draft)
