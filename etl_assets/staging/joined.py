"""Records that tell of files which were joined: a header again, a byte order mark, or an end-of-file character inside."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.staging.reading import CTRL_Z, MARK, Text

if TYPE_CHECKING:
    from etl_assets.staging.header import Layout


def find_joined(layout: Layout, batch: pa.RecordBatch, text: Text) -> dict[int, str]:
    """Rows (by position) that are no records of the delivery, with the reason."""
    found: dict[int, str] = {}
    if text.marked:
        for name, values in zip(text.header, batch.columns, strict=True):
            for row in _rows(pc.starts_with(values, MARK)):
                found[row] = f"{name}: begins with a byte order mark (U+FEFF): were files joined?"
            for row in _rows(pc.or_(pc.starts_with(values, CTRL_Z), pc.ends_with(values, CTRL_Z))):
                found[row] = f"{name}: holds Ctrl-Z (0x1A), the end-of-file character of DOS: were files joined?"
    names = {name: name for name in text.header}
    for column, field in zip(layout.columns, layout.fields, strict=True):
        if field is not None:
            names |= dict.fromkeys((column.name, *column.aliases), text.header[field])
    known = pa.array([*names, *(MARK + name for name in names)] if text.marked else list(names), pa.string())
    # Nearly no record gets past the first look.
    likely = pc.is_in(batch.column(0), known)
    if not pc.any(likely).as_py():
        return found
    for row in _rows(pc.and_(likely, pc.is_in(batch.column(batch.num_columns - 1), known))):
        said = {names.get(values[row].as_py().removeprefix(MARK)) for values in batch.columns}
        if None not in said and len(said) == len(text.header):
            found[row] = "the names of the header again, and no row: were files joined?"
    return found


def _rows(mask: pa.Array) -> list[int]:
    return list(pc.indices_nonzero(mask).to_pylist())
