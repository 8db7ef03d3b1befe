"""Keys that repeat within a delivery: refused, or resolved to the newest row where the contract says what newer is.

Belongs here: rows of one delivery that share a key. Does not belong here: versions that other deliveries have said.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import PartitionedTable
from etl_assets.errors import DuplicateKey
from etl_assets.staging.folding import equal_in
from etl_assets.staging.reading import Text
from etl_assets.staging.validating import RECORD

#: How many repeated keys an error message shows.
SHOWN = 3


def distinct(contract: PartitionedTable, text: Text, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The rows of each key that count, from batches in order of key, ``newest_by`` and record.

    Raises :class:`DuplicateKey`, naming the lines, where it cannot be told which row that is.
    """
    if contract.newest_by:
        yield from _newest(contract, text, batches)
        return
    last: pa.Table | None = None
    for batch in batches:
        if contract.key:
            keys = batch.select([*contract.key, RECORD])
            _refuse(contract, text, *_neighbours(last, keys))
            last = keys.slice(keys.num_rows - 1)
        yield batch


def _newest(contract: PartitionedTable, text: Text, batches: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The last row of each key. Two that the order does not tell apart are refused, unless they are the same row."""
    held: pa.Table | None = None
    for batch in batches:
        above, below = _neighbours(held, batch)
        same_key = equal_in(above, below, contract.key)
        _refuse(contract, text, above, below)
        yield above.filter(pc.invert(same_key))
        held = batch.slice(batch.num_rows - 1)
    if held is not None:
        yield held


def _neighbours(held: pa.Table | None, batch: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Rows beside those that follow them; the first follows ``held``, the last row before this batch."""
    table = pa.concat_tables([held, batch]) if held is not None else batch
    return table.slice(0, table.num_rows - 1), table.slice(1)


def _refuse(contract: PartitionedTable, text: Text, above: pa.Table, below: pa.Table) -> None:
    """Refuse neighbours of one key of which neither is newer."""
    same = _equal_values(above, below, (*contract.key, *contract.newest_by))
    if same is None:
        return
    if contract.newest_by:
        same = pc.and_(same, pc.invert(equal_in(above, below, tuple(c for c in above.column_names if c != RECORD))))
    repeats = pc.indices_nonzero(same).to_pylist()
    if not repeats:
        return
    pairs = [(above[RECORD][i].as_py(), below[RECORD][i].as_py()) for i in repeats[:SHOWN]]
    lines = text.lines_of([r for pair in pairs for r in pair if r is not None])
    shown = []
    for position, (one, two) in zip(repeats, pairs, strict=False):
        key = ", ".join(f"{n}={below[n][position].as_py()!r}" for n in contract.key)
        order = ", ".join(f"{n}={_shown(below[n][position])}" for n in contract.newest_by)
        tie = f", both with {order}" if order else ""
        shown.append(f"  lines {lines.get(one, 'unknown')} and {lines.get(two, 'unknown')}: {key}{tie}")
    ties = f", and the order newest_by ({', '.join(contract.newest_by)}) ties" if contract.newest_by else ""
    raise DuplicateKey(
        f"{text.shown}: the key ({', '.join(contract.key)}) repeats within the delivery{ties}"
        f"{f', {len(repeats):,} times so far' if len(repeats) > 1 else ''}; which row counts cannot be told.\n"
        + "\n".join(shown)
    )


def _equal_values(above: pa.Table, below: pa.Table, columns: tuple[str, ...]) -> pa.Array | None:
    """Where these columns, none of which lacks a value, are equal; None where that is nowhere, mostly seen at the first."""
    same = None
    for name in columns:
        equal = pc.equal(above[name].combine_chunks(), below[name].combine_chunks())
        same = equal if same is None else pc.and_(same, equal)
        if not pc.any(same).as_py():
            return None
    return same


def _shown(value: pa.Scalar) -> str:
    found = value.as_py()
    return found.isoformat() if hasattr(found, "isoformat") else str(found)
