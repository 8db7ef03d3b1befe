"""Ways of loading the same deliveries that a load pattern promises to end alike: orders, groups, cuts.

A bounded number of them, the same for the same seed; all orders where these are few.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from etl_assets.contract import ChangeLogTable, PartitionedTable, WatermarkTable
from etl_assets.contract.policies import Transform
from etl_assets.testing.contents import ASIDE, CURRENT, POSITION, ROWS, VERSIONS
from etl_assets.testing.cutting import cuts
from etl_assets.testing.deliveries import Delivered, Placed

if TYPE_CHECKING:
    import pandas as pd

ALL = (ROWS, ASIDE, VERSIONS, CURRENT, POSITION)
#: Into how many pieces a delivery is cut for a transform that says it does not mind.
PIECES = 3


@dataclass(frozen=True, slots=True)
class Way:
    """Deliveries arrive in rounds and are loaded at once: those of a round in one run, or (``apart``) in one each.

    ``compared`` are the parts of the contents that must be those of the plain way: at the end or, where the rounds are
    the same (``followed``), after each of them.
    """

    title: str
    pipeline: Delivered
    rounds: tuple[tuple[Placed, ...], ...]
    apart: bool = True
    compared: tuple[str, ...] = ALL
    followed: bool = False

    def __str__(self) -> str:
        together = " and " if self.apart else " with "
        order = "\n  then ".join(together.join(p.path for p in group) for group in self.rounds)
        return f"{self.title}:\n  {order}"


def plain_way(pipeline: Delivered, deliveries: Sequence[Placed]) -> Way:
    """Each delivery is loaded when it arrives, in order."""
    return Way("each when it arrives, in order", pipeline, tuple((d,) for d in deliveries), followed=True)


def other_ways(pipeline: Delivered, deliveries: Sequence[Placed], count: int, seed: int) -> list[Way]:
    """At most ``count`` other ways that the pattern allows."""
    random = Random(seed)
    match pipeline:
        case PartitionedTable():
            ways = _partitioned(pipeline, deliveries, random)
        case ChangeLogTable():
            ways = _log(pipeline, deliveries, random)
        case WatermarkTable():
            ways = _snapshots(pipeline, deliveries, random)
    known = {_steps(plain_way(pipeline, deliveries))}
    found: list[Way] = []
    # Among few deliveries the same way is drawn again and again; there are no more than these then.
    for way in itertools.islice(ways, 20 * count):
        steps = _steps(way)
        if steps not in known:
            known.add(steps)
            found.append(way)
        if len(found) == count:
            break
    return found


def _steps(way: Way) -> tuple[object, ...]:
    return (way.rounds, way.apart or all(len(group) == 1 for group in way.rounds), way.pipeline.transform)


# --------------------------------------------------------------------------- patterns


def _partitioned(pipeline: PartitionedTable, deliveries: Sequence[Placed], random: Random) -> Iterator[Way]:
    """Any order: the newest delivery of each partition stands, whatever came before it or comes after it."""
    yield _together(pipeline, deliveries)
    newest = tuple({d.scope: d for d in deliveries}.values())
    yield Way("only the newest of each partition", pipeline, tuple((d,) for d in newest))
    if pipeline.transform and pipeline.transform.rowwise:
        pieces = pipeline.model_copy(update={"transform": _in_pieces(pipeline.transform)})
        title = f"in order, handed to the rowwise transform in {PIECES} pieces"
        yield Way(title, pieces, tuple((d,) for d in deliveries), followed=True)
    yield from _any_order(pipeline, deliveries, random, ALL)


def _log(pipeline: ChangeLogTable, deliveries: Sequence[Placed], random: Random) -> Iterator[Way]:
    """Files arrive in any order and wait for their turn; the events may be cut into others, and old ones said again."""
    yield _together(pipeline, deliveries)
    arrivals = _any_order(pipeline, deliveries, random, (ROWS, VERSIONS, POSITION))
    for arrival, cut in itertools.zip_longest(arrivals, cuts(pipeline, deliveries, random)):
        if cut is not None:
            compared = (ROWS, VERSIONS) if cut.replayed else (ROWS, VERSIONS, POSITION)
            again = f", {cut.replayed} of them said again later" if cut.replayed else ""
            title = f"{cut.events} events in {len(cut.files)} deliveries of another cut{again}, each when it arrives"
            yield Way(title, pipeline, tuple((d,) for d in cut.files), compared=compared)
        if arrival is not None:
            yield arrival


def _snapshots(pipeline: WatermarkTable, deliveries: Sequence[Placed], random: Random) -> Iterator[Way]:
    """What the watermark leaves out, and what a window withdraws, hang on the order; else any order will do."""
    yield _together(pipeline, deliveries)
    if pipeline.complete == "whole":
        # The last one says it all; of what ended before it, a way that skips the others has not heard.
        yield Way("only the last snapshot", pipeline, (tuple(deliveries[-1:]),), compared=(ROWS,))
        yield from _any_order(pipeline, deliveries, random, (ROWS,))
    elif pipeline.complete == "no" and pipeline.bounds == "none":
        yield from _any_order(pipeline, deliveries, random, (ROWS, VERSIONS, POSITION))
    else:
        while True:
            yield _grouped("in order", pipeline, deliveries, random, ALL)


# --------------------------------------------------------------------------- orders


def _together(pipeline: Delivered, deliveries: Sequence[Placed]) -> Way:
    return Way("all in one run", pipeline, (tuple(deliveries),), apart=False)


def _any_order(
    pipeline: Delivered, deliveries: Sequence[Placed], random: Random, compared: tuple[str, ...]
) -> Iterator[Way]:
    """Every order, where these are few; else the reverse one, and any that chance gives, in groups."""
    if math.factorial(min(len(deliveries), 20)) <= 24:
        orders: Iterable[Sequence[Placed]] = itertools.permutations(deliveries)
    else:
        orders = [deliveries[::-1]]
    for order in orders:
        yield Way("each when it arrives, in another order", pipeline, tuple((d,) for d in order), compared=compared)
    while True:
        order = random.sample(deliveries, len(deliveries))
        yield _grouped("some at a time, in another order", pipeline, order, random, compared)


def _grouped(
    title: str, pipeline: Delivered, order: Sequence[Placed], random: Random, compared: tuple[str, ...]
) -> Way:
    """Groups of neighbours, each loaded in one run or in one run a delivery."""
    inner = sorted(random.sample(range(1, len(order)), random.randint(0, len(order) - 1)))
    rounds = tuple(tuple(order[start:end]) for start, end in itertools.pairwise([0, *inner, len(order)]))
    apart = random.random() < 0.5
    runs = "a run for each" if apart else "a run for those that arrive together"
    return Way(f"{title}, {runs}", pipeline, rounds, apart, compared)


def _in_pieces(transform: Transform) -> Transform:
    """The same logic, called for each piece of a delivery."""
    import pandas as pd

    def in_pieces(frame: pd.DataFrame) -> pd.DataFrame:
        size = max(1, -(-len(frame) // PIECES))
        starts = range(0, max(1, len(frame)), size)
        return pd.concat([transform.function(frame.iloc[start : start + size]) for start in starts])

    return Transform(function=in_pieces, version=transform.version)
