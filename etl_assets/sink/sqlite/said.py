"""What a log's events say on the way to the last state of a key, read again from the delivery's bytes.

Belongs here: the few states that publishing has to compare with the table although a newer one stands after them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import ChangeLogTable
from etl_assets.model import POSITION, VERSION, Extract
from etl_assets.sink.sqlite.stage_file import stored
from etl_assets.staging.extract import kept_bytes
from etl_assets.staging.logs import is_packed, read_events
from etl_assets.staging.positions import Interval


@dataclass(frozen=True, slots=True)
class Said:
    """The events of one batch of a log."""

    contract: ChangeLogTable
    extract: Extract

    def states(
        self, wanted: Mapping[tuple[Any, ...], int], key: tuple[str, ...], columns: tuple[str, ...]
    ) -> Iterator[tuple[Any, ...]]:
        """Yield, as SQLite stores them, the states that have the version ``wanted`` of their key.

        What comes after a newer version of its key is stale, and says nothing.
        """
        manifest = self.extract.manifest
        assert manifest.lower is not None
        assert manifest.upper is not None
        kinds = {c.name: c for c in manifest.columns}
        first = pa.array([values[0] for values in wanted])
        place, at = columns.index(VERSION), [columns.index(name) for name in key]
        passed: set[tuple[Any, ...]] = set()
        packed = is_packed(self.contract, manifest.delivery)
        with kept_bytes(self.extract) as path:
            for table in read_events(self.contract, path, manifest.delivery, packed, Interval()):
                position = table[POSITION]
                inside = pc.and_(pc.greater(position, manifest.lower), pc.less_equal(position, manifest.upper))
                rows = table.filter(inside).combine_chunks()
                leading = stored(kinds[key[0]], rows[key[0]].combine_chunks())
                rows = rows.filter(pc.is_in(pc.cast(leading, first.type), first))
                values = [stored(kinds[name], rows[name].combine_chunks()).to_pylist() for name in columns]
                for row in zip(*values, strict=True):
                    own = tuple(row[i] for i in at)
                    if own not in wanted or own in passed:
                        continue
                    if row[place] > wanted[own]:
                        passed.add(own)
                    elif row[place] == wanted[own]:
                        yield row
