"""Delimited rows to candidate rows: read, type, validate, transform, sort, and settle repeated keys.

Memory is bounded by blocks and runs, not by the delivery, unless the contract has a transform that needs to see the
delivery as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import PartitionedTable, WatermarkTable
from etl_assets.model import DELETED, VERSION, Delivery, ExtractColumn, Fetched
from etl_assets.staging.candidate import Content, write_candidate
from etl_assets.staging.casting import arrow_type, cast
from etl_assets.staging.extract import REJECTS, candidate_format, candidate_name
from etl_assets.staging.folding import fold
from etl_assets.staging.future import find_future
from etl_assets.staging.header import Layout, match_header
from etl_assets.staging.joined import find_joined
from etl_assets.staging.reading import Text, open_text, read_batches
from etl_assets.staging.rejects import Rejected, Rejects
from etl_assets.staging.repeats import distinct
from etl_assets.staging.sorting import SortedRuns
from etl_assets.staging.transforming import apply_transform
from etl_assets.staging.validating import RECORD, check_counts, find_foreign, find_invalid, rejected, without


def stage_rows(
    contract: PartitionedTable | WatermarkTable,
    delivery: Delivery,
    fetched: Fetched,
    shown: str,
    work: Path,
) -> Content:
    """Write candidate and rejected rows of a delimited file to ``work``.

    Raises a :class:`~etl_assets.errors.DeliveryRefused` that names file, line and column.
    """
    text = open_text(Path(fetched.path), delivery.name, shown, contract.format, work)
    layout = match_header(contract, text)
    rejects = Rejects(contract, text, delivery.scope)
    columns = [
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    ]
    columns += [ExtractColumn(name, "text", added=True) for name in layout.added]
    # Without a key all columns order the rows: by name, so that neither header nor contract decides.
    newer = (contract.updated,) if isinstance(contract, WatermarkTable) else contract.newest_by
    by = (*contract.key, *newer) or sorted(c.name for c in columns)
    runs = SortedRuns([*by, RECORD], work)
    filled: set[str] = set()
    source_rows = valid = 0
    for read, table in _tables(contract, delivery, text, layout, rejects):
        source_rows += read
        valid += table.num_rows
        filled |= {n for n in table.column_names if n != RECORD and table[n].null_count < table.num_rows}
        runs.add(table)
    rejects.refuse_beyond(source_rows)
    check_counts(contract, fetched, shown, source_rows)
    typed = [(c.name, arrow_type(c)) for c in contract.columns]
    schema = pa.schema([*typed, *((name, pa.string()) for name in layout.added)])
    if isinstance(contract, WatermarkTable):
        tables, span = _versions(contract, text, runs.batches())
        columns += [ExtractColumn(VERSION, "integer"), ExtractColumn(DELETED, "boolean")]
        schema = schema.append(pa.field(VERSION, pa.int64())).append(pa.field(DELETED, pa.bool_()))
    else:
        tables, span = distinct(contract, text, runs.batches()), []
    kept = (table.drop_columns(RECORD) for table in tables)
    path = work / candidate_name(candidate_format(fetched.size))
    rows, digest = write_candidate(path, schema, filled, kept)
    rejects.write(work / REJECTS)
    lower, upper = (min(span), max(span)) if span else (None, None)
    return Content(tuple(columns), source_rows, len(rejects.rows), rows, digest, lower, upper, duplicates=valid - rows)


def _tables(
    contract: PartitionedTable | WatermarkTable, delivery: Delivery, text: Text, layout: Layout, rejects: Rejects
) -> Iterator[tuple[int, pa.Table]]:
    """Valid rows of the table with their record numbers, and how many records were read for them."""
    whole: list[pa.Table] = []
    held = record = 0
    for batch in read_batches(text):
        table = _typed(layout, batch, record, rejects)
        record += batch.num_rows
        if contract.transform and not contract.transform.rowwise:
            whole.append(table)
            held += batch.num_rows
        else:
            yield batch.num_rows, _finish(contract, delivery, layout, table, text, rejects)
    if whole:
        yield held, _finish(contract, delivery, layout, pa.concat_tables(whole), text, rejects)


def _typed(layout: Layout, batch: pa.RecordBatch, first: int, rejects: Rejects) -> pa.Table:
    """Type the fields of a batch; rows with a text that is no value go to the rejects as they were delivered."""
    arrays: list[pa.Array] = []
    invalid = {row: [reason] for row, reason in find_joined(layout, batch, rejects.text).items()}
    joined = frozenset(invalid)
    for column, field in zip(layout.columns, layout.fields, strict=True):
        if field is None:
            arrays.append(pa.nulls(batch.num_rows, arrow_type(column)))
            continue
        casted = cast(column, batch.column(field))
        arrays.append(casted.values)
        for row, reason in casted.invalid.items():
            if row in joined:
                continue
            invalid.setdefault(row, []).append(f"{column.name}: {reason}")
    records = pa.array(np.arange(first + 1, first + batch.num_rows + 1))
    table = pa.table([*arrays, records], names=[*(c.name for c in layout.columns), RECORD])
    if invalid:
        header = rejects.text.header
        for row in sorted(invalid):
            values: dict[str, Any] = {name: batch.column(i)[row].as_py() for i, name in enumerate(header)}
            rejects.add([Rejected(first + row + 1, tuple(invalid[row]), values)])
    return without(table, invalid)


def _finish(
    contract: PartitionedTable | WatermarkTable,
    delivery: Delivery,
    layout: Layout,
    table: pa.Table,
    text: Text,
    rejects: Rejects,
) -> pa.Table:
    """Transform and validate typed rows; what is left are the candidate rows."""
    if contract.transform:
        table = apply_transform(contract, table, layout.added, text.shown)
    elif contract.inputs:
        table = table.drop_columns([c.name for c in contract.inputs])
    invalid = find_invalid(contract, table)
    if isinstance(contract, WatermarkTable):
        for row, reasons in find_future(contract, table, delivery.read_at).items():
            invalid.setdefault(row, []).extend(reasons)
    rejects.add(rejected(table, invalid))
    table = without(table, invalid)
    foreign = find_foreign(contract, delivery.scope, table) if isinstance(contract, PartitionedTable) else {}
    if foreign:
        assert isinstance(contract, PartitionedTable)
        rows = rejected(table, foreign)
        if contract.foreign_rows == "refuse":
            raise rejects.refuse_foreign(rows, ", ".join(contract.partition_by_columns))
        rejects.add(rows)
        table = without(table, foreign)
    return table


def _versions(
    contract: WatermarkTable, text: Text, batches: Iterator[pa.Table]
) -> tuple[Iterator[pa.Table], list[int]]:
    """The newest row of each key, with its version as a number; the list fills with the versions' bounds."""
    span: list[int] = []

    def numbered() -> Iterator[pa.Table]:
        for batch in batches:
            version = _number(batch[contract.updated])
            bounds = pc.min_max(version).as_py()
            span.extend((bounds["min"], bounds["max"]))
            alive = pa.array(np.zeros(batch.num_rows, dtype=bool))
            yield batch.append_column(VERSION, version).append_column(DELETED, alive)

    def lines_of(records: list[Any]) -> dict[int, int]:
        return text.lines_of([r for r in records if r is not None])  # a transform may make rows of no record

    return fold(contract, numbered(), text.shown, line=RECORD, lines_of=lines_of), span


def _number(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """A watermark as a number: microseconds or days since 1970, or the integer itself."""
    if pa.types.is_timestamp(values.type):
        return pc.cast(pc.cast(values, pa.timestamp("us", "UTC")), pa.int64())
    return pc.cast(pc.cast(values, pa.int32()), pa.int64()) if pa.types.is_date(values.type) else values
