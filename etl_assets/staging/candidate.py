"""Candidate rows on disk: Parquet in order of key, and the content digest of what is in it.

Belongs here: how rows are written and digested. Does not belong here: which rows those are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc_csv
import pyarrow.parquet as pq

from etl_assets.model import ExtractColumn, Part
from etl_assets.staging.casting import plain_text

BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Content:
    """What staging found in a delivery and wrote to the candidate file, or to one for each of its ``parts``.

    ``lower`` and ``upper`` bound the positions ``(lower, upper]`` of a change log's events, of which ``stale`` came after a
    newer version. ``duplicates`` rows gave way to a newer one of their key. ``events_sha256`` digests what the events of one
    batch say.
    """

    columns: tuple[ExtractColumn, ...]
    source_rows: int
    rejected_rows: int
    rows: int
    digest: str
    lower: int | None = None
    upper: int | None = None
    stale: int = 0
    parts: tuple[Part, ...] = ()
    duplicates: int = 0
    events_sha256: str | None = None


def write_candidate(
    path: Path, schema: pa.Schema, filled: Iterable[str], tables: Iterable[pa.Table]
) -> tuple[int, str]:
    """Write tables, which come in order of key, to ``path``; return the number of rows and the content digest.

    An Arrow stream or a Parquet file, by the name of ``path``.

    The digest is canonical: rows by key, columns by name, columns without any value (not ``filled``) left out; so a
    new optional column in the contract changes no digest, and other logic under an old label does.
    """
    canonical = sorted(filled)
    hashed = _Hashed()
    form = pc_csv.WriteOptions(quoting_style="needed", batch_size=1 << 16)
    count = 0
    with _writer(path, schema) as candidate:
        text_schema = pa.schema([(n, plain_text(pa.array([], schema.field(n).type)).type) for n in canonical])
        writer = pc_csv.CSVWriter(hashed, text_schema, write_options=form)
        for table in tables:
            count += table.num_rows
            candidate.write_table(table.select(schema.names))
            if canonical:
                texts = [plain_text(table[name].combine_chunks()) for name in canonical]
                writer.write_table(pa.table(texts, schema=text_schema))
        writer.close()
        hashed.write(f"{count} rows".encode())  # which columns without any value do not tell
    # What Arrow keeps for later would stand beside SQLite's pages for the rest of the run.
    pa.default_memory_pool().release_unused()
    return count, hashed.digest()


def _writer(path: Path, schema: pa.Schema) -> Any:
    if path.suffix == ".arrow":
        return pa.ipc.new_stream(path, schema)
    return pq.ParquetWriter(path, schema, compression="zstd", use_dictionary=False)


def candidate_schema(source: Path | bytes) -> pa.Schema:
    """Return the columns of candidate rows, which are a file or the bytes of one."""
    if isinstance(source, Path) and source.suffix == ".parquet":
        return pq.read_schema(source)
    with _opened_stream(source) as stream:
        return stream.schema


def candidate_batches(source: Path | bytes, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield candidate rows in their order, some of their columns."""
    if isinstance(source, Path) and source.suffix == ".parquet":
        # A row group at a time: reading on through all of them lets Arrow hold many at once.
        with pq.ParquetFile(source, pre_buffer=False) as file:
            for group in range(file.num_row_groups):
                yield from file.read_row_group(group, columns=list(columns)).to_batches(BATCH_ROWS)
        return
    with _opened_stream(source) as stream:
        for batch in stream:
            yield batch.select(list(columns))


def _opened_stream(source: Path | bytes) -> Any:
    return pa.ipc.open_stream(source if isinstance(source, bytes) else pa.OSFile(str(source)))


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
