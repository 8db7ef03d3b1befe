"""What a person has decided about a log, or has to decide: that it began again, that positions are given up, who is right.

Belongs here: what that means for other deliveries. Does not belong here: the comparison that finds a dispute.
"""

from __future__ import annotations

from collections import defaultdict

from etl_assets.contract import ChangeLogTable
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import UnexpectedCursor
from etl_assets.loading.sources import Source
from etl_assets.model import Batch, Delivery, Extract
from etl_assets.naming import is_later
from etl_assets.sink import Sink


class Decided:
    """The decisions about one log, and its disputes, as the ledger has them now."""

    def __init__(self, log: ChangeLogTable, sink: Sink, source: Source) -> None:
        self.log = log
        self._began = sink.begun(log)
        self._given_up = sink.given_up(log)
        self._disputed: dict[str, list[Delivery]] = defaultdict(list)
        for delivery in sink.disputed(log):
            if any(arrival.name == delivery.name for arrival in source.arrivals(delivery.scope)):
                self._disputed[self._shard(delivery.scope)].append(delivery)

    def began(self, scope: str) -> Batch | None:
        """Return the batch that the log of a scope began again with."""
        return self._began.get(self._shard(scope))

    def disputed(self, scope: str, name: str) -> list[Delivery]:
        """Return other deliveries of the log that are there, and differ from what is committed."""
        return [d for d in self._disputed[self._shard(scope)] if (d.scope, d.name) != (scope, name)]

    def given_up(self, scope: str, lower: int, upper: int) -> Batch | None:
        """Return the batch before which a person gave up all of these positions."""
        began = self.began(scope)
        for batch, ended in self._given_up:
            since = batch.shard == self._shard(scope) and (began is None or batch.id > began.id)
            if since and batch.lower is not None and ended <= lower and upper <= batch.lower:
                return batch
        return None

    def _shard(self, scope: str) -> str:
        return shard_of(self.log.partitions, scope)


def came_before(scope: str, order: str, begun: Batch) -> bool:
    """Return whether a delivery came before the one that the log began again with, or may have."""
    if scope != begun.scope:
        return scope < begun.scope
    return order != begun.order and not is_later(order, begun.order)


def why_before(begun: Batch) -> str:
    """Say why such a delivery is not consumed, and what to do."""
    return (
        f"it came before {begun.batch}, which the log began again with ({begun.reason}): whether it belongs to the log before or "
        "to the one since cannot be told. Remove it; or, if it does belong to the log, run it by its name (--delivery)"
    )


def check_belongs(delivery: Delivery, begun: Batch | None) -> None:
    """Raise :class:`UnexpectedCursor` for a delivery of which it cannot be told which log it belongs to."""
    if begun and came_before(delivery.scope, delivery.order, begun):
        raise UnexpectedCursor(f"{delivery} is not consumed: {why_before(begun)}. Nothing was changed")


def check_undisputed(delivery: Delivery, extract: Extract, decided: Decided) -> None:
    """Raise :class:`UnexpectedCursor` while another delivery that is there differs from what is committed."""
    others = decided.disputed(delivery.scope, delivery.name)
    if others:
        raise UnexpectedCursor(f"{extract.manifest.batch} {waits_for(others)}. Nothing was changed")


def waits_for(disputed: list[Delivery]) -> str:
    """Say that a log is not consumed any further, and why."""
    return (
        f"waits for a decision: {disputed[0]} was refused, since it differs from what is committed at its positions. Has the "
        "source begun again? Until that delivery is put right, removed or restated, nothing more is consumed"
    )
