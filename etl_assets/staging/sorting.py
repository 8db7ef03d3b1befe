"""Rows in key order, in bounded memory: sorted runs on disk, merged in batches.

A delivery that fits one run is sorted in memory and never spilled. The merge needs no comparison of rows in Python:
each step sorts the buffers of all runs together, and everything up to the smallest of their last rows is final.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Bytes of typed rows in one run, and rows handed on at a time.
RUN_BYTES = 32 << 20
BATCH_ROWS = 1 << 16
#: Bytes of a run that the merge holds; a row that is larger comes alone.
BATCH_BYTES = 1 << 20
#: Columns of what a merge holds: the run of a row, and at the last row of a run's part the part's number.
RUN, ENDS = "__run", "__ends"


class SortedRuns:
    """Collects tables of one schema and gives them back as batches in order of ``by``."""

    def __init__(self, by: list[str], scratch: Path) -> None:
        self._by = [(name, "ascending") for name in by]
        self._scratch = scratch
        self._pending: list[pa.Table] = []
        self._bytes = 0
        self._spilled: list[Path] = []

    def add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._pending.append(table)
            self._bytes += table.nbytes
            if self._bytes >= RUN_BYTES:
                self._spill()

    def batches(self) -> Iterator[pa.Table]:
        """All rows in order; call it once, at the end."""
        if not self._spilled:
            if self._pending:
                run = self._take_pending()
                for start in range(0, run.num_rows, BATCH_ROWS):
                    yield run.slice(start, BATCH_ROWS)
            return
        if self._pending:
            self._spill()
        yield from _coalesced(self._merge())

    def _take_pending(self) -> pa.Table:
        table = pa.concat_tables(self._pending)
        self._pending, self._bytes = [], 0
        return self._sorted(table)

    def _sorted(self, table: pa.Table) -> pa.Table:
        return table.take(pc.sort_indices(table, sort_keys=self._by)) if self._by else table

    def _spill(self) -> None:
        self._scratch.mkdir(exist_ok=True)
        path = self._scratch / f"run-{len(self._spilled)}.arrow"
        run = self._take_pending()
        with pa.ipc.new_file(path, run.schema) as writer:
            writer.write_table(run, max_chunksize=max(1, min(BATCH_ROWS, run.num_rows * BATCH_BYTES // run.nbytes)))
        self._spilled.append(path)
        del run
        pa.default_memory_pool().release_unused()

    def _merge(self) -> Iterator[pa.Table]:
        """Hold some rows of each run, sorted together; what stands up to the first row that ends a run's part is final.

        Each step fills up every run of which less than half a part is left, not only the one that ended: runs of rows in
        random order advance at the same pace, so a step hands on about half of what is held, and the cost of sorting
        does not grow with the number of runs.
        """
        # Read, not mapped: mapped pages would count, and stay, as this process's memory.
        readers = [pa.ipc.open_file(pa.OSFile(str(path))) for path in self._spilled]
        position = [0] * len(readers)

        def more(run: int) -> bool:
            return position[run] < readers[run].num_record_batches

        def mark(run: int) -> int:
            # Numbered by the part, so that the mark of a part that a later one has outdated is told.
            return position[run] * len(readers) + run

        def fill(run: int) -> pa.Table:
            batch = readers[run].get_batch(position[run])
            position[run] += 1
            ends = np.full(batch.num_rows, -1, np.int64)
            ends[-1] = mark(run)
            table = pa.Table.from_batches([batch])
            return table.append_column(RUN, pa.array(np.full(batch.num_rows, run, np.int32))).append_column(
                ENDS, pa.array(ends)
            )

        held: pa.Table | None = None
        part = [0] * len(readers)
        while True:
            left = dict.fromkeys(range(len(readers)), 0)
            if held is not None:
                left |= {c["values"]: c["counts"] for c in pc.value_counts(held[RUN].combine_chunks()).to_pylist()}
            fresh = []
            for run in range(len(readers)):
                if more(run) and left[run] * 2 <= part[run]:
                    fresh.append(fill(run))
                    part[run] = fresh[-1].num_rows
            if fresh:
                held = self._sorted(pa.concat_tables([held, *fresh] if held is not None else fresh))
            if held is None or not held.num_rows:
                return
            open_ends = pa.array([mark(run) for run in range(len(readers)) if more(run)], pa.int64())
            first = pc.index(pc.is_in(held[ENDS], open_ends), True).as_py() if len(open_ends) else -1
            cut = first + 1 if first >= 0 else held.num_rows
            yield from _slices(held.slice(0, cut).drop_columns([RUN, ENDS]))
            held = held.slice(cut).combine_chunks()


def _coalesced(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Small tables put together: each becomes a row group of the Parquet file, which is described in memory."""
    waiting: list[pa.Table] = []
    rows = size = 0
    for table in tables:
        waiting.append(table)
        rows, size = rows + table.num_rows, size + table.nbytes
        if rows >= BATCH_ROWS or size >= RUN_BYTES // 4:
            yield from _slices(pa.concat_tables(waiting))
            waiting, rows, size = [], 0, 0
    if waiting:
        yield from _slices(pa.concat_tables(waiting))


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield table.slice(start, BATCH_ROWS)
