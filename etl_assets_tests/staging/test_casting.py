"""Text to values: exactly or not at all, and the same whether a whole column or one text is looked at."""

from __future__ import annotations

import datetime as dt
import json as jsonlib
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.contract import Column, boolean, date, decimal, integer, json, real, text, timestamp
from etl_assets.staging.casting import cast

NY = "America/New_York"


def one(column: Column, value: str):
    """The value of a text by itself, or its reason."""
    casted = cast(column, pa.array([value], pa.string()))
    return casted.invalid[0] if casted.invalid else casted.values[0].as_py()


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    "column, given, wanted",
    [
        (text("c"), "007", "007"),
        (text("c"), " x ", " x "),
        (text("c"), "NA", "NA"),
        (text("c"), "", None),
        (text("c", missing=()), "", ""),
        (text("c", missing=("", "NA", "null")), "NA", None),
        (text("c", missing=("", "NA", "null")), "na", "na"),
        (integer("c"), "007", 7),
        (integer("c"), "-0", 0),
        (integer("c"), "+5", 5),
        (integer("c"), "0" * 5000 + "5", 5),
        (integer("c"), "9007199254740993", 9007199254740993),
        (integer("c"), "9223372036854775807", 2**63 - 1),
        (integer("c"), "-9223372036854775808", -(2**63)),
        (integer("c"), "", None),
        (integer("c", missing=("", "-")), "-", None),
        (real("c"), "1e3", 1000.0),
        (real("c"), ".5", 0.5),
        (real("c"), "0.1", 0.1),
        (real("c"), "1e-400", 0.0),
        (decimal("c", 5, 2), "1.5", Decimal("1.50")),
        (decimal("c", 5, 2), "1.500", Decimal("1.50")),
        (decimal("c", 5, 2), "1e2", Decimal("100.00")),
        (decimal("c", 5, 2), "-0.00", Decimal("0.00")),
        (decimal("c", 38, 0), "1" * 38, Decimal("1" * 38)),
        (decimal("c", 38, 10), "1234567890123456789012345678.5", Decimal("1234567890123456789012345678.5000000000")),
        (decimal("c", 38, 38), "0." + "1" * 38, Decimal("0." + "1" * 38)),
        (decimal("c", 20, 0), "12345678901234567890", Decimal(12345678901234567890)),
        (boolean("c"), "TRUE", True),
        (boolean("c"), "n", False),
        (boolean("c", true=("ja",), false=("nein",)), "Ja", True),
        (date("c"), "2024-02-29", dt.date(2024, 2, 29)),
        (date("c"), "0001-01-01", dt.date(1, 1, 1)),
        (date("c"), "9999-12-31", dt.date(9999, 12, 31)),
        (date("c", format="%d.%m.%Y"), "25.10.2013", dt.date(2013, 10, 25)),
        (timestamp("c"), "2024-01-01T10:00:00Z", utc(2024, 1, 1, 10)),
        (timestamp("c"), "2024-01-01T18:00:00+08:00", utc(2024, 1, 1, 10)),
        (timestamp("c"), "2024-01-01 18:00:00+0800", utc(2024, 1, 1, 10)),
        (timestamp("c"), "2024-01-01t10:00:00.5z", utc(2024, 1, 1, 10, 0, 0, 500_000)),
        (timestamp("c"), "2024-01-01T10:00:00.1234560Z", utc(2024, 1, 1, 10, 0, 0, 123_456)),
        (timestamp("c", timezone=NY), "2024-07-01T06:00:00", utc(2024, 7, 1, 10)),
        (timestamp("c", timezone=NY), "2024-07-01", utc(2024, 7, 1, 4)),
        (timestamp("c", timezone=NY), "2050-07-01T06:00:00", utc(2050, 7, 1, 10)),
        (timestamp("c", timezone=NY), "2050-01-01T06:00:00", utc(2050, 1, 1, 11)),
        (timestamp("c", timezone="Asia/Kolkata"), "2024-07-01T05:30:00", utc(2024, 7, 1)),
        (timestamp("c", resolution="s"), "2024-01-01T10:00:00.000Z", utc(2024, 1, 1, 10)),
        (
            timestamp("c", timezone="UTC", format="%d.%m.%Y %H:%M", resolution="s"),
            "25.10.2013 06:00",
            utc(2013, 10, 25, 6),
        ),
        (timestamp("c", format="%d.%m.%Y %H:%M %z"), "25.10.2013 06:00 +0100", utc(2013, 10, 25, 5)),
        (json("c"), '{"a": [1, null, "é"]}', '{"a": [1, null, "é"]}'),
        (json("c"), "9" * 5000, "9" * 5000),
        (json("c"), '"\\ud800"', '"\\ud800"'),
    ],
)
def test_a_text_is_read_as_the_value_it_spells(column: Column, given: str, wanted: object) -> None:
    assert one(column, given) == wanted


