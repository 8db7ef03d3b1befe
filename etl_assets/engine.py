"""The way of a delivery through the rooms: landing, staging, sink. One flow for the command line and for Dagster.

A run claims its scopes once, at its start and before it reads a byte to load, so that a run that was paused or cut off
cannot publish what a later one has done since. Scopes whose newest delivery is committed are answered from the
ledger alone: no claim, no page written. One that was merely touched costs its hash.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from etl_assets.ahead import prepared
from etl_assets.contract import ChangeLogTable, Pipeline
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import (
    BatchIdentityConflict,
    DeliveryAbsent,
    EtlError,
    MissingDelivery,
    OperationalError,
    RewrittenDelivery,
    StagingFailed,
    StaleWriter,
    StillArriving,
    Superseded,
    UnexpectedCursor,
    UnknownScope,
    UpstreamMoved,
)
from etl_assets.model import Arrival, Batch, Claim, Counts, Delivery, Extract, Fetched, Receipt, Restatement, batch_id
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink
from etl_assets.sources import open_source
from etl_assets.staging import StagedFolder, stage
from etl_assets.staging.extract import INPUT

#: Files up to this size are prepared while the one before them is published: two are in memory at a time then.
AHEAD_BYTES = 32 << 20

Verdict = Literal["committed", "already committed", "staged", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scope in a run, or of one batch of it. ``final`` says that it is the last one of its delivery."""

    pipeline: str
    scope: str
    status: Verdict
    batch: str | None = None
    delivery: Delivery | None = None
    extract: Extract | None = None
    receipt: Receipt | None = None
    error: EtlError | None = None
    attempts: int = 0
    final: bool = True

    @property
    def counts(self) -> Counts:
        return self.receipt.batch.counts if self.receipt else Counts()

    @property
    def message(self) -> str:
        """One line for a person."""
        if self.error is not None:
            return str(self.error)
        if self.receipt is None:
            return "frozen, not published"
        newer = self.receipt.superseded_by
        return f"{self.status}{f'; superseded by {newer}' if newer else ''}"


@dataclass(frozen=True, slots=True)
class _Turn:
    """One delivery to load: of a scope, by name or the newest (None); ``size`` is that of the scope's files."""

    scope: str
    name: str | None
    claim: Claim | None
    size: int


@dataclass(slots=True)
class _Prepared:
    """What was made of a turn before its transaction, and the private folder that holds it.

    ``batch`` is what is published next: the extract, or one part of it; ``known`` what the ledger has of the others.
    """

    delivery: Delivery | None = None
    extract: Extract | None = None
    batch: Extract | None = None
    work: Path | None = None
    stage: Path | None = None
    known: dict[str, Batch] = field(default_factory=dict)
    error: EtlError | None = None
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def close(self) -> None:
        """Remove the private folder."""
        self.held.close()


