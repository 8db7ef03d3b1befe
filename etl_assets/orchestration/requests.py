"""Which partitions to ask for: landing minus ledger minus what is in flight, in bounded requests, and said in words.

The truth is derived anew each time. Nothing depends on a cursor or on run keys that were used, so nothing is lost
when they are.

Partitions that are replaced are asked for side by side. Logs and snapshots are asked for in their order, one run of a pipeline
at a time: what comes next waits until it has ended. Shards of a log each have their own order, and do not wait for each other.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from etl_assets.contract import Pipeline, ShardedPartitions
from etl_assets.contract.partitions import shard_of, shards_of
from etl_assets.landing import settling
from etl_assets.loading import Status, Survey, survey
from etl_assets.orchestration.inflight import (
    RANGE_END_TAG,
    RANGE_START_TAG,
    count_requests,
    partitions_requested,
    partitions_running,
)
from etl_assets.orchestration.names import DELIVERIES_TAG, PIPELINE_TAG, in_order
from etl_assets.orchestration.resources import Rooms

#: A file that was written less than this ago may still be growing.
SETTLE_SECONDS = 5.0
#: Runs asked for at one tick; the next tick asks for more.
REQUESTS_PER_TICK = 10
#: Deliveries of one kind that a message names; the rest are counted.
NAMED = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs to ask for, and what there is to say about all the rest."""

    requests: list[dg.RunRequest]
    message: str


@dataclass(frozen=True, slots=True)
class _Sorted:
    """What waits, by what is to be done about it."""

    wanted: list[Status]
    held: list[tuple[Status, str]]
    in_flight: list[Status]
    exhausted: list[Status]


def plan_requests(
    pipeline: Pipeline,
    rooms: Rooms,
    instance: dg.DagsterInstance,
    asset_graph: Any,
) -> Plan:
    """Plan the runs for what has arrived. Raises :class:`~etl_assets.errors.LandingUnreachable`, which fails the tick."""
    found = survey(rooms.settings, pipeline)
    keys = pipeline.partitions.keys()
    waiting = found.waiting(attempts=pipeline.attempts)
    ended: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    flying: set[str] = set()
    if waiting:
        ended, failed = count_requests(instance, pipeline)
        flying = partitions_running(instance, pipeline, keys) | partitions_requested(instance, pipeline, asset_graph)
    by_need = _sort(pipeline, waiting, flying, failed)
    asked = []
    for shard in shards_of(pipeline.partitions):
        wanted = [s for s in by_need.wanted if _shard(pipeline, s.scope) == shard]
        own = [key for key in keys if _shard(pipeline, key) == shard]
        asked += list(_groups(pipeline, own, wanted, failed))[: 1 if in_order(pipeline) else REQUESTS_PER_TICK]
    requests = [_request(pipeline, group, ended) for group in asked]
    return Plan(requests, _describe(pipeline, found, by_need, [s for group in asked for s in group]))


def label(pipeline: Pipeline, status: Status) -> str:
    """The delivery that a request is for, and the logic that is to load it."""
    return f"{status.scope}/{status.name}#{status.revision}@{pipeline.transform_version}"


def _shard(pipeline: Pipeline, scope: str) -> str:
    return shard_of(pipeline.partitions, scope)


def _sort(pipeline: Pipeline, waiting: Iterable[Status], flying: set[str], failed: Counter[str]) -> _Sorted:
    by_need = _Sorted([], [], [], [])
    after: dict[str, str] = {}
    busy = {_shard(pipeline, scope) for scope in flying} if in_order(pipeline) else set()
    for status in waiting:
        shard = _shard(pipeline, status.scope)
        still = settling(status.arrival, SETTLE_SECONDS) if status.arrival else None
        if status.scope in flying or shard in busy:
            by_need.in_flight.append(status)
        elif failed[label(pipeline, status)] >= pipeline.attempts:
            by_need.exhausted.append(status)
        elif status.waits:
            by_need.held.append((status, status.reason.removeprefix("waits for ")))
        elif still:
            by_need.held.append((status, still))
            after.setdefault(shard, f"its turn: {status.scope}/{status.name} comes first")
        elif shard in after and in_order(pipeline):
            by_need.held.append((status, after[shard]))
        else:
            by_need.wanted.append(status)
    return by_need


def _groups(
    pipeline: Pipeline, keys: Sequence[str], wanted: Iterable[Status], failed: Counter[str]
) -> Iterable[list[Status]]:
    """Runs of contiguous partitions. A delivery whose run has failed goes alone: it may have ended the run of others."""
    place = {key: i for i, key in enumerate(keys)}
    ordered = sorted(wanted, key=lambda s: place[s.scope])
    group: list[Status] = []
    last = alone = None
    for scope, statuses in itertools.groupby(ordered, key=lambda s: s.scope):
        deliveries = list(statuses)
        once_failed = any(failed[label(pipeline, status)] for status in deliveries)
        follows = last is not None and place[scope] == place[last] + 1
        full = len({s.scope for s in group}) == pipeline.max_partitions_per_run
        if group and (once_failed or alone or not follows or full):
            yield group
            group = []
        group.extend(deliveries)
        last, alone = scope, once_failed
    if group:
        yield group


