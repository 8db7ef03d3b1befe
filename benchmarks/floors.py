"""What others do with the same files: the sqlite3 shell's bare ``.import``, and dlt by replacing and by merging.

dlt is installed into an environment of its own below the temporary folder, for this benchmark only.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import contracts
from measure import Measured, run_process

_CLOCK = "SELECT (julianday('now') - 2440587.5) * 86400.0;"

_DLT = """
import json, pathlib, sys, time
import dlt, pyarrow.csv as pc
files, home = json.loads(sys.argv[1]), sys.argv[2]
@dlt.resource(name="orders", write_disposition="replace")
def orders():
    for file in files:
        yield pc.read_csv(file)
began = time.perf_counter()
pipeline = dlt.pipeline("bench", pipelines_dir=home + "/dlt", dataset_name="main",
                        destination=dlt.destinations.sqlalchemy("sqlite:///" + home + "/dlt.sqlite"))
pipeline.run(orders(), loader_file_format="parquet").raise_on_failed_jobs()
seconds = time.perf_counter() - began
import sqlite3
# Where a data set's name is appended to the file's, or is not, is dlt's own affair: look for the table.
for path in pathlib.Path(home).glob("dlt*.sqlite"):
    found = sqlite3.connect(path)
    if found.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
        break
rows = found.execute("SELECT count(*) FROM orders").fetchone()[0]
print(json.dumps({"seconds": seconds, "written": rows}))
"""


_DLT_MERGE = """
import json, pathlib, sys, time
import dlt, pyarrow as pa, pyarrow.csv as pc, pyarrow.json as pj
files, home = json.loads(sys.argv[1]), sys.argv[2]
def tables(file):
    if file.endswith(".csv"):
        yield pc.read_csv(file)
        return
    events = pj.read_json(file)
    rows = pa.Table.from_struct_array(events["row"])
    gone = pa.array([op == "delete" for op in events["op"].to_pylist()])
    yield rows.append_column("version", events["version"]).append_column("deleted", gone)
def orders(file):
    hints = {"version": {"dedup_sort": "desc"}, "deleted": {"hard_delete": True}} if file.endswith(".jsonl") else {}
    return dlt.resource(tables(file), name="orders", write_disposition="merge", primary_key="id", columns=hints)
# Without an index a merge into a table that has rows takes time by their square; a log's keys repeat where dlt stages it.
keyed = files[0].endswith(".csv")
place = dlt.destinations.sqlalchemy("sqlite:///" + home + "/dlt.sqlite", create_primary_keys=keyed)
pipeline = dlt.pipeline("bench", pipelines_dir=home + "/dlt", dataset_name="main", destination=place)
for file in files:  # the last one counts
    began = time.perf_counter()
    pipeline.run(orders(file), loader_file_format="parquet").raise_on_failed_jobs()
    seconds = time.perf_counter() - began
import sqlite3
for path in pathlib.Path(home).glob("dlt*.sqlite"):
    found = sqlite3.connect(path)
    if found.execute("SELECT 1 FROM sqlite_master WHERE name = 'orders'").fetchone():
        break
rows = found.execute("SELECT count(*) FROM orders").fetchone()[0]
print(json.dumps({"seconds": seconds, "written": rows}))
"""


def shell_import(files: list[Path], home: Path, layout: contracts.Layout, cache_kib: int | None = None) -> Measured:
    """``.import`` each file, a transaction each, WAL and FULL; ``cache_kib`` gives it our cache instead of its own.

    ``locked`` is the time of the imports: the shell holds the write lock from a file's first row to its commit.
    """
    home.mkdir(parents=True, exist_ok=True)
    lines = ["PRAGMA journal_mode = WAL;", "PRAGMA synchronous = FULL;"]
    if cache_kib:
        lines.append(f"PRAGMA cache_size = -{cache_kib};")
    lines += [contracts.floor_ddl(layout), _CLOCK]
    lines += [f".import --csv --skip 1 {file} orders" for file in files]
    lines += [_CLOCK, "SELECT count(*) FROM orders;"]
    done = run_process(["sqlite3", "-batch", "-bail", str(home / "floor.sqlite")], script="\n".join(lines) + "\n")
    began, ended, rows = (float(line) for line in done.facts["out"][-3:])
    facts = {"written": int(rows), "locked": ended - began}
    # What the shell does when it closes (the last checkpoint) is part of its whole time, as it is of ours.
    return Measured(done.whole, done.whole, done.peak_mb, facts)


def dlt_python(folder: Path) -> str | None:
    """A Python that has dlt: of ``BENCH_DLT_PYTHON``, or of an environment made here; None with a word why not."""
    given = os.environ.get("BENCH_DLT_PYTHON")
    if given:
        return given
    python = folder / "bin" / "python"
    if (folder / "complete").exists():
        return str(python)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True, capture_output=True, timeout=120)
        wanted = ["dlt[sqlalchemy]==1.31.0", "pyarrow"]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True, capture_output=True, timeout=600)
    except (subprocess.SubprocessError, OSError) as error:
        print(f"dlt cannot be installed here, so its figure is left out: {error}", file=sys.stderr)
        return None
    (folder / "complete").touch()
    return str(python)


def dlt_replace(python: str, files: list[Path], home: Path) -> Measured:
    """dlt to SQLite, ``replace``, from Arrow tables (its quickest way in)."""
    return _run_dlt(python, _DLT, files, home)


def dlt_merge(python: str, files: list[Path], home: Path) -> Measured:
    """dlt to SQLite, ``merge`` by primary key, from Arrow tables; the last file counts, those before it fill the table.

    Events are read by Arrow's json; of those of a key the newest version counts, and one that deletes ends the row.
    """
    return _run_dlt(python, _DLT_MERGE, files, home)


def _run_dlt(python: str, script: str, files: list[Path], home: Path) -> Measured:
    home.mkdir(parents=True, exist_ok=True)
    environment = {"RUNTIME__DLTHUB_TELEMETRY": "false", "HOME": str(home)}
    return run_process([python, "-c", script, json.dumps([str(f) for f in files]), str(home)], environment)