class Engine:
    """Loads deliveries of one pipeline. Holds settings and paths, no connection."""

    def __init__(self, settings: Settings, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.sink: Sink = open_sink(settings.warehouse)
        self.source = open_source(settings, pipeline, self.sink)
        self.staged = StagedFolder(settings.staged)

    def check_scopes(self, scopes: Iterable[str]) -> None:
        """Raise :class:`UnknownScope` for a key that the contract's partitions do not have."""
        for scope in scopes:
            if not self.pipeline.partitions.contains(scope):
                raise UnknownScope(
                    f"{self.pipeline.name} has no partition {scope!r}; it has {self.pipeline.partitions.describe()}"
                )

    def load(
        self,
        scopes: Sequence[str],
        run: str,
        restate: Restatement | None = None,
        delivery: str | None = None,
        publish: bool = True,
    ) -> Iterator[Outcome]:
        """Freeze and publish the newest delivery of each scope, each in a transaction of its own.

        Of a change log each delivery of a scope is loaded, in order, up to the first that is refused (one that lies behind
        what is committed holds up none); one of several batches has an outcome for each. ``delivery`` names another one than
        the newest (``2.csv``, or ``2.csv#1`` for an earlier revision that is frozen). With ``publish=False`` deliveries are
        frozen only. What is wrong with one scope is its outcome, and the next one goes on; an :class:`OperationalError` ends
        the run, keeping what was committed.
        """
        scopes = list(dict.fromkeys(scopes))
        self.check_scopes(scopes)
        arrivals = self._arrivals(scopes)
        done = self._done(scopes, arrivals, restate, delivery)
        open_scopes = [s for s in scopes if s not in done and (arrivals[s] or delivery)]
        claims = self.sink.claim(self.pipeline, open_scopes, run) if open_scopes else {}
        self.staged.sweep()
        turns = [
            _Turn(scope, name, claims.get(scope), sum(a.size for a in arrivals[scope]))
            for scope in scopes
            if scope not in done
            for name in ([delivery] if delivery else self._turns(arrivals[scope], bool(restate)))
        ]
        count = Counter(turn.scope for turn in turns)
        refused: set[str] = set()

        def prepare(turn: _Turn) -> _Prepared:
            return _Prepared() if turn.scope in refused else self._prepare(turn)

        with contextlib.closing(prepared(turns, prepare, lambda turn: turn.size <= AHEAD_BYTES)) as coming:
            for scope in scopes:
                yield from done.get(scope, ())
                for turn, made in itertools.islice(coming, count[scope]):
                    for outcome in () if scope in refused else self._finish(turn, made, restate, publish):
                        if outcome.error and not self._is_behind(outcome):
                            refused.add(scope)
                        yield outcome

    def _is_behind(self, outcome: Outcome) -> bool:
        """Whether what was refused is behind what is committed, so that nothing waits for it."""
        if not isinstance(outcome.error, UnexpectedCursor | BatchIdentityConflict) or outcome.extract is None:
            return isinstance(outcome.error, Superseded)
        if not isinstance(self.pipeline, ChangeLogTable):
            return True  # other rows of a delivery that is committed
        position = self.sink.position(self.pipeline.name, shard_of(self.pipeline.partitions, outcome.scope))
        upper = outcome.extract.manifest.upper
        return position is not None and upper is not None and upper <= position

    def _turns(self, arrivals: list[Arrival], restated: bool) -> list[str | None]:
        """The names of what a scope's turn is, in order; None stands for the newest, whatever it is by then."""
        complete = [a.name for a in arrivals if not a.arriving]
        return [None] if self.pipeline.newest_counts or restated or not complete else [*complete]

    # ------------------------------------------------------------------ before the claim

    def _done(
        self, scopes: Sequence[str], arrivals: dict[str, list[Arrival]], restate: Restatement | None, named: str | None
    ) -> dict[str, list[Outcome]]:
        """Scopes that need no claim, because what is asked for is committed."""
        if restate:
            return self._restated(scopes, restate)
        return {} if named else self._committed(scopes, arrivals)

    def _arrivals(self, scopes: Sequence[str]) -> dict[str, list[Arrival]]:
        listed = self.source.arrivals(scopes[0] if len(scopes) == 1 else None)
        wanted: dict[str, list[Arrival]] = {scope: [] for scope in scopes}
        for arrival in listed:
            if arrival.scope in wanted:
                wanted[arrival.scope].append(arrival)
        return wanted

    def _committed(self, scopes: Sequence[str], arrivals: dict[str, list[Arrival]]) -> dict[str, list[Outcome]]:
        """Scopes whose deliveries, by their stamps or bytes, are in the ledger under this very contract and logic.

        The newest delivery of each, or all of them where each one counts.
        """
        known: dict[tuple[str, str], Delivery] = {}
        for recorded in self.sink.deliveries(self.pipeline.name, scopes):
            known[recorded.delivery.scope, recorded.delivery.name] = recorded.delivery
        version = self.pipeline.transform_version
        ledger: dict[tuple[str, str, int], list[Batch]] = defaultdict(list)
        for batch in self.sink.ledger(self.pipeline.name, scopes):
            if batch.transform_version == version:
                ledger[batch.scope, batch.delivery, batch.revision].append(batch)
        current = self.sink.current(self.pipeline.name, scopes)
        differing = self.sink.differing(self.pipeline, scopes)

        def settle(arrival: Arrival) -> list[Outcome]:
            """The batches of a delivery that is committed whole; none where it is not."""
            delivery = known.get((arrival.scope, arrival.name))
            if delivery is None or arrival.scope in differing or not self._unchanged(arrival, delivery):
                return []
            found = ledger.get((delivery.scope, delivery.name, delivery.revision), [])
            batch = found[-1] if found else None
            if batch is None or batch.continues or batch.input_sha256 != delivery.sha256:
                return []
            extract = self._frozen(delivery)
            # A log's delivery may be several batches; of any other the last one stands, a restatement perhaps.
            batches = [*(b for b in found[:-1] if b.continues), batch]
            if batch.code != self.pipeline.code and not (extract and _digests(extract) == [b.digest for b in batches]):
                return []
            newer = current[arrival.scope] if self.pipeline.newest_counts else batch
            superseded_by = newer.batch if newer.id != batch.id else None
            receipts = (Receipt("already committed", b, superseded_by=superseded_by) for b in batches)
            return [self._outcome(arrival.scope, delivery, extract, receipt) for receipt in receipts]

        found: dict[str, list[Outcome]] = {}
        for scope in scopes:
            complete = [a for a in arrivals[scope] if not a.arriving]
            settled = [settle(a) for a in (complete[-1:] if self.pipeline.newest_counts else complete)]
            if settled and all(settled):
                found[scope] = [outcome for outcomes in settled for outcome in outcomes]
        return found

    def _unchanged(self, arrival: Arrival, delivery: Delivery) -> bool:
        """Whether an arrival is what was read under its name: by its stamp, or else, where it has its size, by its bytes."""
        if arrival.stamp == delivery.stamp:
            return True
        if arrival.size != delivery.size:
            return False
        try:
            return self.source.sha256(arrival) == delivery.sha256
        except EtlError:
            return False  # it is read in its turn, and what is wrong is said there

    def _restated(self, scopes: Sequence[str], restate: Restatement) -> dict[str, list[Outcome]]:
        """Scopes for which this very operation is committed: it is not done again, whatever has arrived since."""
        batches = [b for b in self.sink.restated(self.pipeline.name, restate.operation) if b.scope in scopes]
        touched = [b.scope for b in batches]
        current = self.sink.current(self.pipeline.name, touched)
        known = {
            (d.scope, d.name, d.revision): d
            for d in (r.delivery for r in self.sink.deliveries(self.pipeline.name, touched))
        }
        found = {}
        for batch in batches:
            newer = current[batch.scope] if self.pipeline.newest_counts else batch
            superseded_by = newer.batch if newer.id != batch.id else None
            receipt = Receipt("already committed", batch, superseded_by=superseded_by)
            delivery = known[batch.scope, batch.delivery, batch.revision]
            found[batch.scope] = [self._outcome(batch.scope, delivery, self._frozen(delivery), receipt)]
        return found

    def _batch_id(self, delivery: Delivery) -> str:
        version = self.pipeline.transform_version
        return batch_id(delivery.pipeline, delivery.scope, delivery.name, delivery.revision, version)

    # ------------------------------------------------------------------ one scope

    def _prepare(self, turn: _Turn) -> _Prepared:
        """All that comes before the transaction: read, freeze, and make the stage file. Errors wait for their turn."""
        made = _Prepared()
        try:
            if turn.claim is None:
                raise self._missing(turn.scope)
            work = made.held.enter_context(self.staged.workspace())
            made.work = work
            made.delivery, fetched, shown = self._read(turn.scope, turn.name, work)
            self._check_redelivery(made.delivery, shown)
            made.extract = self._freeze(made.delivery, fetched, shown, work)
            made.known = self._known_parts(made.delivery) if made.extract.manifest.parts else {}
            made.batch = next(b for b in made.extract.batches if not _is_known(b, made.known))
            made.stage = self.sink.prepare(self.pipeline, made.batch, work)
        except EtlError as error:
            made.error = error
        except BaseException:
            made.close()
            raise
        return made

    def _finish(self, turn: _Turn, made: _Prepared, restate: Restatement | None, publish: bool) -> Iterator[Outcome]:
        """Publish what was prepared, a batch at a time, up to one that is refused."""
        if made.error is not None or made.extract is None or not publish:
            yield self._finish_batch(turn, made, restate, publish)
            return
        assert made.delivery is not None
        assert made.work is not None
        for batch in made.extract.batches:
            if _is_known(batch, made.known):
                receipt = Receipt("already committed", made.known[batch.manifest.batch])
                yield self._outcome(turn.scope, made.delivery, made.extract, receipt)
                continue
            if batch != made.batch:
                made.batch, made.stage = batch, self.sink.prepare(self.pipeline, batch, made.work)
            outcome = self._finish_batch(turn, made, restate, publish)
            yield outcome
            if outcome.error:
                return

    def _finish_batch(self, turn: _Turn, made: _Prepared, restate: Restatement | None, publish: bool) -> Outcome:
        """Publish what was prepared, or say why not."""
        scope, delivery, extract = turn.scope, made.delivery, made.extract
        try:
            if made.error is not None:
                raise made.error
            assert turn.claim is not None
            assert delivery is not None
            assert extract is not None
            assert made.batch is not None
            assert made.stage is not None
            if not publish:
                self.sink.record(turn.claim, delivery)
                return Outcome(self.pipeline.name, scope, "staged", self._batch_id(delivery), delivery, extract)
            receipt = self.sink.publish(self.pipeline, turn.claim, delivery, made.batch, made.stage, restate)
            return self._outcome(scope, delivery, extract, receipt)
        except OperationalError:
            raise
        except EtlError as error:
            attempts = self._remember(turn.claim, delivery, error)
            batch = made.batch.manifest.batch if made.batch else self._batch_id(delivery) if delivery else None
            return Outcome(
                self.pipeline.name, scope, "refused", batch, delivery, extract, error=error, attempts=attempts
            )

    def _outcome(self, scope: str, delivery: Delivery, extract: Extract | None, receipt: Receipt) -> Outcome:
        batch = receipt.batch
        final = not batch.continues
        return Outcome(self.pipeline.name, scope, receipt.status, batch.batch, delivery, extract, receipt, final=final)

    def _missing(self, scope: str) -> MissingDelivery:
        return MissingDelivery(
            f"{self.pipeline.name}/{scope}: no delivery: {self.source.absence(scope)}. "
            "The partition is missing, which is not empty: nothing was changed"
        )

    def _read(self, scope: str, wanted: str | None, work: Path) -> tuple[Delivery, Fetched | None, str]:
        """The delivery to load, its bytes where they are not frozen yet, and its path for messages."""
        if wanted and (match := re.fullmatch(r"(.+)#(\d+)", wanted)):
            return self._read_revision(scope, match[1], int(match[2]), work)
        arrival = self._choose(scope, wanted)
        named = [
            r.delivery for r in self.sink.deliveries(self.pipeline.name, [scope]) if r.delivery.name == arrival.name
        ]
        last = named[-1] if named else None
        if last and last.stamp == arrival.stamp and self._frozen(last):
            return last, None, arrival.path
        fetched = self.source.fetch(arrival, work / "input")
        return self._identify(arrival, fetched, last), fetched, arrival.path

    def _identify(self, arrival: Arrival, fetched: Fetched, last: Delivery | None) -> Delivery:
        """Give the bytes that were read their revision.

        The same name with other bytes is the next revision, even where they are those of an earlier one: A, B, A are
        three deliveries. It is recorded in the transaction that publishes or refuses it.
        """
        same = last is not None and last.sha256 == fetched.sha256
        revision = last.revision + (not same) if last else 1
        return Delivery(
            *(self.pipeline.name, arrival.scope, arrival.name, revision, arrival.order),
            *(fetched.sha256, fetched.size, arrival.stamp),
        )

    def _choose(self, scope: str, wanted: str | None) -> Arrival:
        """The newest complete arrival, or the named one; listed anew, since the claim may have waited."""
        arrivals = self.source.arrivals(scope)
        if not arrivals:
            raise self._missing(scope)
        if wanted is not None:
            named = [a for a in arrivals if a.name == wanted]
            if not named:
                raise MissingDelivery(
                    f"{self.pipeline.name}/{scope}: no delivery is named {wanted!r}; there are "
                    f"{', '.join(a.name for a in arrivals)}"
                )
            return named[0]
        complete = [a for a in arrivals if not a.arriving]
        if not complete:
            raise StillArriving(f"{arrivals[-1].path}: {arrivals[-1].arriving}; it is read once it is complete")
        return complete[-1]

    def _read_revision(self, scope: str, name: str, revision: int, work: Path) -> tuple[Delivery, Fetched | None, str]:
        """An earlier revision, from the exact bytes that an extract keeps."""
        for recorded in self.sink.deliveries(self.pipeline.name, [scope]):
            delivery = recorded.delivery
            if (delivery.scope, delivery.name, delivery.revision) != (scope, name, revision):
                continue
            if self._frozen(delivery):
                return delivery, None, str(delivery)
            kept = self.staged.kept_input(delivery)
            if kept is not None:
                shutil.copyfile(kept, work / INPUT)
                return delivery, Fetched(str(work / INPUT), delivery.sha256, delivery.size), str(delivery)
        raise MissingDelivery(
            f"{self.pipeline.name}/{scope}: revision {revision} of {name!r} was never read, or is not kept"
        )

    def _frozen(self, delivery: Delivery) -> Extract | None:
        return self.staged.find(delivery, self.pipeline.code, self.pipeline.transform_version)

    def _known_parts(self, delivery: Delivery) -> dict[str, Batch]:
        """By their ids, the batches of a log's delivery that are committed."""
        if not isinstance(self.pipeline, ChangeLogTable):
            return {}
        batches = self.sink.ledger(self.pipeline.name, [delivery.scope])
        return {b.batch: b for b in batches if (b.delivery, b.revision) == (delivery.name, delivery.revision)}

    def _check_redelivery(self, delivery: Delivery, shown: str) -> None:
        if self.pipeline.redelivery == "strict" and delivery.revision > 1:
            raise RewrittenDelivery(
                f"{shown} has other bytes than were read under this name before (it is revision {delivery.revision}); "
                "redelivery='strict'. Deliver corrections under a new name"
            )

    def _freeze(self, delivery: Delivery, fetched: Fetched | None, shown: str, work: Path) -> Extract:
        frozen = self._frozen(delivery)
        if frozen is not None:
            return frozen
        assert fetched is not None
        try:
            completed = self.source.complete(delivery, fetched, work)
            cuts = [b.upper for b in self._known_parts(delivery).values() if b.upper is not None]
            return stage(self.pipeline, delivery, completed, shown, self.staged, work, cuts)
        except OSError as error:
            raise StagingFailed(
                f"{shown}: cannot be frozen below {self.staged.root}: {error}. Nothing was published; mend the folder or "
                "free some space, and run again"
            ) from error

    def _remember(self, claim: Claim | None, delivery: Delivery | None, error: EtlError) -> int:
        """Record a refusal that is about the delivery, or else that it was read: it may be its turn another time."""
        if claim is None or delivery is None or isinstance(error, DeliveryAbsent | StaleWriter | UpstreamMoved):
            return 0
        if isinstance(error, Superseded | UnexpectedCursor):
            with contextlib.suppress(StaleWriter):
                self.sink.record(claim, delivery)
            return 0
        refusal = self.sink.refuse(self.pipeline, claim, delivery, error)
        return refusal.attempts if refusal else 0


def _is_known(batch: Extract, known: Mapping[str, Batch]) -> bool:
    """Whether a part is committed. The last one is published all the same: that notes what was read of the delivery."""
    found = known.get(batch.manifest.batch)
    return bool(batch.manifest.continues and found and found.digest == batch.manifest.digest)


def _digests(extract: Extract) -> list[str]:
    return [batch.manifest.digest for batch in extract.batches]
