"""Lines of JSON objects, and their values to the digit: a number that a float would not keep is held as it is written."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from etl_assets.errors import BadEvent, BadPositions, BrokenDelivery, Undecodable, ZeroBytes
from etl_assets.staging.casting import INT64
from etl_assets.staging.opening import HEAD, LIMITS, check_kind, open_bytes

#: Whole numbers of no more digits than 64 bits can need.
WHOLE = re.compile(r"-?[0-9]{1,19}")
#: The one whole number that does not say how it is written (or the end of a text that looks like it).
_MINUS_ZERO = re.compile(rb"-0[,}\]\s]")


#: Bytes that are read at a time; a line may be longer.
BLOCK = 1 << 17


def read_lines(path: Path, shown: str, packed: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object on each line that is not blank, with the line's number; of a gzip file, if it is ``packed``.

    Raises :class:`BadEvent`, :class:`Undecodable`, :class:`ZeroBytes` or :class:`BrokenDelivery`, naming the line.
    """
    if path.stat().st_size == 0:
        raise ZeroBytes(f"{shown}: zero bytes: an interrupted transfer, not an empty interval. Deliver it again")
    repeats = _Repeats(shown)
    for first, block in _blocks(path, shown, packed):
        found = [
            (number, _object(line, shown, number))
            for number, line in enumerate(block.split(b"\n"), start=first)
            if line and not line.isspace()
        ]
        repeats.check(block, found, first)
        yield from found


def _blocks(path: Path, shown: str, packed: bool) -> Iterator[tuple[int, bytes]]:
    """Whole lines, many at a time, with the number of the first."""
    rest, number = b"", 1
    with open_bytes(path, shown, packed) as file:
        check_kind(file.peek(HEAD)[:HEAD], shown, "utf-8")
        if file.peek(3).startswith(codecs.BOM_UTF8):
            file.read(3)
        while data := file.read(max(BLOCK, len(rest))):
            data = rest + data
            end = data.rfind(b"\n") + 1
            block, rest = data[:end], data[end:]
            longest = max(map(len, block.split(b"\n"))) if len(block) > LIMITS.record else 0
            if max(longest, len(rest)) > LIMITS.record:
                lines = [*block.split(b"\n")[:-1], rest]
                number += next(i for i, line in enumerate(lines) if len(line) > LIMITS.record)
                raise BrokenDelivery(
                    f"{shown}: line {number} has more than {LIMITS.record:,} bytes, the limit of an event"
                )
            if block:
                yield number, block
                number += block.count(b"\n")
    if rest:
        yield number, rest


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


class _Repeats:
    """Finds objects with two members of one name, of which the fast decoder keeps the last.

    There is none in some lines if they have as many colons after quotes as their objects have members: each member has
    one, a text may have others, and of two members of a name one is lost. Only where the numbers differ, or where a
    blank before a colon may hide one, the lines are read again by a decoder that notices.
    """

    def __init__(self, shown: str) -> None:
        self._shown = shown
        #: Members whose value was an object so far.
        self._nested: set[str] = set()

    def check(self, block: bytes, found: list[tuple[int, dict[str, Any]]], first: int) -> None:
        """Raise :class:`BadEvent` for the first name that an object on these lines repeats."""
        if _named(block) == self._members([fields for _, fields in found]):
            return
        lines = block.split(b"\n")
        for number, fields in found:
            self._nested |= {name for name, value in fields.items() if type(value) is dict}
            try:
                differ = _named(lines[number - first]) == _members(fields)
            except RecursionError:
                differ = False
            if not differ:
                _decode_by_json(lines[number - first], self._shown, number)

    def _members(self, objects: list[dict[str, Any]]) -> int:
        """How many members these objects have, and those in them as far as they are known; never too many."""
        found = sum(map(len, objects))
        for name in self._nested:
            found += sum([len(value) for fields in objects if type(value := fields.get(name)) is dict])
        return found


def _named(text: bytes) -> int:
    """How many colons come after a quote; -1 where a blank comes before one, after the quote of a name perhaps."""
    data = np.frombuffer(text, np.uint8)
    before = data[np.flatnonzero(data[1:] == ord(":"))]
    return -1 if (before <= ord(" ")).any() else int(np.count_nonzero(before == ord('"')))


def _members(value: Any) -> int:
    """How many members the objects of a JSON value have, all in all."""
    if type(value) is dict:
        return len(value) + sum(map(_members, value.values()))
    return sum(map(_members, value)) if type(value) is list else 0


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Repeated(next(name for name in names if names.count(name) > 1))
    return found


class _Repeated(Exception):
    """An object has two members of this name."""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _decode_by_json(line: bytes, shown: str, number: int) -> Any:
    """A line that the fast decoder does not take, or not exactly: its values, or what is wrong with it."""
    place = f"{shown}: line {number}"
    try:
        text = line.decode("utf-8")
        return json.loads(
            text,
            parse_float=str.encode,
            parse_int=str.encode,
            parse_constant=_no_constant,
            object_pairs_hook=_object_of,
        )
    except UnicodeDecodeError as error:
        raise Undecodable(f"{place}: byte 0x{line[error.start]:02X} is not utf-8 ({error.reason})") from error
    except _Repeated as error:
        raise BadEvent(
            f"{place}: an object has two members named {str(error)!r}; which one counts cannot be told. Deliver each name once"
        ) from error
    except RecursionError as error:
        raise BadEvent(f"{place}: not JSON that can be read: nested too deeply") from error
    except ValueError as error:
        what = error if line.strip(b"\x1a\r\n\t ") else "it is Ctrl-Z, the end-of-file character of DOS"
        raise BadEvent(f"{place}: not JSON ({what}). Is the file cut off there?") from error


def whole_number(fields: dict[str, Any], name: str, place: str, least: int) -> int:
    """The whole number under a name, of 64 bits. A text that spells one is none.

    Raises :class:`BadEvent`, or :class:`BadPositions` when it is less than ``least``.
    """
    value = fields.get(name)
    if type(value) is int and least <= value < INT64.stop:
        return value
    text = text_of(value, place) if isinstance(value, int | bytes) and not isinstance(value, bool) else None
    if text is None or not WHOLE.fullmatch(text) or int(text) not in INT64:
        hint = " (a text; numbers have no quotes)" if isinstance(value, str) else ""
        raise BadEvent(f"{place}: {name!r} is {text or value!r}, not a whole number of 64 bits{hint}")
    if int(text) < least:
        raise BadPositions(f"{place}: {name!r} is {text}, less than {least}")
    return int(text)


def document(value: Any, place: str) -> str | None:
    """A JSON value as JSON text; no value for ``null``."""
    try:
        return None if value is None else _written(value)
    except RecursionError as error:
        raise BadEvent(f"{place}: nested too deeply") from error


def text_of(value: Any, place: str) -> str | None:
    """A JSON value as the text that it would be in a file."""
    return value if isinstance(value, str) else document(value, place)


def _written(value: Any) -> str:
    """A JSON value written again, its numbers to the digit."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(k, ensure_ascii=False)}: {_written(v)}' for k, v in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)
