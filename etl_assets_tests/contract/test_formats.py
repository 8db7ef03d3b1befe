"""Formats: a text is a value if the format writes it again to the character, wherever it is read; else it is none."""

from __future__ import annotations

import datetime as dt
import locale
import time
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from etl_assets.contract import Column, date, timestamp
from etl_assets.errors import ContractError
from etl_assets.staging.casting import cast

SECONDS = "%Y-%m-%d %H:%M:%S"


def one(column: Column, value: str) -> Any:
    """The value of a text, or its reason."""
    casted = cast(column, pa.array([value], pa.string()))
    return casted.invalid[0] if casted.invalid else casted.values[0].as_py()


@pytest.mark.parametrize(
    "form, words",
    [
        ("%m/%d/%Y %H:%M:%S %p", "say nothing beside %H"),
        ("%m/%d/%Y %H:%I %p", "say nothing beside %H"),
        ("%m/%d/%Y %I:%M", "%I without %p is half an hour"),
        ("%m/%d/%Y %M %p", "%p without %I none"),
        ("%Y-%m-%d %H:%M %Z", "%Z: the name of a zone says no offset"),
        ("%c", "%c: it depends on the machine's locale"),
        ("%x %H:%M", "%x: it depends"),
        ("%Y-%m-%d %X", "%X: it depends"),
        ("%d.%m.", "does not say the year"),
        ("%H:%M:%S", "does not say the year"),
        ("%C-%m-%d", "'C' is a bad directive"),
        ("%Y", "does not say the day"),
        ("%Y-%m", "does not say the day"),
        ("%Y %d", "does not say the day"),
        ("%Y %A", "does not say the day"),
        ("%G-W%V", "does not say the day"),
        ("%Y-W%V-%u", "does not say the day"),
        ("%Y %W %w", "%W: weeks are read as %G, %V and %u"),
        ("%Y-%m-%d %M", "%M says nothing without %H"),
        ("%Y-%m-%d %H %S", "%S says nothing without %M"),
        ("%Y-%m-%d %H:%M.%f", "%f says nothing without %S"),
        ("%Y-%m-%d %H:%M %z %:z", "say the same"),
        ("%Y-%m-%d %Y", "%Y stands in it twice"),
        ("%Y-%m-%d %:", "bad directive"),
        ("%%Y", "has no directive"),
    ],
)  # fmt: skip
def test_a_format_that_names_no_moment_is_refused_with_the_contract(form: str, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        timestamp("at", format=form, timezone="UTC")
    assert f"column 'at': format {form!r}: " in str(caught.value)
    assert words in str(caught.value)


def test_a_format_without_an_offset_needs_a_zone_and_that_of_a_date_has_none() -> None:
    with pytest.raises(ContractError, match="declare the column's timezone"):
        timestamp("at", format=SECONDS)
    with pytest.raises(ContractError, match="a date has no offset"):
        date("day", format="%Y-%m-%d%z")


@pytest.mark.parametrize(
    "form, given, wanted",
    [
        ("%m/%d/%Y %I:%M:%S %p", "07/02/2024 01:00:00 PM", "2024-07-02T13:00:00+00:00"),
        ("%m/%d/%Y %I:%M:%S %p", "07/02/2024 12:00:00 AM", "2024-07-02T00:00:00+00:00"),
        ("%m/%d/%Y %I:%M:%S %p", "07/02/2024 12:30:00 PM", "2024-07-02T12:30:00+00:00"),
        ("%d-%b-%y %H:%M", "02-Jul-24 06:00", "2024-07-02T06:00:00+00:00"),
        ("%d-%b-%y %H:%M", "02-Jul-69 06:00", "1969-07-02T06:00:00+00:00"),
        ("%d-%b-%y %H:%M", "02-Jul-68 06:00", "2068-07-02T06:00:00+00:00"),
        ("%A, %d %B %Y", "Tuesday, 02 July 2024", "2024-07-02T00:00:00+00:00"),
        ("%a %d %b %Y %H", "Tue 02 Jul 2024 23", "2024-07-02T23:00:00+00:00"),
        ("%Y%j", "2024366", "2024-12-31T00:00:00+00:00"),
        ("%G-W%V-%u", "2020-W53-7", "2021-01-03T00:00:00+00:00"),
        ("%G-W%V-%a", "2020-W53-Sun", "2021-01-03T00:00:00+00:00"),
        ("%G-W%V-%w", "2020-W53-0", "2021-01-03T00:00:00+00:00"),
        ("%Y-%m-%dT%H:%M:%S.%f", "2024-07-02T06:00:00.120000", "2024-07-02T06:00:00.120000+00:00"),
        ("%Y-%m-%d %H:%M UTC", "2024-07-02 06:00 UTC", "2024-07-02T06:00:00+00:00"),
        ("%Y-%m-%d %H:%M%%", "2024-07-02 06:00%", "2024-07-02T06:00:00+00:00"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00-0230", "2024-07-02T08:30:00+00:00"),
        ("%Y-%m-%d %H:%M%:z", "2024-07-02 06:00+05:45", "2024-07-02T00:15:00+00:00"),
        ("%Y-%m-%d", "0001-01-01", "0001-01-01T00:00:00+00:00"),
    ],
)
def test_a_text_of_the_format_is_the_moment_that_it_names(form: str, given: str, wanted: str) -> None:
    assert one(timestamp("at", format=form, timezone="UTC"), given).isoformat() == wanted


@pytest.mark.parametrize(
    "form, given, words",
    [
        (SECONDS, "2024-7-2 06:00:00", "is not a timestamp of the form"),
        (SECONDS, "2024-07-02  06:00:00", "is not a timestamp of the form"),
        (SECONDS, "2024-07-02\t06:00:00", "is not a timestamp of the form"),
        (SECONDS, " 2024-07-02 06:00:00", "is not a timestamp of the form"),
        (SECONDS, "2024-07-02 06:00:00\n", "is not a timestamp of the form"),
        (SECONDS, "2024-07-02 06:00:60", "second must be in 0..59"),
        (SECONDS, "2024-07-02 24:00:00", "hour must be in 0..23"),
        (SECONDS, "0000-07-02 06:00:00", "year 0 is out of range"),
        (SECONDS, "10000-07-02 06:00:00", "is not a timestamp of the form"),
        (SECONDS, "2023-02-29 06:00:00", "day is out of range"),
        (SECONDS, "\u0662\u0660\u0662\u0664-07-02 06:00:00", "is not a timestamp of the form"),
        ("%m/%d/%Y %I:%M %p", "07/02/2024 13:00 PM", "%I would be 01"),
        ("%m/%d/%Y %I:%M %p", "07/02/2024 00:00 AM", "%I would be 12"),
        ("%m/%d/%Y %I:%M %p", "07/02/2024 01:00 pm", "is not a timestamp of the form"),
        ("%d-%b-%y", "02-JUL-24", "is not a timestamp of the form"),
        ("%d-%b-%y", "02-Juli-24", "is not a timestamp of the form"),
        ("%a %Y-%m-%d", "Mon 2024-07-02", "%a would be Tue"),
        ("%Y-%m-%d %j", "2024-07-02 001", "%j would be 184"),
        ("%Y%j", "2023366", "%Y would be 2024"),
        ("%G-W%V-%u", "2021-W53-7", "Invalid week"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-07-02 06:00:00.5", "is not a timestamp of the form"),
        ("%Y-%m-%d %H:%M:%S.%f", "2024-07-02 06:00:00.123", "is not a timestamp of the form"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00Z", "is not a timestamp of the form"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00+05:45", "is not a timestamp of the form"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00-0000", "%z would be +0000"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00+0175", "at most 59 minutes"),
        ("%Y-%m-%d %H:%M%z", "2024-07-02 06:00+2400", "strictly between"),
    ],
)
def test_a_text_that_the_format_would_write_otherwise_is_no_value(form: str, given: str, words: str) -> None:
    assert words in one(timestamp("at", format=form, timezone="UTC"), given)


def test_the_zone_of_the_column_says_where_a_time_of_a_format_repeats_or_is_skipped() -> None:
    column = timestamp("at", format=SECONDS, timezone="Europe/Berlin")
    assert one(column, "2024-07-02 06:00:00").isoformat() == "2024-07-02T04:00:00+00:00"
    assert "happens twice in Europe/Berlin" in one(column, "2024-10-27 02:30:00")
    assert "does not exist in Europe/Berlin" in one(column, "2024-03-31 02:30:00")


def test_fractions_have_the_digits_of_the_resolution_and_no_finer_value() -> None:
    form = SECONDS + ".%f"
    thousandths, seconds = (timestamp("at", format=form, timezone="UTC", resolution=unit) for unit in ("ms", "s"))
    assert one(thousandths, "2024-07-02 06:00:00.120") == one(thousandths, "2024-07-02 06:00:00.120000")
    assert "finer than the column's resolution, ms" in one(thousandths, "2024-07-02 06:00:00.120001")
    assert "is not a timestamp" in one(thousandths, "2024-07-02 06:00:00.12")
    assert "finer than the column's resolution, s" in one(seconds, "2024-07-02 06:00:00.000001")
    assert one(seconds, "2024-07-02 06:00:00.000000") == dt.datetime(2024, 7, 2, 6, tzinfo=dt.UTC)


def test_a_date_of_a_format_with_a_time_is_one_at_midnight_only() -> None:
    column = date("day", format="%m/%d/%Y %I:%M:%S %p")
    assert one(column, "07/02/2024 12:00:00 AM") == dt.date(2024, 7, 2)
    assert "a date has no time of day" in one(column, "07/02/2024 01:00:00 AM")


def test_neither_the_zone_nor_the_locale_of_the_machine_says_what_a_text_means(monkeypatch: pytest.MonkeyPatch) -> None:
    column = timestamp("at", format="%d %B %Y %I:%M %p", timezone="UTC")
    texts = ["02 July 2024 01:00 PM", "02 juillet 2024 01:00 PM"]
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "America/New_York")
        time.tzset()
        installed = [name for name in ("fr_FR.UTF-8", "de_DE.UTF-8", "C.UTF-8") if _set(name)]
        found = [one(column, text) for text in texts]
        locale.setlocale(locale.LC_TIME, "C")
    time.tzset()
    assert installed
    assert found[0] == dt.datetime(2024, 7, 2, 13, tzinfo=dt.UTC)
    assert "is not a timestamp of the form" in found[1]


def _set(name: str) -> bool:
    try:
        locale.setlocale(locale.LC_TIME, name)
    except locale.Error:
        return False
    return True


DAYS = ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%y", "%d-%b-%Y", "%A %d %B %Y", "%Y%j", "%G-W%V-%u", "%a, %d %b %y"]
TIMES = ["", " %H:%M", "T%H%M%S", " %I:%M:%S %p", " %H:%M:%S.%f", " %I %p"]
OFFSETS = ["", " %z"]


@settings(max_examples=600, deadline=None)
@given(
    st.sampled_from(DAYS), st.sampled_from(TIMES), st.sampled_from(OFFSETS),
    st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2068, 12, 31)),  # noqa: DTZ001 - hypothesis wants it naive
    st.integers(-14 * 4, 14 * 4), st.data(),
)  # fmt: skip
def test_a_value_is_what_python_reads_and_writes_again_and_nothing_else(
    day: str, hours: str, offset: str, moment: dt.datetime, quarters: int, data: st.DataObject
) -> None:
    form = day + hours + offset
    text = moment.replace(tzinfo=dt.timezone(dt.timedelta(minutes=15 * quarters))).strftime(form)
    at = data.draw(st.integers(0, len(text)))
    changed = data.draw(st.sampled_from([text, text[:at] + text[at + 1 :], text[:at] + " " + text[at:]]) | st.builds(
        lambda c: text[:at] + c + text[at + 1 :], st.sampled_from("0123456789 APMapmJ+-:Z")))  # fmt: skip
    column = timestamp("at", format=form, timezone=None if offset else "UTC")
    try:
        read = dt.datetime.strptime(changed, form)  # noqa: DTZ007
        wanted = read.astimezone(dt.UTC) if read.tzinfo else read.replace(tzinfo=dt.UTC)
        assume(read.year >= 1000)  # Python leaves off the zeros that it reads
        again = read.strftime(form)
    except (ValueError, OverflowError):
        again, wanted = None, None
    found = one(column, changed)
    assert found == wanted if again == changed else isinstance(found, str)
