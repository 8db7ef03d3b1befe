"""Which delivery is a scope's turn, and under which revision its bytes are known."""

from __future__ import annotations

import re
from pathlib import Path

from etl_assets.contract import Pipeline
from etl_assets.errors import MissingDelivery, StillArriving
from etl_assets.loading.sources import Source
from etl_assets.model import Arrival, Delivery, Extract, Fetched
from etl_assets.sink import Sink
from etl_assets.staging import StagedFolder
from etl_assets.staging.extract import INPUT


class Reader:
    """Reads deliveries of one pipeline from its source, or from what an extract keeps of them."""

    def __init__(self, pipeline: Pipeline, source: Source, sink: Sink, staged: StagedFolder) -> None:
        self.pipeline, self.source, self.sink, self.staged = pipeline, source, sink, staged

    def read(self, scope: str, wanted: str | None, work: Path) -> tuple[Delivery, Fetched | None, str]:
        """The delivery to load, its bytes where they are not frozen yet, and its path for messages.

        ``wanted`` names another one than the newest. Raises :class:`MissingDelivery`, :class:`StillArriving`, and what
        the source raises.
        """
        if wanted and (match := re.fullmatch(r"(.+)#(\d+)", wanted)):
            return self._read_revision(scope, match[1], int(match[2]), work)
        arrival = self._choose(scope, wanted)
        named = [
            r.delivery for r in self.sink.deliveries(self.pipeline.name, [scope]) if r.delivery.name == arrival.name
        ]
        last = named[-1] if named else None
        if last and last.stamp == arrival.stamp and self.frozen(last):
            return last, None, arrival.path
        fetched = self.source.fetch(arrival, work / "input")
        return self._identify(arrival, fetched, last), fetched, arrival.path

    def frozen(self, delivery: Delivery) -> Extract | None:
        """The extract of a delivery under this very contract and logic, if it has been made."""
        return self.staged.find(delivery, self.pipeline.code, self.pipeline.transform_version)

    def missing(self, scope: str) -> MissingDelivery:
        """The error of a scope that nothing has arrived for."""
        return MissingDelivery(
            f"{self.pipeline.name}/{scope}: no delivery: {self.source.absence(scope)}. "
            "The partition is missing, which is not empty: nothing was changed"
        )

    def _choose(self, scope: str, wanted: str | None) -> Arrival:
        """The newest complete arrival, or the named one; listed anew, since the claim may have waited."""
        arrivals = self.source.arrivals(scope)
        if not arrivals:
            raise self.missing(scope)
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

    def _read_revision(self, scope: str, name: str, revision: int, work: Path) -> tuple[Delivery, Fetched | None, str]:
        """An earlier revision, from the exact bytes that an extract keeps."""
        for recorded in self.sink.deliveries(self.pipeline.name, [scope]):
            delivery = recorded.delivery
            if (delivery.scope, delivery.name, delivery.revision) != (scope, name, revision):
                continue
            if self.frozen(delivery):
                return delivery, None, str(delivery)
            if self.staged.restore_input(delivery, work / INPUT):
                return delivery, Fetched(str(work / INPUT), delivery.sha256, delivery.size), str(delivery)
        raise MissingDelivery(
            f"{self.pipeline.name}/{scope}: revision {revision} of {name!r} was never read, or is not kept"
        )
