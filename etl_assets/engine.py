"""The way of a delivery through the rooms: landing, staging, sink. One flow for the command line and for Dagster.

A run claims its scopes once, at its start and before it reads a byte, so that a run that was paused or cut off
cannot publish what a later one has done since. Scopes whose newest delivery is committed are answered from the
ledger alone: no claim, no page written.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from etl_assets.contract import Pipeline
from etl_assets.errors import (
    DeliveryAbsent,
    DeliveryRefused,
    EtlError,
    MissingDelivery,
    OperationalError,
    PublishRefused,
    RewrittenDelivery,
    StagingFailed,
    StaleWriter,
    StillArriving,
    Superseded,
    UnexpectedCursor,
    UnknownScope,
)
from etl_assets.landing import Landing
from etl_assets.model import Arrival, Batch, Claim, Counts, Delivery, Extract, Fetched, Receipt, Restatement, batch_id
from etl_assets.settings import Settings
from etl_assets.sink import Sink, open_sink
from etl_assets.staging import StagedFolder, stage
from etl_assets.staging.extract import INPUT

Verdict = Literal["committed", "already committed", "staged", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scope in a run."""

    pipeline: str
    scope: str
    status: Verdict
    batch: str | None = None
    delivery: Delivery | None = None
    extract: Extract | None = None
    receipt: Receipt | None = None
    error: EtlError | None = None
    attempts: int = 0

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


