"""Change events to candidate rows: read a log's lines, type them, and fold them to the last state of each key.

Belongs here: what an event is, and the order of events. Does not belong here: what the table held before.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from etl_assets.contract import ChangeLogTable, Column
from etl_assets.errors import BadEvent, BadPositions, BrokenDelivery, ShrunkDelivery, Undecodable, ZeroBytes
from etl_assets.model import ExtractColumn, Fetched, Part
from etl_assets.staging.candidate import Content
from etl_assets.staging.casting import INT64, Casted, cast
from etl_assets.staging.extract import REJECTS
from etl_assets.staging.folding import DELETED, POSITION, VERSION
from etl_assets.staging.parts import LINE, Cutter, PartWriter
from etl_assets.staging.validating import check_counts, find_invalid

CHUNK = 20_000
#: Whole numbers of no more digits than 64 bits can need.
_WHOLE = re.compile(r"-?[0-9]{1,19}")
#: The one whole number that does not say how it is written (or the end of a text that looks like it).
_MINUS_ZERO = re.compile(rb"-0[,}\]\s]")
_NATIVE = {"upsert": False, "delete": True}
_DEBEZIUM = {"c": False, "r": False, "u": False, "d": True}


@dataclass(slots=True)
class Interval:
    """The positions read so far: ``(lower, upper]``.

    ``stated`` is where the delivery says that it ends, ``wanted`` how many events it says that it has.
    """

    lower: int | None = None
    upper: int = 0
    events: int = 0
    stated: int | None = None
    wanted: int | None = None

    @property
    def end(self) -> int:
        """Up to where the whole delivery goes."""
        return self.upper if self.stated is None else self.stated


# An event is in no cycle: collecting garbage need not look at the thousands that are held.
class _Event(msgspec.Struct, frozen=True, gc=False):
    line: int
    position: int
    version: int
    deleted: bool
    row: dict[str, Any]


def stage_events(
    contract: ChangeLogTable, fetched: Fetched, shown: str, files: Path, scratch: Path, cuts: Sequence[int] = ()
) -> Content:
    """Write the last state of each key in a log's delivery to ``files``; nothing of a log is set aside.

    A delivery of more than ``batch_events`` is cut into parts, each of them a batch with a file of its own. Where batches of it
    are committed, up to the positions ``cuts``, it is cut there.
    """
    interval = Interval()
    cutter = Cutter(contract.batch_events, cuts)
    writing = PartWriter(contract, 1, shown, scratch)
    parts: list[Part] = []
    for table in read_events(contract, Path(fetched.path), shown, interval):
        for piece, events, begins in cutter.pieces(table):
            if begins:
                lower = parts[-1].upper if parts else interval.lower
                assert lower is not None
                parts.append(writing.write(files, lower, writing.upper))
                writing = PartWriter(contract, len(parts) + 1, shown, scratch)
            writing.add(piece, events)
    lower = parts[-1].upper if parts else interval.lower
    assert lower is not None
    parts.append(writing.write(files, lower, interval.end))
    check_counts(contract, fetched, shown, interval.events)
    (files / REJECTS).touch()
    columns = [
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    ]
    columns += [
        ExtractColumn(VERSION, "integer"),
        ExtractColumn(DELETED, "boolean"),
        ExtractColumn(POSITION, "integer"),
    ]
    digests = [part.digest for part in parts]
    return Content(
        tuple(columns),
        source_rows=interval.events,
        rejected_rows=0,
        rows=sum(part.rows for part in parts),
        digest=digests[0] if len(parts) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest(),
        lower=interval.lower,
        upper=interval.end,
        stale=sum(part.stale for part in parts),
        parts=tuple(parts) if len(parts) > 1 else (),
    )


def read_events(contract: ChangeLogTable, path: Path, shown: str, interval: Interval) -> Iterator[pa.Table]:
    """Typed events in order of position, some thousands at a time; ``interval`` tells the positions at the end.

    Raises :class:`BadEvent`, :class:`BadPositions` or a broken delivery's error, naming the line.
    """
    chunk: list[_Event] = []
    names = _Names(contract)
    packed = contract.format.gzip or shown.endswith(".gz")
    stated = contract.events.bounds == "stated"
    for number, fields in _lines(path, shown, packed):
        if stated and interval.stated is None:
            _begin(interval, fields, f"{shown}: line {number}")
            continue
        events = _parse(contract, names, fields, f"{shown}: line {number}", number)
        _advance(interval, events[0].position, f"{shown}: line {number}")
        chunk.extend(events)
        if len(chunk) >= CHUNK:
            yield _typed(contract, chunk, shown)
            chunk = []
    if interval.lower is None:
        raise ZeroBytes(
            f"{shown}: no events: an interrupted transfer, or an interval that says nothing. Deliver it again"
        )
    if interval.wanted not in (None, interval.events):
        raise ShrunkDelivery(
            f"{shown}: {interval.events:,} events, and its first line says {interval.wanted:,}: an interrupted transfer, or "
            "events that were left out. Deliver it again"
        )
    if chunk:
        yield _typed(contract, chunk, shown)


# --------------------------------------------------------------------------- lines


def _lines(path: Path, shown: str, packed: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.stat().st_size == 0:
        raise ZeroBytes(f"{shown}: zero bytes: an interrupted transfer, not an empty interval. Deliver it again")
    number = 0
    with gzip.open(path) if packed else path.open("rb", buffering=1 << 20) as file:
        try:
            for number, line in enumerate(file, start=1):
                text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if text and not text.isspace():
                    yield number, _object(text, shown, number)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenDelivery(
                f"{shown}: not a whole gzip file after line {number} ({error}). Deliver it again"
            ) from error


#: A number of a JSON document as it is written there, which a float would not keep, is bytes: no JSON value is. Whole
#: numbers are exact as Python's.
_decode = msgspec.json.Decoder(float_hook=str.encode).decode


def _object(line: bytes, shown: str, number: int) -> dict[str, Any]:
    try:
        fields = _decode_by_json(line, shown, number) if _MINUS_ZERO.search(line) else _decode(line)
    except (msgspec.DecodeError, RecursionError):
        fields = _decode_by_json(line, shown, number)
    if not isinstance(fields, dict):
        raise BadEvent(f"{shown}: line {number}: not a JSON object, but {type(fields).__name__}")
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _decode_by_json(line: bytes, shown: str, number: int) -> Any:
    """A line that the fast decoder does not take, or not exactly: its values, or what is wrong with it."""
    place = f"{shown}: line {number}"
    try:
        text = line.decode("utf-8")
        return json.loads(text, parse_float=str.encode, parse_int=str.encode, parse_constant=_no_constant)
    except UnicodeDecodeError as error:
        raise Undecodable(f"{place}: byte 0x{line[error.start]:02X} is not utf-8 ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"{place}: not JSON ({error}). Is the file cut off there?") from error


def _begin(interval: Interval, fields: dict[str, Any], place: str) -> None:
    """The first line of a delivery that states its bounds."""
    if not {"lower", "upper"} <= fields.keys() <= {"lower", "upper", "events"}:
        raise BadEvent(
            f"{place}: the delivery does not say which positions it covers (bounds='stated'): its first line has to be "
            '{"lower": L, "upper": U}, for all events after L up to U, with or without "events": N'
        )
    lower, upper = (_number(fields, name, place, least=0) for name in ("lower", "upper"))
    if lower >= upper:
        raise BadPositions(f"{place}: the delivery covers no position: it begins after {lower} and ends at {upper}")
    interval.lower, interval.upper, interval.stated = lower, lower, upper
    interval.wanted = _number(fields, "events", place, least=0) if "events" in fields else None


def _advance(interval: Interval, position: int, place: str) -> None:
    if interval.stated is not None:
        if position > interval.stated:
            raise BadPositions(f"{place}: position {position} is beyond {interval.stated}, where the delivery ends")
        if position <= interval.upper:
            what = "positions grow from event to event" if interval.events else "where the delivery begins"
            raise BadPositions(f"{place}: position {position} after {interval.upper}: {what}")
    elif interval.lower is None:
        interval.lower = position - 1
    elif position <= interval.upper:
        raise BadPositions(
            f"{place}: position {position} after {interval.upper}: positions grow by one from event to event"
        )
    elif position > interval.upper + 1:
        raise BadPositions(f"{place}: position {position} after {interval.upper}: {interval.upper + 1} is missing")
    interval.upper = position
    interval.events += 1


# --------------------------------------------------------------------------- events


class _Names:
    """Under which names events carry the columns, and which of them a row may lack."""

    def __init__(self, contract: ChangeLogTable) -> None:
        self.of = {c.name: (c.name, *c.aliases) for c in contract.columns}
        self.columns = frozenset(self.of)
        self.key = contract.key
        self.wanted = [c.name for c in contract.columns if not c.optional]
        self.known = {name for names in self.of.values() for name in names}
        self.ignore = contract.new_columns == "ignore"

    def value(self, row: dict[str, Any], column: str) -> Any:
        return next((row[name] for name in self.of[column] if name in row), None)

    def values(self, rows: list[dict[str, Any]], column: str) -> list[Any]:
        """Of all these rows: the value, or None."""
        return [row.get(column) for row in rows] if len(self.of[column]) == 1 else [self.value(r, column) for r in rows]

    def has(self, row: dict[str, Any], column: str) -> bool:
        return any(name in row for name in self.of[column])

    def check(self, row: dict[str, Any], place: str) -> dict[str, Any]:
        """A row that becomes the state of its key has every column, and no other."""
        if row.keys() == self.columns:
            return row
        missing = [c for c in self.wanted if not self.has(row, c)]
        if missing:
            raise BadEvent(
                f"{place}: the row lacks {', '.join(map(repr, missing))}: an event holds the whole row. If a column may be "
                "absent, make it optional"
            )
        unknown = [] if self.ignore else [name for name in row if name not in self.known]
        if unknown:
            raise BadEvent(
                f"{place}: the row has {', '.join(map(repr, unknown))}, which the contract does not know "
                "(new_columns='refuse'). Add the column to the contract, or let new ones be ignored"
            )
        twice = [c for c, names in self.of.items() if sum(name in row for name in names) > 1]
        if twice:
            raise BadEvent(f"{place}: the row has the column {twice[0]!r} under more than one of its names")
        return row


def _parse(contract: ChangeLogTable, names: _Names, fields: dict[str, Any], place: str, line: int) -> list[_Event]:
    """The states that an event says: one, or two where it changes the key."""
    form = contract.events
    position = _number(fields, form.position, place, least=1)
    version = _number(fields, form.version, place, least=0) if form.version else position
    if form.envelope == "native":
        deleted = _choice(fields, _NATIVE, place)
        row = _row(fields, "row", place)
        return [_Event(line, position, version, deleted, row if deleted else names.check(row, place))]
    deleted = _choice(fields, _DEBEZIUM, place)
    if deleted:
        return [_Event(line, position, version, True, _row(fields, "before", place))]
    after = names.check(_row(fields, "after", place), place)
    events = [_Event(line, position, version, False, after)]
    before = fields.get("before")
    if isinstance(before, dict) and _changes_key(contract, names, before, after):
        events.insert(0, _Event(line, position, version, True, before))
    return events


def _changes_key(contract: ChangeLogTable, names: _Names, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether an update ends one key and starts another. A ``before`` without the key says nothing of it."""
    if not all(names.has(before, key) for key in contract.key):
        return False
    for name in contract.key:
        one, two = _text(names.value(before, name), name), _text(names.value(after, name), name)
        if one == two:
            continue
        column = contract.column(name)
        assert column is not None
        if column.type == "text":
            return True
        try:  # "01" and "1" are two texts and one integer
            values = cast(column, pa.array([one, two], pa.string())).values
        except UnicodeEncodeError:
            return True
        if values[0] != values[1] or not values[0].is_valid:
            return True
    return False


