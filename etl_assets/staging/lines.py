"""Lines of JSON objects, and their values to the digit: a number that a float would not keep is held as it is written."""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from etl_assets.errors import BadEvent, BadPositions, BrokenDelivery, Undecodable, ZeroBytes
from etl_assets.staging.casting import INT64

#: Whole numbers of no more digits than 64 bits can need.
WHOLE = re.compile(r"-?[0-9]{1,19}")
#: The one whole number that does not say how it is written (or the end of a text that looks like it).
_MINUS_ZERO = re.compile(rb"-0[,}\]\s]")


def read_lines(path: Path, shown: str, packed: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    """The object on each line that is not blank, with the line's number; of a gzip file, if it is ``packed``.

    Raises :class:`BadEvent`, :class:`Undecodable`, :class:`ZeroBytes` or :class:`BrokenDelivery`, naming the line.
    """
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


def whole_number(fields: dict[str, Any], name: str, place: str, least: int) -> int:
    """The whole number under a name, of 64 bits, written as a number or as text.

    Raises :class:`BadEvent`, or :class:`BadPositions` when it is less than ``least``.
    """
    value = fields.get(name)
    if type(value) is int and least <= value < INT64.stop:
        return value
    text = text_of(value, place) if isinstance(value, int | bytes) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not WHOLE.fullmatch(text) or int(text) not in INT64:
        raise BadEvent(f"{place}: {name!r} is {text!r}, not a whole number of 64 bits")
    if int(text) < least:
        raise BadPositions(f"{place}: {name!r} is {text}, less than {least}")
    return int(text)


def text_of(value: Any, place: str) -> str | None:
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
