"""What a tick says of a pipeline, in words: what was asked for, what was not, and why."""

import itertools
from collections.abc import Iterable, Sequence

from etl_assets.contract import Pipeline
from etl_assets.contract.partitions import shard_of, shards_of
from etl_assets.loading import Status, Survey
from etl_assets.naming import shown
from etl_assets.orchestration.names import in_order

#: Deliveries of one kind that a message names; the rest are counted.
NAMED = 5


def spans(pipeline: Pipeline, scopes: Iterable[str]) -> str:
    """Partition keys in their order, contiguous ones as ``first..last``; of a log with shards, one shard after the other."""
    every, shards = pipeline.partitions.keys(), shards_of(pipeline.partitions)
    shard = {key: shard_of(pipeline.partitions, key) for key in every}
    place = {key: i for i, key in enumerate(sorted(every, key=lambda key: shards.index(shard[key])))}
    known = sorted({s for s in scopes if s in place}, key=place.__getitem__)
    parts = []
    for _, run in itertools.groupby(enumerate(known), key=lambda pair: (place[pair[1]] - pair[0], shard[pair[1]])):
        keys = [key for _, key in run]
        parts.append(keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]}")
    return ", ".join(parts)


def missing(pipeline: Pipeline, found: Survey) -> str:
    """Partitions without a delivery. Of logs and snapshots none is missed: the next ones say what happened, or show a gap."""
    return spans(pipeline, found.missing) if found.missing and not in_order(pipeline) else ""


def listed(what: str, which: Sequence[tuple[Status, str]]) -> str:
    """Some deliveries with the reason of each; an empty text where there are none."""
    if not which:
        return ""
    listed = [f"{place(status)} ({_brief(reason)})" for status, reason in which[:NAMED]]
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{what}: {', '.join(listed)}{more}"


def place(status: Status) -> str:
    """Return the partition, name and revision of a delivery, as they may be shown."""
    return shown(f"{status.scope}/{status.name}#{status.revision}")


def with_reasons(statuses: Iterable[Status]) -> list[tuple[Status, str]]:
    """Statuses beside their own reasons."""
    return [(status, status.reason) for status in statuses]


def _brief(reason: str) -> str:
    line = shown(reason.splitlines()[0]) if reason else ""
    return line if len(line) <= 240 else f"{line[:240]}…"
