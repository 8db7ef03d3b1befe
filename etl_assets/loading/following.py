"""How a delivery follows what is committed of its log: whole, with the rest of it, or not at all.

Belongs here: the comparison of events that overlap, and what a decision to begin a log again means for other deliveries.
Does not belong here: the transaction, which checks once more that a batch begins where the log ends.
"""

from __future__ import annotations

from pathlib import Path

from etl_assets.contract import ChangeLogTable
from etl_assets.errors import BadPositions, ExtractDamaged, RewrittenLog, Superseded
from etl_assets.loading.decided import check_belongs
from etl_assets.model import Batch, Consumed, Delivery, Manifest
from etl_assets.sink import Sink
from etl_assets.staging import StagedFolder

#: What a person can do about a delivery that differs from what is committed.
DECIDE = (
    "Nothing was changed. Put the right bytes in its place or remove it; or, if the source began again, let the log begin "
    "again with a delivery that holds every row: run it by its name with --restate and a reason"
)


class Following:
    """Places the deliveries of one log in it, by its ledger and the bytes that extracts keep."""

    def __init__(self, contract: ChangeLogTable, sink: Sink, staged: StagedFolder) -> None:
        self.contract, self.sink, self.staged = contract, sink, staged

    def after(self, delivery: Delivery, manifest: Manifest, consumed: Consumed, named: bool, work: Path) -> int | None:
        """Return the position up to which the events of a delivery are committed already; None where none are.

        Raise :class:`RewrittenLog` when they are not the same, or cannot be compared, and :class:`Superseded` or
        :class:`UnexpectedCursor` when a decision stands against the delivery.
        """
        assert manifest.lower is not None
        assert manifest.upper is not None
        if consumed.own:
            start = min(b.lower for b in consumed.own if b.lower is not None)
            return start if start != manifest.lower else None
        if not named:
            check_belongs(delivery, consumed.begun)
        first = self.contract.events.first_position
        position = first - 1 if consumed.position is None else consumed.position
        if manifest.lower >= position:
            return None
        if consumed.position is None:
            raise BadPositions(
                f"{delivery} holds positions {manifest.lower + 1} to {manifest.upper}, and the log begins with {first} by its "
                "contract (first_position). Nothing was changed; mend the contract, or deliver what it says"
            )
        self._check_given_up(delivery, manifest, consumed)
        self._compare(delivery, manifest, consumed, position, work)
        return position

    def _check_given_up(self, delivery: Delivery, manifest: Manifest, consumed: Consumed) -> None:
        """Refuse a delivery all of whose positions were given up by a person."""
        assert manifest.lower is not None
        assert manifest.upper is not None
        first = consumed.beyond[0] if consumed.beyond else None
        if first and first.operation == "skip" and first.lower is not None and manifest.upper <= first.lower:
            raise Superseded(
                f"{delivery} holds positions {manifest.lower + 1} to {manifest.upper}, which were given up before {first.batch} "
                f"({first.reason}). Nothing was changed. To take them all the same, let the log begin again (--restate)"
            )

    def _compare(self, delivery: Delivery, manifest: Manifest, consumed: Consumed, position: int, work: Path) -> None:
        """Raise :class:`RewrittenLog` unless the events up to the position are those that are committed."""
        assert manifest.lower is not None
        assert manifest.upper is not None
        given = work / "delivered"
        own = {(b.lower, b.upper): b for b in consumed.beyond}
        stretches: list[tuple[Batch, int, int]] = []
        reached, end = manifest.lower, min(position, manifest.upper)
        for batch in consumed.beyond:
            assert batch.lower is not None
            assert batch.upper is not None
            if reached < end and batch.lower > reached and batch.operation != "skip":
                break
            if batch.lower < end:
                stretches.append((batch, max(batch.lower, manifest.lower), min(batch.upper, end)))
            reached = max(reached, batch.upper)
        place = (
            f"{delivery} holds positions {manifest.lower + 1} to {manifest.upper}, and positions up to {position} are committed: "
            "an overlap"
        )
        if reached < end:
            raise RewrittenLog(f"{place}. The log holds nothing of some of them, so they cannot be compared. {DECIDE}")
        if not self.staged.restore_input(delivery, given):
            raise ExtractDamaged(
                f"{delivery}: its extract was removed while it was read. Nothing was changed; run again"
            )
        from etl_assets.staging.same import digests

        whole = [(lower, upper) for b, lower, upper in stretches if (b.lower, b.upper) == (lower, upper)]
        found = digests(self.contract, given, delivery.name, whole)
        for batch, lower, upper in stretches:
            known = own[batch.lower, batch.upper].events_sha256
            if known is None or found.get((lower, upper)) != known:
                self._compare_events(place, given, delivery, batch, (lower, upper), work)

    def _compare_events(
        self, place: str, given: Path, delivery: Delivery, batch: Batch, stretch: tuple[int, int], work: Path
    ) -> None:
        """Compare event by event with the bytes of the batch's delivery, which an extract may keep."""
        lower, upper = stretch
        kept = work / "committed"
        source = next(
            r.delivery
            for r in self.sink.deliveries(self.contract.name, [batch.scope])
            if (r.delivery.name, r.delivery.revision) == (batch.delivery, batch.revision)
        )
        try:
            found = self.staged.restore_input(source, kept)
        except ExtractDamaged:
            found = False
        if not found:
            raise RewrittenLog(
                f"{place}. Positions {lower + 1} to {upper} are of {batch.batch}, no extract of which is kept: by their digest "
                f"they are other events, or they are only a part of them, which cannot be compared. {DECIDE}"
            )
        from etl_assets.staging.same import first_difference

        names = {kept: source.name, given: delivery.name}
        different = first_difference(self.contract, kept, given, names, lower, upper)
        if different:
            raise RewrittenLog(
                f"{place}, and they differ. First: position {different.position}, of {batch.batch}\n"
                f"  committed: {different.committed or 'no event'}\n  delivered: {different.delivered or 'no event'}\n{DECIDE}"
            )
