"""Where the time of figure (a) goes: the core's own functions, timed from outside by wrapping them.

Times are exclusive: what a wrapped function spends in another wrapped one is counted there. Nothing in the product
knows of this.
"""

from __future__ import annotations

import functools
import importlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

#: Stage, and the functions (module, then dotted name) that are it. Those a release no longer has are left out.
STAGES: tuple[tuple[str, str, str], ...] = (
    ("list landing", "etl_assets.landing", "Landing.arrivals"),
    ("fetch + sha256", "etl_assets.landing", "Landing.fetch"),
    ("scan bytes", "etl_assets.staging.reading", "_scan"),
    ("read csv", "etl_assets.staging.reading", "_arrow_batches"),
    ("cast", "etl_assets.staging.stage", "cast"),
    ("validate", "etl_assets.staging.stage", "find_invalid"),
    ("validate", "etl_assets.staging.stage", "find_foreign"),
    ("sort", "etl_assets.staging.sorting", "SortedRuns._sorted"),
    ("sort: spill, merge", "etl_assets.staging.sorting", "SortedRuns.batches"),
    ("sort: spill, merge", "etl_assets.staging.sorting", "SortedRuns.add"),
    ("repeated keys", "etl_assets.staging.stage", "_refuse_repeats"),
    ("digest: csv", "pyarrow.csv", "CSVWriter"),
    ("digest: sha256", "etl_assets.staging.stage", "_Hashed.write"),
    ("parquet", "pyarrow.parquet", "ParquetWriter.write_table"),
    ("parquet", "pyarrow.parquet", "ParquetWriter.close"),
    ("sha256 of extract", "etl_assets.staging.stage", "_file_sha256"),
    ("sha256 of extract", "etl_assets.sink.sqlite.warehouse", "candidate_file"),
    ("freeze without fsync", "etl_assets.staging.extract", "StagedFolder.freeze"),
    ("fsync of extract", "os", "fsync"),
    ("stage file: read parquet", "etl_assets.sink.sqlite.stage_file", "_batches"),
    ("stage file: ADBC", "etl_assets.sink.sqlite.stage_file", "build"),
    ("claim, observe, look up", "etl_assets.sink.sqlite.warehouse", "SQLiteWarehouse.claim"),
    ("claim, observe, look up", "etl_assets.sink.sqlite.warehouse", "SQLiteWarehouse.observe"),
    ("claim, observe, look up", "etl_assets.sink.sqlite.warehouse", "SQLiteWarehouse.deliveries"),
    ("claim, observe, look up", "etl_assets.sink.sqlite.warehouse", "SQLiteWarehouse._has_rows"),
    ("publish: statements", "etl_assets.sink.sqlite.warehouse", "publish"),
    ("publish: open, commit, checkpoint", "etl_assets.sink.sqlite.warehouse", "SQLiteWarehouse.publish"),
)


class Stopwatch:
    """Exclusive times by stage: entering one stops the one around it."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open: list[str] = []
        self._since = time.perf_counter()

    def enter(self, stage: str) -> None:
        self._lap()
        self._open.append(stage)

    def leave(self) -> None:
        self._lap()
        self._open.pop()

    def _lap(self) -> None:
        now = time.perf_counter()
        self.seconds[self._open[-1] if self._open else "everything else"] += now - self._since
        self._since = now

    def wrap(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*given: Any, **named: Any) -> Any:
            self.enter(stage)
            try:
                result = function(*given, **named)
            finally:
                self.leave()
            return (
                self._steps(stage, result) if isinstance(result, Iterator) and not hasattr(result, "read") else result
            )

        return timed

    def _steps(self, stage: str, steps: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.enter(stage)
            try:
                step = next(steps)
            except StopIteration:
                return
            finally:
                self.leave()
            yield step


def install() -> Stopwatch:
    """Wrap the stages' functions in this process; those of threads other than the first are not told apart."""
    watch = Stopwatch()
    for stage, module, dotted in STAGES:
        owner: Any = os if module == "os" else importlib.import_module(module)
        *path, name = dotted.split(".")
        for part in path:
            owner = getattr(owner, part, None)
        function = getattr(owner, name, None)
        if function is None:
            continue
        if stage == "digest: csv":
            setattr(owner, name, _timed_writer(watch, stage, function))
        else:
            setattr(owner, name, watch.wrap(stage, function))
    return watch


def _timed_writer(watch: Stopwatch, stage: str, kind: Any) -> Callable[..., Any]:
    """Arrow's own classes cannot be patched: a stand-in that passes on what is used of one."""

    class Writer:
        def __init__(self, *given: Any, **named: Any) -> None:
            self._inner = kind(*given, **named)

        def write_table(self, table: Any) -> None:
            watch.wrap(stage, self._inner.write_table)(table)

        def write(self, data: Any) -> None:
            watch.wrap(stage, self._inner.write)(data)

        def close(self) -> None:
            watch.wrap(stage, self._inner.close)()

    return Writer