class Engine:
    """Loads deliveries of one pipeline. Holds settings and paths, no connection."""

    def __init__(self, settings: Settings, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.landing = Landing(settings.landing, pipeline)
        self.sink: Sink = open_sink(settings.warehouse)
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

        Of a change log each delivery of a scope is loaded, in order, up to the first that is refused.
        ``delivery`` names another one than the newest (``2.csv``, or ``2.csv#1`` for an earlier revision that is
        frozen). With ``publish=False`` deliveries are frozen only. What is wrong with one scope is its outcome, and
        the next one goes on; an :class:`OperationalError` ends the run, keeping what was committed.
        """
        self.check_scopes(scopes)
        arrivals = self._arrivals(scopes)
        done = self._done(scopes, arrivals, restate, delivery)
        open_scopes = [s for s in scopes if s not in done and (arrivals[s] or delivery)]
        claims = self.sink.claim(self.pipeline, open_scopes, run) if open_scopes else {}
        self.staged.sweep()
        for scope in scopes:
            if scope in done:
                yield from done[scope]
                continue
            for name in [delivery] if delivery else self._turns(arrivals[scope]):
                outcome = self._load_delivery(scope, claims.get(scope), restate, name, publish)
                yield outcome
                if outcome.error:
                    break

    def _turns(self, arrivals: list[Arrival]) -> list[str | None]:
        """The names of what a scope's turn is, in order; None stands for the newest, whatever it is by then."""
        complete = [a.name for a in arrivals if not a.arriving]
        return [None] if self.pipeline.newest_counts or not complete else [*complete]

    # ------------------------------------------------------------------ before the claim

    def _done(
        self, scopes: Sequence[str], arrivals: dict[str, list[Arrival]], restate: Restatement | None, named: str | None
    ) -> dict[str, list[Outcome]]:
        """Scopes that need no claim, because what is asked for is committed."""
        if restate:
            return self._restated(scopes, restate)
        return {} if named else self._committed(scopes, arrivals)

    def _arrivals(self, scopes: Sequence[str]) -> dict[str, list[Arrival]]:
        listed = self.landing.arrivals(scopes[0] if len(scopes) == 1 else None)
        wanted: dict[str, list[Arrival]] = {scope: [] for scope in scopes}
        for arrival in listed:
            if arrival.scope in wanted:
                wanted[arrival.scope].append(arrival)
        return wanted

    def _committed(self, scopes: Sequence[str], arrivals: dict[str, list[Arrival]]) -> dict[str, list[Outcome]]:
        """Scopes whose deliveries, by their stamps, are in the ledger under this very contract and logic.

        The newest delivery of each, or all of them where each one counts.
        """
        known: dict[tuple[str, str], Delivery] = {}
        for recorded in self.sink.deliveries(self.pipeline.name):
            known[recorded.delivery.scope, recorded.delivery.name] = recorded.delivery
        ledger = self._ledger(scopes)
        current = self.sink.current(self.pipeline.name)

        def settle(arrival: Arrival) -> Outcome | None:
            delivery = known.get((arrival.scope, arrival.name))
            if delivery is None or delivery.stamp != arrival.stamp:
                return None
            batch = ledger.get(self._batch_id(delivery))
            if batch is None or batch.input_sha256 != delivery.sha256:
                return None
            extract = self._frozen(delivery)
            if batch.code != self.pipeline.code and not (extract and extract.manifest.digest == batch.digest):
                return None
            newer = current[arrival.scope] if self.pipeline.newest_counts else batch
            superseded_by = newer.batch if newer.id != batch.id else None
            receipt = Receipt("already committed", batch, superseded_by=superseded_by)
            return self._outcome(arrival.scope, delivery, extract, receipt)

        found: dict[str, list[Outcome]] = {}
        for scope in scopes:
            complete = [a for a in arrivals[scope] if not a.arriving]
            outcomes = [settle(a) for a in (complete[-1:] if self.pipeline.newest_counts else complete)]
            settled = [o for o in outcomes if o is not None]
            if settled and len(settled) == len(outcomes):
                found[scope] = settled
        return found

    def _restated(self, scopes: Sequence[str], restate: Restatement) -> dict[str, list[Outcome]]:
        """Scopes for which this very operation is committed: it is not done again, whatever has arrived since."""
        current = self.sink.current(self.pipeline.name)
        by_identity = {
            (d.scope, d.name, d.revision): d for d in (r.delivery for r in self.sink.deliveries(self.pipeline.name))
        }
        found = {}
        for batch in self._ledger(scopes).values():
            if batch.operation_id != restate.operation or batch.scope not in scopes:
                continue
            newer = current[batch.scope].batch if current[batch.scope].id != batch.id else None
            receipt = Receipt("already committed", batch, superseded_by=newer)
            delivery = by_identity[batch.scope, batch.delivery, batch.revision]
            found[batch.scope] = [self._outcome(batch.scope, delivery, self._frozen(delivery), receipt)]
        return found

    def _ledger(self, scopes: Sequence[str]) -> dict[str, Batch]:
        return {b.batch: b for b in self.sink.ledger(self.pipeline.name, scopes[0] if len(scopes) == 1 else None)}

    def _batch_id(self, delivery: Delivery) -> str:
        version = self.pipeline.transform_version
        return batch_id(delivery.pipeline, delivery.scope, delivery.name, delivery.revision, version)

    # ------------------------------------------------------------------ one scope

    def _load_delivery(
        self, scope: str, claim: Claim | None, restate: Restatement | None, wanted: str | None, publish: bool
    ) -> Outcome:
        delivery: Delivery | None = None
        extract: Extract | None = None
        try:
            if claim is None:
                raise self._missing(scope)
            with self.staged.workspace() as work:
                delivery, fetched, shown = self._read(claim, wanted, work)
                self._check_redelivery(delivery, shown)
                extract = self._freeze(delivery, fetched, shown, work)
                if not publish:
                    return Outcome(self.pipeline.name, scope, "staged", self._batch_id(delivery), delivery, extract)
                receipt = self.sink.publish(self.pipeline, claim, extract, work, restate)
                return self._outcome(scope, delivery, extract, receipt)
        except OperationalError:
            raise
        except EtlError as error:
            attempts = self._remember(claim, delivery, error)
            batch = self._batch_id(delivery) if delivery else None
            return Outcome(
                self.pipeline.name, scope, "refused", batch, delivery, extract, error=error, attempts=attempts
            )

    def _outcome(self, scope: str, delivery: Delivery, extract: Extract | None, receipt: Receipt) -> Outcome:
        return Outcome(self.pipeline.name, scope, receipt.status, receipt.batch.batch, delivery, extract, receipt)

    def _missing(self, scope: str) -> MissingDelivery:
        return MissingDelivery(
            f"{self.pipeline.name}/{scope}: no delivery: searched {self.landing.pattern(scope)}, 0 files matched. "
            "The partition is missing, which is not empty: nothing was changed"
        )

    def _read(self, claim: Claim, wanted: str | None, work: Path) -> tuple[Delivery, Fetched | None, str]:
        """The delivery to load, its bytes where they are not frozen yet, and its path for messages."""
        if wanted and (match := re.fullmatch(r"(.+)#(\d+)", wanted)):
            return self._read_revision(claim.scope, match[1], int(match[2]), work)
        arrival = self._choose(claim.scope, wanted)
        for recorded in reversed(self.sink.deliveries(self.pipeline.name)):
            known = recorded.delivery
            if (known.scope, known.name) == (claim.scope, arrival.name):
                if known.stamp == arrival.stamp and self._frozen(known):
                    return known, None, arrival.path
                break
        fetched = self.landing.fetch(arrival, work / "input")
        return self.sink.observe(claim, arrival, fetched), fetched, arrival.path

    def _choose(self, scope: str, wanted: str | None) -> Arrival:
        """The newest complete arrival, or the named one; listed anew, since the claim may have waited."""
        arrivals = self.landing.arrivals(scope)
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
        for recorded in self.sink.deliveries(self.pipeline.name):
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
            return stage(self.pipeline, delivery, fetched, shown, self.staged, work)
        except OSError as error:
            raise StagingFailed(
                f"{shown}: cannot be frozen below {self.staged.root}: {error}. Nothing was published; mend the folder or "
                "free some space, and run again"
            ) from error

    def _remember(self, claim: Claim | None, delivery: Delivery | None, error: EtlError) -> int:
        """Record a refusal that is about the delivery; who may write, or what is newer, says nothing about it."""
        about = isinstance(error, DeliveryRefused | PublishRefused) and not isinstance(
            error, StaleWriter | Superseded | UnexpectedCursor
        )
        if claim is None or delivery is None or not about or isinstance(error, DeliveryAbsent):
            return 0
        refusal = self.sink.refuse(claim, delivery, error, self.pipeline.code)
        return refusal.attempts if refusal else 0
