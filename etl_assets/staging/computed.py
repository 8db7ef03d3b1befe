"""Computed rows to candidate rows: what a derived table's query returned, typed and checked by the contract.

The rows come as texts, a column each, and are cast as delivered texts are, so that a value means the same wherever it
comes from; that a text may stand for "no value" is left out, since a query says NULL.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import Column, DerivedTable
from etl_assets.errors import DuplicateKey, TransformFailed
from etl_assets.model import ExtractColumn, Fetched
from etl_assets.staging.candidate import Content, write_candidate
from etl_assets.staging.casting import arrow_type, cast
from etl_assets.staging.extract import candidate_format, candidate_name
from etl_assets.staging.folding import equal_in
from etl_assets.staging.sorting import SortedRuns
from etl_assets.staging.validating import find_invalid


def stage_computed(contract: DerivedTable, fetched: Fetched, shown: str, work: Path) -> Content:
    """Write the rows at ``fetched.computed`` to ``work`` in order of key; none of them is set aside.

    Raises :class:`TransformFailed` for a value that its column does not take, and :class:`DuplicateKey`.
    """
    assert fetched.computed is not None
    names = [c.name for c in contract.columns]
    runs = SortedRuns(list(contract.key) or sorted(names), work)
    filled: set[str] = set()
    count = 0
    with pa.OSFile(fetched.computed) as file, pa.ipc.open_stream(file) as computed:
        for batch in computed:
            table = _typed(contract, batch, shown)
            count += table.num_rows
            filled |= {name for name in names if table[name].null_count < table.num_rows}
            runs.add(table)
    schema = pa.schema([(c.name, arrow_type(c)) for c in contract.columns])
    path = work / candidate_name(candidate_format(fetched.size))
    rows, digest = write_candidate(path, schema, filled, _distinct(contract, runs.batches(), shown))
    columns = tuple(
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    )
    return Content(columns, count, 0, rows, digest)


def _typed(contract: DerivedTable, batch: pa.RecordBatch, shown: str) -> pa.Table:
    arrays = []
    for column in contract.columns:
        texts = batch.column(column.name)
        casted = cast(_literal(column), texts)
        for row, reason in casted.invalid.items():
            raise TransformFailed(
                f"{shown}: the SQL of {contract.name} returned {texts[row].as_py()!r} for {column.name!r}, a {column.type} "
                f"column: {reason}. Nothing was changed; mend the SQL, or the column's type"
            )
        arrays.append(casted.values)
    table = pa.table(arrays, names=[c.name for c in contract.columns])
    for row, reasons in find_invalid(contract, table).items():
        raise TransformFailed(
            f"{shown}: the SQL of {contract.name} returned a row that the contract does not allow: {'; '.join(reasons)}: "
            f"{table.slice(row, 1).to_pylist()[0]}. Nothing was changed"
        )
    return table


def _literal(column: Column) -> Column:
    """The column without texts that mean "no value"."""
    return column.model_copy(update={"missing": ()})


def _distinct(contract: DerivedTable, batches: Iterator[pa.Table], shown: str) -> Iterator[pa.Table]:
    """The batches again, in which no key repeats."""
    last: pa.Table | None = None
    for batch in batches:
        if contract.key:
            table = pa.concat_tables([last, batch]) if last is not None else batch
            above, below = table.slice(0, table.num_rows - 1), table.slice(1)
            repeats = pc.indices_nonzero(equal_in(above, below, contract.key)).to_pylist()
            if repeats:
                pair = [one.slice(repeats[0], 1).to_pylist()[0] for one in (above, below)]
                raise DuplicateKey(
                    f"{shown}: the SQL of {contract.name} returned the key ({', '.join(contract.key)}) more than once, "
                    f"{len(repeats):,} times so far. First:\n  {pair[0]}\n  {pair[1]}\nMend the SQL or the key"
                )
            last = batch.slice(batch.num_rows - 1)
        yield batch
