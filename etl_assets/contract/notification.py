"""What someone outside must hear of: rows of a query over a table, written as messages where the table is published.

No I/O: a query is tried on an empty table in memory, as far as the contract knows the tables that it reads.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager, closing
from typing import Annotated

from pydantic import Field, field_validator

from etl_assets.contract.columns import Frozen
from etl_assets.contract.queries import IMPURE, Watched, asks_the_clock, reading, without_comments

#: A topic is a part of a URL and a name in Kafka.
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,199}$")]

_READS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE)
#: Instructions of SQLite that a query may take on an empty table.
_INSTRUCTIONS = 20_000_000


class Notification(Frozen):
    """Messages about a table: one for each row of ``sql``, written in the transaction that publishes.

    In ``sql`` the table's own name stands for the rows of the partition that is being published, and ``:partition`` for
    its key; in tables of versions for the live rows that the batch changed. Other tables are read as they are.
    ``key`` are the columns of the result that say what a message is about: its subject. A message is written when it
    differs from the last one on the same subject.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,62}$")
    topic: Topic
    sql: str
    key: tuple[str, ...] = Field(min_length=1)
    description: str | None = None

    @field_validator("sql")
    @classmethod
    def _query(cls, sql: str) -> str:
        if not re.match(r"\s*(SELECT|WITH|VALUES)\b", without_comments(sql), re.IGNORECASE):
            raise ValueError("a notification is a SELECT, whose rows are the messages")
        if asks_the_clock(sql):
            raise ValueError(
                "'now' (or date() without a time) is another time at each publish, and would make a new message of each"
            )
        return sql

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise ``ValueError`` where a message could not be made of a result with these columns."""
        repeated = sorted({n for n in names if names.count(n) > 1})
        if repeated:
            raise ValueError(f"two columns of the result are named {repeated[0]!r}; give one of them another name (AS)")
        for name in self.key:
            if name not in names:
                raise ValueError(f"key: {name!r} is not a column of the result; it has {', '.join(names)}")
        if len(set(self.key)) != len(self.key):
            raise ValueError("key: a column stands twice")


def reading_only(
    connection: sqlite3.Connection, seconds: float | None = None, instructions: float = float("inf")
) -> AbstractContextManager[Watched]:
    """Let a notification read the warehouse and do nothing else, and say nothing that depends on when it is asked."""
    return reading(connection, _authorize, seconds, instructions)


def _authorize(action: int, one: str | None, two: str | None, database: str | None, _: str | None) -> int:
    allowed = action in _READS and database in (None, "main", "temp")
    if action == sqlite3.SQLITE_FUNCTION and str(two).lower() in IMPURE:
        allowed = False
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def check_notifications(notifications: Sequence[Notification], table: str, columns: Sequence[str], wider: bool) -> None:
    """Raise ``ValueError``, naming the notification, for what cannot work on a table of these columns.

    ``wider`` tables may come to have others.
    """
    names = [n.name for n in notifications]
    if len(set(names)) != len(names):
        raise ValueError("notifications: two have the same name")
    for notification in notifications:
        try:
            _try_query(notification, table, columns, wider)
        except ValueError as error:
            raise ValueError(f"notifications: {notification.name}: {error}") from error


def _try_query(notification: Notification, table: str, columns: Sequence[str], wider: bool) -> None:
    """Run a notification on an empty table. What it reads of other tables is not known here."""
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        listed = ", ".join('"' + c.replace('"', '""') + '"' for c in columns)
        connection.execute('CREATE TABLE "{}" ({})'.format(table.replace('"', '""'), listed))
        watched = None
        try:
            with reading_only(connection, instructions=_INSTRUCTIONS) as watched:
                cursor = connection.execute(notification.sql, {"partition": ""})
        except sqlite3.Error as error:
            said = str(error)
            if said.startswith("no such table") or (wider and said.startswith("no such column")):
                return
            if watched is not None and watched.late:
                said = "the query does not end, though its table is empty"
            raise ValueError((watched and watched.denied) or said) from error
        notification.check_columns([column[0] for column in cursor.description or ()])
