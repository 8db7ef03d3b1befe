"""Files that were joined, and files that are not what they are called: refused by the true cause, or set aside by line."""

from __future__ import annotations

import gzip
import itertools
import tracemalloc

import pytest

from etl_assets.contract import FileFormat, integer, quarantine, text
from etl_assets.errors import BadHeader, BrokenDelivery, InvalidRows, Undecodable
from etl_assets_tests.staging.bench import Bench, table

AB = table("a", "b")


@pytest.mark.parametrize(
    "content, words",
    [
        ("a,b\n1,x\na,b\n2,y\n", "line 3: the names of the header again"),
        ("a,b\n1,x\nb,a\n2,y\n", "line 3: the names of the header again"),
        ("b,a\n1,x\nb,a\n2,y\n", "line 3: the names of the header again"),
        ('a,b\n1,x\n"a","b"\n2,y\n', "line 3: the names of the header again"),
        ("\ufeffa,b\n1,x\n\ufeffa,b\n2,y\n", "line 3: the names of the header again"),
        ("a,b\n1,x\n\ufeff2,y\n", "line 3: a: begins with a byte order mark"),
        ("a,b\n1,x\n2,\ufeffy\n", "line 3: b: begins with a byte order mark"),
        ("a,b\n1,x\n\x1a2,y\n", "line 3: a: holds Ctrl-Z (0x1A)"),
        ("a,b\n1,x\n2,y\x1a\n3,z\n", "line 3: b: holds Ctrl-Z (0x1A)"),
    ],
    ids=itertools.count(),
)
def test_a_record_that_tells_of_joined_files_is_no_row(bench: Bench, content: str, words: str) -> None:
    with pytest.raises(InvalidRows) as caught:
        bench.freeze(AB, content)
    assert words in str(caught.value)
    wanted = bench.read(table("a", "b", invalid_rows=quarantine(0.5)), content)
    assert not any("\ufeff" in v or "\x1a" in v or v in ("a", "b") for row in wanted for v in row)


def test_a_header_again_is_seen_under_aliases_and_named_before_its_types(bench: Bench) -> None:
    contract = table(integer("id"), text("name", aliases=("title",)))
    for again in ("id,name", "id,title"):
        with pytest.raises(
            InvalidRows, match=r"line 3: the names of the header again, and no row: were files joined\?$"
        ):
            bench.freeze(contract, f"id,name\n1,x\n{again}\n2,y\n")


def test_a_record_with_some_names_of_the_header_is_a_row(bench: Bench) -> None:
    assert bench.read(AB, "a,b\na,a\na,x\nx,b\n") == [("a", "a"), ("a", "x"), ("x", "b")]
    assert bench.read(table("a", "b"), "a,b\n1,x\ufeffy\n2,x\x1ay\n", name="2.csv") == [
        ("1", "x\ufeffy"),
        ("2", "x\x1ay"),
    ]


@pytest.mark.parametrize("end", ["\n\x1a", "\x1a", "\n\x1a\r\n", "\r\n\x1a\n"])
def test_a_file_that_ends_in_ctrl_z_is_refused_by_that_name(bench: Bench, end: str) -> None:
    for contract, header in ((table("a"), "a\n1"), (AB, "a,b\n1,x")):
        with pytest.raises(BrokenDelivery, match="the file ends in Ctrl-Z"):
            bench.freeze(contract, header + end)


PLAIN = b"a,b\n1,x\n2,y\n"


@pytest.mark.parametrize(
    "name, content, error, words",
    [
        ("1.csv.gz", PLAIN, BrokenDelivery, "it is not compressed"),
        ("1.csv", gzip.compress(PLAIN), Undecodable, "the file is gzip. Deliver it under a name that ends in .gz"),
        ("1.csv.gz", gzip.compress(gzip.compress(PLAIN)), Undecodable, "it was compressed twice"),
        ("1.csv", b"PK\x03\x04" + bytes(60), BrokenDelivery, "is a zip archive"),
        ("1.csv", b"PK\x03\x04" + bytes(26) + b"[Content_Types].xml", BrokenDelivery, "is an Excel workbook (.xlsx)"),
        ("1.csv.gz", b"PK\x03\x04" + bytes(60), BrokenDelivery, "it is a zip archive"),
        ("1.csv", PLAIN.decode().encode("utf-16"), Undecodable, "the file is UTF-16"),
        ("1.csv", PLAIN.decode().encode("utf-16-le"), Undecodable, "the file is UTF-16 (utf-16-le)"),
        ("1.csv", PLAIN.decode().encode("utf-16-be"), Undecodable, "the file is UTF-16 (utf-16-be)"),
        ("1.csv", PLAIN.decode().encode("utf-32"), Undecodable, "the file is UTF-32"),
        ("1.csv", b"\n<!DOCTYPE html><html>", BrokenDelivery, "the file is an HTML page"),
        ("1.csv", b"sep=;\na;b\n1;x\n", BadHeader, "say skip_lines=1"),
        ("1.csv", b"sep=,\na,b\n1,x\n", BadHeader, "say skip_lines=1"),
        ("1.csv", b"1,x\n2,y\n", BadHeader, "Is the line of the header missing"),
        (
            "1.csv",
            b"a,b\n1,x\n2,y\nTotal: 2\n",
            BrokenDelivery,
            "line 4: 1 fields, but the header has 2. Is it a footer",
        ),
    ],
    ids=itertools.count(),
)
def test_a_file_that_is_not_what_it_is_called_is_refused_by_what_it_is(
    bench: Bench, name: str, content: bytes, error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        bench.freeze(AB, content, name=name)
    assert words in str(caught.value)
    assert "alias" not in str(caught.value)


def test_a_name_that_differs_in_unicode_form_only_is_the_contracts(bench: Bench) -> None:
    assert bench.read(table("code", "gr\u00f6\u00dfe"), "code,gro\u0308\u00dfe\n1,x\n") == [("1", "x")]
    with pytest.raises(BadHeader, match="twice"):
        bench.read(table("code", "gr\u00f6\u00dfe"), "code,gro\u0308\u00dfe,gr\u00f6\u00dfe\n1,x,y\n")


def test_a_file_that_unpacks_to_far_more_than_it_is_is_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from etl_assets.staging import opening

    monkeypatch.setattr(opening, "LIMITS", opening.Limits(unpacked=1 << 20, ratio=100))
    packed = gzip.compress(b"a,b\n" + b"1,x\n" * 2_000_000)
    with pytest.raises(BrokenDelivery, match="unpacks to more than 1,048,576 bytes"):
        bench.freeze(AB, packed, name="1.csv.gz")


def test_a_header_and_a_line_without_end_are_refused_and_not_held_in_memory(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from etl_assets.staging import opening, reading

    monkeypatch.setattr(reading, "LIMITS", opening.Limits(record=4 << 20, header=1 << 16))
    with pytest.raises(BadHeader, match="the header has more than 65,536 characters"):
        bench.freeze(AB, "a," * 100_000 + "b\n")
    with pytest.raises(BrokenDelivery, match="line 2: more than 4 MB"):
        bench.freeze(AB, "a,b\n" + "x" * (9 << 20))
    tracemalloc.start()
    assert len(bench.read(AB, f"a,b\n1,{'x' * (1 << 20)}\n")[0][1]) == 1 << 20
    tracemalloc.stop()
    assert bench.read(table("a", "b", format=FileFormat(skip_lines=1)), "sep=,\na,b\n1,x\n") == [("1", "x")]
