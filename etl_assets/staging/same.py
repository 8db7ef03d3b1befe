"""Whether two deliveries of a log say the same at the same positions: by the digest of their events, or event by event.

Belongs here: what an event says, apart from how its line is written. Does not belong here: which of them are committed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from etl_assets.contract import ChangeLogTable
from etl_assets.errors import BadEvent
from etl_assets.staging.lines import read_lines, whole_number

#: Events that are digested at a time, and characters of one that a message shows.
CHUNK = 10_000
SHOWN = 400

Fields = dict[str, Any]
_encode = msgspec.json.Encoder().encode_lines


@dataclass(frozen=True, slots=True)
class Difference:
    """The first position at which two logs differ, and what each says there; None where it says nothing."""

    position: int
    committed: str | None
    delivered: str | None


def plain(events: Sequence[Fields]) -> bytes:
    """Return what events say: their members in order, numbers to the digit, and nothing of blanks between them."""
    try:
        return _encode(events)
    except (ValueError, RecursionError):  # half of a surrogate pair, or very deep
        try:
            return "".join(f"{json.dumps(fields, default=bytes.decode)}\n" for fields in events).encode()
        except RecursionError as error:
            raise BadEvent("an event is nested too deeply") from error


def digests(
    contract: ChangeLogTable, path: Path, shown: str, stretches: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], str]:
    """Return the digest of the events in each stretch ``(lower, upper]``; stretches come in order and do not overlap."""
    found: dict[tuple[int, int], str] = {}
    hashed, inside = hashlib.sha256(), list[Fields]()
    left = iter(stretches)
    stretch = next(left, None)
    for position, fields in _events(contract, path, shown):
        while stretch and position > stretch[1]:
            hashed.update(plain(inside))
            found[stretch] = hashed.hexdigest()
            hashed, inside, stretch = hashlib.sha256(), [], next(left, None)
        if stretch is None:
            return found
        if position > stretch[0]:
            inside.append(fields)
        if len(inside) >= CHUNK:
            hashed.update(plain(inside))
            inside = []
    while stretch:
        hashed.update(plain(inside))
        found[stretch] = hashed.hexdigest()
        hashed, inside, stretch = hashlib.sha256(), [], next(left, None)
    return found


def first_difference(
    contract: ChangeLogTable, committed: Path, delivered: Path, shown: Mapping[Path, str], lower: int, upper: int
) -> Difference | None:
    """Return where the events of two files differ at the positions ``(lower, upper]``, or None."""
    one, two = (
        (e for e in _events(contract, path, shown[path]) if lower < e[0] <= upper) for path in (committed, delivered)
    )
    for a, b in itertools.zip_longest(one, two):
        if a == b:
            continue
        at = min(event[0] for event in (a, b) if event)
        return Difference(at, *(_shown(event[1]) if event and event[0] == at else None for event in (a, b)))
    return None


def _shown(fields: Fields) -> str:
    text = plain([fields]).decode(errors="replace").strip()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _events(contract: ChangeLogTable, path: Path, shown: str) -> Iterator[tuple[int, Fields]]:
    """Yield the events of a delivery that was read before, each with its position."""
    lines = read_lines(path, shown, contract.format.gzip or shown.lower().endswith(".gz"))
    if contract.events.bounds == "stated":
        next(lines, None)
    for number, fields in lines:
        yield whole_number(fields, contract.events.position, f"{shown}: line {number}", least=1), fields
