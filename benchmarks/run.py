"""The benchmarks: one table, each figure beside its floor, both measured in this run.

``python benchmarks/run.py [--only a,b] [--runs 3] [--quick] [--profile]``; see README.md for what the figures mean.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from lines import Bench, Line, seconds
from many_figures import figure_j, figure_k, figure_l
from measure import HERE, Measured, TaskFailed, interleaved, median, run_process, run_task
from versions_figures import figure_g, figure_h, figure_i

if TYPE_CHECKING:
    from contracts import Layout

ROOT = HERE.parent
LAYOUTS: tuple[Layout, ...] = ("fixed", "movable")
OUR_CACHE_KIB = 65_536


# --------------------------------------------------------------------------- the figures


def figure_a(bench: Bench) -> Iterator[Line]:
    """A million rows from landing to committed, as one delivery and as 100."""
    for layout in LAYOUTS:
        for daily, wanted in ((False, 1.0), (True, 1.5)):
            name = bench.deliveries(daily)
            landing = bench.landing(bench.rows, daily)
            files = sorted(landing.glob("orders/*/1.csv"))
            found = interleaved(_loads(bench, landing, files, layout, daily), bench.runs)
            ours, bare, cached = found["ours"], found["import"], found["import, our cache"]
            whole = f"{name}, {layout} keys"
            peak = f"whole process {seconds(median(ours, 'whole'))}, {median(ours, 'peak_mb'):.0f} MB"
            time, floor, floor_cached = median(ours), median(bare), median(cached)
            yield Line("a", whole, seconds(time), f".import {seconds(floor)}", time / floor, wanted, peak)
            yield Line("a", "", seconds(time), f"same, our cache {seconds(floor_cached)}", time / floor_cached)
            locked, held = median(ours, "locked"), median(bare, "locked")
            yield Line("a", "  write lock held", seconds(locked), seconds(held), locked / held, 0.4)
            if "dlt" in found:
                dlt = median(found["dlt"])
                note = f"{dlt / time:.1f} times faster; dlt's peak {median(found['dlt'], 'peak_mb'):.0f} MB"
                yield Line("a", "  against dlt replace", seconds(time), seconds(dlt), time / dlt, 1 / 3, note)


def _loads(
    bench: Bench, landing: Path, files: list[Path], layout: Layout, daily: bool
) -> dict[str, Callable[[], Measured]]:
    import floors

    def ours() -> Measured:
        home = bench.fresh("ours")
        return run_task("load", landing=landing, home=home, layout=layout, rows=bench.rows, daily=daily)

    subjects: dict[str, Callable[[], Measured]] = {
        "ours": ours,
        "import": lambda: floors.shell_import(files, bench.fresh("import"), layout),
        "import, our cache": lambda: floors.shell_import(files, bench.fresh("import"), layout, OUR_CACHE_KIB),
    }
    python = floors.dlt_python(bench.folder / "dlt-venv") if layout == "fixed" and not daily else None
    if python:
        subjects["dlt"] = lambda: floors.dlt_replace(python, files, bench.fresh("dlt"))
    return subjects


def figure_b(bench: Bench) -> Iterator[Line]:
    """One partition of 10,000 rows, 1 % of them changed, in tables of a million and of ten million rows."""
    for layout in LAYOUTS:
        times: dict[int, tuple[float, float]] = {}
        for rows in (bench.rows, bench.large):
            landing, home = bench.fresh("replace-landing"), bench.fresh("replace")
            run_task("fill", landing=landing, home=home, layout=layout, rows=rows)
            given: dict[str, Any] = {"landing": landing, "home": home, "layout": layout, "rows": rows}
            ours, floor = _replacements(given, bench.runs)
            shutil.rmtree(home)
            for fact, what in (("publish", "publish alone"), ("seconds", "landing to committed")):
                us, them = median(ours, fact), median(floor, fact)
                note = (
                    "floor: DELETE + INSERT of ready tuples"
                    if fact == "publish"
                    else "floor: csv module, then the same"
                )
                cold = f"; first one in a process {seconds(median(ours, 'cold'))}" if fact == "seconds" else ""
                where = f"{what}, in {rows:,} rows, {layout} keys"
                yield Line("b", where, seconds(us), seconds(them), us / them, 1.5, f"{note}{cold}")
            peak = f"peak {median(ours, 'peak_mb'):.0f} MB"
            yield Line(
                "b",
                "  write lock held",
                seconds(median(ours, "locked")),
                seconds(median(floor, "publish")),
                note=peak,
            )
            times[rows] = (median(ours, "publish"), median(ours))
        small, large = times[bench.rows], times[bench.large]
        for index, what in enumerate(("publish alone", "landing to committed")):
            ratio = large[index] / small[index]
            name = f"{what}: {bench.large:,} against {bench.rows:,} rows, {layout} keys"
            yield Line("b", name, seconds(large[index]), seconds(small[index]), ratio, 1.3)


def _replacements(given: dict[str, Any], runs: int) -> tuple[list[Measured], list[Measured]]:
    """Corrections and their floor in turn on one table; each starts from what the other left."""
    times = 4
    ours, floor = [], []
    for number in range(runs):
        ours.append(run_task("replace", first=1 + number * times, times=times, **given))
        floor.append(run_task("delete_insert", first=(1 + number) * times, times=times, **given))
    return ours, floor


def figure_c(bench: Bench) -> Iterator[Line]:
    """Committed partitions again: nothing is read, nothing is written."""
    landing, home = bench.landing(bench.rows, True), bench.fresh("rerun")
    given: dict[str, Any] = {"landing": landing, "home": home, "layout": "fixed", "rows": bench.rows}
    run_task("load", daily=True, **given)
    found = [run_task("rerun", **given) for _ in range(bench.runs)]
    partitions = found[0].facts["partitions"]
    each = median(found) / partitions
    note = f"{partitions} partitions; whole process {seconds(median(found, 'whole'))}"
    yield Line("c", "re-run of committed partitions, each", f"{each * 1000:.2f} ms", "20 ms", each / 0.020, 1.0, note)
    unchanged = all(m.facts["unchanged"] for m in found)
    yield Line("c", "  no page written (bytes of file and WAL)", "none" if unchanged else "WRITTEN", "none")


def figure_d(bench: Bench) -> Iterator[Line]:
    """30 partitions in one range run of Dagster's, against the command line."""
    partitions = min(30, bench.rows // 10_000)
    landing = bench.landing(bench.rows, True)

    def places(home: Path) -> dict[str, str]:
        names = {"LANDING": landing, "STAGED": home / "staged", "WAREHOUSE": home / "warehouse.sqlite"}
        return {
            **{f"ETL_{k}": str(v) for k, v in names.items()},
            "ETL_PIPELINES": str(HERE / "contracts.py"),
            "DAGSTER_DISABLE_TELEMETRY": "1",
        }

    def dagster() -> Measured:
        home = bench.fresh("dagster")
        (home / "dagster").mkdir()
        return run_task("dagster", environment=places(home), landing=landing, home=home, partitions=partitions)

    def command() -> Measured:
        home = bench.fresh("cli")
        first, last = (p.name for p in (sorted(landing.glob("orders/*"))[i] for i in (0, partitions - 1)))
        line = [sys.executable, "-m", "etl_assets", "run", "orders", "--from", first, "--to", last]
        return run_process(line, {**places(home), "PYTHONPATH": _path()})

    found = interleaved({"dagster": dagster, "cli": command}, bench.runs)
    ours, floor = found["dagster"], found["cli"]
    run, loading, whole = median(ours), median(ours, "loading"), median(ours, "whole")
    share = whole - median(floor)
    note = f"Dagster's share {seconds(share)} ({share / whole:.0%}): {seconds(loading)} importing, the rest events and steps"
    yield Line(
        "d",
        f"{partitions} partitions, whole process",
        seconds(whole),
        f"CLI {seconds(median(floor))}",
        None,
        None,
        note,
    )
    each = (run - median(floor)) / partitions
    what = f"  run alone {seconds(run)}; a partition more than the CLI's"
    yield Line(
        "d", what, seconds(each), note=f"peak {median(ours, 'peak_mb'):.0f} MB, CLI {median(floor, 'peak_mb'):.0f} MB"
    )


def figure_e(bench: Bench) -> Iterator[Line]:
    """Peak memory of one delivery of a million and of ten million rows."""
    peaks = {}
    for layout in LAYOUTS:
        for rows in (bench.rows, bench.large):
            landing, home = bench.landing(rows, False), bench.fresh("memory")
            found = run_task("load", landing=landing, home=home, layout=layout, rows=rows, daily=False)
            peaks[rows] = found.peak_mb
            note = f"landing to committed {seconds(found.seconds)}, lock held {seconds(found.facts['locked'])}"
            what = f"peak memory, {rows:,} rows in one delivery, {layout} keys"
            yield Line("e", what, f"{found.peak_mb:.0f} MB", "500 MB", found.peak_mb / 500, 1.0, note)
        flat = peaks[bench.large] / peaks[bench.rows]
        yield Line(
            "e", f"  {bench.large:,} against {bench.rows:,} rows", f"{flat:.2f} times", "", flat, 1.1, "flat: up to 1.1"
        )


def figure_f(bench: Bench) -> Iterator[Line]:
    """How soon the command line answers."""
    environment = {"PYTHONPATH": _path()}
    script = Path(sys.executable).parent / "etl-assets"
    subjects: dict[str, Callable[[], Measured]] = {
        "ours": lambda: run_process([str(script), "--help"], environment),
        "floor": lambda: run_process([sys.executable, "-c", "import sqlite3"]),
    }
    found = interleaved(subjects, max(15, bench.runs))
    ours, floor = median(found["ours"]), median(found["floor"])
    note = f"peak {median(found['ours'], 'peak_mb'):.0f} MB"
    yield Line("f", "etl-assets --help", seconds(ours), f"import sqlite3 {seconds(floor)}", ours / floor, 6.0, note)


def _path() -> str:
    """Where the package is taken from: a copy that the caller named, else this checkout."""
    return os.environ.get("PYTHONPATH") or str(ROOT)


FIGURES: dict[str, Callable[[Bench], Iterator[Line]]] = {
    "a": figure_a,
    "b": figure_b,
    "c": figure_c,
    "d": figure_d,
    "e": figure_e,
    "f": figure_f,
    "g": figure_g,
    "h": figure_h,
    "i": figure_i,
    "j": figure_j,
    "k": figure_k,
    "l": figure_l,
}


# --------------------------------------------------------------------------- where the time goes


def profile(bench: Bench, console: Console) -> None:
    """The stages of figure (a): medians of exclusive times."""
    for daily in (False, True):
        name, landing = bench.deliveries(daily), bench.landing(bench.rows, daily)
        given: dict[str, Any] = {"landing": landing, "layout": "fixed", "rows": bench.rows, "daily": daily}
        found = [run_task("profile", home=bench.fresh("profile"), **given) for _ in range(bench.runs)]
        stages = {k for m in found for k in m.facts["stages"]}
        times = {k: statistics.median(m.facts["stages"].get(k, 0.0) for m in found) for k in stages}
        table = Table("stage", "seconds", "share", title=f"{name}, {seconds(median(found))}", title_justify="left")
        for stage, value in sorted(times.items(), key=lambda item: -item[1]):
            table.add_row(stage, f"{value:.3f}", f"{value / sum(times.values()):.0%}")
        console.print(table)


# --------------------------------------------------------------------------- the table


def measure(bench: Bench, chosen: Sequence[str], console: Console) -> list[Line]:
    """Measure the chosen figures; one that fails says why and does not stop the others."""
    lines: list[Line] = []
    for name in chosen:
        with console.status(f"({name}) {FIGURES[name].__doc__}"):
            try:
                for line in FIGURES[name](bench):
                    lines.append(line)
                    ratio = "" if line.ratio is None else f"  {line.ratio:.2f} times"
                    print(f"({name}) {line.what.strip()}: {line.ours} / {line.floor}{ratio}", file=sys.stderr)
            except TaskFailed as error:
                reason = str(error).strip().splitlines()[-1]
                lines.append(Line(name, str(FIGURES[name].__doc__), "failed", note=reason[:200]))
                print(error, file=sys.stderr)
    return lines


def show(lines: Sequence[Line], bench: Bench, console: Console) -> None:
    title = f"{bench.rows:,} and {bench.large:,} rows, median of {bench.runs}, {os.cpu_count()} cores"
    table = Table("", "figure", "ours", "floor", "ratio", "wanted", "", "note", title=title, title_justify="left")
    previous = ""
    for line in lines:
        if previous and line.figure != previous:
            table.add_section()
        previous = line.figure
        ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
        wanted = "" if line.wanted is None else f"≤ {line.wanted:.2g}"
        style = "red" if line.verdict.startswith("missed") else "green"
        table.add_row(
            *(line.figure, line.what, line.ours, line.floor, ratio, wanted),
            f"[{style}]{line.verdict}[/]" if line.verdict else "",
            line.note,
        )
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(FIGURES), help="figures, such as a,c (all of them)")
    parser.add_argument("--runs", type=int, default=3, help="runs of each, of which the median is shown (3)")
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows: to try the script, not to quote")
    parser.add_argument("--profile", action="store_true", help="show where the time of (a) goes instead")
    parser.add_argument("--folder", type=Path, help="where deliveries are kept and runs are made")
    parser.add_argument("--json", type=Path, help="also write the lines to this file")
    chosen = parser.parse_args()
    figures = [name.strip() for name in chosen.only.split(",")]
    if unknown := [name for name in figures if name not in FIGURES]:
        parser.error(f"there is no figure {unknown[0]!r}; there are {', '.join(FIGURES)}")
    folder = chosen.folder or Path(tempfile.gettempdir()) / "etl_assets-benchmarks"
    rows = 100_000 if chosen.quick else 1_000_000
    bench = Bench(folder.absolute(), chosen.runs, rows, rows * 10)
    # Wide enough for the notes wherever the output goes.
    console = Console(width=None if sys.stdout.isatty() else 200)
    if chosen.profile:
        profile(bench, console)
    else:
        lines = measure(bench, figures, console)
        show(lines, bench, console)
        if chosen.json:
            keys = ("figure", "what", "ours", "floor", "ratio", "wanted", "verdict", "note")
            chosen.json.write_text(json.dumps([{k: getattr(line, k) for k in keys} for line in lines], indent=1))
    shutil.rmtree(bench.folder / "runs", ignore_errors=True)


if __name__ == "__main__":
    main()
