"""Which partitions to ask for: landing minus ledger minus what is in flight, in bounded requests, and said in words.

The truth is derived each time. Nothing depends on a cursor or on run keys that were used, so nothing is lost when they are.

What counts against a delivery are its refusals in the ledger. A run that ended without a commit, for whichever reason, counts
against nothing: its deliveries are asked for again, after a pause that grows up to an hour.

Partitions that are replaced are asked for side by side. Logs and snapshots are asked for in their order, one run of a pipeline
at a time: what comes next waits until it has ended. Shards of a log each have their own order, and do not wait for each other.
"""

import datetime as dt
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from etl_assets.contract import Pipeline, ShardedPartitions
from etl_assets.contract.partitions import shard_of, shards_of
from etl_assets.landing import settling
from etl_assets.loading import Status
from etl_assets.orchestration.findings import Findings
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG, Flight, Records, Tried
from etl_assets.orchestration.names import DELIVERIES_TAG, PIPELINE_TAG, in_order, job_name, label, label_with_stamp
from etl_assets.orchestration.wording import listed, spans, with_reasons

#: A file that was written less than this ago may still be growing.
SETTLE_SECONDS = 5.0
#: Runs of a pipeline (or of a log's shard) asked for at one tick; the next tick asks for more.
REQUESTS_PER_TICK = 10
#: After a first run without a commit the next tick asks again; then the pause is this long, and doubles up to the longest.
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 30.0, 3600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Runs to ask for, and what there is to say about all the rest; nothing where all is committed."""

    requests: list[dg.RunRequest]
    message: str
    idle: bool


@dataclass(frozen=True, slots=True)
class _Sorted:
    """What waits, by what is to be done about it."""

    wanted: list[Status]
    held: list[tuple[Status, str]]
    in_flight: list[Status]


def plan_requests(pipeline: Pipeline, findings: Findings, records: Records) -> Plan:
    """Plan the runs for what waits."""
    if not findings.waiting:
        message, idle = _describe(pipeline, findings, _Sorted([], [], []), [], {})
        return Plan([], message, idle)
    keys = pipeline.partitions.keys()
    flying, tried = records.in_flight(pipeline, keys), records.tried(pipeline)
    by_need = _sort(pipeline, findings.waiting, flying, tried)
    asked = []
    for shard in shards_of(pipeline.partitions):
        wanted = [s for s in by_need.wanted if _shard(pipeline, s.scope) == shard]
        own = [key for key in keys if _shard(pipeline, key) == shard]
        asked += list(_groups(pipeline, own, wanted, tried))[: 1 if in_order(pipeline) else REQUESTS_PER_TICK]
    requests = [_request(pipeline, group, tried) for group in asked]
    message, _ = _describe(pipeline, findings, by_need, [s for group in asked for s in group], flying)
    return Plan(requests, message, idle=False)


def _shard(pipeline: Pipeline, scope: str) -> str:
    return shard_of(pipeline.partitions, scope)


def _sort(
    pipeline: Pipeline, waiting: Iterable[Status], flying: Mapping[str, Flight], tried: Mapping[str, Tried]
) -> _Sorted:
    by_need = _Sorted([], [], [])
    after: dict[str, str] = {}
    busy = {_shard(pipeline, scope) for scope in flying} if in_order(pipeline) else set()
    for status in waiting:
        shard = _shard(pipeline, status.scope)
        still = settling(status.arrival, SETTLE_SECONDS) if status.arrival else None
        still = still or _pause(tried.get(label_with_stamp(pipeline, status), Tried()))
        if status.scope in flying or shard in busy:
            by_need.in_flight.append(status)
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


def _pause(tried: Tried) -> str | None:
    """Why a delivery is not asked for yet: its last run ended without a commit a short while ago."""
    if tried.failed < 2:
        return None
    pause = min(PAUSE_SECONDS * 2 ** min(tried.failed - 2, 16), LONGEST_PAUSE_SECONDS)
    due = tried.last + dt.timedelta(seconds=pause)
    if dt.datetime.now(dt.UTC) >= due:
        return None
    return f"tried {tried.failed} times without a commit, see its runs; next after {due:%H:%M:%S} UTC"


def _groups(
    pipeline: Pipeline, keys: Sequence[str], wanted: Iterable[Status], tried: Mapping[str, Tried]
) -> Iterator[list[Status]]:
    """Runs of contiguous partitions. A delivery whose run has failed goes alone: it may have ended the run of others."""
    place = {key: i for i, key in enumerate(keys)}
    ordered = sorted(wanted, key=lambda s: place[s.scope])
    group: list[Status] = []
    last = alone = None
    for scope, statuses in itertools.groupby(ordered, key=lambda s: s.scope):
        deliveries = list(statuses)
        once_failed = any(tried.get(label_with_stamp(pipeline, status), Tried()).failed for status in deliveries)
        follows = last is not None and place[scope] == place[last] + 1
        full = len({s.scope for s in group}) == pipeline.max_partitions_per_run
        if group and (once_failed or alone or not follows or full):
            yield group
            group = []
        group.extend(deliveries)
        last, alone = scope, once_failed
    if group:
        yield group


def _request(pipeline: Pipeline, group: Sequence[Status], tried: Mapping[str, Tried]) -> dg.RunRequest:
    labels = [label(pipeline, status) for status in group]
    # Dagster never launches a run key twice, even after a failure: the attempt makes it another one.
    attempt = max(tried.get(one, Tried()).times for one in labels) + 1
    lines = "\n".join(label_with_stamp(pipeline, status) for status in group)
    tags = {PIPELINE_TAG: pipeline.name, DELIVERIES_TAG: lines}
    sharded = isinstance(pipeline.partitions, ShardedPartitions)
    first, last, job = group[0].scope, group[-1].scope, job_name(pipeline)
    if len(group) == 1 and not sharded:
        run_key = f"{pipeline.name}/{labels[0]} attempt {attempt}"
        return dg.RunRequest(run_key=run_key, partition_key=first, tags=tags, job_name=job)
    deliveries = hashlib.sha256("\n".join(labels).encode()).hexdigest()[:16]
    run_key = f"{pipeline.name}/{first}..{last} deliveries {deliveries} attempt {attempt}"
    # Of two dimensions even one partition goes as a range: for its key Dagster makes tags that it then warns of.
    if first == last and not sharded:
        return dg.RunRequest(run_key=run_key, partition_key=first, tags=tags, job_name=job)
    tags |= {RANGE_START_TAG: first, RANGE_END_TAG: last}
    return dg.RunRequest(run_key=run_key, tags=tags, job_name=job)


def _describe(
    pipeline: Pipeline,
    findings: Findings,
    by_need: _Sorted,
    asked: Sequence[Status],
    flying: Mapping[str, Flight],
) -> tuple[str, bool]:
    """What was asked for and what was not, and why, the states that a person looks for first; and whether that is nothing."""
    later = len({s.scope for s in by_need.wanted} - {s.scope for s in asked})
    flight = "in flight, or waiting for the run in flight to end" if in_order(pipeline) else "in flight"
    long = {flight.id: flight for flight in flying.values() if by_need.in_flight and flight.is_long}
    parts = [
        f"asked for {spans(pipeline, (s.scope for s in asked))}" if asked else "",
        f"{later} more partitions at the next ticks" if later else "",
        listed("needs attention", with_reasons(findings.attention)),
        ". ".join(flight.advice for flight in long.values()),
        listed("waits", by_need.held),
        f"{flight}: {spans(pipeline, (s.scope for s in by_need.in_flight))}" if by_need.in_flight else "",
        listed("still arriving", with_reasons(findings.arriving)),
        listed("unknown partition", with_reasons(findings.unknown)),
        f"no delivery for {findings.missing}" if findings.missing else "",
        findings.misfits,
    ]
    said = [part for part in parts if part]
    idle = not said
    if not asked:
        what = (
            "deliveries are committed" if in_order(pipeline) else "partitions are committed with their newest delivery"
        )
        said.insert(0, f"nothing to ask for: {findings.committed:,} {what}")
    return ". ".join(said), idle
