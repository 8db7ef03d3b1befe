"""Change events to candidate rows: read a log's lines, type them, and fold them to the last state of each key.

Belongs here: what an event is, and the order of events. Does not belong here: what the table held before.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import ChangeLogTable
from etl_assets.errors import BadEvent, BadPositions, BrokenDelivery, Undecodable, ZeroBytes
from etl_assets.model import ExtractColumn, Fetched
from etl_assets.staging.candidate import Content, write_candidate
from etl_assets.staging.casting import arrow_type, cast
from etl_assets.staging.extract import CANDIDATE, REJECTS
from etl_assets.staging.folding import DELETED, POSITION, VERSION, fold
from etl_assets.staging.sorting import SortedRuns

#: The line of the file on which the event stands.
LINE = "__line"
CHUNK = 50_000


@dataclass(slots=True)
class Interval:
    """The positions read so far: ``(lower, upper]``."""

    lower: int | None = None
    upper: int = 0
    events: int = 0


@dataclass(frozen=True, slots=True)
class _Event:
    line: int
    position: int
    version: int
    deleted: bool
    row: dict[str, Any]


def stage_events(contract: ChangeLogTable, fetched: Fetched, shown: str, files: Path, scratch: Path) -> Content:
    """Write the last state of each key in a log's delivery to ``files``; nothing of a log is set aside."""
    interval = Interval()
    runs = SortedRuns([*contract.key, VERSION, POSITION], scratch)
    filled = {VERSION, DELETED, POSITION}
    for table in read_events(contract, Path(fetched.path), shown, interval):
        filled |= {c.name for c in contract.columns if table[c.name].null_count < table.num_rows}
        runs.add(table)
    columns = [
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    ]
    columns += [
        ExtractColumn(VERSION, "integer"),
        ExtractColumn(DELETED, "boolean"),
        ExtractColumn(POSITION, "integer"),
    ]
    own = [(VERSION, pa.int64()), (DELETED, pa.bool_()), (POSITION, pa.int64())]
    schema = pa.schema([*((c.name, arrow_type(c)) for c in contract.columns), *own])
    rows, digest = write_candidate(files / CANDIDATE, schema, filled, fold(contract, runs.batches(), shown, line=LINE))
    (files / REJECTS).touch()
    return Content(tuple(columns), interval.events, 0, rows, digest, interval.lower, interval.upper)


def read_events(contract: ChangeLogTable, path: Path, shown: str, interval: Interval) -> Iterator[pa.Table]:
    """Typed events in order of position, some thousands at a time; ``interval`` tells the positions at the end.

    Raises :class:`BadEvent`, :class:`BadPositions` or a broken delivery's error, naming the line.
    """
    chunk: list[_Event] = []
    for number, fields in _lines(path, shown):
        events = _parse(contract, fields, f"{shown}: line {number}", number)
        _advance(interval, events[0].position, f"{shown}: line {number}")
        chunk.extend(events)
        if len(chunk) >= CHUNK:
            yield _typed(contract, chunk, shown)
            chunk = []
    if interval.lower is None:
        raise ZeroBytes(
            f"{shown}: no events: an interrupted transfer, or an interval that says nothing. Deliver it again"
        )
    if chunk:
        yield _typed(contract, chunk, shown)


# --------------------------------------------------------------------------- lines


def _lines(path: Path, shown: str) -> Iterator[tuple[int, dict[str, Any]]]:
    if path.stat().st_size == 0:
        raise ZeroBytes(f"{shown}: zero bytes: an interrupted transfer, not an empty interval. Deliver it again")
    number = 0
    with gzip.open(path) if shown.endswith(".gz") else path.open("rb") as file:
        try:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, _object(line, f"{shown}: line {number}")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenDelivery(
                f"{shown}: not a whole gzip file after line {number} ({error}). Deliver it again"
            ) from error


def _object(line: bytes, place: str) -> dict[str, Any]:
    try:
        # Numbers are kept as they are written: a float would lose digits of a decimal.
        fields = json.loads(line.decode("utf-8"), parse_float=str, parse_int=str)
    except UnicodeDecodeError as error:
        raise Undecodable(f"{place}: byte 0x{line[error.start]:02X} is not utf-8 ({error.reason})") from error
    except (ValueError, RecursionError) as error:
        raise BadEvent(f"{place}: not JSON ({error}). Is the file cut off there?") from error
    if not isinstance(fields, dict):
        raise BadEvent(f"{place}: not a JSON object, but {type(fields).__name__}")
    return fields


def _advance(interval: Interval, position: int, place: str) -> None:
    if interval.lower is None:
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


def _parse(contract: ChangeLogTable, fields: dict[str, Any], place: str, line: int) -> list[_Event]:
    """The states that an event says: one, or two where it changes the key."""
    form = contract.events
    position = _number(fields, form.position, place, least=1)
    version = _number(fields, form.version, place, least=0) if form.version else position
    if form.envelope == "native":
        deleted = _choice(fields, {"upsert": False, "delete": True}, place)
        return [_Event(line, position, version, deleted, _row(fields, "row", place))]
    deleted = _choice(fields, {"c": False, "r": False, "u": False, "d": True}, place)
    if deleted:
        return [_Event(line, position, version, True, _row(fields, "before", place))]
    after = _row(fields, "after", place)
    events = [_Event(line, position, version, False, after)]
    before = fields.get("before")
    if isinstance(before, dict) and [before.get(k) for k in contract.key] != [after.get(k) for k in contract.key]:
        events.insert(0, _Event(line, position, version, True, before))
    return events


def _number(fields: dict[str, Any], name: str, place: str, least: int) -> int:
    text = fields.get(name)
    if not isinstance(text, str) or not text.lstrip("-").isdecimal() or not text.isascii():
        raise BadEvent(f"{place}: {name!r} is {text!r}, not a whole number")
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
    arrays = []
    for column in contract.columns:
        names = (column.name, *column.aliases)
        texts = [_text(next((e.row[n] for n in names if n in e.row), None)) for e in events]
        casted = cast(column, pa.array(texts, pa.string()))
        needed = column.name in contract.required_columns
        for i, reason in casted.invalid.items():
            raise BadEvent(f"{shown}: line {events[i].line}: {column.name}: {reason}")
        if needed and casted.values.null_count:
            for i in pc.indices_nonzero(pc.is_null(casted.values)).to_pylist():
                if column.name in contract.key or not events[i].deleted:
                    raise BadEvent(f"{shown}: line {events[i].line}: {column.name} is required and has no value")
        arrays.append(casted.values)
    own = (
        pa.array([e.version for e in events], pa.int64()),
        pa.array([e.deleted for e in events], pa.bool_()),
        pa.array([e.position for e in events], pa.int64()),
        pa.array([e.line for e in events], pa.int64()),
    )
    return pa.table([*arrays, *own], names=[*(c.name for c in contract.columns), VERSION, DELETED, POSITION, LINE])


def _text(value: Any) -> str | None:
    """A JSON value as the text that it would be in a file."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, ensure_ascii=False)
