"""Bytes to records: what is cut where, what is refused, and on which line."""

from __future__ import annotations

import csv
import gzip
import io
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.contract import FileFormat
from etl_assets.errors import (
    BadHeader,
    BadQuoting,
    BrokenDelivery,
    DeliveryRefused,
    RaggedRow,
    Undecodable,
    ZeroBytes,
)
from etl_assets.staging import reading
from etl_assets.staging.reading import open_text, read_batches
from etl_assets_tests.staging.bench import Bench, table

AB = table("a", "b")
ENDS = pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])


def cut(path: Path, content: bytes, form: FileFormat | None = None, name: str = "1.csv") -> list[list[str]]:
    """Header and records of a file, as reading cuts them."""
    file = path / "file"
    file.write_bytes(content)
    text = open_text(file, name, name, form or FileFormat(), path)
    found = [list(text.header)]
    for batch in read_batches(text):
        found.extend([list(r) for r in zip(*(c.to_pylist() for c in batch.columns), strict=True)])
    return found


@ENDS
@pytest.mark.parametrize("last", [True, False], ids=["closed", "open"])
def test_any_line_end_cuts_the_same_rows_with_or_without_one_at_the_end(bench: Bench, end: str, last: bool) -> None:
    content = end.join(["a,b", "1,x", "2,y"]) + (end if last else "")
    assert bench.read(AB, content) == [("1", "x"), ("2", "y")]


@ENDS
@pytest.mark.parametrize("tail", ["", "{}", "{}{}", "{}{}{}"])
def test_a_header_with_or_without_line_end_and_blank_lines_after_it_has_no_rows(
    bench: Bench, end: str, tail: str
) -> None:
    extract = bench.freeze(AB, "a,b" + tail.replace("{}", end))
    assert (extract.manifest.rows, extract.manifest.source_rows) == (0, 0)


@ENDS
def test_blank_lines_anywhere_are_skipped_and_counted_as_lines(bench: Bench, end: str) -> None:
    assert bench.read(AB, end.join(["", "", "a,b", "", "1,x", "", "", "2,y", "", ""])) == [("1", "x"), ("2", "y")]
    with pytest.raises(RaggedRow, match=r"line 9: 3 fields, but the header has 2"):
        bench.read(AB, end.join(["", "", "a,b", "", "1,x", "", "", "2,y", "3,z,?", ""]))


def test_quoted_fields_hold_line_ends_delimiters_and_doubled_quotes(bench: Bench) -> None:
    assert bench.read(AB, 'a,b\n"x\ny","1,""2"""\n"\r\n",\n') == [("\r\n", ""), ("x\ny", '1,"2"')]


def test_lines_are_counted_through_quoted_line_ends(bench: Bench) -> None:
    with pytest.raises(RaggedRow, match=r"line 6: 1 fields"):
        bench.read(AB, 'a,b\n"x\n\ny",1\n\n2\n')


def test_a_header_may_hold_quoted_line_ends(bench: Bench) -> None:
    assert bench.read(table("a\nb", "c"), '"a\nb",c\n1,2\n') == [("1", "2")]
    with pytest.raises(RaggedRow, match=r"line 4: 1 fields"):
        bench.read(table("a\nb", "c"), '"a\nb",c\n1,2\n3\n')


