"""Files that other projects test their readers with: the right rows, or the right line in the error."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import FileFormat, date, decimal, integer, quarantine, real, text, timestamp
from etl_assets.errors import BadHeader, DuplicateKey, InvalidRows, RaggedRow, ShrunkDelivery, Undecodable, ZeroBytes
from etl_assets_tests.staging.bench import Bench, records, rows, table

PEERS = Path(__file__).parent.parent / "data" / "peers"
SPECTRUM = sorted(p.stem for p in (PEERS / "csv-spectrum" / "csvs").iterdir())
FRICTIONLESS = PEERS / "frictionless"


@pytest.mark.parametrize("name", [n for n in SPECTRUM if n != "location_coordinates"])
def test_csv_spectrum_gives_the_rows_that_it_expects(bench: Bench, name: str) -> None:
    content = (PEERS / "csv-spectrum" / "csvs" / f"{name}.csv").read_bytes()
    expected: list[dict[str, str]] = json.loads((PEERS / "csv-spectrum" / "json" / f"{name}.json").read_text())
    if name.endswith("_crlf"):  # the repository's checkout has lost the CRs
        content = content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")
    found = records(bench.freeze(table(*expected[0]), content))
    assert sorted(found, key=repr) == sorted(expected, key=repr)


def test_csv_spectrum_quotes_within_a_field_are_text(bench: Bench) -> None:
    content = (PEERS / "csv-spectrum" / "csvs" / "location_coordinates.csv").read_text()
    columns = ("Contact Phone Number", "Location Coordinates", "Cities", "Counties")
    assert bench.read(table(*columns), content) == [
        ("2095257564", "37�36'37.8\"N 121�2'17.9\"W", "Modesto", "Stanislaus"),
    ]


ID_NAME = (integer("id"), text("name"))
ID_NAME_AGE = (*ID_NAME, integer("age"))
SEMICOLON = {"format": FileFormat(delimiter=";")}

RIGHT: list[tuple[str, Any, list[tuple[Any, ...]]]] = [
    ("blank-cells", table(*ID_NAME, key=["id"]), [(1, "Paul"), (2, "John"), (3, "George"), (4, "Ringo"), (5, None)]),
    ("blank-rows-no-fields", table(*ID_NAME_AGE, key=["id"]), [(1101, "John", 30), (1102, "Julie", 26)]),
    ("bom", table(*ID_NAME, key=["id"]), [(1, "english"), (2, "中国人")]),
    ("delimiter", table(*ID_NAME, key=["id"], **SEMICOLON), [(1, "english"), (2, "中国人")]),
    (
        "escaping",
        table("ID", " Test"),
        [("1", ' "Test line 1"'), ("2", ' "Test "" line 2"'), ("3", ' "Test \\" line 3"')],
    ),
    ("issue-1009-semicolon", table("fieldNameA", "fieldNameB", **SEMICOLON), [("0123", "c")]),
    ("latin1", table(*ID_NAME, key=["id"], format=FileFormat(encoding="latin-1")), [(1, "english"), (2, "©")]),
    ("leading-zeros", table("value"), [("00003",), ("002",), ("01",)]),
    ("leading-zeros", table(integer("value")), [(1,), (2,), (3,)]),
    (
        "table-infer-iso-8859-7",
        table(integer("id"), integer("age"), text("name"), key=["id"], format=FileFormat(encoding="iso-8859-7")),
        [(1, 39, "Λεωνιδας"), (2, 23, "Αλεξανδρος"), (3, 36, "Μυρων"), (4, 28, "Ευστοργιος")],
    ),
    (
        "table-infer-missing-values",
        table(integer("id", missing=("-",)), integer("age"), text("name")),
        [(1, 39, "Paul"), (2, 23, "Jimmy"), (3, 36, "Jane"), (4, 28, "Judy"), *[(None, 25, "Test")] * 3],
    ),
    ("table-unicode-headers", table(integer("id"), text("国人"), key=["id"]), [(1, "english"), (2, "中国人")]),
    ("without-rows", table(*ID_NAME), []),
]


@pytest.mark.parametrize("name, contract, wanted", RIGHT, ids=[r[0] for r in RIGHT])
def test_a_frictionless_sample_gives_its_rows(
    bench: Bench, name: str, contract: Any, wanted: list[tuple[Any, ...]]
) -> None:
    found = bench.read(contract, (FRICTIONLESS / f"{name}.csv").read_bytes())
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


WRONG: list[tuple[str, Any, type[Exception], str]] = [
    ("empty", table(*ID_NAME), ZeroBytes, "zero bytes"),
    ("blank-headers", table(*ID_NAME_AGE), BadHeader, "line 1: the header's column 2 is blank"),
    ("duplicate-column", table("A", "B", "C"), BadHeader, "line 1: the header names 'B' twice, as columns 2 and 3"),
    ("duplicate-headers", table(*ID_NAME_AGE), BadHeader, "line 1: the header names 'id' twice, as columns 1 and 3"),
    ("invalid", table(*ID_NAME), BadHeader, "line 1: the header's column 3 is blank"),
    ("defective-rows", table(*ID_NAME_AGE), RaggedRow, "line 2: 2 fields, but the header has 3"),
    ("structure-errors", table(*ID_NAME_AGE), RaggedRow, "line 5: 6 fields, but the header has 3"),
    ("schema-errors", table(*ID_NAME_AGE), RaggedRow, "line 5: 6 fields, but the header has 3"),
    ("blank-rows", table(*ID_NAME_AGE, key=["id"]), InvalidRows, "line 4: id is part of the key and has no value"),
    (
        "blank-rows-multiple",
        table(*ID_NAME_AGE, key=["id"]),
        InvalidRows,
        "11 of 13 rows are invalid.*\n  line 4: id is",
    ),
    ("delimiter", table(*ID_NAME), BadHeader, "lacks 'id', 'name'.*separated by ';' where the contract says ','"),
    ("latin1", table(*ID_NAME), Undecodable, "line 3: byte 0xA9 is not utf-8"),
    ("table-infer-iso-8859-7", table("id", "age", "name"), Undecodable, "line 2: byte 0xCB is not utf-8"),
    (
        "ascii-notvalid",
        table("A", "B", "C", format=FileFormat(encoding="ascii")),
        Undecodable,
        "line 2: byte 0xC2 is not ascii",
    ),
    ("issue-1109", table("int", "number", "string"), BadHeader, "lacks 'number', 'string'.*it has ' \"number\"'"),
    (
        "issue-1105-timezone",
        table(integer("id"), timestamp("timestamp"), key=["id"], **SEMICOLON, min_rows=3),
        ShrunkDelivery,
        "2 rows, but the contract expects at least 3",
    ),
    (
        "timezone",
        table(timestamp("datetime"), text(" time")),
        InvalidRows,
        "1 of 4 rows are invalid.*\n  line 2: datetime: '2020-01-01T15:00:00' .*declare the column's timezone",
    ),
]


@pytest.mark.parametrize("name, contract, error, message", WRONG, ids=[w[0] for w in WRONG])
def test_a_frictionless_sample_is_refused_with_its_line(
    bench: Bench, name: str, contract: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bench.read(contract, (FRICTIONLESS / f"{name}.csv").read_bytes())


def test_times_with_and_without_offset_are_one_instant_each(bench: Bench) -> None:
    contract = table(
        timestamp("datetime", timezone="UTC", resolution="s"), text("clock", aliases=(" time",)), key=["clock"]
    )
    extract = bench.freeze(contract, (FRICTIONLESS / "timezone.csv").read_bytes())
    assert {r[1]: str(r[0]) for r in rows(extract)} == {
        "15:00:00": "2020-01-01 15:00:00+00:00",
        "15:00:00Z": "2020-01-01 15:00:00+00:00",
        "15:00:00+03:00": "2020-01-01 12:00:00+00:00",
        "15:00:00-03:00": "2020-01-01 18:00:00+00:00",
    }


def test_long_quoted_files_are_read_whole(bench: Bench) -> None:
    for name, form in (("doublequote", FileFormat()), ("encoding-issue-274", FileFormat())):
        content = (FRICTIONLESS / f"{name}.csv").read_bytes()
        with (FRICTIONLESS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
            header, *expected = csv.reader(file, strict=True)
        assert expected
        found = bench.read(table(*header, format=form), content)
        assert sorted(found) == sorted(map(tuple, expected))


def test_a_key_that_a_sample_repeats_is_named_with_both_lines(bench: Bench) -> None:
    content = "id,name,age\n1101,John,30\n1102,Julie,26\n1101,John,30\n"
    with pytest.raises(DuplicateKey, match="lines 2 and 4: id=1101"):
        bench.read(table(*ID_NAME_AGE, key=["id"]), content)


def test_drift_of_a_column_is_quarantined_within_the_share(bench: Bench) -> None:
    columns = (integer("id"), real("x"), decimal("d", 5, 2), date("day"))
    contract = table(*columns, key=["id"], invalid_rows=quarantine(0.5))
    assert len(bench.read(contract, "id,x,d,day\n1,1.5,1.5,2024-01-01\n2,one,1.5,2024-01-01\n")) == 1
