"""Bytes to records: delimited text, read strictly. Every field arrives as the text that was delivered.

Belongs here: encoding, compression, header, quoting, width, and which line a record stands on. Does not belong here:
what a field means.

``pyarrow.csv`` cuts records and refuses those of the wrong width. It does not notice NUL bytes, text after a closing
quote, an unterminated quote or doubled header names, so these are looked for here. Blank lines between records are
skipped, as RFC 4180 readers do.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc_csv

from etl_assets.contract import FileFormat
from etl_assets.errors import BadHeader, BadQuoting, BrokenDelivery, RaggedRow, Undecodable, ZeroBytes
from etl_assets.staging.opening import HEAD, LIMITS, check_kind, open_bytes

if TYPE_CHECKING:
    import _csv

CHUNK = 1 << 20
#: Text handed over at a time; a single record may be larger, up to MAX_BLOCK.
BLOCK = 4 << 20
MAX_BLOCK = LIMITS.record

#: What begins a file, and what ends one of DOS: elsewhere files were joined.
MARK, CTRL_Z = "\ufeff", "\x1a"

csv.field_size_limit(MAX_BLOCK)


@dataclass(frozen=True, slots=True)
class Text:
    """A delivery as checked UTF-8 text: ``path`` holds it, records start at byte ``data``.

    ``header`` are the names as delivered. ``lines`` is an upper bound of the records. ``plain`` says that record n
    stands on line ``header_line + n``: no quoted line ends, no blank lines. ``irregular`` says that a quote stands where
    only a record-by-record reader can tell whether it is allowed. ``marked`` says that there is a byte order mark or an
    end-of-file character below the header's line.
    """

    shown: str
    path: Path
    format: FileFormat
    header: tuple[str, ...]
    header_line: int
    data: int
    size: int
    lines: int
    quoted: bool
    irregular: bool
    plain: bool
    marked: bool = False

    def lines_of(self, records: list[int]) -> dict[int, int]:
        """The physical line on which each of these records (counted from 1) starts."""
        if self.plain:
            return {r: self.header_line + r for r in records}
        wanted, last = set(records), max(records, default=0)
        found: dict[int, int] = {}
        for number, (line, _) in enumerate(self.records(), start=1):
            if number in wanted:
                found[number] = line
            if number >= last:
                break
        return found

    def records(self) -> Iterator[tuple[int, list[str]]]:
        """Line and fields of each record, by Python's csv: slow, and only for what Arrow does not tell."""
        with self.path.open("r", encoding="utf-8", newline="") as file:
            file.seek(self.data)
            reader = _reader(file, self.format)
            line = self.header_line
            try:
                for fields in reader:
                    if fields:
                        yield line + 1, fields
                    line = self.header_line + reader.line_num
            except csv.Error as error:
                raise _quoting(self.shown, line + 1, error) from error


def open_text(path: Path, name: str, shown: str, form: FileFormat, scratch: Path) -> Text:
    """Check a delivery's bytes and find its header.

    ``name`` is the delivery's, ``shown`` stands in messages, and ``scratch`` is where decompressed or transcoded text
    may be kept. Raises :class:`ZeroBytes`, :class:`BrokenDelivery`, :class:`Undecodable`, :class:`BadQuoting` or
    :class:`BadHeader`.
    """
    if path.stat().st_size == 0:
        raise ZeroBytes(
            f"{shown}: zero bytes, so not even a header: an interrupted transfer, not an empty partition "
            "(that one is a header without rows). Deliver it again"
        )
    compressed = form.gzip or name.endswith(".gz")
    same = not compressed and codecs.lookup(form.encoding).name in ("utf-8", "ascii", "utf-8-sig")
    checked = path if same else scratch / "text"
    scan = _scan(path, shown, form, compressed, None if same else checked)
    header, header_line, data = _header(checked, shown, form)
    with checked.open("rb") as file:
        quoted = scan.quotes.count > file.read(data).count((form.quote or "\0").encode())
    return Text(
        shown=shown,
        path=checked,
        format=form,
        header=header,
        header_line=header_line,
        data=data,
        size=checked.stat().st_size,
        lines=scan.lines,
        quoted=quoted,
        irregular=scan.quotes.irregular or form.skip_lines > 0,
        plain=not quoted and not scan.blank_lines and not scan.bare_cr,
        marked=scan.marked,
    )


