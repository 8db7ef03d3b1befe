"""Names of deliveries: which of two is the later one, where names do not tell, and how they are shown."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.naming import is_later, natural_order, shown

LATER = [
    ("sales.csv", "sales-2.csv"),
    ("sales.csv", "sales_2.csv"),
    ("sales.csv", "sales (1).csv"),
    ("sales.csv", "sales.1.csv"),
    ("sales.csv", "sales.csv.1"),
    ("sales.csv", "sales-corrected.csv"),
    ("sales.csv", "sales-a.csv"),
    ("sales.csv", "sales2.csv"),
    ("sales.csv", "salesv2.csv"),
    ("sales", "sales.v2"),
    ("sales.v2", "sales.v10"),
    ("sales (1).csv", "sales (1) (1).csv"),
    ("sales (1).csv", "sales (2).csv"),
    ("sales.csv.gz", "sales-2.csv"),
    ("sales.csv", "sales-2.csv.gz"),
    ("sales.csv", "SALES-2.CSV"),
    ("é.csv", "e\u0301-2.csv"),
    ("events.jsonl", "events-2.jsonl"),
    ("9.csv", "10.csv"),
    ("01.csv", "2.csv"),
    ("v9.csv", "v10.csv"),
    ("1.2.9.csv", "1.2.10.csv"),
    ("1.2.csv", "1.2.1.csv"),
    ("2024-1-5.csv", "2024-01-10.csv"),
    ("2024-01-05T0930.csv", "2024-01-05T1015.csv"),
    ("20240103.csv", "202401030900.csv"),
    ("2024-05-01-2030.csv", "2024-05-02-0100.csv"),
    ("31-12-2023.csv", "31-12-2024.csv"),
    ("a.csv", "b.csv"),
    ("1a.csv", "1b.csv"),
    ("1b.csv", "2a.csv"),
    ("sales-a.csv", "sales-b.csv"),
    (".csv", "-2.csv"),
    ("2024-01-01/9.csv", "2024-01-02/1.csv"),
    ("2024-01-01/x.csv", "2024-01-01-fix/a.csv"),
    ("9/a.csv", "10/a.csv"),
]
UNTOLD = [
    ("jan.csv", "feb.csv"),
    ("sales.csv", "other.csv"),
    ("sales-2.csv", "sales-final.csv"),
    ("sales-final.csv", "sales-corrected.csv"),
    ("sales-2.csv", "sales_3.csv"),
    ("sales-2.csv", "sales (1).csv"),
    ("sales.csv", "sales-old.csv"),
    ("sales.csv", "sales_backup_2.csv"),
    ("sales.csv", "salesold.csv"),
    ("1.csv", "1.csv.gz"),
    ("1.csv", "1.tsv"),
    ("1.csv", "01.csv"),
    ("sales.csv", "Sales.csv"),
    ("é.csv", "e\u0301.csv"),
    ("31-12-2023.csv", "01-01-2024.csv"),
    ("31.12.2023.csv", "1.2.2024.csv"),
    ("31122023.csv", "01012024.csv"),
    ("05jan2024.csv", "03feb2024.csv"),
    ("05-Jan-2024.csv", "03-Feb-2024.csv"),
    ("0130pm.csv", "1130am.csv"),
    ("20240103.csv", "202401020900.csv"),
    ("7f3a.csv", "8b2c.csv"),
    ("3f2504e0-4f89-11d3-9a0c-0305e82c3301.csv", "3f2504e1-4f89-11d3-9a0c-0305e82c3301.csv"),
    ("a/1.csv", "bb/2.csv"),
    ("x/jan.csv", "x/feb.csv"),
]


@pytest.mark.parametrize("older, newer", LATER)
def test_a_later_name_is_known_and_sorts_last(older: str, newer: str) -> None:
    one, two = natural_order(older), natural_order(newer)
    assert (is_later(two, one), is_later(one, two)) == (True, False)
    assert one < two


@pytest.mark.parametrize("one, other", UNTOLD)
def test_names_that_do_not_tell_are_not_guessed_at(one: str, other: str) -> None:
    assert is_later(natural_order(one), natural_order(other)) is None
    assert is_later(natural_order(other), natural_order(one)) is None


NAMES = st.text("ab1209-_. ()/éZ\x01\x02#@", max_size=10) | st.from_regex(
    r"(sales)?[-_. ]?(20[0-9]{6}|[0-9]{1,3}|[0-9]{1,2}-[0-9]{1,2}-20[0-9]{2})[a-c]?(\.csv)?(\.gz)?", fullmatch=True
)


@given(NAMES, NAMES)
def test_what_names_tell_is_what_their_orders_tell(one: str, other: str) -> None:
    mine, theirs = natural_order(one), natural_order(other)
    told = is_later(mine, theirs)
    assert is_later(theirs, mine) == (None if told is None else not told)
    if told is not None:
        assert told == (mine > theirs)


def test_hostile_names_are_compared_at_once() -> None:
    began = time.process_time()
    for text in ("1" * 255, "1-" * 127, "a1" * 127, "20240101" * 31, "-" * 255, "1.1am" * 51, "é" * 127, "ab-" * 85):
        is_later(natural_order(text + "1"), natural_order(text + "2"))
        is_later(natural_order(text), natural_order(text + "x"))
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "text, wanted",
    [
        ("2.csv", "2.csv"),
        ("Größe (1) #2@x.csv", "Größe (1) #2@x.csv"),
        ("a\nb", r"a\nb"),
        ("\x1b[2Jgone", r"\x1b[2Jgone"),
        ("\u202egnp", r"\u202egnp"),
        ("a\u2028b\x85\x7f\ud800", r"a\u2028b\x85\x7f\ud800"),
        ("a\u00a0b", r"a\xa0b"),
    ],
)
def test_a_name_is_shown_without_what_a_terminal_obeys(text: str, wanted: str) -> None:
    assert shown(text) == wanted
