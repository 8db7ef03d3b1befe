"""All that is done with a delivery before its transaction: read, frozen, and made a stage file of, in a private folder."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from etl_assets.contract import ChangeLogTable, Pipeline
from etl_assets.errors import (
    DeliveryAbsent,
    DeliveryRefused,
    EtlError,
    ExtractDamaged,
    RewrittenDelivery,
    StagingFailed,
    UnrelatedDeliveries,
)
from etl_assets.loading.following import Following
from etl_assets.loading.reading import Read, Reader
from etl_assets.loading.sources import Source
from etl_assets.model import Arrival, Batch, Claim, Delivery, Extract, Fetched, Receipt, Restatement
from etl_assets.naming import shown
from etl_assets.sink import Sink
from etl_assets.sink.protocol import Stage
from etl_assets.staging import StagedFolder, check_files
from etl_assets.staging.extract import INPUT

#: Deliveries that wait beside a newer one and are compared with it: the newest so many.
COMPARED = 20


@dataclass(frozen=True, slots=True)
class Turn:
    """One delivery to load: of a scope, by name or the newest (None); ``size`` is that of the scope's files.

    ``named`` says that a person chose it, ``restated`` that it is published on purpose.
    """

    scope: str
    name: str | None
    claim: Claim | None
    size: int
    named: bool = False
    restated: bool = False


@dataclass(slots=True)
class Prepared:
    """What was made of a turn before its transaction, and the private folder that holds it.

    ``batches`` are what is published: the extract, its parts, or those of its rest. ``batch`` is the next of them, and
    ``known`` what the ledger has of them, by their positions. A delivery that is ``settled`` is not published: a log has
    begun again since. ``arrival`` is what was read of landing for it.
    """

    delivery: Delivery | None = None
    arrival: Arrival | None = None
    extract: Extract | None = None
    batches: tuple[Extract, ...] = ()
    batch: Extract | None = None
    work: Path | None = None
    stage: Stage | None = None
    known: dict[tuple[int, int] | None, Batch] = field(default_factory=dict)
    settled: tuple[Receipt, ...] = ()
    error: EtlError | None = None
    held: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def is_known(self, batch: Extract) -> bool:
        """Whether a part is committed, be it under a contract that read its events otherwise: they are consumed.

        The last part is published all the same: that notes what was read of the delivery.
        """
        found = self.known.get(batch.manifest.positions)
        same = found is not None and (found.digest == batch.manifest.digest or found.code != batch.manifest.code)
        return batch.manifest.continues and same

    def close(self) -> None:
        """Remove the private folder."""
        self.held.close()


class Preparer:
    """Prepares turns of one pipeline. It writes nothing to the warehouse."""

    def __init__(
        self,
        pipeline: Pipeline,
        source: Source,
        sink: Sink,
        staged: StagedFolder,
        scopes: Sequence[str],
        restate: Restatement | None = None,
    ) -> None:
        """``scopes`` are those that the run has claimed."""
        self.pipeline, self.source, self.sink, self.staged = pipeline, source, sink, staged
        self.restate = restate
        self.reader = Reader(pipeline, source, sink, staged, scopes)

    def prepare(self, turn: Turn) -> Prepared:
        """All that comes before the transaction: read, freeze, and make the stage file. Errors wait for their turn."""
        made = Prepared()
        try:
            if turn.claim is None:
                raise self.reader.missing(turn.scope)
            work = made.held.enter_context(self.staged.workspace())
            made.work = work
            read = self.reader.read(turn.scope, turn.name, work, turn.named, turn.restated)
            made.delivery, made.arrival = read.delivery, read.arrival
            self._check_redelivery(made.delivery, read.shown)
            made.extract = self._freeze(made.delivery, read.fetched, read.shown, work)
            made.batches = made.extract.batches
            if isinstance(self.pipeline, ChangeLogTable):
                self._follow(self.pipeline, made, turn, work)
            if made.settled:
                return made
            made.batch = next(b for b in made.batches if not made.is_known(b))
            made.stage = self.sink.prepare(self.pipeline, made.batch, work)
            self._check_related(read, made.extract.manifest.rows, made.stage, work)
        except EtlError as error:
            made.error = error
        except BaseException:
            made.close()
            raise
        return made

    def _follow(self, log: ChangeLogTable, made: Prepared, turn: Turn, work: Path) -> None:
        """Find which batches of a log's delivery are to be published after what is committed of the log."""
        assert made.delivery is not None
        assert made.extract is not None
        manifest = made.extract.manifest
        assert manifest.lower is not None
        consumed = self.sink.consumed(log, made.delivery, manifest.lower)
        if self.restate and not self.restate.skip_gap:
            own = [b for b in consumed.own if b.operation_id == self.restate.operation]
            made.known = {_positions(b): b for b in own}
            return
        made.known = {_positions(b): b for b in consumed.own}
        if consumed.former and not consumed.own and consumed.begun:
            by = consumed.begun.batch
            made.settled = tuple(Receipt("already committed", b, superseded_by=by) for b in consumed.former)
            return
        after = Following(log, self.sink, self.staged).after(made.delivery, manifest, consumed, turn.named, work)
        if after is not None:
            cuts = [b.upper for b in consumed.own if b.upper is not None]
            made.batches = self._rest(made.delivery, after, cuts, work / "rest")

    def _rest(self, delivery: Delivery, after: int, cuts: list[int], work: Path) -> tuple[Extract, ...]:
        """Make an extract of the events beyond a position, for this transaction only: the whole one is kept."""
        work.mkdir()
        target = work / INPUT
        if not self.staged.restore_input(delivery, target):
            raise ExtractDamaged(
                f"{delivery}: its extract was removed while it was read. Nothing was changed; run again"
            )
        from etl_assets.staging.stage import stage

        fetched = Fetched(str(target), delivery.sha256, delivery.size)
        private = StagedFolder(work / "staged")
        return stage(self.pipeline, delivery, fetched, delivery.name, private, work, cuts, after).batches

    def _check_redelivery(self, delivery: Delivery, shown: str) -> None:
        if self.pipeline.redelivery == "strict" and delivery.revision > 1:
            raise RewrittenDelivery(
                f"{shown} has other bytes than were read under this name before (it is revision {delivery.revision}); "
                "redelivery='strict'. Deliver corrections under a new name"
            )

    def _check_related(self, read: Read, rows: int, prepared: Stage, work: Path) -> None:
        """Refuse a delivery that shares no key with one that waits beside it: a correction does.

        Where it has no rows, those beside it are compared with each other.
        """
        first = (read.shown, prepared) if rows else None
        for number, arrival in enumerate(reversed(read.beside[-COMPARED:])):
            folder = work / f"beside-{number}"
            folder.mkdir()
            other = self._staged_beside(arrival, folder)
            if other is None:
                continue
            first = first or (shown(arrival.path), other)
            if not self.sink.is_related(self.pipeline, first[1], other):
                raise UnrelatedDeliveries(
                    f"{first[0]} and {shown(arrival.path)} came together and share no "
                    f"{'key' if self.pipeline.key else 'row'}: they are parts of a whole, or of two things, and no corrections "
                    "of each other. None of them is loaded, and nothing was changed; deliver the partition's rows in one "
                    "file, or load one on purpose by its name (--delivery)"
                )

    def _staged_beside(self, arrival: Arrival, folder: Path) -> Stage | None:
        """What another delivery would be published from; None where it cannot be read or has no rows, and so tells nothing."""
        from etl_assets.staging.stage import stage

        try:
            fetched = self.source.fetch(arrival, folder / "input")
            identity = (self.pipeline.name, arrival.scope, arrival.name, 1, arrival.order)
            delivery = Delivery(*identity, fetched.sha256, fetched.size, arrival.stamp)
            staged = StagedFolder(folder / "staged")
            extract = stage(self.pipeline, delivery, fetched, shown(arrival.path), staged, folder)
            return self.sink.prepare(self.pipeline, extract, folder) if extract.manifest.rows else None
        except (DeliveryRefused, DeliveryAbsent):
            return None

    def _freeze(self, delivery: Delivery, fetched: Fetched | None, shown: str, work: Path) -> Extract:
        frozen = self.reader.frozen(delivery)
        if frozen is not None:
            check_files(frozen)
            return frozen
        assert fetched is not None
        from etl_assets.staging.stage import stage

        try:
            completed = self.source.complete(delivery, fetched, work)
            cuts = [b.upper for b in self._known_parts(delivery) if b.upper is not None]
            return stage(self.pipeline, delivery, completed, shown, self.staged, work, cuts)
        except OSError as error:
            raise StagingFailed(
                f"{shown}: cannot be frozen below {self.staged.root}: {error}. Nothing was published; mend the folder or "
                "free some space, and run again"
            ) from error

    def _known_parts(self, delivery: Delivery) -> list[Batch]:
        """The batches of a log's delivery that are committed."""
        if not isinstance(self.pipeline, ChangeLogTable):
            return []
        batches = self.sink.ledger(self.pipeline.name, [delivery.scope])
        return [b for b in batches if (b.delivery, b.revision) == (delivery.name, delivery.revision)]


def _positions(batch: Batch) -> tuple[int, int] | None:
    return None if batch.lower is None or batch.upper is None else (batch.lower, batch.upper)
