"""The outbox's rows: messages written in the transaction that publishes, and what became of them.

A message is a CloudEvents document. Its key is made of what it says, about what, and of which batch: no clock and no
chance is in it, so that a receiver that remembers keys takes each message once, however often it is sent.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

from etl_assets.contract.notification import Notification, reading_only
from etl_assets.contract.table import Table
from etl_assets.errors import BadNotification, UnknownMessage
from etl_assets.model import Batch, Delivery, Message, Refusal, RunFailure
from etl_assets.sink.sqlite.connection import quoted
from etl_assets.sink.sqlite.ledger import NOW
from etl_assets.sink.sqlite.tables import BATCH, PARTITION

#: SQLite's codes for what is wrong with a statement or its values; the others are about the disk or the lock.
_STATEMENT = (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_TOOBIG)
#: Characters of a subject that stay readable in a key, and the digits of the digest behind them.
_READABLE, _DIGITS = 80, 40
_PLAIN = "".join(chr(c) for c in range(33, 127) if chr(c) not in "/%")


@dataclass(frozen=True, slots=True)
class _Draft:
    """What a message says. ``identity`` is what makes it this message and no other, beside kind and subject."""

    topic: str
    notification: str
    subject: str
    source: str
    data: Mapping[str, Any]
    identity: tuple[str, ...]
    batch: int | None = None
    extensions: Mapping[str, str] | None = None


# --------------------------------------------------------------------------- writing messages


def write_messages(connection: sqlite3.Connection, pipeline: Table, batch: Batch, touched: Sequence[str]) -> None:
    """Run the table's notifications for what ``batch`` published, inside its transaction, after its ledger entry.

    ``touched`` are the other partitions that it changed. Raises :class:`BadNotification`.
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
    try:
        with reading_only(connection):
            cursor = connection.execute(notification.sql, {"partition": scope})
            names = [column[0] for column in cursor.description or ()]
            notification.check_columns(names)
            rows = cursor.fetchall()
    except (ValueError, sqlite3.ProgrammingError, sqlite3.Warning) as error:
        raise BadNotification(f"{place}: {error}. Nothing was changed; mend its SQL") from error
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", -1) & 0xFF not in _STATEMENT:
            raise
        raise BadNotification(f"{place}: {error}. Nothing was changed; mend its SQL, which only reads") from error
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        data = dict(zip(names, row, strict=True))
        _check_values(place, data)
        subject = _subject(place, notification, data)
        if subject in found:
            raise BadNotification(
                f"{place}: two rows of its result are about {subject!r}: {found[subject]} and {data}. A subject has one "
                f"message; its key is {', '.join(notification.key)}. Nothing was changed"
            )
        found[subject] = data
    return list(found.items())


def _check_values(place: str, data: Mapping[str, Any]) -> None:
    for name, value in data.items():
        if isinstance(value, bytes) or value in (float("inf"), float("-inf")):
            raise BadNotification(f"{place}: {name}={value!r} has no place in JSON. Nothing was changed; mend its SQL")


def _subject(place: str, notification: Notification, data: Mapping[str, Any]) -> str:
    """The key's values, escaped where they hold the separator, so that two subjects are never one."""
    parts = [data[name] for name in notification.key]
    if any(part is None or part == "" for part in parts):
        raise BadNotification(
            f"{place}: the row {dict(data)} has no value in its key ({', '.join(notification.key)}), so it is about nothing. "
            "Nothing was changed; leave such rows out"
        )
    return "/".join(quote(str(part), safe=_PLAIN) for part in parts)


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
    last = connection.execute(
        "SELECT payload FROM etl_outbox WHERE notification = ? AND subject = ? ORDER BY id DESC LIMIT 1",
        (kind, subject),
    ).fetchone()
    said = _canonical(data)
    if last and _canonical(json.loads(last[0])["data"]) == said:
        return
    identity = (batch.batch, scope, said)
    extensions = {"partition": scope, "batch": batch.batch}
    source = f"/etl_assets/{pipeline.name}"
    _write(
        connection, _Draft(notification.topic, kind, subject, source, data, identity, batch.id, extensions=extensions)
    )


def tell_refusal(connection: sqlite3.Connection, pipeline: Table, delivery: Delivery, refusal: Refusal) -> None:
    """Tell of a delivery that is no longer asked for by itself, once under each contract and logic."""
    if pipeline.attention_topic is None or refusal.attempts < pipeline.attempts:
        return
    data = {
        "pipeline": delivery.pipeline,
        "partition": delivery.scope,
        "delivery": delivery.name,
        "revision": delivery.revision,
        "kind": refusal.kind,
        "reason": refusal.reason,
    }
    kind, source = f"{pipeline.name}.needs_attention", f"/etl_assets/{pipeline.name}"
    identity = (delivery.sha256, refusal.code)
    _write(connection, _Draft(pipeline.attention_topic, kind, str(delivery), source, data, identity))


def tell_failure(connection: sqlite3.Connection, topic: str, failure: RunFailure) -> None:
    """Tell of a run that failed, once."""
    _write(connection, _Draft(topic, "run_failed", failure.run, "/etl_assets", asdict(failure), ()))


