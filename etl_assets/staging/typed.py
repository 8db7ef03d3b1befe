"""Events to a table of the contract's types."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from etl_assets.contract import ChangeLogTable, Column
from etl_assets.errors import BadEvent
from etl_assets.model import DELETED, POSITION, VERSION
from etl_assets.staging.casting import Casted, cast
from etl_assets.staging.events import Event, Names
from etl_assets.staging.lines import WHOLE, document, text_of
from etl_assets.staging.states import LINE
from etl_assets.staging.validating import find_invalid


def typed(contract: ChangeLogTable, names: Names, events: list[Event], shown: str) -> pa.Table:
    """The rows of events with their version, end, position and line. Raises :class:`BadEvent`, naming the line."""
    rows = [event.row for event in events]
    arrays = []
    for column in names.read:
        values = names.values(rows, column.name)
        if contract.events.envelope == "debezium":
            _refuse_unavailable(column, values, events, shown)
        casted = _cast(column, values, events, shown)
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
    """Type the values of one column: whole numbers and truth values as they are, all others by their text."""
    native = _NATIVE.get(column.type)
    if native is not None and not any(map(WHOLE.fullmatch, column.missing)):
        try:
            return Casted(pa.array(values, native), {})
        except (TypeError, ValueError, OverflowError):
            pass  # some value is of another kind, or too large: its text may be one, or tells why not
    try:
        return cast(column, _texts(column, values, events, shown))
    except UnicodeEncodeError as error:
        raise _not_text(column, values, events, shown) from error


_NATIVE = {"integer": pa.int64(), "boolean": pa.bool_()}
#: Columns whose values JSON spells in one kind of value, or two.
_KINDS: dict[str, set[type]] = {"text": {str}, "date": {str}, "timestamp": {str}, "boolean": {bool, str}}


def _texts(column: Column, values: list[Any], events: list[Event], shown: str) -> pa.Array:
    """The values as texts of the column. Raises :class:`BadEvent` for a kind of JSON value that it does not take."""
    if column.type == "json":
        values = [None if type(value) is str and value in column.missing else value for value in values]
        return pa.array(map(document, values, _places(column, events, shown)), pa.string())
    kinds = _KINDS.get(column.type)
    if kinds and not {*map(type, values)} <= kinds | {type(None)}:
        event, value = next(
            (e, v) for e, v in zip(events, values, strict=True) if v is not None and type(v) not in kinds
        )
        place = f"{shown}: line {event.line}: {column.name}"
        raise BadEvent(f"{place}: {_said(value, place)}, which a {column.type} column does not take")
    try:
        return pa.array(values, pa.string())
    except TypeError:  # there are others than texts
        return pa.array(map(text_of, values, _places(column, events, shown)), pa.string())


def _places(column: Column, events: list[Event], shown: str) -> Iterator[str]:
    return (f"{shown}: line {e.line}: {column.name}" for e in events)


def _said(value: Any, place: str) -> str:
    """A JSON value and its kind, in words."""
    text = text_of(value, place) or ""
    kind = {bool: "a truth value", dict: "an object", list: "a list"}.get(type(value), "a number")
    return f"{text if len(text) <= 60 else text[:57] + '…'} is {kind}"


#: What Debezium writes for a value that the source did not send, since the change left it as it was; the other is in Base64.
_UNAVAILABLE = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")


def _refuse_unavailable(column: Column, values: list[Any], events: list[Event], shown: str) -> None:
    """Raise :class:`BadEvent` where a row's value is a placeholder, which would replace the value that the row has."""
    for event, value in zip(events, values, strict=True):
        if type(value) in _HOLDING and not event.deleted and _holds_unavailable(value):
            raise BadEvent(
                f"{shown}: line {event.line}: {column.name}: Debezium's placeholder of a value that is not in the event "
                f"({_UNAVAILABLE[0]}). The row would lose its value: let the source send whole rows (in PostgreSQL, REPLICA "
                "IDENTITY FULL), and deliver again"
            )


_HOLDING = frozenset((str, dict, list))


def _holds_unavailable(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_holds_unavailable, (*value, *value.values())))
    if type(value) is list:
        return any(map(_holds_unavailable, value))
    return value in _UNAVAILABLE


def _not_text(column: Column, values: list[Any], events: list[Event], shown: str) -> BadEvent:
    """JSON can spell half of a surrogate pair, which is no character."""
    texts = (text_of(value, "") or "" for value in values)
    line = next(e.line for e, t in zip(events, texts, strict=True) if any(0xD800 <= ord(c) <= 0xDFFF for c in t))
    return BadEvent(f"{shown}: line {line}: {column.name}: a lone surrogate (\\ud800 to \\udfff) is no character")
