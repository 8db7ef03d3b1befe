"""The figures of many small things, each with its curve: what grows faster than its number shows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from lines import Bench, Line, seconds
from measure import HERE, Measured, interleaved, median, run_process, run_task

MODULE = "many_tasks"


def _counts(bench: Bench, last: int) -> list[int]:
    """10, 100 … up to ``last``; with --quick one step less."""
    last = last if bench.rows >= 1_000_000 else last // 10
    return [10**n for n in range(1, 6) if 10**n <= last]


def _landing(bench: Bench, count: int) -> Path:
    folder = bench.folder / f"many-{count}"
    if not (folder / "complete").exists():
        run_task("make", MODULE, folder=folder, count=count)
        (folder / "complete").touch()
    return folder


def figure_j(bench: Bench) -> Iterator[Line]:
    """The status of many committed deliveries, and a command that finds nothing to do."""
    for count in _counts(bench, 100_000):
        landing, home = _landing(bench, count), bench.fresh("many")
        days = {"BENCH_DAYS": str(count)}
        run_task("commit", MODULE, days, landing=landing, home=home)
        found = [run_task("status", MODULE, days, landing=landing, home=home) for _ in range(bench.runs)]
        cpu = median(found, "cpu")
        limit = 5.0 if count == 100_000 else None
        ratio = cpu / limit if limit else None
        note = f"{cpu / count * 1e6:,.0f} µs each; peak {median(found, 'peak_mb'):.0f} MB"
        what = f"status of {count:,} committed deliveries, processor time"
        yield Line("j", what, seconds(cpu), seconds(limit) if limit else "", ratio, 1.0 if limit else None, note)
        for command, limits in (("run small --pending", {1_000: 0.5}), ("deliveries small", {})):
            runs = [_command(command, landing, home, days) for _ in range(bench.runs)]
            time, wanted = median(runs), limits.get(count)
            what = f"  etl-assets {command}, whole process"
            note = f"processor time {seconds(median(runs, 'cpu_whole'))}"
            ratio = time / wanted if wanted else None
            yield Line(
                "j", what, seconds(time), seconds(wanted) if wanted else "", ratio, 1.0 if wanted else None, note
            )


def _command(command: str, landing: Path, home: Path, days: dict[str, str]) -> Measured:
    places = {"LANDING": landing, "STAGED": home / "staged", "WAREHOUSE": home / "warehouse.sqlite"}
    environment = {f"ETL_{k}": str(v) for k, v in places.items()} | {"PYTHONPATH": str(HERE.parent)} | days
    environment["ETL_PIPELINES"] = str(HERE / "small.py")
    return run_process([sys.executable, "-m", "etl_assets", *command.split()], environment)


def figure_k(bench: Bench) -> Iterator[Line]:
    """Deliveries of five rows, a transaction each, against Python's csv and sqlite3."""
    for count in _counts(bench, 10_000):
        found = interleaved({name: _small(bench, name, count) for name in ("load", "floor")}, bench.runs)
        ours, floor = found["load"], found["floor"]
        cpu, bare = median(ours, "cpu") / count, median(floor, "cpu") / count
        note = f"wall {median(ours) / count * 1e3:.1f} ms each, floor {median(floor) / count * 1e3:.1f} ms"
        what = f"{count:,} deliveries of 5 rows, processor time each"
        yield Line("k", what, f"{cpu * 1e3:.2f} ms", f"{bare * 1e3:.2f} ms", cpu / bare, 10.0, note)
        disk, delivered = median(ours, "disk"), median(ours, "delivered")
        files = f"{median(ours, 'files') / count:.1f} files each"
        yield Line("k", "  on disk beside the landing", _kib(disk), _kib(delivered), disk / delivered, 1.5, files)


def _small(bench: Bench, name: str, count: int) -> Callable[[], Measured]:
    landing, days = _landing(bench, count), {"BENCH_DAYS": str(count)}
    return lambda: run_task(name, MODULE, days, landing=landing, home=bench.fresh(f"many-{name}"))


def figure_l(bench: Bench) -> Iterator[Line]:
    """A tick of the sensor over many pipelines with nothing to ask for."""
    for count in (10, 100, 200):
        landing, home = bench.fresh("ticks") / "landing", bench.folder / "runs" / "ticks"
        run_task("make_pipelines", MODULE, landing=landing, home=home, count=count)
        found = [run_task("tick", MODULE, landing=landing, home=home, count=count) for _ in range(bench.runs)]
        each = median(found, "cpu")
        note = f"{each / count * 1e3:.2f} ms a pipeline; the first tick {seconds(median(found, 'first'))}"
        yield Line("l", f"a tick over {count} pipelines, processor time", seconds(each), note=note)


def _kib(size: float) -> str:
    return f"{size / 1024:,.0f} KiB"