@pytest.mark.parametrize(
    "content, error, message",
    [
        (b"", ZeroBytes, "zero bytes"),
        (b"\n\r\n  \t \n", ZeroBytes, "nothing but blank space"),
        (b"\xef\xbb\xbf", ZeroBytes, "nothing but blank space"),
        (b"a,b\n1,x\n2\n", RaggedRow, r"line 3: 1 fields, but the header has 2"),
        (b"a,b\n1,x\n2,y,z\n", RaggedRow, r"line 3: 3 fields, but the header has 2.*unquoted that holds the delimiter"),
        (b"a,b\n1,x,\n2,y,\n", RaggedRow, r"line 2: 3 fields"),
        (b"a,b,\n1,x,\n", BadHeader, r"line 1: the header's column 3 is blank. A trailing delimiter adds one"),
        (b"a,,b\n1,2,x\n", BadHeader, r"line 1: the header's column 2 is blank"),
        (b"a, ,b\n1,2,x\n", BadHeader, r"line 1: the header's column 2 is blank"),
        (b"a,b,a\n1,x,2\n", BadHeader, r"line 1: the header names 'a' twice, as columns 1 and 3"),
        (b"\n\na,b,a\n1,x,2\n", BadHeader, r"line 3: the header names 'a' twice"),
        (b"a,b\n1,\0\n", BrokenDelivery, r"line 2: a NUL byte"),
        (b"a,b\r1,x\r2,\0\r", BrokenDelivery, r"line 3: a NUL byte"),
        (b'a,b\n1,x\n2,"y\n', BadQuoting, r"starts on line 3: a quote is opened and never closed"),
        (b'a,b\n1,"x\n2,"y"\n', BadQuoting, r"starts on line 2"),
        (b'a,b\n1,"x"y\n', BadQuoting, r"starts on line 2"),
        (b'a,b\n1,"x" \n', BadQuoting, r"starts on line 2"),
        (b'a,"b\n1,x\n', BadQuoting, r"never closed"),
        (b"a;b\n1;x\n", BadHeader, r"lacks 'a', 'b'.*separated by ';' where the contract says ','"),
        (b"a\tb\n1\tx\n", BadHeader, r"separated by '\\t'"),
        (b"a,b\n1;x\n", RaggedRow, r"line 2: 1 fields.*separated by ',', as the contract says"),
        (b"a,b\n1,\xe9\n", Undecodable, r"line 2: byte 0xE9 is not utf-8"),
        (b"a,b\r1,x\r2,\xe9\r", Undecodable, r"line 3: byte 0xE9 is not utf-8"),
        (b"a,b\n1,\xc3", Undecodable, r"line 2: byte 0xC3 is not utf-8"),
        ("a,b\n1,x\n".encode("utf-16"), Undecodable, r"line 1: byte 0xFF is not utf-8"),
        (b"x,y\n1,2\n", BadHeader, r"lacks 'a', 'b'.*it has 'x', 'y' instead"),
        (b"1,2\n3,4\n", BadHeader, r"lacks 'a', 'b'"),
    ],
)
def test_what_is_broken_is_refused_with_its_line(
    bench: Bench, content: bytes, error: type[DeliveryRefused], message: str
) -> None:
    with pytest.raises(error, match=message) as caught:
        bench.freeze(AB, content)
    assert type(caught.value) is error
    assert list(bench.staged.root.glob("files/*/*")) == []


def test_quotes_inside_of_an_unquoted_field_are_text(bench: Bench) -> None:
    assert bench.read(AB, 'a,b\n5" pipe,it"s\nx, "y"\n') == [('5" pipe', 'it"s'), ("x", ' "y"')]


def test_a_quote_in_skipped_lines_hides_no_unterminated_one_below(bench: Bench) -> None:
    contract = table("a", "b", format=FileFormat(skip_lines=1))
    with pytest.raises(BadQuoting, match="starts on line 4: a quote is opened and never closed"):
        bench.read(contract, 'note,"\na,b\n1,x\n1,"\n')


def test_without_a_quote_character_quotes_are_text(bench: Bench) -> None:
    contract = table("a", "b", format=FileFormat(quote=None, delimiter="\t"))
    assert bench.read(contract, 'a\tb\n"1\tx"\n"\t""\n') == [('"', '""'), ('"1', 'x"')]


@pytest.mark.parametrize("delimiter", [";", "\t", "|", "^", " ", "~", "'"])
def test_any_declared_delimiter_cuts(bench: Bench, delimiter: str) -> None:
    contract = table("a", "b", format=FileFormat(delimiter=delimiter))
    content = f'a{delimiter}b\n1{delimiter}x,y\n"{delimiter}"{delimiter}\n'
    assert bench.read(contract, content) == sorted([("1", "x,y"), (delimiter, "")])


def test_another_quote_character_is_followed(bench: Bench) -> None:
    contract = table("a", "b", format=FileFormat(quote="'"))
    assert bench.read(contract, "a,b\n'1,2','it''s \"x\"'\n") == [("1,2", 'it\'s "x"')]


def test_skipped_lines_may_hold_anything_and_count_as_lines(bench: Bench) -> None:
    contract = table("a", "b", format=FileFormat(skip_lines=3))
    assert bench.read(contract, 'Report, of "today\n\n# x\na,b\n1,x\n') == [("1", "x")]
    with pytest.raises(RaggedRow, match="line 6: 1 fields"):
        bench.read(contract, "Report\n\n# x\na,b\n1,x\n2\n")
    with pytest.raises(BadHeader, match="ends within the 3 lines that are skipped"):
        bench.read(contract, "Report\nx\ny\n")


def test_a_byte_order_mark_comes_before_skipped_lines(bench: Bench) -> None:
    contract = table("a", "b", format=FileFormat(skip_lines=1))
    assert bench.read(contract, "\ufeffReport\na,b\n1,x\n".encode()) == [("1", "x")]


ENCODED = "a,b\né,€\nß,„x“\n"