@dataclass(slots=True)
class _Scan:
    quotes: _Quotes
    lines: int = 1
    blank_lines: bool = False
    bare_cr: bool = False
    marked: bool = False


def _scan(path: Path, shown: str, form: FileFormat, compressed: bool, copy: Path | None) -> _Scan:
    """One pass over the bytes: decode strictly, refuse NUL, see quotes and blank lines, write UTF-8 to ``copy``."""
    scan, line = _Scan(_Quotes(form)), 1
    decoder = codecs.getincrementaldecoder("utf-8-sig" if _is_utf8(form) else form.encoding)("strict")
    previous, held, empty, tail, unended = "", "", True, "", 0
    with (
        open_bytes(path, shown, compressed) as source,
        copy.open("wb") if copy else contextlib.nullcontext() as out,
    ):
        check_kind(source.peek(HEAD)[:HEAD], shown, form.encoding)
        while True:
            chunk = source.read(CHUNK)
            state = decoder.getstate()
            try:
                text = held + decoder.decode(chunk, final=not chunk)
                # A CR at the end of a chunk may be half of a line end, so it is looked at with the next one.
                held = "\r" if text.endswith("\r") and chunk else ""
                text = text.removesuffix(held)
                encoded = chunk if out is None else text.encode()
            except UnicodeError as error:
                bad = line + _line_ends(held + _before(decoder, state, chunk, error))
                raise Undecodable(
                    f"{shown}: line {bad}: {_bad_byte(error, form)}. Declare the file's encoding in the contract's format, "
                    "or deliver it as UTF-8"
                ) from error
            if "\0" in text:
                bad = line + _line_ends(text[: text.index("\0")])
                raise BrokenDelivery(f"{shown}: line {bad}: a NUL byte: not a text file, or a damaged one")
            joined = previous + text
            ends = _line_ends(text)
            line, unended = line + ends, 0 if ends else unended + len(text)
            if unended > LIMITS.record:
                raise BrokenDelivery(f"{shown}: line {line}: more than {LIMITS.record >> 20} MB, the limit of a record")
            scan.marked = scan.marked or MARK in text or CTRL_Z in text
            tail = (tail + text)[-8:]
            scan.quotes.look(encoded, last=not chunk)
            scan.blank_lines = scan.blank_lines or "\n\n" in joined or "\n\r" in joined
            scan.bare_cr = scan.bare_cr or ("\r" in text and text.count("\r") > text.count("\r\n"))
            previous = joined[-1:]
            empty = empty and (not text or text.isspace())
            if out:
                out.write(encoded)
            if not chunk:
                break
    if empty:
        raise ZeroBytes(f"{shown}: nothing but blank space, so not even a header. Deliver it again")
    if tail.rstrip("\r\n").endswith(CTRL_Z):
        raise BrokenDelivery(
            f"{shown}: line {line}: the file ends in Ctrl-Z (0x1A), the end-of-file character of DOS. Deliver it without"
        )
    scan.lines = line
    return scan


def _line_ends(text: str) -> int:
    """LF, CR LF or CR, as Python's csv and Arrow count them."""
    return text.count("\n") + (text.count("\r") - text.count("\r\n") if "\r" in text else 0)


def _before(decoder: codecs.IncrementalDecoder, state: tuple[bytes, int], chunk: bytes, error: UnicodeError) -> str:
    """The text of a chunk up to the byte that cannot be decoded."""
    if not isinstance(error, UnicodeDecodeError):
        return ""
    decoder.setstate(state)
    try:
        return decoder.decode(chunk[: max(0, len(chunk) - (len(error.object) - error.start))])
    except UnicodeError:
        return ""


