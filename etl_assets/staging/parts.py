"""Where a log's delivery is cut into batches, and what each of them comes to.

Belongs here: the bounds of parts, and one candidate file for each. Does not belong here: what an event is.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from etl_assets.contract import ChangeLogTable
from etl_assets.model import DELETED, POSITION, VERSION, CandidateFormat, Part
from etl_assets.staging.candidate import write_candidate
from etl_assets.staging.casting import arrow_type
from etl_assets.staging.extract import candidate_name
from etl_assets.staging.history import DISPUTE, DISPUTE_TYPE, HISTORY, HISTORY_TYPE, History
from etl_assets.staging.same import Fields, plain
from etl_assets.staging.sorting import SortedRuns
from etl_assets.staging.states import last_states


class Cutter:
    """Cuts typed events, which come in order of position, after every ``size`` of them.

    ``cuts`` come first: where batches of this very delivery are committed, it is cut as they are, whatever its size is
    to be by now.
    """

    def __init__(self, size: int, cuts: Sequence[int]) -> None:
        self._size, self._cuts = size, list(cuts)
        self._events = 0
        self._full = False

    def pieces(self, table: pa.Table) -> Iterator[tuple[pa.Table, int, bool]]:
        """Slices of the table with their number of events, and whether a part begins with the slice."""
        positions = table[POSITION].to_numpy()
        # An event that changes a key is two rows of one position.
        number = np.cumsum(np.diff(positions, prepend=positions[:1] - 1) != 0)
        start = done = 0
        while start < len(positions):
            begins = self._full
            if begins:
                self._events, self._full = 0, False
            end = self._end(positions, number, start, done)
            events = int(number[end - 1]) - done
            yield table.slice(start, end - start), events, begins
            self._events += events
            start, done = end, done + events

    def _end(self, positions: NDArray[np.int64], number: NDArray[np.int64], start: int, done: int) -> int:
        """The row before which this part ends, or all of them do."""
        while self._cuts and self._cuts[0] < positions[start]:
            self._cuts.pop(0)
        if self._cuts:
            end = int(np.searchsorted(positions, self._cuts[0], "right"))
            self._full = int(positions[-1]) >= self._cuts[0]
            if self._full:
                self._cuts.pop(0)
            return end
        last = done + self._size - self._events
        self._full = int(number[-1]) >= last
        return int(np.searchsorted(number, last, "right"))


class PartWriter:
    """One part being read: its events are sorted as they come, and written as candidate rows at its end."""

    def __init__(self, contract: ChangeLogTable, number: int, form: CandidateFormat, shown: str, scratch: Path) -> None:
        self.contract, self.number, self.form, self.shown = contract, number, form, shown
        self.scratch = scratch / f"part-{number}"
        self.runs = SortedRuns([*contract.key, VERSION, POSITION], self.scratch)
        self.filled = {VERSION, DELETED, POSITION}
        self.events = self.upper = 0
        self.said = hashlib.sha256()

    def add(self, table: pa.Table, said: list[Fields]) -> None:
        """Take rows, and what the events that they are made of say."""
        self.filled |= {c.name for c in self.contract.columns if table[c.name].null_count < table.num_rows}
        self.events += len(said)
        self.said.update(plain(said))
        self.upper = table[POSITION][-1].as_py()
        self.runs.add(table)

    def write(self, files: Path, lower: int, upper: int) -> Part:
        """The last state of each key; which of the file's bytes they are is told once it is there (``candidate_sha256``)."""
        own = [(VERSION, pa.int64()), (DELETED, pa.bool_()), (POSITION, pa.int64())]
        own += [(HISTORY, HISTORY_TYPE), (DISPUTE, DISPUTE_TYPE)]
        schema = pa.schema([*((c.name, arrow_type(c)) for c in self.contract.columns), *own])
        history = History()
        states = last_states(self.contract, self.runs.batches(), history)
        rows, digest = write_candidate(files / candidate_name(self.form, self.number), schema, self.filled, states)
        shutil.rmtree(self.scratch, ignore_errors=True)
        return Part(lower, upper, self.events, rows, history.stale, digest, "", self.said.hexdigest())