@pytest.mark.parametrize(
    "encoding, content",
    [
        ("utf-8", ENCODED.encode("utf-8-sig")),
        ("utf-8-sig", ENCODED.encode("utf-8-sig")),
        ("utf-8-sig", ENCODED.encode()),
        ("utf-16", ENCODED.encode("utf-16")),
        ("utf-16-le", ENCODED.encode("utf-16-le")),
        ("utf-16-be", ENCODED.encode("utf-16-be")),
        ("utf-32", ENCODED.encode("utf-32")),
        ("cp1252", ENCODED.encode("cp1252")),
        ("windows-1252", ENCODED.encode("cp1252")),
    ],
)
@pytest.mark.parametrize("chunk", [1, 3, 1 << 20])
def test_a_declared_encoding_gives_the_same_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, encoding: str, content: bytes, chunk: int
) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    contract = table("a", "b", format=FileFormat(encoding=encoding))
    assert bench.read(contract, content) == [("ß", "„x“"), ("é", "€")]


@pytest.mark.parametrize("chunk", [1, 2, 5, 7, 1 << 20])
@pytest.mark.parametrize(
    "encoding, content, line",
    [
        ("utf-8", "a,b\nü,1\r\nü,2\r".encode() + b"\xff,3\n", 4),
        ("utf-8", b"\xef\xbb\xbfa,b\n\n\n\xff", 4),
        ("cp1252", b"a,b\r\n1,2\r\n\x81,3\r\n", 3),
        ("utf-16", "a,b\n\u0a0a,\u010a\n1,".encode("utf-16") + b"\x00\xdc\x0a\x00", 3),
        ("shift_jis", "a,b\n日,本\n".encode("shift_jis") + b"\xff,1\n", 3),
        ("ascii", b"a,b\n1,2\n\xc3\xa9,1\n", 3),
        ("utf-16", b"\xff\xfea\x00,\x00b\x00\n\x00c", 2),
    ],
)
def test_an_undecodable_byte_is_named_with_its_line(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, encoding: str, content: bytes, line: int, chunk: int
) -> None:
    monkeypatch.setattr(reading, "CHUNK", chunk)
    with pytest.raises(Undecodable, match=rf"line {line}: .*is not {encoding}"):
        bench.read(table("a", "b", format=FileFormat(encoding=encoding)), content)


def test_what_decodes_to_no_text_is_refused(bench: Bench) -> None:
    with pytest.raises(Undecodable, match="line 1: not unicode_escape"):
        bench.read(table("a", "b", format=FileFormat(encoding="unicode_escape")), b"a,b\n1,\\ud800\n")


def test_gzip_is_read_by_name_or_by_contract(bench: Bench) -> None:
    packed = gzip.compress(b"a,b\n1,x\n")
    assert bench.read(AB, packed, name="1.csv.gz") == [("1", "x")]
    assert bench.read(table("a", "b", format=FileFormat(gzip=True)), packed, name="1.dat") == [("1", "x")]
    assert bench.read(AB, packed + gzip.compress(b"2,y\n"), name="2.csv.gz") == [("1", "x"), ("2", "y")]


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-9], lambda b: b[:5], lambda b: b[:20] + b"\0" * 9 + b[29:], lambda b: b + b"x"]
)
def test_a_truncated_or_damaged_gzip_file_is_refused(bench: Bench, damage) -> None:
    packed = gzip.compress("".join(f"{i},x{i * 7919}\n" for i in range(500)).encode())
    with pytest.raises(BrokenDelivery, match="not a whole gzip file"):
        bench.read(AB, damage(packed), name="1.csv.gz")


def test_plain_text_under_a_gzip_name_and_gzip_under_a_plain_name_are_refused(bench: Bench) -> None:
    with pytest.raises(BrokenDelivery, match="not a whole gzip file"):
        bench.read(AB, b"a,b\n1,x\n", name="1.csv.gz")
    with pytest.raises(Undecodable, match="byte 0x8B"):
        bench.read(AB, gzip.compress(b"a,b\n1,x\n"))


def test_an_empty_gzip_member_is_as_good_as_zero_bytes(bench: Bench) -> None:
    with pytest.raises(ZeroBytes, match="nothing but blank space"):
        bench.read(AB, gzip.compress(b""), name="1.csv.gz")


def test_a_record_larger_than_a_block_is_read_with_larger_ones_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "BLOCK", 64)
    monkeypatch.setattr(reading, "MAX_BLOCK", 4096)
    long = "x" * 3000
    content = "a,b\n" + "".join(f"{i},y\n" for i in range(50)) + f'{long},"\n"\n' + "z,z\n"
    assert cut(tmp_path, content.encode())[-2:] == [[long, "\n"], ["z", "z"]]
    assert len(cut(tmp_path, content.encode())) == 53
    with pytest.raises(BrokenDelivery, match="a record is larger than"):
        cut(tmp_path, ("a,b\n1,2\n" + "x" * 9000 + ",y\n").encode())


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_quoted_line_end_is_whole_wherever_blocks_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    records = [["a", "b"], *([str(i), "x\r\ny\r\n\r\n"] for i in range(9))]
    content = "".join(f'{a},"{b}"{end}' for a, b in records).encode()
    for block in range(40, 120):
        monkeypatch.setattr(reading, "BLOCK", block)
        assert cut(tmp_path, content) == records, block


