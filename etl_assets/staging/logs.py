"""A change log's delivery to candidate rows: read its events, type them, and fold them to the last state of each key.

Belongs here: the order of events, and where a delivery is cut. Does not belong here: what the table held before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import ChangeLogTable
from etl_assets.errors import ShrunkDelivery, ZeroBytes
from etl_assets.model import DELETED, POSITION, VERSION, Delivery, ExtractColumn, Fetched, Part
from etl_assets.staging.candidate import Content
from etl_assets.staging.events import Event, Names, parse
from etl_assets.staging.extract import candidate_format
from etl_assets.staging.lines import read_lines
from etl_assets.staging.parts import Cutter, PartWriter
from etl_assets.staging.positions import Interval
from etl_assets.staging.same import Fields
from etl_assets.staging.typed import typed
from etl_assets.staging.validating import check_counts

CHUNK = 20_000


def stage_events(
    contract: ChangeLogTable,
    delivery: Delivery,
    fetched: Fetched,
    shown: str,
    work: Path,
    cuts: Sequence[int] = (),
    after: int | None = None,
) -> Content:
    """Write the last state of each key in a log's delivery to ``work``; nothing of a log is set aside.

    A delivery of more than ``batch_events`` is cut into parts, each of them a batch with a file of its own. Where batches of it
    are committed, up to the positions ``cuts``, it is cut there. Events up to the position ``after`` are left out.
    """
    interval = Interval()
    cutter = Cutter(contract.batch_events, cuts)
    form = candidate_format(fetched.size)
    writing = PartWriter(contract, 1, form, shown, work)
    parts: list[Part] = []
    packed = is_packed(contract, delivery.name)
    said: list[Fields] = []

    def begin() -> int:
        """Where the next part begins."""
        first = interval.lower if after is None else after
        assert first is not None
        return parts[-1].upper if parts else first

    for table in read_events(contract, Path(fetched.path), shown, packed, interval, said):
        beyond = table if after is None else table.filter(pc.greater(table[POSITION], after))
        taken = len(said) - pc.count_distinct(beyond[POSITION]).as_py()
        for piece, events, begins in cutter.pieces(beyond):
            if begins:
                parts.append(writing.write(work, begin(), writing.upper))
                writing = PartWriter(contract, len(parts) + 1, form, shown, work)
            writing.add(piece, said[taken : taken + events])
            taken += events
        said.clear()
    end = max(begin(), interval.end)
    parts.append(writing.write(work, begin(), end))
    check_counts(contract, fetched, shown, interval.events)
    columns = [
        ExtractColumn(c.name, c.type, resolution=c.resolution if c.type == "timestamp" else None)
        for c in contract.columns
    ]
    columns += [
        ExtractColumn(VERSION, "integer"),
        ExtractColumn(DELETED, "boolean"),
        ExtractColumn(POSITION, "integer"),
    ]
    digests = [part.digest for part in parts]
    return Content(
        tuple(columns),
        source_rows=sum(part.source_rows for part in parts),
        rejected_rows=0,
        rows=sum(part.rows for part in parts),
        digest=digests[0] if len(parts) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest(),
        lower=parts[0].lower,
        upper=end,
        stale=sum(part.stale for part in parts),
        # The rest of a delivery is a part of it, with an identity of its own.
        parts=tuple(parts) if len(parts) > 1 or (after is not None and end > after) else (),
        events_sha256=parts[0].events_sha256 if len(parts) == 1 else None,
    )


def is_packed(contract: ChangeLogTable, name: str) -> bool:
    """Return whether a delivery is compressed, by the contract or its name."""
    return contract.format.gzip or name.lower().endswith(".gz")


def read_events(
    contract: ChangeLogTable,
    path: Path,
    shown: str,
    packed: bool,
    interval: Interval,
    said: list[Fields] | None = None,
) -> Iterator[pa.Table]:
    """Typed events in order of position, some thousands at a time; ``interval`` tells the positions at the end.

    What the events of a table say, as they are written, is added to ``said`` before it is yielded.

    Raises :class:`BadEvent`, :class:`BadPositions` or a broken delivery's error, naming the line.
    """
    chunk: list[Event] = []
    names = Names(contract)
    stated = contract.events.bounds == "stated"
    for number, fields in read_lines(path, shown, packed):
        if stated and interval.stated is None:
            interval.begin(fields, f"{shown}: line {number}")
            continue
        events = parse(contract, names, fields, f"{shown}: line {number}", number)
        interval.advance(events[0].position, f"{shown}: line {number}")
        chunk.extend(events)
        if said is not None:
            said.append(fields)
        if len(chunk) >= CHUNK:
            yield typed(contract, names, chunk, shown)
            chunk = []
    if interval.lower is None:
        raise ZeroBytes(
            f"{shown}: no events: an interrupted transfer, or an interval that says nothing. Deliver it again"
        )
    if interval.wanted not in (None, interval.events):
        raise ShrunkDelivery(
            f"{shown}: {interval.events:,} events, and its first line says {interval.wanted:,}: an interrupted transfer, or "
            "events that were left out. Deliver it again"
        )
    if chunk:
        yield typed(contract, names, chunk, shown)
