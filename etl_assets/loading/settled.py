"""What needs no claim, because what is asked for is committed: answered from the ledger, and no page is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from etl_assets.contract import ChangeLogTable, Pipeline, is_remade
from etl_assets.errors import ExtractDamaged
from etl_assets.loading.choosing import in_doubt, newest
from etl_assets.loading.outcome import Outcome
from etl_assets.loading.reading import is_unchanged
from etl_assets.loading.sources import Source
from etl_assets.model import Arrival, Batch, Delivery, Extract, Receipt, Restatement
from etl_assets.sink import Sink
from etl_assets.staging import StagedFolder


class Settled:
    """The scopes of a pipeline that a run has nothing to do for, each with its outcomes."""

    def __init__(self, pipeline: Pipeline, source: Source, sink: Sink, staged: StagedFolder) -> None:
        self.pipeline, self.source, self.sink, self.staged = pipeline, source, sink, staged

    def outcomes(
        self,
        scopes: Sequence[str],
        arrivals: Mapping[str, list[Arrival]],
        restate: Restatement | None,
        named: str | None,
    ) -> dict[str, list[Outcome]]:
        """By scope, what is committed already: an operation to restate, or else its deliveries, if none is ``named``."""
        if restate:
            return self._restated(scopes, restate)
        return {} if named else self._committed(scopes, arrivals)

    def _committed(self, scopes: Sequence[str], arrivals: Mapping[str, list[Arrival]]) -> dict[str, list[Outcome]]:
        """Scopes whose deliveries, by their stamps or bytes, are in the ledger under this very contract and logic.

        The newest delivery of each, or all of them where each one counts.
        """
        known: dict[tuple[str, str], Delivery] = {}
        proved: dict[tuple[str, str], str | None] = {}
        for recorded in self.sink.deliveries(self.pipeline.name, scopes):
            place = (recorded.delivery.scope, recorded.delivery.name)
            known[place], proved[place] = recorded.delivery, recorded.proved_code
        version = self.pipeline.transform_version
        ledger: dict[tuple[str, str, int], list[Batch]] = defaultdict(list)
        ever: set[tuple[str, str, int]] = set()
        for batch in self.sink.ledger(self.pipeline.name, scopes):
            ever.add((batch.scope, batch.delivery, batch.revision))
            if batch.transform_version == version:
                ledger[batch.scope, batch.delivery, batch.revision].append(batch)
        current = self.sink.current(self.pipeline.name, scopes)
        differing = self.sink.differing(self.pipeline, scopes)
        begun = self.sink.begun(self.pipeline) if isinstance(self.pipeline, ChangeLogTable) else {}

        def settle(arrival: Arrival) -> list[Outcome]:
            """The batches of a delivery that is committed whole; none where it is not."""
            delivery = known.get((arrival.scope, arrival.name))
            if delivery is None or arrival.scope in differing or not is_unchanged(self.source, arrival, delivery):
                return []
            found = ledger.get((delivery.scope, delivery.name, delivery.revision), [])
            batch = found[-1] if found else None
            if batch is None or batch.continues or batch.input_sha256 != delivery.sha256:
                return []
            if batch.counts.skipped and self.pipeline.code not in (batch.code, proved[arrival.scope, arrival.name]):
                return []  # wider bounds may let in what was left out
            try:
                extract = self._frozen(delivery)
            except ExtractDamaged:
                return []  # it is read in its turn, and what is wrong is said there
            # A log's delivery may be several batches; of any other the last one stands, a restatement perhaps.
            batches = [*(b for b in found[:-1] if b.continues), batch]
            if self.pipeline.code not in (batch.code, proved[arrival.scope, arrival.name]):
                # What the ledger does not know of it yet is noted in its turn.
                same = extract and _digests(extract) == [b.digest for b in batches]
                if is_remade(self.pipeline) or not same:
                    return []
            superseded_by = self._successor(batch, current)
            again = begun.get(batch.shard)
            if again and batch.id < again.id:
                superseded_by = again.batch
            receipts = (Receipt("already committed", b, superseded_by=superseded_by) for b in batches)
            return [Outcome.received(delivery, extract, receipt) for receipt in receipts]

        def is_open(arrival: Arrival) -> bool:
            delivery = known.get((arrival.scope, arrival.name))
            done = delivery and (delivery.scope, delivery.name, delivery.revision) in ever
            return not (delivery and done and is_unchanged(self.source, arrival, delivery))

        def doubtful(complete: Sequence[Arrival]) -> bool:
            """Whether another delivery waits there, and the last by name is not known to be the newest one."""
            batch = current.get(complete[-1].scope)
            if not self.pipeline.newest_counts or len(complete) == 1 or batch is None:
                return False
            waiting = [a for a in complete if is_open(a)]
            standing = {batch.delivery: batch.order}
            return newest(complete, waiting, batch) is not complete[-1] or bool(
                in_doubt(self.pipeline, waiting, standing)
            )

        found: dict[str, list[Outcome]] = {}
        for scope in scopes:
            complete = [a for a in arrivals[scope] if not a.arriving]
            settled = [settle(a) for a in (complete[-1:] if self.pipeline.newest_counts else complete)]
            if settled and all(settled) and not doubtful(complete):
                found[scope] = [outcome for outcomes in settled for outcome in outcomes]
        return found

    def _restated(self, scopes: Sequence[str], restate: Restatement) -> dict[str, list[Outcome]]:
        """Scopes for which this very operation is committed: it is not done again, whatever has arrived since."""
        batches = [b for b in self.sink.restated(self.pipeline.name, restate.operation) if b.scope in scopes]
        # Of a log's delivery of several batches there may be a rest to do.
        done = {b.scope for b in batches if not b.continues}
        batches = [b for b in batches if b.scope in done]
        touched = [b.scope for b in batches]
        current = self.sink.current(self.pipeline.name, touched)
        known = {
            (d.scope, d.name, d.revision): d
            for d in (r.delivery for r in self.sink.deliveries(self.pipeline.name, touched))
        }
        found: dict[str, list[Outcome]] = defaultdict(list)
        for batch in batches:
            receipt = Receipt("already committed", batch, superseded_by=self._successor(batch, current))
            delivery = known[batch.scope, batch.delivery, batch.revision]
            found[batch.scope].append(Outcome.received(delivery, self._frozen(delivery), receipt))
        return found

    def _successor(self, batch: Batch, current: Mapping[str, Batch]) -> str | None:
        """The batch that its scope's rows stand for instead, where only the newest delivery counts."""
        newer = current[batch.scope] if self.pipeline.newest_counts else batch
        return newer.batch if newer.id != batch.id else None

    def _frozen(self, delivery: Delivery) -> Extract | None:
        return self.staged.find(delivery, self.pipeline.code, self.pipeline.transform_version)


def _digests(extract: Extract) -> list[str]:
    return [batch.manifest.digest for batch in extract.batches]