def _bad_byte(error: UnicodeError, form: FileFormat) -> str:
    if isinstance(error, UnicodeDecodeError):
        return f"byte 0x{error.object[error.start]:02X} is not {form.encoding} ({error.reason})"
    return f"not {form.encoding}: {error}"


class _Quotes:
    """Looks at the bytes around each quote, a chunk at a time.

    Where every opening quote stands at the start of a field and every closing one at its end (or is doubled), and
    their number is even, the file is well-formed; anything else is ``irregular`` and needs a closer look.
    """

    def __init__(self, form: FileFormat) -> None:
        self._quote = ord(form.quote) if form.quote else None
        self._around = np.frombuffer(f"{form.delimiter}\n\r{form.quote or ''}".encode(), np.uint8)
        self._tail = b"\n"  # the byte before what is looked at next; a file starts like a line
        self.count = 0
        self.irregular = False

    def look(self, chunk: bytes, last: bool) -> None:
        if self._quote is None:
            return
        # The last byte waits for the one after it; at the end of the file a line end stands there.
        begins = self._tail == b"\n" and not self.count
        buffer = self._tail + (chunk.removeprefix(codecs.BOM_UTF8) if begins else chunk) + (b"\n" if last else b"")
        self._tail = buffer[-2:] if not last else b""
        data = np.frombuffer(buffer, np.uint8)
        at = np.flatnonzero(data[1:-1] == self._quote) + 1
        opens = (np.arange(self.count, self.count + len(at)) % 2) == 0
        beside = np.where(opens, data[at - 1], data[at + 1])
        self.count += len(at)
        regular = bool(np.isin(beside, self._around).all()) and not (last and self.count % 2)
        self.irregular = self.irregular or not regular


def _is_utf8(form: FileFormat) -> bool:
    return codecs.lookup(form.encoding).name in ("utf-8", "utf-8-sig")


def _reader(lines: Iterator[str] | IO[str], form: FileFormat) -> _csv.Reader:
    if form.quote is None:
        return csv.reader(lines, delimiter=form.delimiter, quoting=csv.QUOTE_NONE)
    return csv.reader(lines, delimiter=form.delimiter, quotechar=form.quote, strict=True)


def _quoting(shown: str, line: int, error: csv.Error) -> BadQuoting:
    what = "a quote is opened and never closed" if "unexpected end" in str(error) else str(error)
    return BadQuoting(
        f"{shown}: the record that starts on line {line}: {what}. Quotes inside a quoted field are doubled"
    )


def _header(path: Path, shown: str, form: FileFormat) -> tuple[tuple[str, ...], int, int]:
    """The header's names, the line it ends on, and the byte after it."""
    consumed, line = 0, 0
    with path.open("r", encoding="utf-8", newline="") as file:
        if file.read(1) == "\ufeff":
            consumed = 3
        else:
            file.seek(0)

        def lines() -> Iterator[str]:
            nonlocal consumed, line
            while text := file.readline(LIMITS.header - consumed + 1):
                if consumed + len(text) > LIMITS.header:
                    raise BadHeader(f"{shown}: line {line + 1}: the header has more than {LIMITS.header:,} characters")
                consumed += len(text.encode())
                line += 1
                yield text

        source = lines()
        for _ in range(form.skip_lines):
            next(source, None)
        reader = _reader(source, form)
        try:
            names = next((fields for fields in reader if fields), None)
        except csv.Error as error:
            raise _quoting(shown, line, error) from error
    if names is None:
        raise BadHeader(f"{shown}: no header: the file ends within the {form.skip_lines} lines that are skipped")
    if not form.skip_lines and names[0].lower().startswith("sep=") and len("".join(names)) <= len("sep=") + 1:
        raise BadHeader(
            f"{shown}: line {line}: {form.delimiter.join(names)!r} tells Excel the delimiter and is no header: say skip_lines=1 "
            "in the contract's format, and the delimiter"
        )
    return tuple(names), line, consumed


def check_quoting(text: Text) -> None:
    """Refuse unterminated quotes and text after a closing quote; costs a pass, where a quote stands oddly."""
    if text.irregular:
        width = len(text.header)
        for line, fields in text.records():
            if len(fields) != width:
                raise _ragged(text, line, len(fields))