FIELD = st.text(alphabet=st.sampled_from('ab,"\n\r ;é€\t0'), max_size=6)


@st.composite
def csv_files(draw: st.DrawFn) -> tuple[bytes, list[list[str]]]:
    """A well-formed file and its records, with every line end, blank lines and needless quotes."""
    width = draw(st.integers(1, 4))
    header = [f"c{i}" for i in range(width)]
    records = draw(st.lists(st.lists(FIELD, min_size=width, max_size=width), max_size=12))
    out, end = io.StringIO(newline=""), draw(st.sampled_from(["\n", "\r\n", "\r"]))
    for record in [header, *records]:
        # Python's writer leaves one line end unquoted where lines end in the other; readers take it for one.
        quoting = (
            csv.QUOTE_ALL
            if {"\r", "\n"} & {*"".join(record)}
            else draw(st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]))
        )
        csv.writer(out, lineterminator=end, quoting=quoting).writerow(record)
        out.write(end * draw(st.sampled_from([0, 0, 0, 1, 2])))
    text = out.getvalue()
    if draw(st.booleans()):
        text = text.removesuffix(end)
    return (b"\xef\xbb\xbf" if draw(st.booleans()) else b"") + text.encode(), [header, *records]


def test_a_read_that_is_under_way_is_waited_for_before_its_file_is_closed() -> None:
    """Else its descriptor may be another file's by then, and the bytes that it takes are missed there."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(io.RawIOBase):
        def read(self, size: int = -1) -> bytes:
            begun.set()
            assert go_on.wait(30)
            return b"a,b\n"

    blocks, done = reading.Blocks(Slow()), []
    reader = threading.Thread(target=lambda: done.append(blocks.read(16)))
    ender = threading.Thread(target=lambda: (blocks.end(), done.append("ended")))
    reader.start()
    assert begun.wait(30)
    ender.start()
    ender.join(0.2)
    assert done == []
    go_on.set()
    reader.join()
    ender.join()
    assert done == [b"a,b\n", "ended"]
    assert blocks.read(16) == b""


@pytest.mark.parametrize("block", [16, 1 << 20])
def test_reading_ahead_has_ended_whenever_a_file_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    open_at_the_end: list[bool] = []

    class Noted(reading.Blocks):
        def end(self) -> None:
            super().end()
            open_at_the_end.append(not self._file.closed)

    monkeypatch.setattr(reading, "Blocks", Noted)
    monkeypatch.setattr(reading, "BLOCK", block)
    records = [["a", "b"], ["long " * 9, "1"], ["x", "2"]]
    assert cut(tmp_path, "".join(",".join(r) + "\n" for r in records).encode()) == records
    assert open_at_the_end == [True] * (1 if block > 16 else 2)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(csv_files(), st.sampled_from([16, 31, 64, 1 << 20]), st.sampled_from([1, 2, 3, 11, 1 << 20]))
def test_a_well_formed_file_gives_its_records_whatever_the_size_of_blocks_and_chunks(
    tmp_path: Path, file: tuple[bytes, list[list[str]]], block: int, chunk: int
) -> None:
    content, records = file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        patch.setattr(reading, "CHUNK", chunk)
        assert cut(tmp_path, content) == records


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet=st.sampled_from('ab,,""\n\n\r'), max_size=24), st.sampled_from([16, 64, 1 << 20]))
def test_whatever_comes_is_cut_as_the_strict_csv_module_cuts_it_or_refused(
    tmp_path: Path, body: str, block: int
) -> None:
    reader = csv.reader(io.StringIO("a,b\n" + body, newline=""), strict=True)
    try:
        expected = [r for r in reader if r]
        well = all(len(r) == 2 for r in expected)
    except csv.Error:
        expected, well = [], False
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        if well:
            assert cut(tmp_path, ("a,b\n" + body).encode()) == expected
        else:
            with pytest.raises((RaggedRow, BadQuoting)):
                cut(tmp_path, ("a,b\n" + body).encode())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(csv_files(), st.sampled_from([16, 64, 1 << 20]), st.integers(0, 12), st.booleans())
def test_a_ragged_record_is_named_by_the_line_it_starts_on(
    tmp_path: Path, file: tuple[bytes, list[list[str]]], block: int, after: int, wider: bool
) -> None:
    _content, records = file
    at = min(after, len(records) - 1) + 1
    width = len(records[0]) + (1 if wider else -1)
    if not width:
        return
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows(records[:at])
    line = out.getvalue().replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
    writer.writerow(["?"] * width)
    writer.writerows(records[at:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "BLOCK", block)
        with pytest.raises(RaggedRow, match=rf"line {line}: {width} fields"):
            cut(tmp_path, out.getvalue().encode())
