"""What is measured of many small things: deliveries that are committed, deliveries of few rows, pipelines in one tick."""

from __future__ import annotations

import csv
import datetime as dt
import json
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from etl_assets.loading import Engine, survey
from etl_assets.model import Batch, Counts, Delivery, batch_id
from etl_assets.sink.sqlite import ledger, schema
from etl_assets.sink.sqlite.connection import writing

from small import FIRST, pipeline, small
from tasks import settings_at

ROWS = 5


def make(folder: str, count: int, name: str = "small") -> dict[str, Any]:
    """Make deliveries of five rows, one a day."""
    for number in range(count):
        day = (dt.date.fromisoformat(FIRST) + dt.timedelta(number)).isoformat()
        place = Path(folder, name, day)
        place.mkdir(parents=True)
        rows = "".join(f"{day},{i},item {i},{i * 7},{i}.5\n" for i in range(ROWS))
        (place / "1.csv").write_text(f"day,id,item,amount,price\n{rows}")
    return {}


def commit(landing: str, home: str, name: str = "small") -> dict[str, Any]:
    """Write a ledger in which each delivery of the landing is committed, without loading them."""
    settings, table = settings_at(landing, home), pipeline(name)
    engine = Engine(settings, table)
    with writing(Path(settings.warehouse)) as connection:
        schema.migrate(connection)
        (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM etl_batch").fetchone()
        for number, arrival in enumerate(engine.source.arrivals(), start=last + 1):
            identity = (name, arrival.scope, arrival.name, 1)
            ledger.record_delivery(
                connection, Delivery(*identity, arrival.order, "0" * 64, arrival.size, arrival.stamp)
            )
            batch = Batch(
                **dict(zip(("pipeline", "scope", "delivery", "revision"), identity, strict=True)),
                id=number,
                batch=batch_id(*identity, 1),
                order=arrival.order,
                transform_version=1,
                ordinal=0,
                operation="replace",
                reason=None,
                operation_id=None,
                digest="0" * 64,
                input_sha256="0" * 64,
                code=table.code,
                generation=1,
                run="made",
                rows=ROWS,
                lower=None,
                upper=None,
                counts=Counts(source=ROWS, inserted=ROWS),
                supersedes=None,
                committed_at="",
            )
            ledger.insert_batch(connection, batch, None)
            partition = "INSERT INTO etl_partition (pipeline, scope, batch, rows) VALUES (?, ?, ?, ?)"
            connection.execute(partition, (name, arrival.scope, number, ROWS))
    return {}


def make_pipelines(landing: str, home: str, count: int) -> dict[str, Any]:
    """Make pipelines with a delivery each, and a ledger in which it is committed."""
    for number in range(count):
        make(landing, 1, f"small_{number}")
        commit(landing, home, f"small_{number}")
    return {}


def status(landing: str, home: str) -> dict[str, Any]:
    """Say the state of each delivery, as the command line and every tick do."""
    began, cpu = time.perf_counter(), time.process_time()
    found = survey(settings_at(landing, home), small)
    states = {s.state for s in found.statuses}
    if states != {"committed"}:
        raise SystemExit(f"not all are committed: {states}")
    return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu, "count": len(found.statuses)}


def load(landing: str, home: str) -> dict[str, Any]:
    """Landing to committed, a transaction a delivery; and what is on the disk then."""
    settings = settings_at(landing, home)
    scopes = sorted(p.name for p in Path(landing, "small").iterdir())
    began, cpu = time.perf_counter(), time.process_time()
    outcomes = list(Engine(settings, small).load(scopes, "bench"))
    facts = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    if {o.status for o in outcomes} != {"committed"}:
        raise SystemExit(next(o.message for o in outcomes if o.status != "committed"))
    delivered, kept = list(_files(Path(landing))), list(_files(Path(settings.staged)))
    return {**facts, "files": len(kept), "disk": _blocks(kept), "delivered": _blocks(delivered)}


def floor(landing: str, home: str) -> dict[str, Any]:
    """Python's csv and sqlite3 on one connection, a transaction a delivery, as durable as ours."""
    connection = sqlite3.connect(Path(home, "floor.sqlite"), isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL"):
        connection.execute(f"PRAGMA {setting}").fetchall()
    columns = "day TEXT, id INTEGER, item TEXT, amount INTEGER, price REAL, PRIMARY KEY (day, id)"
    connection.execute(f"CREATE TABLE small ({columns}) STRICT, WITHOUT ROWID")
    files = sorted(Path(landing).glob("small/*/1.csv"))
    began, cpu = time.perf_counter(), time.process_time()
    for path in files:
        with path.open(newline="") as file:
            rows = list(csv.reader(file))[1:]
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("DELETE FROM small WHERE day = ?", (path.parent.name,))
        connection.executemany("INSERT INTO small VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
    facts = {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}
    connection.close()
    return facts


def tick(landing: str, home: str, count: int) -> dict[str, Any]:
    """Ticks of the sensor that looks for deliveries of many pipelines, when all of them are committed."""
    import dagster as dg
    from etl_assets.orchestration import build_defs

    definitions = build_defs([pipeline(f"small_{n}") for n in range(count)], settings_at(landing, home))
    repository = definitions.get_repository_def()
    sensor = repository.get_sensor_def("deliveries")
    times, cursor = [], None
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(4):  # the first one fills what is remembered
            cpu = time.process_time()
            context = dg.build_sensor_context(instance=instance, repository_def=repository, cursor=cursor)
            data = sensor.evaluate_tick(context)
            times.append(time.process_time() - cpu)
            cursor = data.cursor
            if data.run_requests:
                raise SystemExit(f"{len(data.run_requests)} runs were asked for")
    return {"seconds": min(times[1:]), "cpu": min(times[1:]), "first": times[0]}


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in folder.rglob("*") if p.is_file())


def _blocks(files: list[Path]) -> int:
    """Bytes on the disk, in blocks of 4 KiB."""
    return sum(-(-p.stat().st_size // 4096) * 4096 for p in files)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[2])
    print(json.dumps(globals()[sys.argv[1]](**arguments)))
