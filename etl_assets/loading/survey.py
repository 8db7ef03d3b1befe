"""The state of every delivery: landing beside ledger, without reading a file that both know.

Belongs here: which of the states that must never be confused a delivery is in, and which scopes wait for a run.
This is derived each time; nothing of it is stored.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline, WatermarkTable, is_remade
from etl_assets.contract.partitions import shard_of, shards_of
from etl_assets.errors import EtlError, UnrelatedDeliveries
from etl_assets.loading.choosing import doubt, in_doubt, newest, order_counts
from etl_assets.loading.decided import Decided, came_before, waits_for, why_before
from etl_assets.loading.history import History
from etl_assets.loading.sources import Source, open_source
from etl_assets.model import Arrival, Delivery, LedgerEntry, Manifest, RecordedDelivery, Refusal, refusal_code
from etl_assets.naming import shown
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink
from etl_assets.staging import StagedFolder

State = Literal[
    "unknown partition", "still arriving", "arrived", "staged", "refused", "needs attention", "committed", "superseded"
]

#: States of a scope's newest delivery in which a run has something to do.
WAITING: tuple[State, ...] = ("arrived", "staged", "refused")


@dataclass(frozen=True, slots=True)
class Status:
    """One delivery and its state; ``newest`` marks the one that a run of the scope would take.

    ``waits`` says that it is read and valid, and that the events before its own are missing: a run could only say so.
    """

    pipeline: str
    scope: str
    name: str
    revision: int
    state: State
    reason: str
    newest: bool = False
    attempts: int = 0
    arrival: Arrival | None = None
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Survey:
    """All deliveries of a pipeline, and the scopes between its first and last one that have none.

    ``misfits`` are files that the pattern fits but for case or Unicode form.
    """

    pipeline: str
    statuses: tuple[Status, ...]
    missing: tuple[str, ...]
    newest_counts: bool = True
    misfits: tuple[str, ...] = ()

    def waiting(self, attempts: int | None = None) -> list[Status]:
        """The newest delivery of each scope that is not committed yet, in order of scope.

        With ``attempts``, only those that were refused fewer times: what a sensor asks for by itself.
        """
        wanted = WAITING if attempts is not None else (*WAITING, "needs attention")
        found = [s for s in self.statuses if s.newest and s.state in wanted]
        return [s for s in found if attempts is None or s.attempts < attempts]

    def whole(self) -> set[str]:
        """Return the scopes that are committed whole: a delivery of theirs is, and where each one counts, none waits."""
        committed = {s.scope for s in self.statuses if s.state == "committed"}
        waiting = () if self.newest_counts else (s.scope for s in self.waiting())
        return committed.difference(waiting)


def survey(settings: Settings, pipeline: Pipeline, scopes: Sequence[str] | None = None) -> Survey:
    """Look at landing, ledger and staged folder; for all scopes, or some.

    Raises :class:`~etl_assets.errors.LandingUnreachable`.
    """
    sink = open_sink(settings.warehouse)
    source = open_source(settings, pipeline, sink)
    return _Surveyor(pipeline, source, sink, StagedFolder(settings.staged), scopes).survey()


def open_scopes(pipeline: Pipeline, found: Survey) -> set[str]:
    """The scopes that are not loaded: a delivery that counts was refused or, where each one counts, waits for its turn.

    Where the newest delivery counts, one that has arrived since does not make the rows of the last one less loaded.
    """
    states: tuple[State, ...] = ("refused", "needs attention")
    states = states if pipeline.newest_counts else (*WAITING, *states)
    return {s.scope for s in found.statuses if s.newest and s.state in states}


class _Surveyor:
    def __init__(
        self, pipeline: Pipeline, source: Source, sink: Sink, staged: StagedFolder, scopes: Sequence[str] | None
    ) -> None:
        self.pipeline, self.source, self.staged = pipeline, source, staged
        self.wanted = None if scopes is None else set(scopes)
        self.listed = source.arrivals(scopes[0] if scopes is not None and len(scopes) == 1 else None)
        self.history = History(pipeline, sink, scopes)
        self.positions: dict[str, int | None] = {}
        self.decided: Decided | None = None
        if isinstance(pipeline, ChangeLogTable):
            self.positions = {shard: sink.position(pipeline.name, shard) for shard in shards_of(pipeline.partitions)}
            self.decided = Decided(pipeline, sink, source)

    def survey(self) -> Survey:
        arrivals: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in self.listed:
            arrivals[arrival.scope].append(arrival)
        statuses: list[Status] = []
        known = {*arrivals, *self.history.recorded}
        for scope in sorted(known if self.wanted is None else known & self.wanted):
            statuses.extend(self._scope(scope, arrivals.get(scope, [])))
        keys = self.pipeline.partitions.keys() if self.wanted is None else ()
        there = [key in arrivals or key in self.history.current for key in keys]
        missing: tuple[str, ...] = ()
        if any(there):
            first, last = there.index(True), len(there) - 1 - there[::-1].index(True)
            missing = tuple(
                key for key, is_there in zip(keys[first:last], there[first:last], strict=True) if not is_there
            )
        return Survey(
            self.pipeline.name, tuple(statuses), missing, self.pipeline.newest_counts, tuple(self.source.misfits)
        )

    def _scope(self, scope: str, arrivals: list[Arrival]) -> list[Status]:
        complete = [a for a in arrivals if not a.arriving and a.known]
        chosen = self._newest(scope, complete)
        doubts = self._doubts(scope, complete)
        found: list[tuple[tuple[str, int], Status]] = []
        present: set[tuple[str, int]] = set()
        for arrival in arrivals:
            status = self._arrival(arrival, chosen, doubts.get(arrival.name))
            present.add((status.name, status.revision))
            found.append(((arrival.order, status.revision), status))
        for name, revisions in self.history.recorded.get(scope, {}).items():
            gone = (r for r in revisions if (name, r.delivery.revision) not in present)
            found.extend((r.delivery.place, self._gone(r)) for r in gone)
        return [status for _, status in sorted(found, key=lambda placed: placed[0])]

    def _newest(self, scope: str, complete: list[Arrival]) -> Arrival | None:
        if len(complete) < 2 or not self.pipeline.newest_counts:
            return complete[-1] if complete else None
        return newest(complete, [a for a in complete if not self._has_batch(a)], self.history.current.get(scope))

    def _doubts(self, scope: str, complete: list[Arrival]) -> dict[str, str]:
        """Why names, or contents, do not tell which of a scope's deliveries counts; by the names of those that are not loaded."""
        if not order_counts(self.pipeline) or not complete:
            return {}
        if not self.pipeline.newest_counts:
            standing = self.history.placed.get(scope, {})
        else:
            current = self.history.current.get(scope)
            standing = {current.delivery: current.order} if current else {}
        if len({*standing, *(a.name for a in complete)}) == 1:
            return {}
        waiting = [a for a in complete if not self._has_batch(a)]
        found = in_doubt(self.pipeline, waiting, standing)
        if found:
            return {name: doubt(name, other) for name, other in found.items()}
        refusals = [self._refusal(a) for a in waiting]
        unrelated = [r.reason for r in refusals if r and r.kind == UnrelatedDeliveries.__name__]
        return {a.name: unrelated[0] for a in waiting} if unrelated and len(complete) > 1 else {}

    def _has_batch(self, arrival: Arrival) -> bool:
        revision, known, _ = self._revision(arrival)
        if self.history.batch(arrival.scope, arrival.name, revision) is not None:
            return True
        sha256 = self._sha256(arrival, known)
        return self.history.restated_over(arrival.scope, arrival.name, revision, sha256) is not None

    def _sha256(self, arrival: Arrival, known: RecordedDelivery | None) -> str | None:
        """The digest of bytes that are new under their name, where a decision to restate may be about them."""
        if known is not None or not self.history.is_decided(arrival.scope):
            return None
        with contextlib.suppress(EtlError):
            return self.source.sha256(arrival)
        return None

    def _refusal(self, arrival: Arrival) -> Refusal | None:
        """How these very bytes were refused under this very contract."""
        _, known, _ = self._revision(arrival)
        return known.refusal if known and self._counts(known.refusal, arrival) else None

    def _counts(self, refusal: Refusal | None, arrival: Arrival) -> bool:
        """Whether a refusal is by this very contract, logic and control file; one that cannot be read changes nothing."""
        if refusal is None:
            return False
        try:
            return refusal.code == refusal_code(self.pipeline.code, self.source.declared(arrival))
        except EtlError:
            return refusal.code.startswith(self.pipeline.code)

    def _arrival(self, arrival: Arrival, chosen: Arrival | None, attention: str | None) -> Status:
        revision, known, trouble = self._revision(arrival)
        is_newest = arrival is chosen or not self.pipeline.newest_counts or attention is not None

        def status(state: State, reason: str, attempts: int = 0, waits: bool = False) -> Status:
            place = (self.pipeline.name, arrival.scope, arrival.name, revision)
            return Status(*place, state, reason, is_newest, attempts, arrival, waits)

        if not arrival.known:
            unknown = f"{arrival.scope!r} is not among the {self.pipeline.partitions.describe()}"
            return status("unknown partition", arrival.arriving or unknown)
        if arrival.arriving:
            return status("still arriving", arrival.arriving)
        settled = self._settled(arrival.scope, arrival.name, revision, arrival.order, self._sha256(arrival, known))
        if settled:
            state, reason = settled
            return status(
                state, f"{reason}; whether it has changed since is not known: {trouble}" if trouble else reason
            )
        if trouble:
            return status("arrived", str(trouble))
        if attention:
            return status("needs attention", attention, known.refusal.attempts if known and known.refusal else 0)
        began = self.decided.began(arrival.scope) if self.decided else None
        if began and came_before(arrival.scope, arrival.order, began):
            return status("needs attention", why_before(began))
        if not is_newest and chosen is not None:
            return status("arrived", f"older than {shown(chosen.name)}, which is the one that a run takes")
        if known is not None:
            refusal = known.refusal
            # What it shared no key with is gone: it is a delivery like any other.
            is_left = refusal is not None and refusal.kind == UnrelatedDeliveries.__name__
            if refusal and not is_left and self._counts(refusal, arrival):
                if refusal.needs_attention(self.pipeline.attempts):
                    times = "once" if refusal.attempts == 1 else f"{refusal.attempts} times"
                    why = f"refused {times}: {refusal.reason}"
                    return status("needs attention", why, refusal.attempts)
                return status("refused", refusal.reason, refusal.attempts)
            try:
                extract = self.staged.find(known.delivery, self.pipeline.code, self.pipeline.transform_version)
            except EtlError as error:
                return status("arrived", str(error))
            if extract:
                state, reason, waits = self._staged(extract.manifest)
                return status(state, reason, waits=waits)
        return status("arrived", self._unread(arrival))

    def _unread(self, arrival: Arrival) -> str:
        if not isinstance(self.pipeline, DerivedTable):
            return "not read yet"
        known = self.history.last(arrival.scope, arrival.name)
        return "stale: a batch that it was computed of has a successor" if known else "not computed yet"

    def _staged(self, manifest: Manifest) -> tuple[State, str, bool]:
        """A frozen delivery that is not published: of a change log, whether its turn is over or has not come."""
        frozen: State = "staged"
        if isinstance(self.pipeline, ChangeLogTable) and manifest.upper is not None and manifest.lower is not None:
            done = self.positions[shard_of(self.pipeline.partitions, manifest.scope)]
            position = self.pipeline.events.first_position - 1 if done is None else done
            others = self.decided.disputed(manifest.scope, manifest.delivery) if self.decided else []
            if others:
                return frozen, waits_for(others), True
            given_up = self.decided.given_up(manifest.scope, manifest.lower, manifest.upper) if self.decided else None
            if given_up:
                return "superseded", f"its positions were given up before {given_up.batch} ({given_up.reason})", False
            begun = self.history.begun.get((manifest.scope, manifest.delivery, manifest.revision))
            if begun and begun.upper == position:
                return frozen, f"committed up to position {position}, and the rest of it is not published yet", False
            if manifest.lower > position:
                reason = f"waits for its turn: positions {position + 1} to {manifest.lower} are missing"
                return frozen, reason, True
            if manifest.lower < position:
                reason = (
                    f"positions up to {position} are committed: it is compared with them, and what lies beyond is taken"
                )
                return frozen, reason, False
        return frozen, "frozen and valid, not published yet", False

    def _revision(self, arrival: Arrival) -> tuple[int, RecordedDelivery | None, EtlError | None]:
        """The revision that these bytes are, or would be; what was recorded of it; and what kept them from being read.

        They are read only where the stamp has changed.
        """
        last = self.history.last(arrival.scope, arrival.name)
        if last is None:
            return 1, None, None
        try:
            if last.delivery.stamp == arrival.stamp or self.source.sha256(arrival) == last.delivery.sha256:
                return last.delivery.revision, last, None
        except EtlError as error:
            return last.delivery.revision, last, error
        return last.delivery.revision + 1, None, None

    def _settled(
        self, scope: str, name: str, revision: int, order: str, sha256: str | None = None
    ) -> tuple[State, str] | None:
        """Committed or superseded, by the ledger; None when the ledger has nothing that settles it."""
        current = self.history.current.get(scope)
        batch = self.history.batch(scope, name, revision)
        if not self.pipeline.newest_counts:
            if batch is None:
                return self._overtaken(scope, name, order, revision)
            begun = self.decided.began(scope) if self.decided else self.history.restated
            if begun and batch.id < begun.id:
                return "superseded", f"by {begun.batch}, which the table was made of anew ({begun.reason})"
            return "committed", self._committed(batch)
        aside = self.history.restated_over(scope, name, revision, sha256)
        if aside:
            return "superseded", f"by {aside.batch} ({aside.reason})"
        if batch is None:
            if current and current.is_newer_than(name, order, revision):
                return "superseded", f"{current.batch} is committed, and its delivery is newer"
            return None
        if current and (current.delivery, current.revision) == (name, revision):
            return "committed", self._committed(current)
        why = f" ({current.reason})" if current and current.operation == "restate" else ""
        return "superseded", f"by {current.batch if current else 'nothing'}{why}"

    def _committed(self, batch: LedgerEntry) -> str:
        older = batch.transform_version < self.pipeline.transform_version
        logic = f"; by transform version {batch.transform_version}, the contract has {self.pipeline.transform_version}"
        contract = "; by an older contract: a run of the partition applies what has changed since"
        known = self.history.last(batch.scope, batch.delivery)
        differs = is_remade(self.pipeline) and self.pipeline.code not in (batch.code, known and known.proved_code)
        left_out = f"; the bounds left out {batch.missed:,} rows that the table lacks: widen them and run it again"
        by = logic if older else contract if differs else ""
        return f"as {batch.batch} at {batch.committed_at}{by}{left_out if batch.missed else ''}"

    def _overtaken(self, scope: str, name: str, order: str, revision: int) -> tuple[State, str] | None:
        """A complete snapshot that was not committed before a later one was, or whose bytes were restated away."""
        if not isinstance(self.pipeline, WatermarkTable) or self.pipeline.complete == "no":
            return None
        away = self.history.restated_away(scope, name, revision)
        if away:
            return "superseded", f"by {away.batch}, which the table was made of anew ({away.reason})"
        later = self.history.later(scope, name, order, revision)
        return ("superseded", f"{later.batch} is committed, a later snapshot") if later else None

    def _gone(self, recorded: RecordedDelivery) -> Status:
        """A delivery whose bytes are no longer in landing."""
        delivery: Delivery = recorded.delivery
        settled = self._settled(delivery.scope, delivery.name, delivery.revision, delivery.order)
        state: State
        if settled:
            state, reason = settled
        elif recorded.refusal:
            state, reason = "refused", f"{recorded.refusal.reason} (no longer in landing)"
        else:
            state, reason = "superseded", "it was read, and is no longer in landing"
        return Status(self.pipeline.name, delivery.scope, delivery.name, delivery.revision, state, reason)