def read_batches(text: Text) -> Iterator[pa.RecordBatch]:
    """The records in order, as batches of strings named by position; blocks of bounded size.

    Raises :class:`RaggedRow` with the line of the first record whose width is not the header's.
    """
    check_quoting(text)
    if text.data >= text.size:
        return
    block, done = BLOCK, 0
    while True:
        seen = 0
        try:
            for batch in _arrow_batches(text, block):
                fresh = batch.slice(max(0, done - seen))
                seen += batch.num_rows
                if fresh.num_rows:
                    done += fresh.num_rows
                    yield fresh
            return
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):
                raise BrokenDelivery(f"{text.shown}: {error}") from error
            if block >= MAX_BLOCK:
                raise BrokenDelivery(f"{text.shown}: a record is larger than {MAX_BLOCK >> 20} MB") from error
            block = min(block * 8, MAX_BLOCK)  # a record larger than a block: read on from it with larger ones


def _arrow_batches(text: Text, block: int) -> Iterator[pa.RecordBatch]:
    names = [str(i) for i in range(len(text.header))]
    ragged: list[pc_csv.InvalidRow] = []

    def refuse(row: pc_csv.InvalidRow) -> str:
        ragged.append(row)
        return "error"

    with text.path.open("rb", buffering=0) as file:
        file.seek(text.data)
        blocks = Blocks(file)
        try:
            reader = pc_csv.open_csv(
                pa.PythonFile(blocks, mode="r"),
                read_options=pc_csv.ReadOptions(use_threads=False, block_size=block, column_names=names),
                parse_options=pc_csv.ParseOptions(
                    delimiter=text.format.delimiter,
                    quote_char=text.format.quote or False,
                    newlines_in_values=text.quoted,
                    invalid_row_handler=refuse,
                ),
                convert_options=pc_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False, check_utf8=False
                ),
            )
            yield from reader
        except pa.ArrowInvalid as error:
            if ragged:
                record = ragged[0].number or 1
                line = text.lines_of([record]).get(record, text.header_line + record)
                raise _ragged(text, line, ragged[0].actual_columns) from error
            if "Empty CSV file" in str(error):  # nothing but blank lines after the header
                return
            raise
        finally:
            blocks.end()


class Blocks:
    """The bytes of a file in blocks that never end in a CR unless the file does.

    Arrow takes a LF that begins a block for the rest of a line end that the block before began, and drops it, even
    where the two stand between quotes. It reads ahead in a thread, which may be at it when nobody wants the rest any more:
    were the file closed then, that read could take bytes of the next file that gets its descriptor.
    """

    closed = False

    def __init__(self, file: io.RawIOBase) -> None:
        self._file = file
        self._held = b""
        self._reading = threading.Lock()
        self._ended = False

    def read(self, size: int) -> bytes:
        """The next block; nothing once it has ended."""
        with self._reading:
            if self._ended:
                return b""
            data = self._held + (self._file.read(size - len(self._held)) or b"")
            self._held = b"\r" if data.endswith(b"\r") and len(data) > 1 else b""
            return data.removesuffix(self._held)

    def end(self) -> None:
        """Wait for a read that is under way; the file may be closed then."""
        with self._reading:
            self._ended = True

    def close(self) -> None:
        """The file is closed by whoever opened it."""


def _ragged(text: Text, line: int, fields: int) -> RaggedRow:
    hint = ""
    if fields == 1 and len(text.header) > 1 and line > text.header_line + 1:
        hint = " Is it a footer, or is the file cut off there?"
    elif fields == 1 or len(text.header) == 1:
        hint = f" Are fields separated by {text.format.delimiter!r}, as the contract says?"
    elif fields > len(text.header):
        hint = " Is a field unquoted that holds the delimiter?"
    else:
        hint = " Is the file cut off there?"
    return RaggedRow(f"{text.shown}: line {line}: {fields} fields, but the header has {len(text.header)}.{hint}")
