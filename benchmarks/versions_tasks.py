"""What is measured of change logs and snapshots; as ``tasks.py``, each function in a process of its own.

``python versions_tasks.py NAME '{"argument": …}'``.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import Any

from etl_assets.contract import ChangeLogTable, Daily, Pipeline, WatermarkTable
from etl_assets.loading.preparing import Preparer
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite.connection import CACHE_KIB

import versions_data
from contracts import COLUMNS as DELIVERED
from tasks import fingerprint, load_scopes, settings_at
from versions_data import DAYS, NAMES

#: Those of the other figures, without the day: which day a row arrived on is none of its columns.
COLUMNS = DELIVERED[1:]
#: Our table of versions: what the floor writes into is the same.
FLOOR_DDL = (
    "CREATE TABLE _versions_orders (id INTEGER NOT NULL, store TEXT, item TEXT, customer INTEGER, quantity INTEGER, "
    "price REAL, discount REAL, status TEXT, region TEXT, updated TEXT, _version INTEGER, _deleted INTEGER{position}, "
    "_batch INTEGER NOT NULL, PRIMARY KEY (id)) STRICT, WITHOUT ROWID"
)


def contract(kind: str) -> Pipeline:
    """The pipeline ``orders``: a ``log``, or snapshots that are ``partial`` or ``whole``."""
    fields: dict[str, Any] = {"name": "orders", "columns": COLUMNS, "key": ("id",), "partitions": Daily("2024-01-01")}
    if kind == "log":
        return ChangeLogTable(landing="orders/{partition}/*.jsonl", **fields)
    complete = {"partial": "no", "whole": "whole"}[kind]
    return WatermarkTable(landing="orders/{partition}/*.csv", updated="updated", complete=complete, **fields)


def make(folder: str, kind: str, rows: int, second: bool) -> dict[str, Any]:
    """Make the deliveries, outside of all figures."""
    if kind == "log":
        versions_data.make_logs(Path(folder), rows, second)
    else:
        versions_data.make_snapshots(Path(folder), rows)
    return {}


def load(landing: str, home: str, kind: str, day: int, base: str | None = None) -> dict[str, Any]:
    """Landing to committed: one delivery, on an empty warehouse or on a copy of ``base``; with the times of its steps."""
    if base:
        shutil.copyfile(f"{base}/warehouse.sqlite", f"{home}/warehouse.sqlite")
    times: dict[str, float] = {}
    _time(times, "freeze", Preparer, "_freeze")
    _time(times, "prepare", SQLiteWarehouse, "prepare")
    _time(times, "publish", SQLiteWarehouse, "publish")
    before = time.process_time()
    facts = load_scopes(settings_at(landing, home), contract(kind), [DAYS[day]])
    return {**facts, **times, "cpu": time.process_time() - before}


def _time(times: dict[str, float], name: str, owner: Any, method: str) -> None:
    """Note how long a step takes."""
    original: Callable[..., Any] = getattr(owner, method)

    def timed(*given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return original(*given, **named)
        finally:
            times[name] = times.get(name, 0.0) + time.perf_counter() - began

    setattr(owner, method, timed)


def floor(landing: str, home: str, kind: str, day: int, base: str | None = None) -> dict[str, Any]:
    """Parse with Python's json or csv, sort by key, and one ``executemany`` upsert with the same guard, WAL and FULL.

    On an empty table of our shape, or on a copy of ``base``: the very same table. ``publish`` is the transaction alone.
    """
    if base:
        shutil.copyfile(f"{base}/warehouse.sqlite", f"{home}/warehouse.sqlite")
    folder = Path(landing) / "orders" / DAYS[day]
    before = time.process_time()
    began = time.perf_counter()
    if kind == "log":
        ready = _events(folder / "1.jsonl")
        ready.sort(key=itemgetter(0, len(NAMES)))
    else:
        ready = _rows(folder / "1.csv")
        ready.sort(key=itemgetter(0))
    read = time.perf_counter()
    own = ("_version", "_deleted", *(("_position",) if kind == "log" else ()), "_batch")
    connection = sqlite3.connect(f"{home}/warehouse.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute("BEGIN IMMEDIATE")
    if not base:
        connection.execute(FLOOR_DDL.format(position=", _position INTEGER" if kind == "log" else ""))
    settings = ", ".join(f"{name} = excluded.{name}" for name in (*NAMES[1:], *own))
    connection.executemany(
        f"INSERT INTO _versions_orders ({', '.join((*NAMES, *own))}) VALUES ({', '.join('?' * (len(NAMES) + len(own)))}) "
        f"ON CONFLICT (id) DO UPDATE SET {settings} WHERE excluded._version > _version",
        ready,
    )
    connection.execute("COMMIT")
    connection.close()
    done = time.perf_counter()
    return {
        "seconds": done - began,
        "publish": done - read,
        "parse": read - began,
        "cpu": time.process_time() - before,
    }


def _events(path: Path) -> list[tuple[Any, ...]]:
    ready = []
    nothing = (None,) * (len(NAMES) - 1)
    with path.open("rb") as file:
        for line in file:
            event = json.loads(line)
            row, version, position = event["row"], event["version"], event["pos"]
            if event["op"] == "delete":
                ready.append((row["id"], *nothing, version, 1, position, 2))
            else:
                ready.append((*[row[name] for name in NAMES], version, 0, position, 2))
    return ready


def _rows(path: Path) -> list[tuple[Any, ...]]:
    """The version of a row is its ``updated`` in microseconds, as ours: here by Python's own reader of ISO times."""
    from datetime import UTC, datetime

    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    ready = []
    with path.open(newline="") as file:
        lines = csv.reader(file)
        next(lines)
        for r in lines:
            version = int((datetime.fromisoformat(r[9]) - epoch).total_seconds()) * 1_000_000
            numbers = (int(r[3]), int(r[4]), float(r[5]), float(r[6]))
            ready.append((int(r[0]), r[1], r[2], *numbers, r[7], r[8], r[9], version, 0, 2))
    return ready


def same(home: str, floor_home: str) -> dict[str, Any]:
    """Both ways leave the same rows behind; the benchmark would be worth nothing otherwise."""
    query = f"SELECT {', '.join(NAMES)}, _version, _deleted FROM _versions_orders ORDER BY id"
    ours, theirs = (sqlite3.connect(f"{h}/warehouse.sqlite") for h in (home, floor_home))
    count = 0
    for one, two in zip(ours.execute(query), theirs.execute(query), strict=True):
        if one[-1] and two[-1]:  # of a row that ended, the floor and we keep what the last event said of it
            one, two = (one[0], one[-2]), (two[0], two[-2])
        if one != two:
            raise SystemExit(f"ours {one}, the floor's {two}")
        count += 1
    return {"rows": count}


def again(landing: str, home: str, kind: str, day: int, touched: bool) -> dict[str, Any]:
    """A committed delivery again, the same bytes (``touched``: with another time); says whether a byte of the file changed."""
    import hashlib

    path = next((Path(landing) / "orders" / DAYS[day]).iterdir())
    if touched:
        os.utime(path)
    began = time.perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
    hashing = time.perf_counter() - began
    settings = settings_at(landing, home)
    before = fingerprint(settings.warehouse)
    facts = load_scopes(settings, contract(kind), [DAYS[day]])
    if facts["status"] != "already committed":
        raise SystemExit(f"wanted already committed, got {facts['status']}")
    return {**facts, "hashing": hashing, "unchanged": fingerprint(settings.warehouse) == before}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    print(json.dumps(globals()[sys.argv[1]](**arguments)))
