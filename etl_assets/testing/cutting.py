"""The events of a log, cut into other deliveries, with some of them said again under positions of their own."""

from __future__ import annotations

import codecs
import gzip
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from random import Random

from etl_assets.contract import ChangeLogTable
from etl_assets.staging.lines import document
from etl_assets.testing.deliveries import Placed, placed

#: Into how many deliveries a log is cut at most.
MOST = 12


@dataclass(frozen=True, slots=True)
class Cut:
    """Deliveries that hold the same events; ``replayed`` of them stand there twice."""

    files: tuple[Placed, ...]
    events: int
    replayed: int


def cuts(pipeline: ChangeLogTable, deliveries: Sequence[Placed], random: Random) -> Iterator[Cut]:
    """Without end: the events in one piece, each for itself, and in pieces that chance gives.

    None where the names of pieces would not fit the contract's pattern, or where positions are not one row of numbers.
    """
    lines = _events(pipeline, deliveries)
    if lines is None or pipeline.row_count_file:
        return
    most = min(MOST, len(lines))
    for number in itertools.count():
        # Where the position is the version, an event that is said again is a new one.
        replay = pipeline.events.version is not None and number % 2 == 1
        again = lines[: random.randint(1, max(1, len(lines) - 1))] if replay else []
        again = again[random.randrange(len(again)) :] if replay else []
        events = [*lines, *(_at(pipeline, line, len(lines) + i) for i, line in enumerate(again))]
        pieces = (1, most)[number] if number < 2 else random.randint(1, most)
        inner = sorted(random.sample(range(1, len(events)), pieces - 1))
        files = [events[start:end] for start, end in itertools.pairwise([0, *inner, len(events)])]
        try:
            found = placed(pipeline, _written(pipeline, deliveries[-1].path, files))
        except ValueError:
            return
        yield Cut(tuple(found), len(lines), len(again))


def _events(pipeline: ChangeLogTable, deliveries: Sequence[Placed]) -> list[bytes] | None:
    """The lines of all deliveries in order of position, or None where the positions are not one row of numbers."""
    found: dict[int, bytes] = {}
    count = 0
    for delivery in deliveries:
        content = gzip.decompress(delivery.content) if _packed(pipeline, delivery.path) else delivery.content
        for line in content.removeprefix(codecs.BOM_UTF8).split(b"\n"):
            if line.strip():
                try:
                    position = int(json.loads(line)[pipeline.events.position])
                except (ValueError, KeyError, TypeError):
                    return None
                found[position] = line.strip()
                count += 1
    first = pipeline.events.first_position
    return [found[p] for p in sorted(found)] if sorted(found) == [*range(first, first + count)] else None


def _at(pipeline: ChangeLogTable, line: bytes, index: int) -> bytes:
    """The same event at another position, its numbers to the digit."""
    event = json.loads(line, parse_float=str.encode, parse_int=str.encode)
    moved = {**event, pipeline.events.position: pipeline.events.first_position + index}
    return (document(moved, "the event") or "").encode()


def _written(pipeline: ChangeLogTable, last: str, files: list[list[bytes]]) -> dict[str, bytes]:
    """The pieces under names like that of the last delivery, in its partition, so that they go in order."""
    path = PurePosixPath(last)
    stem, dot, suffixes = path.name.partition(".")
    contents = (b"".join(line + b"\n" for line in lines) for lines in files)
    return {
        str(path.with_name(f"{stem}-{number:04d}{dot}{suffixes}")): gzip.compress(c) if _packed(pipeline, last) else c
        for number, c in enumerate(contents)
    }


def _packed(pipeline: ChangeLogTable, path: str) -> bool:
    return pipeline.format.gzip or path.endswith(".gz")