@pytest.mark.parametrize(
    "column, given, reason",
    [
        (integer("c"), "1.0", "'1.0' is not an integer"),
        (integer("c"), "1e3", "is not an integer"),
        (integer("c"), "0x1F", "is not an integer"),
        (integer("c"), "1_000", "is not an integer"),
        (integer("c"), " 1", "is not an integer"),
        (integer("c"), "٣", "is not an integer"),
        (integer("c"), "--1", "is not an integer"),
        (integer("c"), "-", "is not an integer"),
        (integer("c"), "NA", "'NA' is not an integer"),
        (integer("c"), "9223372036854775808", "needs more than 64 bits: declare the column decimal or text"),
        (integer("c"), "12345678901234567890", "needs more than 64 bits"),
        (integer("c"), "9" * 5000, "needs more than 64 bits"),
        (integer("c", missing=()), "", "'' is not an integer"),
        (real("c"), "nan", "not finite"),
        (real("c"), "-inf", "not finite"),
        (real("c"), "1e400", "not finite"),
        (real("c"), "1,5", "is not a number"),
        (real("c"), "1_0", "is not a number"),
        (real("c"), " 1", "is not a number"),
        (real("c"), "0x1p3", "is not a number"),
        (decimal("c", 5, 2), "1.005", "is not a decimal(5,2) (it would have to be rounded)"),
        (decimal("c", 5, 2), "1000", "too many digits"),
        (decimal("c", 5, 2), "1e999999999", "too many digits"),
        (decimal("c", 5, 2), "1e-999999999", "rounded"),
        (decimal("c", 38, 0), "1" * 39, "too many digits"),
        (decimal("c", 38, 10), "1." + "1" * 11, "rounded"),
        (decimal("c", 5, 2), "NaN", "not finite"),
        (decimal("c", 5, 2), "sNaN", "not finite"),
        (decimal("c", 5, 2), "1_0", "is not a decimal"),
        (boolean("c"), "maybe", "'maybe' is not a boolean"),
        (date("c"), "2024-02-30", "is not a date (YYYY-MM-DD) (day is out of range for month)"),
        (date("c"), "2023-02-29", "day is out of range"),
        (date("c"), "20240101", "is not a date"),
        (date("c"), "2024-1-1", "is not a date"),
        (date("c"), "2024-W01-1", "is not a date"),
        (date("c"), "2024-01-01T00:00:00", "is not a date"),
        (date("c"), "0000-01-01", "is not a date"),
        (date("c"), "\uff12\uff10\uff12\uff14-01-01", "is not a date"),
        (date("c", format="%d.%m.%Y"), "2013-10-25", "is not a date of the form %d.%m.%Y"),
        (timestamp("c"), "2024-01-01T10:00:00", "it states no offset: declare the column's timezone"),
        (timestamp("c"), "2024-01-01", "it states no offset"),
        (timestamp("c"), "2024-01-01T25:00:00Z", "is not a timestamp (ISO 8601)"),
        (timestamp("c"), "2024-01-01T10:00:00.1234567Z", "finer than the column's resolution, us"),
        (timestamp("c", resolution="ms"), "2024-01-01T10:00:00.1234Z", "finer than the column's resolution, ms"),
        (timestamp("c", resolution="s"), "2024-01-01T10:00:00,5Z", "finer than the column's resolution, s"),
        (timestamp("c"), "2024-01-01T10:00:00.Z", "is not a timestamp"),
        (timestamp("c"), "2024-W01-1T10:00:00Z", "is not a timestamp"),
        (timestamp("c"), "20240101T100000Z", "is not a timestamp"),
        (timestamp("c"), "1704103200", "is not a timestamp"),
        (timestamp("c"), "9999-12-31T23:59:59-05:00", "is not a timestamp"),
        (timestamp("c"), "0001-01-01T00:00:00+05:00", "is not a timestamp"),
        (timestamp("c", timezone=NY), "2013-11-03T01:30:00", f"happens twice in {NY}: clocks change"),
        (timestamp("c", timezone=NY), "2013-03-10T02:30:00", f"does not exist in {NY}: clocks change"),
        (json("c"), "{'a': 1}", "is not JSON"),
        (json("c"), "NaN", "is not JSON"),
        (json("c"), '{"a": Infinity}', "is not JSON"),
        (json("c"), "[" * 100_000, "nested too deeply"),
        (json("c"), "", None),
    ],
)
def test_what_spells_no_value_is_invalid_with_its_reason(column: Column, given: str, reason: str | None) -> None:
    found = one(column, given)
    assert found is None if reason is None else reason in str(found)


def test_each_invalid_text_of_a_column_is_named_by_its_row() -> None:
    casted = cast(integer("c", missing=("", "NA")), pa.array(["1", "x", "", "NA", "x", "3"]))
    assert casted.values.to_pylist() == [1, None, None, None, None, 3]
    assert casted.invalid == {1: "'x' is not an integer", 4: "'x' is not an integer"}


