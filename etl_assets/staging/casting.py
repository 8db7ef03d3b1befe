"""Text to values: one column at a time, exactly or not at all.

A text that is not a value of the column's type makes its row invalid; nothing is rounded, guessed or blanked. Where
Arrow's own cast is as strict as the contract it is used for the whole column; only when it fails are the texts
looked at one by one, to find which.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import Column
from etl_assets.contract.formats import read

INT64 = range(-(2**63), 2**63)
#: Python's calendar has the years 1 to 9999, and their text has one width; Arrow counts on in both directions.
FIRST_SECOND = pa.scalar(dt.datetime(1, 1, 1), pa.timestamp("s"))
LAST_SECOND = pa.scalar(dt.datetime(9999, 12, 31, 23, 59, 59), pa.timestamp("s"))
#: Beyond, Arrow leaves the rules of daylight saving off.
LAST_RULES = pa.scalar(dt.datetime(2036, 12, 31), pa.timestamp("s"))
#: Wide enough for any decimal128: the default context would round to 28 digits.
EXACT = Context(prec=80)
ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
ISO_TIMESTAMP = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[Tt ]\d{2}(?::\d{2}(?::\d{2}(?:[.,](?P<fraction>\d+))?)?|\d{2}(?:\d{2})?)?"
    r"(?:[Zz]|[+-]\d{2}(?::?\d{2})?)?)?",
    re.ASCII,
)


def arrow_type(column: Column) -> pa.DataType:
    """The type of a column's values between reading and the destination."""
    match column.type:
        case "integer":
            return pa.int64()
        case "real":
            return pa.float64()
        case "decimal":
            return pa.decimal128(column.precision, column.scale)
        case "boolean":
            return pa.bool_()
        case "date":
            return pa.date32()
        case "timestamp":
            return pa.timestamp(column.resolution, "UTC")
        case _:
            return pa.string()


