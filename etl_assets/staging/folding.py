"""Versions of rows folded to the last one of each key, before anything is compared with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import Table
from etl_assets.errors import VersionConflict
from etl_assets.model import DELETED, POSITION, VERSION

#: The lines of these records.
Lines = Callable[[list[Any]], dict[int, int]]


def fold(
    contract: Table,
    batches: Iterator[pa.Table],
    shown: str,
    line: str,
    lines_of: Lines | None = None,
) -> Iterator[pa.Table]:
    """The last state of each key, from rows in order of key and version.

    ``line`` is a column with each row's line, or its record where ``lines_of`` tells the line of one. Raises
    :class:`VersionConflict` for two different states of one version.
    """
    held: pa.Table | None = None
    for batch in batches:
        table = pa.concat_tables([held, batch]) if held is not None else batch
        above, below = table.slice(0, table.num_rows - 1), table.slice(1)
        same = equal_in(above, below, contract.key)
        _refuse_conflict(contract, above, below, same, shown, line, lines_of)
        yield above.filter(pc.invert(same))
        held = table.slice(table.num_rows - 1)
    if held is not None:
        yield held


def equal_in(one: pa.Table, two: pa.Table, columns: tuple[str, ...]) -> pa.Array:
    """Where all these columns have the same value, or none, in both tables."""
    same = pa.array([True] * one.num_rows, pa.bool_())
    for name in columns:
        a, b = one[name].combine_chunks(), two[name].combine_chunks()
        both_null = pc.and_(pc.is_null(a), pc.is_null(b))
        same = pc.and_(same, pc.or_(both_null, pc.fill_null(pc.equal(a, b), False)))
    return same


def _refuse_conflict(
    contract: Table, above: pa.Table, below: pa.Table, same_key: pa.Array, shown: str, line: str, lines_of: Lines | None
) -> None:
    payload = tuple(c for c in above.column_names if c not in (VERSION, POSITION, line))
    conflict = pc.and_(
        pc.and_(same_key, equal_in(above, below, (VERSION,))), pc.invert(equal_in(above, below, payload))
    )
    # The end of a row says its key only; what it held is no contradiction to another end of it.
    conflict = pc.and_(conflict, pc.invert(pc.and_(above[DELETED].combine_chunks(), below[DELETED].combine_chunks())))
    rows = pc.indices_nonzero(conflict).to_pylist()
    if not rows:
        return
    one, two = above.slice(rows[0], 1).to_pylist()[0], below.slice(rows[0], 1).to_pylist()[0]
    key = ", ".join(f"{k}={one[k]!r}" for k in contract.key)
    lines = lines_of([one[line], two[line]]) if lines_of else {}
    shown_rows = "\n".join(
        f"  line {lines.get(r[line], r[line])}: {'deleted' if r[DELETED] else {c.name: r[c.name] for c in contract.columns}}"
        for r in (one, two)
    )
    raise VersionConflict(
        f"{shown}: {len(rows):,} rows have two different states under one version. First: {key}, "
        f"version {one[VERSION]}\n{shown_rows}"
    )
