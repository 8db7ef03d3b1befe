"""What was said of each key before its last state: which events are stale, and which versions stood for a time.

Belongs here: counting, in bounded memory, over rows that come in order of key, version and position. An event is stale
where a newer version of its key came before it. Those that came within the delivery are found here. Whether one came
before the delivery, only the table can tell: for each key with more than one state that stood for a time the versions
are kept, so that publishing counts to the event what a fold of the whole log would. Two states of one version are a dispute
where no newer version came before them: whether one came before the delivery, again only the table can tell.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

#: The versions that stood for a time before a candidate row's own, in their order.
HISTORY = "_history"
HISTORY_TYPE = pa.list_(pa.int64())
#: The newest version on the way to a candidate row of which there are two states, and what they say.
DISPUTE = "_dispute"
DISPUTE_TYPE = pa.struct([("version", pa.int64()), ("states", pa.string())])
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


class History:
    """Collects versions and lines of rows in order of key, version and position. ``stale`` counts as rows are added."""

    def __init__(self) -> None:
        self.stale = 0
        # Of the key that may go on with the next rows: all of its rows but the last.
        self._versions: Integers = np.empty(0, np.int64)
        self._lines: Integers = np.empty(0, np.int64)
        self._disputes: dict[int, str] = {}

    def closed(
        self, versions: Integers, lines: Integers, same: Flags, disputes: Mapping[int, str]
    ) -> tuple[pa.Array, pa.Array]:
        """Return history and dispute of each key that ends before the last row; that one is given again with the next rows.

        ``same`` says of each row but the last whether the next one is of the same key. A later line is a later position.
        ``disputes`` are rows that contradict an earlier one of their version.
        """
        waiting = len(self._versions)
        self._disputes |= {waiting + row: states for row, states in disputes.items()}
        versions, lines = np.concatenate([self._versions, versions]), np.concatenate([self._lines, lines])
        same = np.concatenate([np.ones(waiting, np.bool_), same])
        ends = np.flatnonzero(~same)
        open_from = int(ends[-1]) + 1 if len(ends) else 0
        self._versions, self._lines = versions[open_from:-1], lines[open_from:-1]
        told = self._told(versions[:open_from], lines[:open_from], ends)
        self._disputes = {row - open_from: said for row, said in self._disputes.items() if row >= open_from}
        return told

    def last(self, version: int, line: int) -> tuple[pa.Array, pa.Array]:
        """Return history and dispute of the last key, whose last row this is."""
        versions, lines = np.append(self._versions, version), np.append(self._lines, line)
        return self._told(versions, lines, np.array([len(versions) - 1]))

    def _told(self, versions: Integers, lines: Integers, ends: Integers) -> tuple[pa.Array, pa.Array]:
        """Versions that stood before the last row of each key, and its dispute; ``ends`` are those last rows."""
        if len(versions) == len(ends):  # one event a key
            return _lists(np.zeros(len(ends), np.int64), versions[:0]), pa.nulls(len(ends), DISPUTE_TYPE)
        sizes = np.diff(ends, prepend=-1)
        group = np.repeat(np.arange(len(ends)), sizes)
        stood = np.ones(len(versions), np.bool_)
        if np.any((lines[1:] < lines[:-1]) & (group[1:] == group[:-1])):
            overtaken = _overtaken(versions, lines, group)
            self.stale += int(overtaken.sum())
            stood &= ~overtaken
        disputed = self._disputed(versions, group, stood, len(ends))
        stood[ends] = False
        return _lists(np.bincount(group[stood], minlength=len(ends)), versions[stood]), disputed

    def _disputed(self, versions: Integers, group: Integers, stood: Flags, keys: int) -> pa.Array:
        """Of each key the dispute of the newest version, among rows that no newer version came before."""
        found = sorted(row for row in self._disputes if row < len(versions) and stood[row])
        if not found:
            return pa.nulls(keys, DISPUTE_TYPE)
        # Rows come in order of version, so the last one of a key counts.
        by_key = {int(group[row]): {"version": int(versions[row]), "states": self._disputes[row]} for row in found}
        return pa.array([by_key.get(key) for key in range(keys)], DISPUTE_TYPE)


def _lists(lengths: NDArray[np.intp], values: Integers) -> pa.Array:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values, pa.int64()))


def _overtaken(versions: Integers, lines: Integers, group: NDArray[np.intp]) -> Flags:
    """Rows of which a higher version of the same key stands on an earlier line."""
    # The earliest line from each row to the end of its key. A span a key apart, so that no minimum reaches into the next.
    span = int(lines.max()) + 1
    apart = lines + group * span
    earliest = np.minimum.accumulate(apart[::-1])[::-1]
    # The first row of the next higher version.
    first = np.flatnonzero(np.concatenate([[True], (group[1:] != group[:-1]) | (versions[1:] != versions[:-1])]))
    run = np.searchsorted(first, np.arange(len(versions)), side="right")
    higher = first[np.minimum(run, len(first) - 1)]
    exists = (run < len(first)) & (group[higher] == group)
    return exists & (earliest[higher] < apart)