def plain_text(values: pa.Array) -> pa.Array:
    """Dates, timestamps and decimals as exact text of one width or form; other values as they are.

    Timestamps read ``2013-10-26T09:00:00[.ffffff]Z``. Casting is many times faster than formatting them.
    """
    kind = values.type
    if pa.types.is_timestamp(kind):
        text = pc.cast(pc.cast(values, pa.timestamp(kind.unit)), pa.string())
        return pc.binary_join_element_wise(pc.replace_substring(text, " ", "T", max_replacements=1), "Z", "")
    if pa.types.is_decimal(kind) and kind.scale > 6:
        # Arrow turns to scientific notation below 1e-6: 0.00000001 would become 1E-8.
        encoded = pc.dictionary_encode(values)
        texts = [None if v is None else f"{v:f}" for v in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return pc.cast(values, pa.string())
    return values


@dataclass(frozen=True, slots=True)
class Casted:
    """Values of a column, and the rows (by position) whose text is none, with the reason."""

    values: pa.Array
    invalid: dict[int, str]


def cast(column: Column, texts: pa.Array) -> Casted:
    """Type the delivered texts of one column; missing tokens become null."""
    if column.missing:
        texts = pc.if_else(pc.is_in(texts, pa.array(column.missing, pa.string())), pa.scalar(None, pa.string()), texts)
    if column.type == "text":
        return Casted(texts, {})
    whole = _WHOLE.get(column.type)
    if whole is not None and not column.format:
        try:
            values = whole(column, texts)
            if values is not None:
                return Casted(values, {})
        except pa.ArrowInvalid:
            pass  # some text is no value: find out which
    return _one_by_one(column, texts)


# --------------------------------------------------------------------------- whole columns, where Arrow is strict


def _integers(column: Column, texts: pa.Array) -> pa.Array | None:
    # Arrow reads 0x1F as 31; a contract's integer is decimal.
    if any(pc.any(pc.match_substring(texts, x)).as_py() for x in "xX"):
        return None
    return pc.cast(texts, pa.int64())


def _reals(column: Column, texts: pa.Array) -> pa.Array | None:
    values = pc.add(pc.cast(texts, pa.float64()), 0.0)  # -0.0 is 0.0
    return values if pc.all(pc.is_finite(values)).as_py() in (True, None) else None


def _dates(column: Column, texts: pa.Array) -> pa.Array | None:
    values = pc.cast(texts, pa.date32())
    return values if in_calendar(values) else None


def in_calendar(values: pa.Array | pa.ChunkedArray, last: pa.Scalar = LAST_SECOND) -> bool:
    """Whether all dates or instants lie in the years of the calendar, and not after ``last``."""
    extremes = pc.min_max(values)
    first, final = (extremes[name].cast(pa.timestamp("s"), safe=False) for name in ("min", "max"))
    return not first.is_valid or (first.value >= FIRST_SECOND.value and final.value <= last.value)


def _timestamps(column: Column, texts: pa.Array) -> pa.Array | None:
    target = arrow_type(column)
    try:
        values = pc.cast(texts, target)
        return values if in_calendar(values) else None
    except pa.ArrowInvalid:
        if column.timezone is None:
            return None
    naive = pc.cast(texts, pa.timestamp(column.resolution))
    if not in_calendar(naive, LAST_RULES):
        return None
    values = pc.assume_timezone(naive, column.timezone, ambiguous="raise", nonexistent="raise").cast(target)
    return values if in_calendar(values) else None


_WHOLE: dict[str, Callable[[Column, pa.Array], pa.Array | None]] = {
    "integer": _integers,
    "real": _reals,
    "date": _dates,
    "timestamp": _timestamps,
}


# --------------------------------------------------------------------------- one text at a time


def _one_by_one(column: Column, texts: pa.Array) -> Casted:
    """Type each distinct text once, and name the rows of those that are no value."""
    parse = _PARSE[column.type]
    encoded = pc.dictionary_encode(texts)
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for code, text in enumerate(encoded.dictionary.to_pylist()):
        try:
            values.append(parse(column, text))
        except (ValueError, InvalidOperation, OverflowError) as error:
            values.append(None)
            reasons[code] = f"{_shown(text)} is not {_wanted(column)}" + (f" ({error})" if str(error) else "")
    typed = pa.array(values, arrow_type(column)).take(encoded.indices)
    invalid: dict[int, str] = {}
    if reasons:
        bad = pc.indices_nonzero(pc.fill_null(pc.is_in(encoded.indices, pa.array(list(reasons), pa.int32())), False))
        codes = encoded.indices.take(bad).to_pylist()
        invalid = {row: reasons[code] for row, code in zip(bad.to_pylist(), codes, strict=True)}
    return Casted(typed, invalid)


def _plain(reason: str = "") -> ValueError:
    return ValueError(reason)


def _integer(column: Column, text: str) -> int:
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    if not (digits.isascii() and digits.isdigit()):
        raise _plain()
    digits = digits.lstrip("0") or "0"
    if len(digits) > 19 or (number := int(sign + digits)) not in INT64:
        raise _plain("it needs more than 64 bits: declare the column decimal or text")
    return number


def _real(column: Column, text: str) -> float:
    if not text.isascii() or "_" in text or text != text.strip():
        raise _plain()
    try:
        number = float(text)
    except ValueError:
        raise _plain() from None
    if number - number != 0:
        raise _plain("not finite")
    return number + 0.0  # -0.0 is 0.0


def _decimal(column: Column, text: str) -> Decimal:
    if not text.isascii() or "_" in text or text != text.strip():
        raise _plain()
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _plain() from None
    if not number.is_finite():
        raise _plain("not finite")
    if number.copy_abs() >= Decimal(10) ** (column.precision - column.scale):
        raise _plain("too many digits")
    exact = number.quantize(Decimal(1).scaleb(-column.scale), context=EXACT)
    if exact != number:
        raise _plain("it would have to be rounded")
    return EXACT.plus(exact)  # -0.00 is 0.00


def _boolean(column: Column, text: str) -> bool:
    folded = text.lower()
    if folded in {t.lower() for t in column.true}:
        return True
    if folded in {t.lower() for t in column.false}:
        return False
    raise _plain()


def _date(column: Column, text: str) -> dt.date:
    if column.format:
        moment = read(column.format, text)
        if moment.time() != dt.time(0):
            raise _plain("a date has no time of day")
        return moment.date()
    if not ISO_DATE.fullmatch(text):
        raise _plain()
    try:
        return dt.date.fromisoformat(text)
    except ValueError as error:
        raise _plain(str(error) if "day is out of range" in str(error) else "") from None


def _timestamp(column: Column, text: str) -> dt.datetime:
    digits = ""
    if column.format:
        moment = read(column.format, text, thousandths=column.resolution == "ms")
    else:
        # Python's ISO reader also takes week dates and more; whatever Arrow takes for a whole column is taken here too.
        form = ISO_TIMESTAMP.fullmatch(text)
        if not form:
            raise _plain()
        digits = form["fraction"] or ""
        try:
            moment = dt.datetime.fromisoformat(text.upper())
        except ValueError as error:
            raise _plain(str(error) if "range" in str(error) or "must be in" in str(error) else "") from None
    unit = {"s": 1_000_000, "ms": 1_000, "us": 1}[column.resolution]
    if moment.microsecond % unit or len(digits.rstrip("0")) > 6:
        raise _plain(f"finer than the column's resolution, {column.resolution}")
    if moment.tzinfo is None:
        moment = _localise(column, moment)
    return moment.astimezone(dt.UTC)


def _localise(column: Column, moment: dt.datetime) -> dt.datetime:
    if column.timezone is None:
        raise _plain("it states no offset: declare the column's timezone")
    zone = ZoneInfo(column.timezone)
    first, second = moment.replace(tzinfo=zone), moment.replace(tzinfo=zone, fold=1)
    if first.utcoffset() != second.utcoffset():
        exists = first.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None) == moment
        raise _plain(f"{'happens twice' if exists else 'does not exist'} in {column.timezone}: clocks change")
    return first


def _json(column: Column, text: str) -> str:
    def constant(name: str) -> None:
        raise ValueError(f"{name} is not JSON")

    try:
        document = json.loads(text, parse_constant=constant, parse_int=str, parse_float=str)
    except RecursionError:
        raise _plain("nested too deeply") from None
    except json.JSONDecodeError as error:
        raise _plain(str(error)) from None
    if "\\u0000" in text and _holds_nul(document):
        raise _plain("it holds a NUL character, after which databases cut a text")
    return text


def _holds_nul(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_nul, (*value, *value.values())))
    return any(map(_holds_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


_PARSE: dict[str, Callable[[Column, str], Any]] = {
    "integer": _integer,
    "real": _real,
    "decimal": _decimal,
    "boolean": _boolean,
    "date": _date,
    "timestamp": _timestamp,
    "json": _json,
}


def _wanted(column: Column) -> str:
    match column.type:
        case "integer":
            return "an integer"
        case "real":
            return "a number"
        case "decimal":
            return f"a decimal({column.precision},{column.scale})"
        case "date" | "timestamp" if column.format:
            return f"a {column.type} of the form {column.format}"
        case "date":
            return "a date (YYYY-MM-DD)"
        case "timestamp":
            return "a timestamp (ISO 8601)"
        case "json":
            return "JSON"
        case _:
            return f"a {column.type}"


def _shown(text: str | None) -> str:
    return repr(text) if text is None or len(text) <= 60 else f"{text[:57]!r}…"
