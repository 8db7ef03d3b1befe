"""Which delivery is a scope's turn, and under which revision its bytes are known."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.errors import EtlError, MissingDelivery, StillArriving, UndecidedNames, UnrelatedDeliveries
from etl_assets.loading.choosing import beside, doubt, in_doubt, newest, order_counts
from etl_assets.loading.sources import Source
from etl_assets.model import Arrival, Delivery, Extract, Fetched, LedgerEntry, RecordedDelivery
from etl_assets.naming import shown
from etl_assets.restated import restated_over
from etl_assets.sink import Sink
from etl_assets.staging import StagedFolder
from etl_assets.staging.extract import INPUT

#: ``2.csv#1``: an earlier revision, as a person names it. A name may hold any character.
_REVISION = re.compile(r"(.+)#([0-9]+)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Read:
    """A delivery that was read, its bytes where they are not frozen yet, and its path for messages.

    ``beside`` are deliveries of its partition that wait for the same turn, which nobody has chosen between. ``arrival`` is
    what was fetched just now.
    """

    delivery: Delivery
    fetched: Fetched | None
    shown: str
    beside: tuple[Arrival, ...] = ()
    arrival: Arrival | None = None


class Reader:
    """Reads deliveries of one pipeline from its source, or from what an extract keeps of them."""

    def __init__(
        self, pipeline: Pipeline, source: Source, sink: Sink, staged: StagedFolder, scopes: Sequence[str]
    ) -> None:
        """``scopes`` are claimed by the run that reads: what is recorded of them is its own doing from now on."""
        self.pipeline, self.source, self.sink, self.staged = pipeline, source, sink, staged
        self._recorded: dict[str, list[RecordedDelivery]] = {scope: [] for scope in scopes}
        for known in sink.deliveries(pipeline.name, scopes) if scopes else ():
            self._recorded[known.delivery.scope].append(known)

    def read(self, scope: str, wanted: str | None, work: Path, named: bool = False, restated: bool = False) -> Read:
        """Read the delivery to load: the newest, or the one ``wanted``.

        A delivery that a person ``named`` is taken whatever else lies there, and may be a revision (``2.csv#1``); a file of
        that whole name comes first. What a restatement put aside is not taken, unless it is ``restated``.

        Raises :class:`MissingDelivery`, :class:`StillArriving`, :class:`UndecidedNames`, and what the source raises.
        """
        arrivals = self.source.arrivals(scope)
        if named and wanted and all(a.name != wanted for a in arrivals) and (match := _REVISION.fullmatch(wanted)):
            return self._read_revision(scope, match[1], int(match[2]), work)
        recorded = {r.delivery.name: r for r in self._recorded[scope]}
        arrival, waiting = self._choose(scope, arrivals, wanted, named, recorded)
        stands = None if wanted is not None or restated else self._stands_instead(arrival, recorded)
        if stands:
            again = [a for a in arrivals if a.name == stands.delivery and not a.arriving]
            if not again or self._revision(again[0], recorded) != stands.revision:
                return self._read_revision(scope, stands.delivery, stands.revision, work)
            arrival, waiting = again[0], ()
        last = recorded[arrival.name].delivery if arrival.name in recorded else None
        if last and last.stamp == arrival.stamp and self.frozen(last):
            known = dataclasses.replace(last, declared=self.source.declared(arrival))
            return Read(known, None, shown(arrival.path), tuple(waiting))
        fetched = self.source.fetch(arrival, work / "input")
        return Read(self._identify(arrival, fetched, last), fetched, shown(arrival.path), tuple(waiting), arrival)

    def frozen(self, delivery: Delivery) -> Extract | None:
        """The extract of a delivery under this very contract and logic, if it has been made."""
        return self.staged.find(delivery, self.pipeline.code, self.pipeline.transform_version)

    def missing(self, scope: str) -> MissingDelivery:
        """The error of a scope that nothing has arrived for."""
        return MissingDelivery(
            f"{self.pipeline.name}/{scope}: no delivery: {self.source.absence(scope)}. "
            "The partition is missing, which is not empty: nothing was changed"
        )

    def _choose(
        self,
        scope: str,
        arrivals: Sequence[Arrival],
        wanted: str | None,
        named: bool,
        recorded: Mapping[str, RecordedDelivery],
    ) -> tuple[Arrival, Sequence[Arrival]]:
        """The newest complete arrival, or the one that is wanted; and what waits beside it, unless a person named it.

        Raises :class:`UndecidedNames`.
        """
        if not arrivals:
            raise self.missing(scope)
        complete = [a for a in arrivals if not a.arriving]
        if wanted is None and not complete:
            last = arrivals[-1]
            raise StillArriving(f"{shown(last.path)}: {last.arriving}; it is read once it is complete")
        chosen = next((a for a in arrivals if a.name == wanted), None) if wanted is not None else complete[-1]
        if chosen is None:
            raise MissingDelivery(
                f"{self.pipeline.name}/{scope}: no delivery is named {shown(wanted or '')!r}; there are "
                f"{', '.join(shown(a.name) for a in arrivals)}"
            )
        alone = len(arrivals) == 1 and not recorded
        if named or alone or not order_counts(self.pipeline):
            return chosen, ()
        batches = self.sink.ledger(self.pipeline.name, [scope])
        current = self.sink.current(self.pipeline.name, [scope]).get(scope) if self.pipeline.newest_counts else None
        committed = {(b.delivery, b.revision) for b in batches}

        def is_open(arrival: Arrival) -> bool:
            known = recorded.get(arrival.name)
            done = known and (arrival.name, known.delivery.revision) in committed
            return not (known and done and is_unchanged(self.source, arrival, known.delivery))

        waiting = [a for a in complete if is_open(a)]
        if wanted is None:
            chosen = newest(complete, waiting, current)
        placed = [current] if current else [] if self.pipeline.newest_counts else batches
        doubts = in_doubt(self.pipeline, waiting, {b.delivery: b.order for b in placed})
        if doubts and (self.pipeline.newest_counts or chosen.name in doubts):
            name = chosen.name if chosen.name in doubts else min(doubts)
            raise UndecidedNames(f"{self.pipeline.name}/{scope}: {doubt(name, doubts[name])}")
        refusal = recorded[chosen.name].refusal if chosen.name in recorded else None
        if refusal and refusal.kind == UnrelatedDeliveries.__name__:
            # It stays refused beside those that it came with, one of which a person has chosen perhaps.
            return chosen, [a for a in complete if a is not chosen]
        # One that is committed, and read again, is no part of what waits.
        return chosen, beside(chosen, waiting, current.order if current else None) if chosen in waiting else ()

    def _revision(self, arrival: Arrival, recorded: Mapping[str, RecordedDelivery]) -> int:
        """The revision that an arrival's bytes are, or would be."""
        known = recorded.get(arrival.name)
        if known is None:
            return 1
        return known.delivery.revision + (not is_unchanged(self.source, arrival, known.delivery))

    def _stands_instead(self, arrival: Arrival, recorded: Mapping[str, RecordedDelivery]) -> LedgerEntry | None:
        """The restatement that put an arrival aside, where newer logic can make its rows again."""
        if not self.pipeline.newest_counts or isinstance(self.pipeline, DerivedTable):
            return None
        entries = self.sink.entries(self.pipeline.name, [arrival.scope])
        if all(entry.operation != "restate" for entry in entries):
            return None
        sha256 = self.source.sha256(arrival)
        return restated_over(entries, arrival.name, self._revision(arrival, recorded), sha256)

    def _identify(self, arrival: Arrival, fetched: Fetched, last: Delivery | None) -> Delivery:
        """Give the bytes that were read their revision.

        The same name with other bytes is the next revision, even where they are those of an earlier one: A, B, A are
        three deliveries. It is recorded in the transaction that publishes or refuses it.
        """
        same = last if last is not None and last.sha256 == fetched.sha256 else None
        revision = last.revision + (same is None) if last else 1
        now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return Delivery(
            *(self.pipeline.name, arrival.scope, arrival.name, revision, arrival.order),
            *(fetched.sha256, fetched.size, arrival.stamp, fetched.declared_rows, same.read_at if same else now),
        )

    def _read_revision(self, scope: str, name: str, revision: int, work: Path) -> Read:
        """An earlier revision, from the exact bytes that an extract keeps."""
        for delivery in (known.delivery for known in self._recorded[scope]):
            if (delivery.scope, delivery.name, delivery.revision) != (scope, name, revision):
                continue
            if self.frozen(delivery):
                return Read(delivery, None, str(delivery))
            if self.staged.restore_input(delivery, work / INPUT):
                return Read(delivery, Fetched(str(work / INPUT), delivery.sha256, delivery.size), str(delivery))
        raise MissingDelivery(
            f"{self.pipeline.name}/{scope}: revision {revision} of {shown(name)!r} was never read, or is not kept"
        )


def is_unchanged(source: Source, arrival: Arrival, delivery: Delivery) -> bool:
    """Return whether an arrival is what was read under its name: by its stamp, or else, where it has its size, by its bytes."""
    if arrival.stamp == delivery.stamp:
        return True
    if arrival.size != delivery.size:
        return False
    try:
        return source.sha256(arrival) == delivery.sha256
    except EtlError:
        return False  # it is read in its turn, and what is wrong is said there
