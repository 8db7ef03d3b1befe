"""The figures of change logs and snapshots: what merging by version costs."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import floors
from lines import Bench, Line, seconds
from measure import Measured, interleaved, median, run_task

MODULE = "versions_tasks"
WANTED = 1.25


def _landing(bench: Bench, kind: str, rows: int, second: bool = True) -> Path:
    """Deliveries of that many rows or events, made on first use."""
    folder = bench.folder / f"versions-{'log' if kind == 'log' else 'snapshots'}-{rows}{'-one' if not second else ''}"
    if not (folder / "complete").exists():
        run_task("make", MODULE, folder=folder, kind=kind, rows=rows, second=second)
        (folder / "complete").touch()
    return folder


def _measure(bench: Bench, kind: str, day: int, base: Path | None) -> dict[str, list[Measured]]:
    """One delivery our way and by the floor, in turn; that both leave the same rows is checked each time."""
    given: dict[str, Any] = {"landing": _landing(bench, kind, bench.rows), "kind": kind, "day": day}
    if base:
        given["base"] = base
    homes = bench.fresh("versions-ours"), bench.fresh("versions-floor")

    def ours() -> Measured:
        return run_task("load", MODULE, home=bench.fresh(homes[0].name), **given)

    def floor() -> Measured:
        found = run_task("floor", MODULE, home=bench.fresh(homes[1].name), **given)
        run_task("same", MODULE, home=homes[0], floor_home=homes[1])
        return found

    return interleaved({"ours": ours, "floor": floor}, bench.runs)


def _lines(figure: str, what: str, found: dict[str, list[Measured]]) -> Iterator[Line]:
    ours, floor = found["ours"], found["floor"]
    steps = ", ".join(f"{name} {seconds(median(ours, name))}" for name in ("freeze", "prepare", "publish"))
    for fact, name, note in (
        ("publish", f"{what}: publish", "floor: executemany of ready tuples"),
        ("seconds", "  landing to committed", f"floor: and parsing; {steps}"),
        (
            "cpu",
            "  the same, processor time",
            f"peak {median(ours, 'peak_mb'):.0f} MB, floor {median(floor, 'peak_mb'):.0f} MB",
        ),
    ):
        us, them = median(ours, fact), median(floor, fact)
        yield Line(figure, name, seconds(us), seconds(them), us / them, WANTED, note)
    locked, held = median(ours, "locked"), median(floor, "publish")
    yield Line(figure, "  write lock held", seconds(locked), seconds(held), locked / held)
    ready = median(floor, "publish")
    whole = median(ours)
    yield Line(figure, "  landing to committed, against ready tuples", seconds(whole), seconds(ready), whole / ready)


def _against_dlt(bench: Bench, figure: str, files: list[Path], found: list[Measured]) -> Iterator[Line]:
    """Measured once. The processor time is that of whole processes; dlt's also loads what comes before the last file."""
    python = floors.dlt_python(bench.folder / "dlt-venv")
    if python:
        dlt = floors.dlt_merge(python, files, bench.fresh("dlt"))
        ours = median(found)
        note = f"{dlt.seconds / ours:.1f} times faster; dlt's peak {dlt.peak_mb:.0f} MB"
        yield Line(figure, "  against dlt merge", seconds(ours), seconds(dlt.seconds), ours / dlt.seconds, 1 / 3, note)
        if len(files) == 1:
            us, them = median(found, "cpu_whole"), dlt.facts["cpu_whole"]
            yield Line(figure, "  the same, processor time", seconds(us), seconds(them), us / them)


def figure_g(bench: Bench) -> Iterator[Line]:
    """A million change events, on an empty table and on one of the million before."""
    landing = _landing(bench, "log", bench.rows)
    files = sorted(landing.glob("orders/*/1.jsonl"))
    first = _measure(bench, "log", 0, None)
    yield from _lines("g", f"{bench.rows:,} events, empty table", first)
    yield from _against_dlt(bench, "g", files[:1], first["ours"])
    base = _base(bench, landing, "log")
    yield from _lines("g", f"{bench.rows:,} more, on those rows", _measure(bench, "log", 1, base))
    shutil.rmtree(base)


def _base(bench: Bench, landing: Path, kind: str) -> Path:
    """A warehouse that the first delivery has filled."""
    base = bench.fresh("versions-base")
    run_task("load", MODULE, landing=landing, home=base, kind=kind, day=0)
    return base


def figure_h(bench: Bench) -> Iterator[Line]:
    """A snapshot of a million rows of which a tenth have changed, partial and whole; and again."""
    landing = _landing(bench, "snapshot", bench.rows)
    files = sorted(landing.glob("orders/*/1.csv"))
    for kind in ("partial", "whole"):
        base = _base(bench, landing, kind)
        found = _measure(bench, kind, 1, base)
        yield from _lines("h", f"{kind} snapshot, {bench.rows // 10:,} of {bench.rows:,} rows changed", found)
        if kind == "partial":
            yield from _against_dlt(bench, "h", files, found["ours"])
        shutil.rmtree(base)
    yield from _again(bench, landing)


def _again(bench: Bench, landing: Path) -> Iterator[Line]:
    """The last snapshot once more, the same bytes: as it is, and with another time."""
    home = bench.fresh("versions-again")
    for day in (0, 1):
        run_task("load", MODULE, landing=landing, home=home, kind="whole", day=day)
    for touched in (False, True):
        found = [
            run_task("again", MODULE, landing=landing, home=home, kind="whole", day=1, touched=touched)
            for _ in range(bench.runs)
        ]
        time, hashing = median(found), median(found, "hashing")
        unchanged = "no byte changed" if all(m.facts["unchanged"] for m in found) else "PAGES WRITTEN"
        what = "unchanged snapshot again, touched" if touched else "unchanged snapshot again"
        yield Line("h", what, seconds(time), f"sha256 of it {seconds(hashing)}", time / hashing, WANTED, unchanged)


def figure_i(bench: Bench) -> Iterator[Line]:
    """Peak memory of logs of a quarter of a million, a million and four million events."""
    peaks = []
    for events in (bench.rows // 4, bench.rows, bench.rows * 4):
        landing, home = _landing(bench, "log", events, second=False), bench.fresh("versions-memory")
        found = run_task("load", MODULE, landing=landing, home=home, kind="log", day=0)
        peaks.append(found.peak_mb)
        note = f"landing to committed {seconds(found.seconds)}, lock held {seconds(found.facts['locked'])}"
        yield Line("i", f"peak memory, {events:,} events in one delivery", f"{found.peak_mb:.0f} MB", note=note)
    for longer, shorter, name in ((peaks[2], peaks[1], "4 times the events"), (peaks[2], peaks[0], "16 times")):
        yield Line("i", f"  {name}", f"{longer / shorter:.2f} times", "", longer / shorter, 1.1, "flat: up to 1.1")