def _number(fields: dict[str, Any], name: str, place: str, least: int) -> int:
    value = fields.get(name)
    if type(value) is int and least <= value < INT64.stop:
        return value
    text = _text(value, place) if isinstance(value, int | bytes) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not _WHOLE.fullmatch(text) or int(text) not in INT64:
        raise BadEvent(f"{place}: {name!r} is {text!r}, not a whole number of 64 bits")
    if int(text) < least:
        raise BadPositions(f"{place}: {name!r} is {text}, less than {least}")
    return int(text)


def _choice(fields: dict[str, Any], choices: dict[str, bool], place: str) -> bool:
    op = fields.get("op")
    if not isinstance(op, str) or op not in choices:
        raise BadEvent(f"{place}: 'op' is {op!r}; wanted one of {', '.join(choices)}")
    return choices[op]


def _row(fields: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    row = fields.get(name)
    if not isinstance(row, dict):
        raise BadEvent(f"{place}: the event has no {name!r}, which holds the row")
    return row


def _typed(contract: ChangeLogTable, events: list[_Event], shown: str) -> pa.Table:
    names = _Names(contract)
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


def _cast(column: Column, values: list[Any], events: list[_Event], shown: str) -> Casted:
    """Type the values of one column: whole numbers as they are, all others by their text."""
    if column.type == "integer" and not any(map(_WHOLE.fullmatch, column.missing)):
        try:
            return Casted(pa.array(values, pa.int64()), {})
        except (TypeError, ValueError, OverflowError):
            pass  # some value is no number of 64 bits: its text may be one, or tells why not
    try:
        return cast(column, _texts(column, values, events, shown))
    except UnicodeEncodeError as error:
        raise _not_text(column, values, events, shown) from error


def _texts(column: Column, values: list[Any], events: list[_Event], shown: str) -> pa.Array:
    try:
        return pa.array(values, pa.string())
    except TypeError:  # there are others than texts
        places = (f"{shown}: line {e.line}: {column.name}" for e in events)
        return pa.array(map(_text, values, places), pa.string())


def _not_text(column: Column, values: list[Any], events: list[_Event], shown: str) -> BadEvent:
    """JSON can spell half of a surrogate pair, which is no character."""
    texts = (_text(value, "") or "" for value in values)
    line = next(e.line for e, t in zip(events, texts, strict=True) if any(0xD800 <= ord(c) <= 0xDFFF for c in t))
    return BadEvent(f"{shown}: line {line}: {column.name}: a lone surrogate (\\ud800 to \\udfff) is no character")


def _text(value: Any, place: str) -> str | None:
    """A JSON value as the text that it would be in a file."""
    if value is None or isinstance(value, str):
        return value
    try:
        return _written(value)
    except RecursionError as error:
        raise BadEvent(f"{place}: nested too deeply") from error


def _written(value: Any) -> str:
    """A JSON value written again, its numbers to the digit."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k, ensure_ascii=False)}: {_written(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
