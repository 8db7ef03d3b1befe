"""What every figure is made of: a line of the table, and what the measuring needs."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from measure import run_task


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table; ``ratio`` is to the floor, and is judged against ``wanted`` (an upper bound)."""

    figure: str
    what: str
    ours: str
    floor: str = ""
    ratio: float | None = None
    wanted: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        if self.ratio is None or self.wanted is None:
            return ""
        return "met" if self.ratio <= self.wanted else f"missed by {self.ratio / self.wanted - 1:.0%}"


@dataclass(frozen=True, slots=True)
class Bench:
    """What a figure needs: where deliveries lie, how often and how large to measure."""

    folder: Path
    runs: int
    rows: int
    large: int

    def landing(self, rows: int, daily: bool) -> Path:
        """Deliveries of that many rows, made on first use."""
        folder = self.folder / f"landing-{rows}-{'daily' if daily else 'one'}"
        if not (folder / "complete").exists():
            run_task("make_landing", folder=folder, rows=rows, daily=daily)
            (folder / "complete").touch()
        return folder

    def deliveries(self, daily: bool) -> str:
        return f"{self.rows // 10_000} deliveries" if daily else "one delivery"

    def fresh(self, name: str) -> Path:
        """An empty folder for one run."""
        home = self.folder / "runs" / name
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        return home


def seconds(value: float) -> str:
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:.2f} s"
