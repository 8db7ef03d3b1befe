"""The outbox's rows: how a message is written, and what becomes of it.

A message is a CloudEvents document. Its key is made of what it says, about what, and of which batch: no clock and no
chance is in it, so that a receiver that remembers keys takes each message once, however often it is sent.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote

from etl_assets.contract.table import Table
from etl_assets.errors import UnknownMessage
from etl_assets.model import Delivery, Message, Refusal, RunFailure
from etl_assets.sink.sqlite.ledger import NOW

#: Characters that a subject keeps as they are.
PLAIN = "".join(chr(c) for c in range(33, 127) if chr(c) not in "/%")
#: Characters of a subject that stay readable in a key, and the digits of the digest behind them.
_READABLE, _DIGITS = 80, 40


@dataclass(frozen=True, slots=True)
class Draft:
    """What a message says. ``identity`` is what makes it this message and no other, beside kind and subject."""

    topic: str
    notification: str
    subject: str
    source: str
    data: Mapping[str, Any]
    identity: tuple[str, ...]
    batch: int | None = None
    extensions: Mapping[str, str] = field(default_factory=dict)


def write(connection: sqlite3.Connection, draft: Draft) -> None:
    """Write a message, once under its key."""
    key = _key(draft)
    payload = {
        "specversion": "1.0",
        "id": key,
        "source": draft.source,
        "type": draft.notification,
        "subject": draft.subject,
        "datacontenttype": "application/json",
        **draft.extensions,
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


def _key(draft: Draft) -> str:
    """ASCII without spaces: ``pipeline.notification/subject/digest``, its middle cut where it is long."""
    digest = hashlib.sha256(json.dumps([draft.notification, draft.subject, *draft.identity]).encode()).hexdigest()
    return f"{draft.notification}/{quote(draft.subject, safe=PLAIN + '/%')[:_READABLE]}/{digest[:_DIGITS]}"


def canonical(data: Mapping[str, Any]) -> str:
    """Data as text that is the same where they are."""
    return json.dumps(data, sort_keys=True, ensure_ascii=False, allow_nan=False)


def last_payload(connection: sqlite3.Connection, notification: str, subject: str) -> str | None:
    """The document of the last message on a subject, whatever became of it."""
    row = connection.execute(
        "SELECT payload FROM etl_outbox WHERE notification = ? AND subject = ? ORDER BY id DESC LIMIT 1",
        (notification, subject),
    ).fetchone()
    return str(row[0]) if row else None


def tell_refusal(connection: sqlite3.Connection, pipeline: Table, delivery: Delivery, refusal: Refusal) -> None:
    """Tell of a delivery that is no longer asked for by itself, once under each contract and logic."""
    if pipeline.attention_topic is None or not refusal.needs_attention(pipeline.attempts):
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
    write(connection, Draft(pipeline.attention_topic, kind, str(delivery), source, data, identity))


def tell_failure(connection: sqlite3.Connection, topic: str, failure: RunFailure) -> None:
    """Tell of a run that failed, once."""
    write(connection, Draft(topic, "run_failed", failure.run, "/etl_assets", asdict(failure), ()))


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


#: A message as it was read: a person who decided about it since has the last word, and a key tells it apart for good.
_AS_READ = "key = ? AND status = 'waiting' AND attempts = ? AND next_attempt_at IS ?"


def waits(connection: sqlite3.Connection, message: Message) -> bool:
    """Return whether a message still waits, as it was read."""
    query = f"SELECT 1 FROM etl_outbox WHERE {_AS_READ}"
    return connection.execute(query, _as_read(message)).fetchone() is not None


def mark_sent(connection: sqlite3.Connection, message: Message) -> str:
    """Settle a message that waits; returns its status."""
    connection.execute(
        "UPDATE etl_outbox SET status = 'sent', attempts = attempts + 1, next_attempt_at = NULL, last_error = NULL, "
        f"settled_at = {NOW} WHERE key = ? AND status = 'waiting'",
        (message.key,),
    )
    return _status(connection, message)


def mark_refused(connection: sqlite3.Connection, message: Message, reason: str, retry_after: float | None) -> str:
    """Count an attempt; it is tried again after so many seconds, or with None is parked. Returns its status."""
    if retry_after is None:
        connection.execute(
            "UPDATE etl_outbox SET status = 'parked', attempts = attempts + 1, next_attempt_at = NULL, last_error = ?, "
            f"settled_at = {NOW} WHERE {_AS_READ}",
            (reason, *_as_read(message)),
        )
    else:
        connection.execute(
            "UPDATE etl_outbox SET attempts = attempts + 1, last_error = ?, "
            f"next_attempt_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?) WHERE {_AS_READ}",
            (reason, f"+{retry_after:.3f} seconds", *_as_read(message)),
        )
    return _status(connection, message)


def _as_read(message: Message) -> tuple[str, int, str | None]:
    return message.key, message.attempts, message.next_attempt_at


def _status(connection: sqlite3.Connection, message: Message) -> str:
    row = connection.execute("SELECT status FROM etl_outbox WHERE key = ?", (message.key,)).fetchone()
    return str(row[0]) if row else "gone"


def release(connection: sqlite3.Connection, key: str) -> None:
    """Make a parked or waiting message due now, with all of its attempts before it. Raises :class:`UnknownMessage`."""
    _decide(connection, key, "waiting", "NULL")


def discard(connection: sqlite3.Connection, key: str) -> None:
    """A parked or waiting message is not sent any more. Raises :class:`UnknownMessage`."""
    _decide(connection, key, "discarded", NOW)


def _decide(connection: sqlite3.Connection, key: str, status: str, settled_at: str) -> None:
    row = connection.execute("SELECT status FROM etl_outbox WHERE key = ?", (key,)).fetchone()
    if row is None or row[0] not in ("parked", "waiting"):
        what = f"is {row[0]}, neither parked nor waiting" if row else "is not in the outbox"
        raise UnknownMessage(
            f"the message {key!r} {what}. Nothing was changed; `etl-assets outbox` lists those that are"
        )
    attempts = "0" if status == "waiting" else "attempts"
    connection.execute(
        f"UPDATE etl_outbox SET status = ?, attempts = {attempts}, next_attempt_at = NULL, settled_at = {settled_at} "
        "WHERE key = ?",
        (status, key),
    )