def _request(pipeline: Pipeline, group: Sequence[Status], ended: Counter[str]) -> dg.RunRequest:
    labels = [label(pipeline, status) for status in group]
    # Dagster never launches a run key twice, even after a failure: the attempt makes it another one.
    attempt = max(ended[one] for one in labels) + 1
    tags = {PIPELINE_TAG: pipeline.name, DELIVERIES_TAG: "\n".join(labels)}
    sharded = isinstance(pipeline.partitions, ShardedPartitions)
    if len(group) == 1 and not sharded:
        run_key = f"{pipeline.name}/{labels[0]} attempt {attempt}"
        return dg.RunRequest(run_key=run_key, partition_key=group[0].scope, tags=tags)
    first, last = group[0].scope, group[-1].scope
    deliveries = hashlib.sha256("\n".join(labels).encode()).hexdigest()[:16]
    run_key = f"{pipeline.name}/{first}..{last} deliveries {deliveries} attempt {attempt}"
    # Of two dimensions even one partition goes as a range: for its key Dagster makes tags that it then warns of.
    if first == last and not sharded:
        return dg.RunRequest(run_key=run_key, partition_key=first, tags=tags)
    return dg.RunRequest(run_key=run_key, tags={**tags, RANGE_START_TAG: first, RANGE_END_TAG: last})


# ------------------------------------------------------------------ in words


def spans(pipeline: Pipeline, scopes: Iterable[str]) -> str:
    """Partition keys in their order, contiguous ones as ``first..last``; of a log with shards, one shard after the other."""
    every, shards = pipeline.partitions.keys(), shards_of(pipeline.partitions)
    place = {key: i for i, key in enumerate(sorted(every, key=lambda key: shards.index(_shard(pipeline, key))))}
    known = sorted({s for s in scopes if s in place}, key=place.__getitem__)
    parts = []
    for _, run in itertools.groupby(
        enumerate(known), key=lambda pair: (place[pair[1]] - pair[0], _shard(pipeline, pair[1]))
    ):
        keys = [key for _, key in run]
        parts.append(keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]}")
    return ", ".join(parts)


def missing(pipeline: Pipeline, found: Survey) -> str:
    """Partitions without a delivery. Of logs and snapshots none is missed: the next ones say what happened, or show a gap."""
    return "" if in_order(pipeline) else spans(pipeline, found.missing)


def _describe(pipeline: Pipeline, found: Survey, by_need: _Sorted, asked: Sequence[Status]) -> str:
    """What was asked for and what was not, and why; the states that a person looks for first come first."""
    later = len({s.scope for s in by_need.wanted} - {s.scope for s in asked})
    attention = [(s, s.reason) for s in found.statuses if s.newest and s.state == "needs attention"]
    tired = f"asked for {pipeline.attempts} times without a commit; look at its runs, then launch the partition"
    attention += [(s, tired) for s in by_need.exhausted]
    flight = "in flight, or waiting for the run in flight to end" if in_order(pipeline) else "in flight"
    parts = [
        f"asked for {spans(pipeline, (s.scope for s in asked))}" if asked else "",
        f"{later} more partitions at the next ticks" if later else "",
        _listed("needs attention", attention),
        _listed("waits", by_need.held),
        f"{flight}: {spans(pipeline, (s.scope for s in by_need.in_flight))}" if by_need.in_flight else "",
        _listed("still arriving", [(s, s.reason) for s in found.statuses if s.state == "still arriving"]),
        _listed("unknown partition", [(s, s.reason) for s in found.statuses if s.state == "unknown partition"]),
        f"no delivery for {missing(pipeline, found)}" if missing(pipeline, found) else "",
    ]
    said = [part for part in parts if part]
    if not asked:
        committed = sum(s.state == "committed" for s in found.statuses)
        what = (
            "deliveries are committed" if in_order(pipeline) else "partitions are committed with their newest delivery"
        )
        said.insert(0, f"nothing to ask for: {committed:,} {what}")
    return ". ".join(said)


def _listed(what: str, which: Sequence[tuple[Status, str]]) -> str:
    if not which:
        return ""
    shown = [f"{s.scope}/{s.name}#{s.revision} ({_brief(reason)})" for s, reason in which[:NAMED]]
    more = f" and {len(which) - NAMED:,} more" if len(which) > NAMED else ""
    return f"{what}: {', '.join(shown)}{more}"


def _brief(reason: str) -> str:
    line = reason.splitlines()[0]
    return line if len(line) <= 240 else f"{line[:240]}…"
