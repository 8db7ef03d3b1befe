"""What SQL of a contract may do: read, say the same whenever it is asked, and come to an end. No I/O."""

from __future__ import annotations

import functools
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Authorizer = Callable[[int, str | None, str | None, str | None, str | None], int]

#: What gives another answer each time would make a new message of every publish; and what loads code.
_CLOCKS = ("current_date", "current_time", "current_timestamp")
IMPURE = frozenset(
    (*_CLOCKS, "random", "randomblob", "changes", "total_changes", "last_insert_rowid", "load_extension")
)
#: SQLite's functions of date and time, and which argument is the time.
_TIMES = {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}
if sqlite3.sqlite_version_info >= (3, 43):
    _TIMES["timediff"] = 0
#: What stands for the clock as a time; what makes the machine's zone a part of the answer as a modifier.
_NOW = frozenset(("now", "subsec", "subsecond"))
_ZONES = frozenset(("localtime", "utc"))
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
#: The clock as far as the text of a query shows it; `reading` catches it in any other form.
_CLOCK = re.compile(
    r"""['"]now['"]|(?<!\w)["\[`]?(date|time|datetime|julianday|unixepoch)["\]`]?\s*\(\s*\)"""
    r"""|(?<!\w)["\[`]?strftime["\]`]?\s*\(\s*('[^']*'|"[^"]*")\s*\)""",
    re.IGNORECASE,
)
#: Instructions of SQLite between two looks at the clock: about a millisecond.
_BETWEEN = 20_000


def without_comments(sql: str) -> str:
    return _COMMENTS.sub(" ", sql)


def asks_the_clock(sql: str) -> bool:
    """Return whether a query plainly says another time whenever it is run."""
    return _CLOCK.search(without_comments(sql)) is not None


@dataclass(slots=True)
class Watched:
    """What came up while a query was watched: why it was denied, whether its time was over, what was raised meanwhile."""

    denied: str = ""
    late: bool = False
    raised: BaseException | None = None
    active: bool = True

    def check(self) -> None:
        """Raise what a signal's handler raised while SQLite was at work."""
        if self.raised is not None:
            raise self.raised


@contextmanager
def reading(
    connection: sqlite3.Connection,
    authorizer: Authorizer,
    seconds: float | None = None,
    instructions: float = float("inf"),
) -> Iterator[Watched]:
    """Let a query do what an authorizer allows, know nothing but the tables, and take no longer than this.

    It can be interrupted whatever it does: SQLite calls back now and then, and a signal's handler runs in that moment.
    """
    # At first use SQLite makes these tables known to the connection, which is a write to the authorizer.
    connection.execute("SELECT 1 FROM json_each('[]'), json_tree('[]')")
    watched = Watched()
    until = None if seconds is None else time.monotonic() + seconds
    looks = 0

    def look() -> int:
        nonlocal looks
        try:
            looks += 1
            late = (until is not None and time.monotonic() > until) or looks * _BETWEEN > instructions
            watched.late = watched.late or late
        except BaseException as error:  # SQLite would swallow it
            watched.raised = error
        return watched.late or watched.raised is not None

    for name, place in _TIMES.items():
        connection.create_function(name, -1, functools.partial(_time, watched, name, place), deterministic=True)
    connection.set_authorizer(authorizer)
    connection.set_progress_handler(look, _BETWEEN)
    try:
        yield watched
    except sqlite3.Error as error:
        watched.check()
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT and not watched.late:
            raise KeyboardInterrupt from error  # a signal came just before the look at the clock
        raise
    finally:
        connection.set_progress_handler(None, 0)
        connection.set_authorizer(None)
        watched.active = False  # the functions stay, and from now on do what SQLite's own do


def _time(watched: Watched, name: str, place: int, *arguments: Any) -> Any:
    if watched.active:
        texts = [a.lower() if isinstance(a, str) else a for a in arguments]
        times = texts[place : place + (2 if name == "timediff" else 1)]
        zones = _ZONES.intersection(t for t in texts[place + 1 :] if isinstance(t, str)) if name != "timediff" else ()
        if not times or any(t in _NOW for t in times if isinstance(t, str)):
            watched.denied = f"{name}() asks the clock, whose time is not a function of the tables"
            raise ValueError(watched.denied)
        if zones:
            watched.denied = f"{name}(): {sorted(zones)[0]!r} depends on the zone of the machine"
            raise ValueError(watched.denied)
    return _by_sqlite(name, *arguments) if watched.active else _original(name, arguments)


@functools.lru_cache(maxsize=8192, typed=True)
def _by_sqlite(name: str, *arguments: Any) -> Any:
    return _original(name, arguments)


_own = threading.local()


def _original(name: str, arguments: tuple[Any, ...]) -> Any:
    """What SQLite's own function gives, asked in a database of its own."""
    if not hasattr(_own, "connection"):
        _own.connection = sqlite3.connect(":memory:")
    marks = ", ".join("?" * len(arguments))
    return _own.connection.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]
