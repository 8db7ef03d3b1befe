"""The way of a delivery through the rooms: landing, staging, sink. One flow for the command line and for Dagster.

A run claims its scopes once, at its start and before it reads a byte to load, so that a run that was paused or cut off
cannot publish what a later one has done since. Scopes whose newest delivery is committed are answered from the
ledger alone: no claim, no page written. One that was merely touched costs its hash.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from etl_assets.contract import ChangeLogTable, Pipeline
from etl_assets.errors import (
    BatchIdentityConflict,
    DeliveryAbsent,
    DeliveryRefused,
    EtlError,
    ExtractDamaged,
    OperationalError,
    StaleWriter,
    Superseded,
    UnclearDecision,
    UnexpectedCursor,
    UnknownScope,
    UpstreamMoved,
)
from etl_assets.loading.ahead import prepared
from etl_assets.loading.decided import Decided, check_undisputed
from etl_assets.loading.early import Early
from etl_assets.loading.outcome import Outcome
from etl_assets.loading.preparing import Prepared, Preparer, Turn
from etl_assets.loading.settled import Settled
from etl_assets.loading.sources import Source, open_source
from etl_assets.model import Arrival, Claim, Delivery, Extract, Receipt, Restatement, batch_id
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink
from etl_assets.staging import StagedFolder

#: Files up to this size are prepared while the one before them is published: two are in memory at a time then.
AHEAD_BYTES = 32 << 20


class Engine:
    """Loads deliveries of one pipeline. Holds settings and paths, no connection."""

    def __init__(self, settings: Settings, pipeline: Pipeline, source: Source | None = None) -> None:
        self.pipeline = pipeline
        self.sink: Sink = open_sink(settings.warehouse)
        self.source = source or open_source(settings, pipeline, self.sink)
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

        Of a change log each delivery of a scope is loaded, in the order of their positions; one of several batches has an
        outcome for each. ``delivery`` names another one than the newest (``2.csv``, or ``2.csv#1`` for an earlier revision
        that is frozen). With ``publish=False`` deliveries are frozen only. What is wrong with one scope is its outcome, and
        the next one goes on; an :class:`OperationalError` ends the run, keeping what was committed.
        """
        scopes = list(dict.fromkeys(scopes))
        self.check_scopes(scopes)
        arrivals = self._arrivals(scopes)
        self._check_decision(scopes, arrivals, restate, delivery)
        rooms = (self.pipeline, self.source, self.sink, self.staged)
        done = Settled(*rooms).outcomes(scopes, arrivals, restate, delivery)
        open_scopes = [s for s in scopes if s not in done and (arrivals[s] or delivery)]
        claims = self.sink.claim(self.pipeline, open_scopes, run) if open_scopes else {}
        self.staged.sweep()
        turns = [
            Turn(
                scope,
                name,
                claims.get(scope),
                sum(a.size for a in arrivals[scope]),
                delivery is not None,
                bool(restate),
            )
            for scope in scopes
            if scope not in done
            for name in ([delivery] if delivery else self._turns(arrivals[scope], bool(restate)))
        ]
        count = Counter(turn.scope for turn in turns)
        refused: set[str] = set()
        preparer = Preparer(*rooms, open_scopes, restate)

        def prepare(turn: Turn) -> Prepared:
            return Prepared() if turn.scope in refused else preparer.prepare(turn)

        with contextlib.closing(prepared(turns, prepare, lambda turn: turn.size <= AHEAD_BYTES)) as coming:
            for scope in scopes:
                yield from done.get(scope, ())
                early = Early(self.pipeline, self.sink, scope)
                for turn, made in itertools.islice(coming, count[scope]):
                    if scope in refused:
                        continue
                    for outcome in self._finish(turn, made, restate, publish):
                        if outcome.error and self._ends_scope(outcome.error):
                            refused.add(scope)
                        if not early.takes(turn, outcome):
                            yield outcome
                    while (turned := early.next()) is not None:
                        with contextlib.closing(preparer.prepare(turned)) as again:
                            yield from self._finish(turned, again, restate, publish)
                yield from early.left()

    def _check_decision(
        self,
        scopes: Sequence[str],
        arrivals: dict[str, list[Arrival]],
        restate: Restatement | None,
        delivery: str | None,
    ) -> None:
        """Raise :class:`UnclearDecision` where a decision about a log does not say which delivery it is about."""
        log = isinstance(self.pipeline, ChangeLogTable)
        if restate and restate.skip_gap and not log:
            raise UnclearDecision(f"{self.pipeline.name} is no change log: it has no positions that could be given up")
        if not restate or not log:
            return
        names = [a.name for a in arrivals[scopes[0]] if not a.arriving]
        if len(scopes) > 1 or (delivery is None and len(names) > 1):
            raise UnclearDecision(
                f"{self.pipeline.name}: a decision about a log is about one delivery: name the partition and the delivery. "
                "Nothing was changed"
            )

    def _ends_scope(self, error: EtlError) -> bool:
        """Whether deliveries after a refused one wait for it: not for one that is itself at fault, or behind the others.

        Those of a log follow positions, and are told by them.
        """
        apart = isinstance(error, DeliveryRefused | Superseded | BatchIdentityConflict)
        return not apart and not isinstance(self.pipeline, ChangeLogTable)

    def _turns(self, arrivals: list[Arrival], restated: bool) -> list[str | None]:
        """The names of what a scope's turn is, in order; None stands for the newest, whatever it is by then."""
        complete = [a.name for a in arrivals if not a.arriving]
        return [None] if self.pipeline.newest_counts or restated or not complete else [*complete]

    def _arrivals(self, scopes: Sequence[str]) -> dict[str, list[Arrival]]:
        listed = self.source.arrivals(scopes[0] if len(scopes) == 1 else None)
        wanted: dict[str, list[Arrival]] = {scope: [] for scope in scopes}
        for arrival in listed:
            if arrival.scope in wanted:
                wanted[arrival.scope].append(arrival)
        return wanted

    # ------------------------------------------------------------------ one turn

    def _finish(self, turn: Turn, made: Prepared, restate: Restatement | None, publish: bool) -> Iterator[Outcome]:
        """Publish what was prepared, a batch at a time, up to one that is refused."""
        if made.error is not None or made.extract is None or not publish:
            yield self._finish_batch(turn, made, restate, publish)
            return
        assert made.delivery is not None
        assert made.work is not None
        for receipt in made.settled:
            yield Outcome.received(made.delivery, made.extract, receipt)
        for batch in () if made.settled else made.batches:
            if made.is_known(batch):
                receipt = Receipt("already committed", made.known[batch.manifest.positions])
                yield Outcome.received(made.delivery, made.extract, receipt)
                continue
            if batch != made.batch:
                made.batch, made.stage = batch, self.sink.prepare(self.pipeline, batch, made.work)
            outcome = self._finish_batch(turn, made, restate, publish)
            yield outcome
            if outcome.error:
                return

    def _finish_batch(self, turn: Turn, made: Prepared, restate: Restatement | None, publish: bool) -> Outcome:
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
            if made.arrival:  # a second look: what is written in pieces may have held still while it was read
                self.source.check_unchanged(made.arrival)
                made.arrival = None
            if not publish:
                self.sink.record(turn.claim, delivery)
                return Outcome(self.pipeline.name, scope, "staged", self._batch_id(delivery), delivery, extract)
            if isinstance(self.pipeline, ChangeLogTable) and (restate is None or restate.skip_gap):
                self._check_undisputed(self.pipeline, delivery, made.batch)
            receipt = self.sink.publish(self.pipeline, turn.claim, delivery, made.batch, made.stage, restate)
            return Outcome.received(delivery, extract, receipt)
        except EtlError as error:
            # A damaged extract is its own partition's trouble; any other error of operations would be the next one's, too.
            if isinstance(error, OperationalError) and not isinstance(error, ExtractDamaged):
                raise
            attempts = self._remember(turn.claim, delivery, error)
            batch = made.batch.manifest.batch if made.batch else self._batch_id(delivery) if delivery else None
            return Outcome(
                self.pipeline.name, scope, "refused", batch, delivery, extract, error=error, attempts=attempts
            )

    def _check_undisputed(self, log: ChangeLogTable, delivery: Delivery, batch: Extract) -> None:
        if self.sink.disputed(log):
            check_undisputed(delivery, batch, Decided(log, self.sink, self.source))

    def _remember(self, claim: Claim | None, delivery: Delivery | None, error: EtlError) -> int:
        """Record a refusal that is about the delivery, or else that it was read: it may be its turn another time."""
        if (
            claim is None
            or delivery is None
            or isinstance(error, DeliveryAbsent | ExtractDamaged | StaleWriter | UpstreamMoved)
        ):
            return 0
        if isinstance(error, Superseded | UnexpectedCursor):
            with contextlib.suppress(StaleWriter):
                self.sink.record(claim, delivery)
            return 0
        refusal = self.sink.refuse(self.pipeline, claim, delivery, error)
        return refusal.attempts if refusal else 0

    def _batch_id(self, delivery: Delivery) -> str:
        version = self.pipeline.transform_version
        return batch_id(delivery.pipeline, delivery.scope, delivery.name, delivery.revision, version)
