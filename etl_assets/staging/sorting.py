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
        yield from self._merge()

    def _take_pending(self) -> pa.Table:
        table = pa.concat_tables(self._pending)
        self._pending, self._bytes = [], 0
        return self._sorted(table)

    def _sorted(self, table: pa.Table) -> pa.Table:
        return table.take(pc.sort_indices(table, sort_keys=self._by)) if self._by else table

    def _spill(self) -> None:
        path = self._scratch / f"run-{len(self._spilled)}.arrow"
        run = self._take_pending()
        with pa.ipc.new_file(path, run.schema) as writer:
            writer.write_table(run, max_chunksize=max(1, min(BATCH_ROWS, run.num_rows * BATCH_BYTES // run.nbytes)))
        self._spilled.append(path)
        del run
        pa.default_memory_pool().release_unused()

    def _merge(self) -> Iterator[pa.Table]:
        """Hold a batch of each run; emit up to the first row that ends a batch, then refill the run it ended."""
        # Read, not mapped: mapped pages would count, and stay, as this process's memory.
        readers = [pa.ipc.open_file(pa.OSFile(str(path))) for path in self._spilled]
        position = [0] * len(readers)

        def refill(run: int) -> pa.Table | None:
            reader = readers[run]
            if position[run] >= reader.num_record_batches:
                return None
            batch = reader.get_batch(position[run])
            position[run] += 1
            more = position[run] < reader.num_record_batches
            marks = np.full(batch.num_rows, -1, np.int32)
            marks[-1] = run if more else -1
            return pa.Table.from_batches([batch]).append_column("__ends", pa.array(marks))

        held = self._sorted(pa.concat_tables([t for run in range(len(readers)) if (t := refill(run)) is not None]))
        while held.num_rows:
            ends = pc.indices_nonzero(pc.greater_equal(held["__ends"], 0))
            if not len(ends):
                yield from _slices(held.drop_columns("__ends"))
                return
            cut = ends[0].as_py() + 1
            run = held["__ends"][cut - 1].as_py()
            yield from _slices(held.slice(0, cut).drop_columns("__ends"))
            fresh = refill(run)
            rest = held.slice(cut)
            held = self._sorted(pa.concat_tables([rest, fresh]) if fresh is not None else rest)


def _slices(table: pa.Table) -> Iterator[pa.Table]:
    for start in range(0, table.num_rows, BATCH_ROWS):
        yield table.slice(start, BATCH_ROWS)
