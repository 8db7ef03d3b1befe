"""The bytes of a delivery: unpacked within bounds, and what the first of them tell about a file that is not what was declared.

Belongs here: compression, limits, and the marks of other formats. Does not belong here: lines, records, fields.
"""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from dataclasses import dataclass
from pathlib import Path

from etl_assets.errors import BrokenDelivery, Undecodable

#: How many bytes are enough to tell a format.
HEAD = 4096
GZIP = b"\x1f\x8b"
#: Encodings whose texts hold zero bytes.
_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of a delivery is held in memory or unpacked, in bytes. A plain file may have any size.

    A compressed one may unpack to ``unpacked``, and to more only while that is at most ``ratio`` times its own size.
    """

    record: int = 64 << 20
    header: int = 4 << 20
    unpacked: int = 512 << 20
    ratio: int = 100


LIMITS = Limits()

_MAGIC = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)"),
    (b"%PDF-", "a PDF document"),
    (b"PAR1\x15", "a Parquet file"),
    (b"BZh91AY&SY", "compressed with bzip2"),
    (b"\xfd7zXZ\x00", "compressed with xz"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"SQLite format 3\x00", "an SQLite database"),
)


def open_bytes(path: Path, shown: str, packed: bool) -> io.BufferedReader:
    """Open a delivery, unpacked if it is ``packed``. Raises :class:`BrokenDelivery`, here or where it is read."""
    if not packed:
        return io.BufferedReader(io.FileIO(path), 1 << 20)
    with path.open("rb") as file:
        head = file.read(HEAD)
    if head[:2] != GZIP[: len(head)]:
        what = _kind(head) or "not compressed"
        raise BrokenDelivery(
            f"{shown}: not a whole gzip file: by its first bytes it is {what}, and its name or the contract's format has it as "
            "gzip. Was it unpacked on the way? Deliver it compressed, or under a name without .gz"
        )
    return io.BufferedReader(_Unpacked(path, shown), 1 << 20)


class _Unpacked(io.RawIOBase):
    """The contents of a gzip file, which are no more than the limits allow."""

    def __init__(self, path: Path, shown: str) -> None:
        self._file = gzip.GzipFile(path)
        self._shown = shown
        self._most = max(LIMITS.unpacked, LIMITS.ratio * path.stat().st_size)
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        try:
            data = self._file.read(len(buffer))
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise BrokenDelivery(
                f"{self._shown}: not a whole gzip file ({error}): truncated or damaged. Deliver it again"
            ) from error
        self._read += len(data)
        if self._read > self._most:
            raise BrokenDelivery(
                f"{self._shown}: unpacks to more than {self._most:,} bytes, the limit for a file of its size. Is it damaged? If "
                "it is meant to be so, deliver it in parts or uncompressed"
            )
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def check_kind(head: bytes, shown: str, encoding: str) -> None:
    """Refuse what is no text in the declared encoding by its first bytes, naming what it is.

    Raises :class:`BrokenDelivery`, or :class:`Undecodable` for text in another encoding.
    """
    if head.startswith(GZIP):
        raise Undecodable(
            f"{shown}: line 1: byte 0x8B is not {encoding}: by its first bytes the file is gzip. Deliver it under a name that "
            "ends in .gz, or say format=FileFormat(gzip=True); if it is under such a name, it was compressed twice"
        )
    kind = _kind(head)
    if kind:
        raise BrokenDelivery(f"{shown}: by its first bytes the file is {kind}, not text. Deliver the text itself")
    found = None if codecs.lookup(encoding).name in _WIDE else _wide(head)
    if found:
        which, byte = found
        raise Undecodable(
            f"{shown}: line 1: byte 0x{byte:02X} is not {encoding}: by its first bytes the file is {which}. Declare that as the "
            "encoding in the contract's format, or deliver it as UTF-8 (a log is always UTF-8)"
        )


def _kind(head: bytes) -> str | None:
    """What a file is that is no text, by its first bytes."""
    kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)
    if kind == "a zip archive" and (b"[Content_Types].xml" in head or b"xl/" in head):
        return "an Excel workbook (.xlsx)"
    if head.removeprefix(codecs.BOM_UTF8).lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")):
        return "an HTML page"
    return kind


def _wide(head: bytes) -> tuple[str, int] | None:
    """The wide encoding that a text is in, by its mark or by its zero bytes, and the first byte that tells so."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "UTF-32", 0xFF if head[:1] == b"\xff" else 0
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "UTF-16", head[0]
    even, odd = head[0::2], head[1::2]
    if len(head) < 4 or (even + odd).count(0) * 3 < len(head):
        return None
    if not even.count(0):
        return "UTF-16 (utf-16-le)", 0
    return ("UTF-16 (utf-16-be)", 0) if not odd.count(0) else None
