"""Where a pipeline's deliveries come from: its landing; or, of a derived table, what the ledger says of its upstream.

A derived partition is a delivery like any: it has arrived when its upstream is there, and has changed when a batch that it
saw has a successor. So freezing, publishing, sensors and states are the same for both.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.errors import StagingFailed, StillArriving, UpstreamMoved
from etl_assets.landing import Landing
from etl_assets.model import Arrival, Delivery, Fetched, Seen
from etl_assets.naming import natural_order
from etl_assets.settings import Settings
from etl_assets.sink import Sink

#: The name of every delivery of a derived table; what it saw tells its revisions apart.
UPSTREAM = "upstream"


class Source(Protocol):
    """What can be loaded, as it is now; ``misfits`` are files that the last listing passed over, and nearly fit."""

    misfits: list[str]

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """Everything there is, by scope and then in order, the newest last."""

    def fetch(self, arrival: Arrival, target: Path) -> Fetched:
        """Copy an arrival to ``target``. Raises :class:`StillArriving` when it is not what was listed any more."""

    def complete(self, delivery: Delivery, fetched: Fetched, work: Path) -> Fetched:
        """Add what is computed of what was fetched, with files in the folder ``work``; of a file there is nothing to add."""

    def check_unchanged(self, arrival: Arrival) -> None:
        """Raise :class:`StillArriving` when it is not what was fetched any more."""

    def declared(self, arrival: Arrival) -> str | None:
        """Return the number of rows that is declared beside it, as text; None where nothing is."""

    def sha256(self, arrival: Arrival) -> str:
        """The digest that fetching it would give."""

    def absence(self, scope: str) -> str:
        """What was looked for and not found, in words."""


def open_source(settings: Settings, pipeline: Pipeline, sink: Sink) -> Source:
    """The source of a pipeline."""
    if isinstance(pipeline, DerivedTable):
        return UpstreamTables(pipeline, sink)
    return Landing(settings.landing, pipeline)


class UpstreamTables:
    """What a derived table is computed of: the committed batches of its upstream."""

    def __init__(self, pipeline: DerivedTable, sink: Sink) -> None:
        self.pipeline, self.sink = pipeline, sink
        self.misfits: list[str] = []

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """One for each partition that can be computed; its stamp tells what it would see."""
        found = self.sink.upstream(self.pipeline, None if scope is None else [scope])
        return [self._arrival(key, seen) for key, seen in found.items()]

    def fetch(self, arrival: Arrival, target: Path) -> Fetched:
        """Write the list of what a partition would see to ``target``."""
        seen = self.sink.upstream(self.pipeline, [arrival.scope]).get(arrival.scope, ())
        document = _document(seen)
        digest = hashlib.sha256(document).hexdigest()
        if digest != arrival.stamp:
            raise StillArriving(
                f"{arrival.path}: a batch of its upstream was committed meanwhile; the next run computes it of that"
            )
        try:
            target.write_bytes(document)
        except OSError as error:
            raise StagingFailed(f"cannot write {target}: {error}; free some space and run again") from error
        return Fetched(str(target), digest, len(document))

    def complete(self, delivery: Delivery, fetched: Fetched, work: Path) -> Fetched:
        """Compute the rows. Raises :class:`UpstreamMoved` when the partition does not see any more what was fetched."""
        computed = work / "computed"
        seen = self.sink.compute(self.pipeline, delivery.scope, computed)
        if hashlib.sha256(_document(seen)).hexdigest() != delivery.sha256:
            raise UpstreamMoved(
                f"{delivery} cannot be computed any more: its upstream has moved on since. Nothing was changed; a run without a "
                "named delivery computes what is there now"
            )
        return dataclasses.replace(fetched, seen=seen, computed=str(computed))

    def check_unchanged(self, arrival: Arrival) -> None:
        """Do nothing: publishing compares with the upstream in its own transaction."""

    def declared(self, arrival: Arrival) -> str | None:
        """Return None: a query declares nothing."""
        return None

    def sha256(self, arrival: Arrival) -> str:
        """The digest of what it would see: its stamp."""
        return arrival.stamp

    def absence(self, scope: str) -> str:
        """Upstream tables that have nothing for a partition."""
        needed = [one.pipeline for one in self.pipeline.upstream if not one.optional]
        return f"it is computed of {', '.join(needed)}, and not all of them have something committed for it"

    def _arrival(self, scope: str, seen: Sequence[Seen]) -> Arrival:
        stamp = hashlib.sha256(_document(seen)).hexdigest()
        return Arrival(scope, UPSTREAM, f"{self.pipeline.name}/{scope}", 0, stamp, natural_order(UPSTREAM))


def _document(seen: Sequence[Seen]) -> bytes:
    """What a partition saw, as the bytes that are its identity."""
    return (json.dumps([dataclasses.asdict(one) for one in seen], indent=1, ensure_ascii=False) + "\n").encode()