def test_a_column_without_missing_tokens_has_none() -> None:
    assert cast(text("c", missing=()), pa.array(["", "NA"])).values.to_pylist() == ["", "NA"]


#: A text that is no value of any type: beside it, each other one is looked at by itself.
BAD = "\x7f?"

ZONES = [None, "UTC", NY, "Asia/Kolkata", "Australia/Lord_Howe", "Europe/Amsterdam", "Pacific/Apia"]
DIGITS = st.text("0123456789", min_size=1, max_size=21)
NUMBERS = st.one_of(
    st.integers(-(2**65), 2**65).map(str),
    st.floats().map(repr),
    st.decimals(allow_nan=True).map(str),
    st.from_regex(r"[+-]?[0-9]{0,20}\.?[0-9]{0,12}([eE][+-]?[0-9]{1,3})?", fullmatch=True),
    st.from_regex(r"\s?[+-]?(0x)?[0-9a-fA-F_]{1,6}\s?", fullmatch=True),
    st.sampled_from(["nan", "inf", "-inf", "Infinity", "1_0", "\uff11", "", "-", "+", ".", "1d", "1f", "0x10", "1,0"]),
)
TIMES = st.one_of(
    st.datetimes().map(lambda m: m.isoformat()),
    st.dates().map(str),
    st.from_regex(
        r"(0000|0001|1[89]\d\d|20\d\d|9999)-(0\d|1[0-3])-[0-3]\d"
        r"([Tt ]\d\d(:?[0-5]\d(:?[0-6]\d([.,]\d{0,8})?)?)?)?( ?(Z|z|[+-][01]\d(:?[0-5]\d(:?\d\d)?)?))?",
        fullmatch=True,
    ),
    st.from_regex(r"\d{4}-?W?\d{1,2}-?\d{1,2}", fullmatch=True),
)
ANY = st.text(max_size=8)
COLUMNS = st.one_of(
    st.tuples(st.just(integer("c")), NUMBERS | ANY),
    st.tuples(st.just(real("c")), NUMBERS | ANY),
    st.tuples(st.sampled_from([decimal("c", 5, 2), decimal("c", 38, 10), decimal("c", 38, 0)]), NUMBERS | ANY),
    st.tuples(st.just(boolean("c")), st.sampled_from(["true", "YES", "0", "f", "tr"]) | ANY),
    st.tuples(st.just(date("c")), TIMES | ANY),
    st.tuples(
        st.builds(
            lambda zone, unit: timestamp("c", timezone=zone, resolution=unit),
            st.sampled_from(ZONES),
            st.sampled_from(["s", "ms", "us"]),
        ),
        TIMES | ANY,
    ),
    st.tuples(
        st.just(json("c")), st.recursive(st.none() | st.integers() | st.text(), st.lists).map(jsonlib.dumps) | ANY
    ),
)


@settings(max_examples=1_500, deadline=None)
@given(COLUMNS)
def test_a_text_is_judged_the_same_alone_and_beside_one_that_is_no_value(case: tuple[Column, str]) -> None:
    column, value = case
    alone, beside = cast(column, pa.array([value])), cast(column, pa.array([value, BAD]))
    assert 1 in beside.invalid
    assert alone.values.type == beside.values.type
    # Compared as stored, so that 0.0 and -0.0, or a year that Python cannot hold, would show.
    assert str(alone.values[0].cast(pa.string())) == str(beside.values[0].cast(pa.string()))
    assert alone.invalid.get(0) == beside.invalid.get(0)


@settings(max_examples=300, deadline=None)
@given(st.datetimes(dt.datetime(1850, 1, 1), dt.datetime(2100, 1, 1)), st.sampled_from([z for z in ZONES if z]))  # noqa: DTZ001 - hypothesis wants it naive
def test_a_local_time_is_the_instant_that_the_zone_says_or_is_refused_where_clocks_change(
    moment: dt.datetime, zone: str
) -> None:
    found = one(timestamp("c", timezone=zone), moment.isoformat())
    candidates = {moment.replace(tzinfo=ZoneInfo(zone), fold=fold).astimezone(dt.UTC) for fold in (0, 1)}
    real_ones = {c for c in candidates if c.astimezone(ZoneInfo(zone)).replace(tzinfo=None) == moment}
    if len(candidates) == 1:
        assert {found} == candidates
    else:
        assert ("happens twice" if real_ones else "does not exist") in found


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 38), st.data())
def test_a_decimal_keeps_every_digit_or_is_refused(precision: int, data: st.DataObject) -> None:
    scale = data.draw(st.integers(0, precision))
    digits = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    spelled = f"{Decimal(digits).scaleb(-scale, context=__import__('decimal').Context(prec=100)):f}"
    found = one(decimal("c", precision, scale), spelled)
    assert found == Decimal(spelled)
    assert format(found, "f") == (format(Decimal(spelled), "f") if digits else format(Decimal(0).scaleb(-scale), "f"))
