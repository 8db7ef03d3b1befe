"""Which partitions to ask for: landing minus ledger minus what is in flight, in bounded requests, and said in words.

The truth is derived anew each time. Nothing depends on a cursor or on run keys that were used, so nothing is lost
when they are.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.landing import settling
from etl_assets.orchestration.inflight import (
    RANGE_END_TAG,
    RANGE_START_TAG,
    count_requests,
    partitions_requested,
    partitions_running,
)
from etl_assets.orchestration.names import DELIVERIES_TAG, PIPELINE_TAG
from etl_assets.orchestration.resources import Rooms
from etl_assets.survey import Status, Survey, survey

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
    settling: list[tuple[Status, str]]
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
    groups = list(_groups(pipeline, keys, by_need.wanted, failed))
    asked = groups[:REQUESTS_PER_TICK]
    requests = [_request(pipeline, group, ended) for group in asked]
    return Plan(requests, _describe(pipeline, found, by_need, [s for group in asked for s in group]))


def label(pipeline: Pipeline, status: Status) -> str:
    """The delivery that a request is for, and the logic that is to load it."""
    return f"{status.scope}/{status.name}#{status.revision}@{pipeline.transform_version}"


def _sort(pipeline: Pipeline, waiting: Iterable[Status], flying: set[str], failed: Counter[str]) -> _Sorted:
    by_need = _Sorted([], [], [], [])
    for status in waiting:
        still = settling(status.arrival, SETTLE_SECONDS) if status.arrival else None
        if status.scope in flying:
            by_need.in_flight.append(status)
        elif failed[label(pipeline, status)] >= pipeline.attempts:
            by_need.exhausted.append(status)
        elif still:
            by_need.settling.append((status, still))
        else:
            by_need.wanted.append(status)
    return by_need


def _groups(
    pipeline: Pipeline, keys: Sequence[str], wanted: Iterable[Status], failed: Counter[str]
) -> Iterable[list[Status]]:
    """Runs of contiguous partitions. A delivery whose run has failed goes alone: it may have ended the run of others."""
    place = {key: i for i, key in enumerate(keys)}
    group: list[Status] = []
    for status in sorted(wanted, key=lambda s: place[s.scope]):
        alone = failed[label(pipeline, status)] > 0
        follows = group and place[status.scope] == place[group[-1].scope] + 1
        if group and (alone or not follows or len(group) == pipeline.max_partitions_per_run):
            yield group
            group = []
        group.append(status)
        if alone:
            yield group
            group = []
    if group:
        yield group


def _request(pipeline: Pipeline, group: Sequence[Status], ended: Counter[str]) -> dg.RunRequest:
    labels = [label(pipeline, status) for status in group]
    # Dagster never launches a run key twice, even after a failure: the attempt makes it another one.
    attempt = max(ended[one] for one in labels) + 1
    tags = {PIPELINE_TAG: pipeline.name, DELIVERIES_TAG: "\n".join(labels)}
    if len(group) == 1:
        run_key = f"{pipeline.name}/{labels[0]} attempt {attempt}"
        return dg.RunRequest(run_key=run_key, partition_key=group[0].scope, tags=tags)
    first, last = group[0].scope, group[-1].scope
    deliveries = hashlib.sha256("\n".join(labels).encode()).hexdigest()[:16]
    return dg.RunRequest(
        run_key=f"{pipeline.name}/{first}..{last} deliveries {deliveries} attempt {attempt}",
        tags={**tags, RANGE_START_TAG: first, RANGE_END_TAG: last},
    )


# ------------------------------------------------------------------ in words


def spans(pipeline: Pipeline, scopes: Iterable[str]) -> str:
    """Partition keys in their order, contiguous ones as ``first..last``."""
    place = {key: i for i, key in enumerate(pipeline.partitions.keys())}
    known = sorted((s for s in scopes if s in place), key=place.__getitem__)
    parts = []
    for _, run in itertools.groupby(enumerate(known), key=lambda pair: place[pair[1]] - pair[0]):
        keys = [key for _, key in run]
        parts.append(keys[0] if len(keys) == 1 else f"{keys[0]}..{keys[-1]}")
    return ", ".join(parts)


def _describe(pipeline: Pipeline, found: Survey, by_need: _Sorted, asked: Sequence[Status]) -> str:
    """What was asked for and what was not, and why; the states that a person looks for first come first."""
    later = len(by_need.wanted) - len(asked)
    attention = [(s, s.reason) for s in found.statuses if s.newest and s.state == "needs attention"]
    tired = f"asked for {pipeline.attempts} times without a commit; look at its runs, then launch the partition"
    attention += [(s, tired) for s in by_need.exhausted]
    parts = [
        f"asked for {spans(pipeline, (s.scope for s in asked))}" if asked else "",
        f"{later} more partitions at the next ticks" if later else "",
        _listed("needs attention", attention),
        _listed("waits", by_need.settling),
        f"in flight: {spans(pipeline, (s.scope for s in by_need.in_flight))}" if by_need.in_flight else "",
        _listed("still arriving", [(s, s.reason) for s in found.statuses if s.state == "still arriving"]),
        _listed("unknown partition", [(s, s.reason) for s in found.statuses if s.state == "unknown partition"]),
        f"no delivery for {spans(pipeline, found.missing)}" if found.missing else "",
    ]
    committed = sum(s.state == "committed" for s in found.statuses)
    said = [part for part in parts if part]
    if not asked:
        said.insert(0, f"nothing to ask for: {committed:,} partitions are committed with their newest delivery")
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
