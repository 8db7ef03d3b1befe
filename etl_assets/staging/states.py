"""A log's events folded to the last state of each key, as if they were consumed one by one.

Belongs here: what of a key's events stands at its end, and where two states of one version contradict each other. What the
table held before is not known here: a contradiction among events that are older than it says nothing, so publishing decides.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import ChangeLogTable
from etl_assets.model import DELETED, VERSION
from etl_assets.staging.folding import equal_in
from etl_assets.staging.history import DISPUTE, HISTORY, Flags, History

#: The line of the file on which the event stands.
LINE = "__line"


def last_states(contract: ChangeLogTable, batches: Iterator[pa.Table], history: History) -> Iterator[pa.Table]:
    """Yield the last state of each key, from rows in order of key, version and position.

    Of the states of one version an optional column has the value of whichever has one. Beside each state lie the versions
    that stood before it, and the last contradiction on the way to it.
    """
    held: pa.Table | None = None
    for batch in batches:
        table = pa.concat_tables([held, batch]) if held is not None else batch
        same = _flags(equal_in(table.slice(0, table.num_rows - 1), table.slice(1), contract.key))
        versions, lines = (table[name].combine_chunks().to_numpy() for name in (VERSION, LINE))
        again = same & (versions[1:] == versions[:-1])
        disputes: dict[int, str] = {}
        if again.any():
            carried = _carried(contract, table, again)
            disputes = _disputes(contract, carried, table, again)
            table = carried
        earlier, disputed = history.closed(versions, lines, same, disputes)
        closed = table.slice(0, table.num_rows - 1).filter(pa.array(~same))
        yield closed.append_column(HISTORY, earlier).append_column(DISPUTE, disputed)
        held = table.slice(table.num_rows - 1)
    if held is not None:
        earlier, disputed = history.last(held[VERSION][0].as_py(), held[LINE][0].as_py())
        yield held.append_column(HISTORY, earlier).append_column(DISPUTE, disputed)


def _flags(values: pa.Array) -> Flags:
    return values.to_numpy(zero_copy_only=False)


def _optional(contract: ChangeLogTable) -> list[str]:
    return [c.name for c in contract.columns if c.optional and c.name not in contract.key]


def _carried(contract: ChangeLogTable, table: pa.Table, again: Flags) -> pa.Table:
    """The rows with what the rows of the same version before them say in optional columns where they have no value."""
    starts = np.concatenate([[True], ~again])
    live = ~_flags(table[DELETED].combine_chunks())
    place = np.arange(table.num_rows)
    for name in _optional(contract):
        values = table[name].combine_chunks()
        if values.null_count in (0, len(values)):
            continue
        said = np.maximum.accumulate(np.where((_flags(values.is_valid()) & live) | starts, place, 0))
        table = table.set_column(table.column_names.index(name), name, values.take(pa.array(said)))
    return table


def _disputes(contract: ChangeLogTable, carried: pa.Table, table: pa.Table, again: Flags) -> dict[int, str]:
    """By the number of the row, where it contradicts the row before it under the same version; the first of each version."""
    above, below = carried.slice(0, table.num_rows - 1), table.slice(1)
    optional = _optional(contract)
    strict = tuple(c.name for c in contract.columns if c.name not in (*contract.key, *optional))
    differs = ~_flags(equal_in(above, below, (*strict, DELETED)))
    for name in optional:
        unequal = pc.not_equal(above[name].combine_chunks(), below[name].combine_chunks())
        differs |= _flags(pc.fill_null(unequal, False))
    # The end of a row says its key only; what it held is no contradiction to another end of it.
    both_end = _flags(pc.and_(above[DELETED].combine_chunks(), below[DELETED].combine_chunks()))
    found = np.flatnonzero(again & differs & ~both_end)
    version = np.cumsum(np.concatenate([[True], ~again]))[1:]
    first = found[np.unique(version[found], return_index=True)[1]]
    return {int(row) + 1: _words(contract, above.slice(row, 1), below.slice(row, 1)) for row in first}


def _words(contract: ChangeLogTable, above: pa.Table, below: pa.Table) -> str:
    """Two rows that contradict each other, with their lines."""
    one, two = above.to_pylist()[0], below.to_pylist()[0]
    key = ", ".join(f"{k}={one[k]!r}" for k in contract.key)
    states = (
        f"  line {r[LINE]}: {'deleted' if r[DELETED] else {c.name: r[c.name] for c in contract.columns}}"
        for r in (one, two)
    )
    return f"{key}, version {one[VERSION]}\n" + "\n".join(states)
