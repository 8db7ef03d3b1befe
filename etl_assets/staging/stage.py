"""Delivery to extract, as one flow: read, type, validate, transform, sort, digest, freeze.

Memory is bounded by blocks and runs, not by the delivery, unless the contract has a transform that needs to see the
delivery as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from etl_assets.contract import Pipeline
from etl_assets.errors import DuplicateKey, ShrunkDelivery
from etl_assets.model import Delivery, Extract, ExtractColumn, Fetched, Manifest
from etl_assets.staging.casting import arrow_type, cast, plain_text
from etl_assets.staging.extract import CANDIDATE, INPUT, REJECTS, StagedFolder
from etl_assets.staging.header import Layout, match_header
from etl_assets.staging.reading import Text, open_text, read_batches
from etl_assets.staging.rejects import Rejected, Rejects
from etl_assets.staging.sorting import SortedRuns
from etl_assets.staging.transforming import apply_transform
from etl_assets.staging.validating import RECORD, find_foreign, find_invalid, rejected, without


def stage(
    contract: Pipeline, delivery: Delivery, fetched: Fetched, shown: str, staged: StagedFolder, work: Path
) -> Extract:
    """Freeze a delivery whose bytes lie at ``fetched.path`` (a file in ``work``); ``shown`` names it in messages.

    Raises a :class:`~etl_assets.errors.DeliveryRefused` that names file, line and column, or
    :class:`~etl_assets.errors.StagingFailed`. Nothing is left behind unless the whole extract is frozen.
    """
    scratch = work / "scratch"
    scratch.mkdir()
    files = work / "extract"
    files.mkdir()
    text = open_text(Path(fetched.path), delivery.name, shown, contract.format, scratch)
    layout = match_header(contract, text)
    rejects = Rejects(contract, text, delivery.scope)
    columns = [
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    ]
    columns += [ExtractColumn(name, "text", added=True) for name in layout.added]
    # Without a key all columns order the rows: by name, so that neither header nor contract decides.
    runs = SortedRuns([*(contract.key or sorted(c.name for c in columns)), RECORD], scratch)
    filled = dict.fromkeys((c.name for c in columns), False)
    source_rows = rows = 0
    for read, table in _tables(contract, delivery.scope, text, layout, rejects):
        source_rows += read
        rows += table.num_rows
        for name in filled:
            filled[name] = filled[name] or (name in table.column_names and table[name].null_count < table.num_rows)
        runs.add(table)
    rejects.refuse_beyond(source_rows)
    _check_counts(contract, fetched, text, source_rows)
    digest = _write_candidate(contract, text, runs, columns, filled, files / CANDIDATE)
    rejects.write(files / REJECTS)
    Path(fetched.path).rename(files / INPUT)
    manifest = Manifest(
        pipeline=delivery.pipeline,
        scope=delivery.scope,
        delivery=delivery.name,
        revision=delivery.revision,
        order=delivery.order,
        input_sha256=delivery.sha256,
        input_size=delivery.size,
        code=contract.code,
        transform_version=contract.transform_version,
        digest=digest,
        columns=tuple(columns),
        source_rows=source_rows,
        rejected_rows=len(rejects.rows),
        rows=rows,
        candidate_sha256=_file_sha256(files / CANDIDATE),
        rejects_sha256=_file_sha256(files / REJECTS),
    )
    return staged.freeze(files, manifest, staged.folder(delivery, contract.code, contract.transform_version))


def _tables(
    contract: Pipeline, scope: str, text: Text, layout: Layout, rejects: Rejects
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
            yield batch.num_rows, _finish(contract, scope, layout, table, text, rejects)
    if whole:
        yield held, _finish(contract, scope, layout, pa.concat_tables(whole), text, rejects)


def _typed(layout: Layout, batch: pa.RecordBatch, first: int, rejects: Rejects) -> pa.Table:
    """Type the fields of a batch; rows with a text that is no value go to the rejects as they were delivered."""
    arrays: list[pa.Array] = []
    invalid: dict[int, list[str]] = {}
    for column, field in zip(layout.columns, layout.fields, strict=True):
        if field is None:
            arrays.append(pa.nulls(batch.num_rows, arrow_type(column)))
            continue
        casted = cast(column, batch.column(field))
        arrays.append(casted.values)
        for row, reason in casted.invalid.items():
            invalid.setdefault(row, []).append(f"{column.name}: {reason}")
    records = pa.array(np.arange(first + 1, first + batch.num_rows + 1))
    table = pa.table([*arrays, records], names=[*(c.name for c in layout.columns), RECORD])
    if invalid:
        header = rejects.text.header
        for row in sorted(invalid):
            values: dict[str, Any] = {name: batch.column(i)[row].as_py() for i, name in enumerate(header)}
            rejects.add([Rejected(first + row + 1, tuple(invalid[row]), values)])
    return without(table, invalid)


def _finish(contract: Pipeline, scope: str, layout: Layout, table: pa.Table, text: Text, rejects: Rejects) -> pa.Table:
    """Transform and validate typed rows; what is left are the candidate rows."""
    if contract.transform:
        table = apply_transform(contract, table, layout.added, text.shown)
    elif contract.inputs:
        table = table.drop_columns([c.name for c in contract.inputs])
    invalid = find_invalid(contract, table)
    rejects.add(rejected(table, invalid))
    table = without(table, invalid)
    foreign = find_foreign(contract, scope, table)
    if foreign:
        rows = rejected(table, foreign)
        if contract.foreign_rows == "refuse":
            raise rejects.refuse_foreign(rows, ", ".join(contract.partition_by_columns))
        rejects.add(rows)
        table = without(table, foreign)
    return table


def _check_counts(contract: Pipeline, fetched: Fetched, text: Text, source_rows: int) -> None:
    declared = fetched.declared_rows
    if declared is not None:
        control = f"{text.shown}{contract.row_count_file}"
        if not (declared.isascii() and declared.isdigit()):
            raise ShrunkDelivery(
                f"{control}: {declared!r} is not a count of rows; deliver it again with the number alone"
            )
        if int(declared) != source_rows:
            raise ShrunkDelivery(
                f"{text.shown}: {source_rows:,} rows, but its control file {control} declares {int(declared):,}: not the "
                "whole delivery. Deliver it again"
            )
    if source_rows < contract.min_rows:
        raise ShrunkDelivery(
            f"{text.shown}: {source_rows:,} rows, but the contract expects at least {contract.min_rows:,}: "
            "is this the complete contents of the partition?"
        )


def _write_candidate(
    contract: Pipeline, text: Text, runs: SortedRuns, columns: list[ExtractColumn], filled: dict[str, bool], path: Path
) -> str:
    """Write the rows in order, refuse repeated keys on the way, and return the content digest.

    The digest is canonical: rows by key, columns by name, columns without any value left out; so a new optional
    column in the contract changes no digest, and other logic under an old label does.
    """
    by_name = {c.name: c for c in contract.columns}
    types = [arrow_type(by_name[c.name]) if c.name in by_name else pa.string() for c in columns]
    schema = pa.schema(list(zip((c.name for c in columns), types, strict=True)))
    canonical = sorted(name for name, has_values in filled.items() if has_values)
    hashed = _Hashed()
    form = pc_csv.WriteOptions(quoting_style="needed", batch_size=1 << 16)
    with pq.ParquetWriter(path, schema, compression="zstd") as candidate:
        text_schema = pa.schema([(n, plain_text(pa.array([], schema.field(n).type)).type) for n in canonical])
        writer = pc_csv.CSVWriter(hashed, text_schema, write_options=form)
        last: pa.Table | None = None
        count = 0
        for batch in runs.batches():
            if contract.key:
                _refuse_repeats(contract, text, last, batch)
                last = batch.slice(batch.num_rows - 1).select([*contract.key, RECORD])
            table = batch.drop_columns(RECORD)
            count += table.num_rows
            candidate.write_table(table.select(schema.names))
            if canonical:
                texts = [plain_text(table[name].combine_chunks()) for name in canonical]
                writer.write_table(pa.table(texts, schema=text_schema))
        writer.close()
        hashed.write(f"{count} rows".encode())  # which columns without any value do not tell
    return hashed.digest()


def _refuse_repeats(contract: Pipeline, text: Text, last: pa.Table | None, batch: pa.Table) -> None:
    """Compare each row's key with the one before it; rows come in order of key."""
    keys = batch.select([*contract.key, RECORD])
    if last is not None:
        keys = pa.concat_tables([last, keys])
    if keys.num_rows < 2:
        return
    above, below = keys.slice(0, keys.num_rows - 1), keys.slice(1)
    same = None
    for name in contract.key:
        equal = pc.equal(above[name].combine_chunks(), below[name].combine_chunks())
        same = equal if same is None else pc.and_(same, equal)
        if not pc.any(same).as_py():
            return
    repeats = pc.indices_nonzero(same).to_pylist()
    pairs = [(above[RECORD][i].as_py(), below[RECORD][i].as_py()) for i in repeats[:3]]
    lines = text.lines_of([r for pair in pairs for r in pair if r is not None])
    shown = []
    for position, (one, two) in zip(repeats, pairs, strict=False):
        key = ", ".join(f"{n}={below[n][position].as_py()!r}" for n in contract.key)
        shown.append(f"  lines {lines.get(one, 'unknown')} and {lines.get(two, 'unknown')}: {key}")
    raise DuplicateKey(
        f"{text.shown}: the key ({', '.join(contract.key)}) repeats within the delivery"
        f"{f', {len(repeats):,} times so far' if len(repeats) > 1 else ''}; which row counts cannot be told.\n"
        + "\n".join(shown)
    )


class _Hashed:
    """A file that keeps nothing but the digest of what is written to it."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self.closed = False

    def write(self, data: Any) -> int:
        self._sha256.update(data)
        return len(data)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        self.closed = True

    def digest(self) -> str:
        return self._sha256.hexdigest()


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
