"""Events to a table of the contract's types."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from etl_assets.contract import ChangeLogTable, Column
from etl_assets.errors import BadEvent
from etl_assets.staging.casting import Casted, cast
from etl_assets.staging.events import Event, Names
from etl_assets.staging.folding import DELETED, POSITION, VERSION
from etl_assets.staging.lines import WHOLE, text_of
from etl_assets.staging.states import LINE
from etl_assets.staging.validating import find_invalid


def typed(contract: ChangeLogTable, names: Names, events: list[Event], shown: str) -> pa.Table:
    """The rows of events with their version, end, position and line. Raises :class:`BadEvent`, naming the line."""
    rows = [event.row for event in events]
    arrays = []
    for column in contract.columns:
        casted = _cast(column, names.values(rows, column.name), events, shown)
        for i, reason in casted.invalid.items():
            raise BadEvent(f"{shown}: line {events[i].line}: {column.name}: {reason}")
        arrays.append(casted.values)
    table = pa.table(arrays, names=[c.name for c in contract.columns])
    for i, reasons in sorted(find_invalid(contract, table).items()):
        # Of a row that ends, only the key counts.
        wrong = [r for r in reasons if not events[i].deleted or "part of the key" in r]
        if wrong:
            raise BadEvent(f"{shown}: line {events[i].line}: {'; '.join(wrong)}")
    own: tuple[tuple[str, list[Any], pa.DataType], ...] = (
        (VERSION, [e.version for e in events], pa.int64()),
        (DELETED, [e.deleted for e in events], pa.bool_()),
        (POSITION, [e.position for e in events], pa.int64()),
        (LINE, [e.line for e in events], pa.int64()),
    )
    for name, values, kind in own:
        table = table.append_column(name, pa.array(values, kind))
    return table


def _cast(column: Column, values: list[Any], events: list[Event], shown: str) -> Casted:
    """Type the values of one column: whole numbers as they are, all others by their text."""
    if column.type == "integer" and not any(map(WHOLE.fullmatch, column.missing)):
        try:
            return Casted(pa.array(values, pa.int64()), {})
        except (TypeError, ValueError, OverflowError):
            pass  # some value is no number of 64 bits: its text may be one, or tells why not
    try:
        return cast(column, _texts(column, values, events, shown))
    except UnicodeEncodeError as error:
        raise _not_text(column, values, events, shown) from error


def _texts(column: Column, values: list[Any], events: list[Event], shown: str) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except TypeError:  # there are others than texts
        places = (f"{shown}: line {e.line}: {column.name}" for e in events)
        return pa.array(map(text_of, values, places), pa.string())


def _not_text(column: Column, values: list[Any], events: list[Event], shown: str) -> BadEvent:
    """JSON can spell half of a surrogate pair, which is no character."""
    texts = (text_of(value, "") or "" for value in values)
    line = next(e.line for e, t in zip(events, texts, strict=True) if any(0xD800 <= ord(c) <= 0xDFFF for c in t))
    return BadEvent(f"{shown}: line {line}: {column.name}: a lone surrogate (\\ud800 to \\udfff) is no character")
