"""What is measured: each function runs in a process of its own and prints its facts as one JSON line.

``python tasks.py NAME '{"argument": …}'``. Times are taken around the work: imports are done before the clock starts,
and are seen in the time of the whole process.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import sqlite3
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from etl_assets.contract import Pipeline
from etl_assets.loading import Engine
from etl_assets.settings import Settings
from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite.connection import CACHE_KIB

import contracts
import data
import stages


def settings_at(landing: str, home: str) -> Settings:
    return Settings(landing, f"{home}/staged", f"{home}/warehouse.sqlite")


def load_scopes(settings: Settings, pipeline: Pipeline, scopes: list[str]) -> dict[str, Any]:
    """Load and time; every scope has to end well."""
    began = time.perf_counter()
    outcomes = list(Engine(settings, pipeline).load(scopes, f"bench-{uuid.uuid4().hex}"))
    seconds = time.perf_counter() - began
    bad = [o.message for o in outcomes if o.status == "refused"]
    if bad:
        raise SystemExit(bad[0])
    locked = [o.receipt.locked_seconds for o in outcomes if o.receipt]
    rows = sum(o.counts.inserted + o.counts.updated for o in outcomes)
    return {"seconds": seconds, "locked": sum(locked), "written": rows, "status": outcomes[-1].status}


def make_landing(folder: str, rows: int, daily: bool) -> dict[str, Any]:
    """Make the deliveries, outside of all figures."""
    data.make_landing(Path(folder), rows, daily)
    return {}


def load(landing: str, home: str, layout: contracts.Layout, rows: int, daily: bool) -> dict[str, Any]:
    """Landing to committed: all of ``Engine.load`` on an empty warehouse."""
    pipeline = contracts.contract(layout, daily)
    scopes = [data.day_key(n) for n in range(rows // data.DAY_ROWS)] if daily else ["all"]
    facts = load_scopes(settings_at(landing, home), pipeline, scopes)
    if facts["written"] != rows:
        raise SystemExit(f"{facts['written']:,} rows were written, not {rows:,}")
    return facts


def profile(landing: str, home: str, layout: contracts.Layout, rows: int, daily: bool) -> dict[str, Any]:
    """The same as ``load``, with the seconds of each stage."""
    watch = stages.install()
    facts = load(landing, home, layout, rows, daily)
    return {**facts, "stages": dict(watch.seconds)}


# --------------------------------------------------------------------------- one partition in a large table


def fill(landing: str, home: str, layout: contracts.Layout, rows: int) -> dict[str, Any]:
    """A table of ``rows`` rows: the day in its middle is loaded, the others are written by SQL with their progress."""
    settings, pipeline = settings_at(landing, home), contracts.contract(layout, daily=True)
    days = rows // data.DAY_ROWS
    middle = days // 2
    data.write_day(Path(landing) / "orders" / data.day_key(middle) / "1.csv", middle)
    load_scopes(settings, pipeline, [data.day_key(middle)])
    connection = sqlite3.connect(settings.warehouse)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -500000")
    batch = connection.execute("SELECT max(id) FROM etl_batch").fetchone()[0]
    others = [n for n in range(days) if n != middle]
    connection.executemany(
        "INSERT INTO etl_partition (pipeline, scope, batch, rows) VALUES ('orders', ?, ?, ?)",
        [(data.day_key(n), batch, data.DAY_ROWS) for n in others],
    )
    connection.execute(
        "WITH RECURSIVE slot (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM slot WHERE n < ?) "
        "INSERT INTO orders SELECT p.scope, "
        "CAST(julianday(p.scope) - julianday(?) AS INTEGER) * ? + n, 'S' || (n % 900), 'I' || (n % 9000), n % 9000, "
        "n % 99, n / 7.0, 0.25, 'paid', 'N', p.scope || 'T09:30:00Z', p.id, ? "
        "FROM etl_partition p CROSS JOIN slot WHERE p.scope <> ? ORDER BY p.id, n",
        (data.DAY_ROWS - 1, data.day_key(0), data.DAY_ROWS, batch, data.day_key(middle)),
    )
    connection.commit()
    found = connection.execute("SELECT count(*) FROM orders").fetchone()[0]
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    differences = SQLiteWarehouse(settings.warehouse).verify(pipeline)
    if found != rows or differences:
        raise SystemExit(f"{found:,} rows; {differences[:3]}")
    return {}


def replace(landing: str, home: str, layout: contracts.Layout, rows: int, first: int, times: int) -> dict[str, Any]:
    """Corrections ``first``, ``first + 1``, … of one day, each with other rows changed; the first one is cold."""
    settings, pipeline = settings_at(landing, home), contracts.contract(layout, daily=True)
    middle = rows // data.DAY_ROWS // 2
    scope = data.day_key(middle)
    whole, locked, publishing = [], [], []
    published = SQLiteWarehouse.publish

    def timed(self: SQLiteWarehouse, *given: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return published(self, *given, **named)
        finally:
            publishing.append(time.perf_counter() - began)

    SQLiteWarehouse.publish = timed  # type: ignore[method-assign]
    for number in range(first, first + times):
        data.write_day(Path(landing) / "orders" / scope / f"{number + 1}.csv", middle, correction=number)
        facts = load_scopes(settings, pipeline, [scope])
        if not 50 <= facts["written"] <= 200:
            raise SystemExit(f"{facts['written']:,} rows were written where about 200 changed")
        whole.append(facts["seconds"])
        locked.append(facts["locked"])
    warm = slice(1, None) if times > 1 else slice(None)
    return {
        "seconds": statistics.median(whole[warm]),
        "publish": statistics.median(publishing[warm]),
        "locked": statistics.median(locked[warm]),
        "cold": whole[0],
    }


def delete_insert(
    landing: str, home: str, layout: contracts.Layout, rows: int, first: int, times: int
) -> dict[str, Any]:
    """The floor of ``replace``: read the file with csv, then DELETE and INSERT its day in one transaction.

    On the very same table and with the same pragmas; ``publish`` is the transaction alone, from ready tuples.
    """
    middle = rows // data.DAY_ROWS // 2
    path = Path(home) / "correction.csv"
    whole, publishing = [], []
    for number in range(first, first + times):
        data.write_day(path, middle, correction=number)
        began = time.perf_counter()
        with path.open(newline="") as file:
            lines = csv.reader(file)
            next(lines)
            ready = [
                (r[0], int(r[1]), r[2], r[3], int(r[4]), int(r[5]), float(r[6]), float(r[7]), *r[8:], 1, 1)
                for r in lines
            ]
        read = time.perf_counter()
        connection = sqlite3.connect(f"{home}/warehouse.sqlite", isolation_level=None)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM orders WHERE _partition = 1")
        connection.executemany(f"INSERT INTO orders VALUES ({', '.join('?' * 13)})", ready)
        connection.execute("COMMIT")
        connection.close()
        done = time.perf_counter()
        whole.append(done - began)
        publishing.append(done - read)
    warm = slice(1, None) if times > 1 else slice(None)
    return {"seconds": statistics.median(whole[warm]), "publish": statistics.median(publishing[warm]), "cold": whole[0]}


# --------------------------------------------------------------------------- nothing to do


def rerun(landing: str, home: str, layout: contracts.Layout, rows: int) -> dict[str, Any]:
    """Load partitions again that are committed; says whether a byte of the warehouse changed."""
    scopes = [data.day_key(n) for n in range(rows // data.DAY_ROWS)]
    settings, pipeline = settings_at(landing, home), contracts.contract(layout, daily=True)
    before = fingerprint(settings.warehouse)
    facts = load_scopes(settings, pipeline, scopes)
    if facts["status"] != "already committed":
        raise SystemExit(f"wanted already committed, got {facts['status']}")
    return {**facts, "unchanged": fingerprint(settings.warehouse) == before, "partitions": len(scopes)}


def fingerprint(warehouse: str) -> dict[str, tuple[int, str]]:
    """Size and bytes of the database and of its WAL; an absent WAL is one without a page."""
    found = {}
    for path in (Path(warehouse), Path(f"{warehouse}-wal")):
        content = path.read_bytes() if path.exists() else b""
        found[path.name] = (len(content), hashlib.sha256(content).hexdigest())
    return found


# --------------------------------------------------------------------------- Dagster


def dagster(landing: str, home: str, partitions: int) -> dict[str, Any]:
    """One range run of the pipeline's job, in this process; ``ETL_*`` says where. Imports and run are timed apart."""
    began = time.perf_counter()
    from dagster import DagsterInstance
    from etl_assets.definitions import defs

    repository = defs.get_repository_def()
    names = [j.name for j in repository.get_all_jobs() if j.name.startswith("orders")]
    if not names:
        raise SystemExit(f"no job of orders among {[j.name for j in repository.get_all_jobs()]}")
    job = repository.get_job(names[0])
    loaded = time.perf_counter()
    tags = {
        "dagster/asset_partition_range_start": data.day_key(0),
        "dagster/asset_partition_range_end": data.day_key(partitions - 1),
    }
    with DagsterInstance.local_temp(f"{home}/dagster") as instance:
        result = job.execute_in_process(instance=instance, tags=tags)
        ran = time.perf_counter()
    committed = len(SQLiteWarehouse(os.environ["ETL_WAREHOUSE"]).ledger("orders"))
    if not result.success or committed != partitions:
        raise SystemExit(f"{committed} of {partitions} partitions were committed")
    return {"seconds": ran - loaded, "loading": loaded - began}


if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    print(json.dumps(globals()[sys.argv[1]](**arguments)))
