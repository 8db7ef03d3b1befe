"""Rejected rows: line, reasons, values, and the share that may be set aside."""

from __future__ import annotations

import pytest

from etl_assets.contract import date, integer, quarantine, text
from etl_assets.errors import InvalidRows
from etl_assets_tests.staging.bench import Bench, rejects, rows, table

CONTRACT = table(
    integer("id", maximum=100),
    date("day"),
    text("name", aliases=("Name",)),
    key=["id"],
    new_columns="add",
    invalid_rows=quarantine(0.75),
)


def test_each_rejected_row_is_kept_with_line_reasons_and_values(bench: Bench) -> None:
    extract = bench.freeze(
        CONTRACT,
        'day,id,Name,é\n2024-01-01,1,"a\nb",x\n\n2024-02-30,x,"c\nd",\n2024-01-01,101,e,"q""q"\n,7,,\n2024-13-01,8,f,\n',
    )
    assert rows(extract) == [
        (1, __import__("datetime").date(2024, 1, 1), "a\nb", "x"),
        (7, None, None, None),
    ]
    assert rejects(extract) == [
        {
            "line": 5,
            "reasons": [
                "id: 'x' is not an integer",
                "day: '2024-02-30' is not a date (YYYY-MM-DD) (day is out of range for month)",
            ],
            "row": {"day": "2024-02-30", "id": "x", "Name": "c\nd", "é": ""},
        },
        {
            "line": 7,
            "reasons": ["id is 101, more than 100"],
            "row": {"id": 101, "day": "2024-01-01", "name": "e", "é": 'q"q'},
        },
        {
            "line": 9,
            "reasons": ["day: '2024-13-01' is not a date (YYYY-MM-DD)"],
            "row": {"day": "2024-13-01", "id": "8", "Name": "f", "é": ""},
        },
    ]
    counts = extract.manifest
    assert (counts.source_rows, counts.rejected_rows, counts.rows) == (5, 3, 2)


@pytest.mark.parametrize("bad, allowed", [(1, True), (2, True), (3, False)])
def test_a_share_is_allowed_up_to_and_with_its_limit(bench: Bench, bad: int, allowed: bool) -> None:
    contract = table(integer("id"), invalid_rows=quarantine(0.02))
    content = "id\n" + "x\n" * bad + "1\n" * (100 - bad)
    if allowed:
        manifest = bench.freeze(contract, content).manifest
        assert (manifest.source_rows, manifest.rejected_rows, manifest.rows) == (100, bad, 100 - bad)
    else:
        with pytest.raises(InvalidRows) as caught:
            bench.freeze(contract, content)
        assert str(caught.value) == (
            "1.csv: 3 of 100 rows are invalid; at most 2.00% may be set aside.\n"
            "  line 2: id: 'x' is not an integer\n  line 3: id: 'x' is not an integer\n  line 4: id: 'x' is not an integer"
        )


def test_all_rows_may_be_invalid_where_the_share_is_one(bench: Bench) -> None:
    extract = bench.freeze(table(integer("id"), invalid_rows=quarantine(1.0)), "id\nx\ny\n")
    assert (rows(extract), [r["row"] for r in rejects(extract)]) == ([], [{"id": "x"}, {"id": "y"}])


def test_a_hopeless_delivery_is_refused_before_it_is_read_to_its_end(bench: Bench) -> None:
    content = "id\n" + "x\n" * 200_000
    with pytest.raises(InvalidRows, match=r"at least [\d,]+ of 200,00\d rows are invalid"):
        bench.freeze(table(integer("id"), invalid_rows=quarantine(0.1)), content)


def test_the_error_shows_three_rows_and_counts_the_rest(bench: Bench) -> None:
    with pytest.raises(InvalidRows, match=r"line 4: id: 'c' is not an integer\n  … and 2 more$"):
        bench.freeze(table(integer("id")), "id\na\nb\nc\nd\ne\n")


def test_a_delivery_without_rejects_has_an_empty_file_of_them(bench: Bench) -> None:
    assert rejects(bench.freeze(CONTRACT, "id,day,name\n1,2024-01-01,x\n")) == []
