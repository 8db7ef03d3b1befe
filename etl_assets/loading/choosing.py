"""Whether names tell which of a partition's deliveries is the newest one, and which of them wait for the same turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from etl_assets.contract import Pipeline, WatermarkTable
from etl_assets.model import Arrival, Placed
from etl_assets.naming import is_later, shown


def order_counts(pipeline: Pipeline) -> bool:
    """Return whether the rows depend on which delivery is the newest one: not those of logs and partial snapshots."""
    return pipeline.newest_counts or (isinstance(pipeline, WatermarkTable) and pipeline.complete != "no")


def newest(complete: Sequence[Arrival], waiting: Sequence[Arrival], current: Placed | None) -> Arrival:
    """Return the delivery that a run takes: the last by name, unless what a person chose stands above that one.

    ``waiting`` are those that the ledger has not settled, ``current`` is the batch that stands.
    """
    last = complete[-1]
    if current is None or last in waiting or last.name == current.delivery:
        return last
    later = [a for a in waiting if a.name == current.delivery or is_later(a.order, current.order)]
    return later[-1] if later else last


def in_doubt(pipeline: Pipeline, waiting: Iterable[Arrival], committed: Mapping[str, str]) -> dict[str, str]:
    """Return the deliveries whose place the names do not tell, each with the one that it cannot be compared with.

    ``waiting`` are a partition's deliveries that a run would have to place. ``committed`` has the orders of those that they
    are placed after, by name: the one that stands, or all of them where each one counts.
    """
    if not order_counts(pipeline):
        return {}
    open_names = {arrival.name: arrival.order for arrival in waiting}
    orders = sorted((open_names | dict(committed)).items(), key=lambda item: item[1])
    # The newest one must be later than each of the others; where each one counts, than the one before it.
    pairs = ((one, orders[-1]) for one in orders[:-1]) if pipeline.newest_counts else itertools.pairwise(orders)
    found: dict[str, str] = {}
    for (older, order), (newer, other) in pairs:
        if is_later(other, order) is None:
            found.setdefault(older, newer)
            found.setdefault(newer, older)
    return {name: other for name, other in found.items() if name in open_names}


def doubt(name: str, other: str) -> str:
    """Return why a delivery is not loaded whose name does not tell whether it is newer than another one."""
    return (
        f"the names {shown(name)!r} and {shown(other)!r} do not tell which of the two is newer, so it is not loaded. Nothing was "
        "changed; give deliveries numbers, or load one on purpose by its name (--delivery)"
    )


def beside(chosen: Arrival, waiting: Sequence[Arrival], standing: str | None) -> list[Arrival]:
    """Return what waits together with the chosen delivery: neither committed nor older than the one that stands."""
    others = [a for a in waiting if a.name != chosen.name]
    return [a for a in others if standing is None or not is_later(standing, a.order)]