def _write(connection: sqlite3.Connection, draft: _Draft) -> None:
    key = _key(draft)
    payload = {
        "specversion": "1.0",
        "id": key,
        "source": draft.source,
        "type": draft.notification,
        "subject": draft.subject,
        "datacontenttype": "application/json",
        **(draft.extensions or {}),
        "data": draft.data,
    }
    connection.execute(
        f"INSERT INTO etl_outbox (topic, key, notification, subject, payload, batch, created_at) "
        f"VALUES (?, ?, ?, ?, ?, ?, {NOW}) ON CONFLICT (key) DO NOTHING",
        (
            *(draft.topic, key, draft.notification, draft.subject),
            *(json.dumps(payload, ensure_ascii=False, allow_nan=False), draft.batch),
        ),
    )


def _key(draft: _Draft) -> str:
    """ASCII without spaces: ``pipeline.notification/subject/digest``, its middle cut where it is long."""
    digest = hashlib.sha256(json.dumps([draft.notification, draft.subject, *draft.identity]).encode()).hexdigest()
    return f"{draft.notification}/{quote(draft.subject, safe=_PLAIN + '/%')[:_READABLE]}/{digest[:_DIGITS]}"


def _canonical(data: Mapping[str, Any]) -> str:
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)


# --------------------------------------------------------------------------- what becomes of them

_MESSAGE = (
    "SELECT o.id, o.topic, o.key, o.notification, o.subject, o.payload, b.batch, o.created_at, o.status, o.attempts, "
    "o.next_attempt_at, o.last_error, o.settled_at FROM etl_outbox o LEFT JOIN etl_batch b ON b.id = o.batch "
)


def counts(connection: sqlite3.Connection, statuses: Sequence[str]) -> dict[str, dict[str, int]]:
    """How many messages of each of these statuses each topic has."""
    found: dict[str, dict[str, int]] = {}
    query = (
        "SELECT topic, status, count(*) FROM etl_outbox WHERE status IN (SELECT value FROM json_each(?)) "
        "GROUP BY topic, status ORDER BY topic, status"
    )
    for topic, status, number in connection.execute(query, (json.dumps(statuses),)):
        found.setdefault(topic, {})[status] = number
    return found


def messages(connection: sqlite3.Connection, status: str, last: int | None) -> Iterator[Message]:
    """Messages of a status in their order; all of them, or the last ones."""
    rows = connection.execute(
        f"SELECT * FROM ({_MESSAGE} WHERE o.status = ? ORDER BY o.id DESC LIMIT ?) ORDER BY id",
        (status, -1 if last is None else last),
    )
    return (Message(*row) for row in rows)


def due(connection: sqlite3.Connection, held: Sequence[str], limit: int) -> list[Message]:
    """Waiting messages whose turn it is, in their order: of each topic up to the first that is not to be tried yet.

    Topics that are ``held`` are left out.
    """
    rows = connection.execute(
        "WITH later AS (SELECT topic, min(id) AS id FROM etl_outbox "
        f"WHERE status = 'waiting' AND next_attempt_at > {NOW} GROUP BY topic) "
        f"{_MESSAGE} LEFT JOIN later l ON l.topic = o.topic WHERE o.status = 'waiting' AND (l.id IS NULL OR o.id < l.id) "
        "AND o.topic NOT IN (SELECT value FROM json_each(?)) ORDER BY o.id LIMIT ?",
        (json.dumps(held), limit),
    )
    return [Message(*row) for row in rows]


def mark_sent(connection: sqlite3.Connection, message: Message) -> None:
    connection.execute(
        "UPDATE etl_outbox SET status = 'sent', attempts = attempts + 1, next_attempt_at = NULL, last_error = NULL, "
        f"settled_at = {NOW} WHERE id = ?",
        (message.id,),
    )


def mark_refused(connection: sqlite3.Connection, message: Message, reason: str, retry_after: float | None) -> None:
    """Count an attempt; it is tried again after so many seconds, or with None is parked."""
    if retry_after is None:
        connection.execute(
            "UPDATE etl_outbox SET status = 'parked', attempts = attempts + 1, next_attempt_at = NULL, last_error = ?, "
            f"settled_at = {NOW} WHERE id = ?",
            (reason, message.id),
        )
        return
    connection.execute(
        "UPDATE etl_outbox SET attempts = attempts + 1, last_error = ?, "
        "next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?) WHERE id = ?",
        (reason, f"+{retry_after:.3f} seconds", message.id),
    )


def release(connection: sqlite3.Connection, key: str) -> None:
    """Let a parked message wait again, with all of its attempts before it. Raises :class:`UnknownMessage`."""
    _settle_parked(connection, key, "waiting", "NULL")


def discard(connection: sqlite3.Connection, key: str) -> None:
    """A parked message is not sent any more. Raises :class:`UnknownMessage`."""
    _settle_parked(connection, key, "discarded", NOW)


def _settle_parked(connection: sqlite3.Connection, key: str, status: str, settled_at: str) -> None:
    row = connection.execute("SELECT status FROM etl_outbox WHERE key = ?", (key,)).fetchone()
    if row is None or row[0] != "parked":
        what = f"is {row[0]}, not parked" if row else "is not in the outbox"
        raise UnknownMessage(
            f"the message {key!r} {what}. Nothing was changed; `etl-assets outbox` lists those that are"
        )
    attempts = "0" if status == "waiting" else "attempts"
    connection.execute(
        f"UPDATE etl_outbox SET status = ?, attempts = {attempts}, settled_at = {settled_at} WHERE key = ?",
        (status, key),
    )
