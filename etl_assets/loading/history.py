"""What the ledger knows of a pipeline's deliveries, read once: the one answer to which are committed.

Belongs here: questions that the ledger alone answers. Does not belong here: what lies in landing or in the staged folder.
"""

from __future__ import annotations

from collections.abc import Sequence

from etl_assets.contract import Pipeline, WatermarkTable
from etl_assets.model import LedgerEntry, RecordedDelivery
from etl_assets.restated import restated_over
from etl_assets.sink import Sink


class History:
    """Deliveries and batches of a pipeline, of all scopes or of some.

    ``current`` has the batch that each scope's rows stand for, ``batches`` the last one of each delivery that is committed
    whole, by scope, name and revision, and ``begun`` the last one of each log's delivery that is not. ``restated`` is the last
    restatement, by which the table of a series of snapshots was made again.
    """

    def __init__(self, pipeline: Pipeline, sink: Sink, scopes: Sequence[str] | None = None) -> None:
        self.pipeline = pipeline
        if isinstance(pipeline, WatermarkTable):
            scopes = None  # a snapshot of one scope settles those of others
        self.recorded: dict[str, dict[str, list[RecordedDelivery]]] = {}
        # Deliveries before batches: what is committed in between is then known by its batch.
        for known in sink.deliveries(pipeline.name, scopes):
            self.recorded.setdefault(known.delivery.scope, {}).setdefault(known.delivery.name, []).append(known)
        self.current: dict[str, LedgerEntry] = {}
        self.batches: dict[tuple[str, str, int], LedgerEntry] = {}
        self.begun: dict[tuple[str, str, int], LedgerEntry] = {}
        self.restated: LedgerEntry | None = None
        #: The names of each scope that are committed, with their orders.
        self.placed: dict[str, dict[str, str]] = {}
        self._since: dict[str, list[LedgerEntry]] = {}
        entries = sink.entries(pipeline.name, scopes)
        decided = {e.scope for e in entries if e.operation == "restate"} if pipeline.newest_counts else set()
        self._decided: dict[str, list[LedgerEntry]] = {scope: [] for scope in decided}
        for entry in entries:
            if entry.scope in decided:
                self._decided[entry.scope].append(entry)
            # A delivery is committed with the last of its batches.
            (self.begun if entry.continues else self.batches)[entry.scope, entry.delivery, entry.revision] = entry
            if entry.current:
                self.current[entry.scope] = entry
            if entry.operation == "restate":
                self.restated = entry
                self._since = {}
            self.placed.setdefault(entry.scope, {})[entry.delivery] = entry.order
            if not entry.continues:
                self._since.setdefault(entry.scope, []).append(entry)
        self._last_scope = max(self._since, default="")

    def last(self, scope: str, name: str) -> RecordedDelivery | None:
        """The newest revision that was read under a name."""
        revisions = self.recorded.get(scope, {}).get(name)
        return revisions[-1] if revisions else None

    def batch(self, scope: str, name: str, revision: int) -> LedgerEntry | None:
        """The last batch of a delivery that is committed whole."""
        return self.batches.get((scope, name, revision))

    def is_decided(self, scope: str) -> bool:
        """Whether a person has restated something in a scope where only the newest delivery counts."""
        return scope in self._decided

    def restated_over(self, scope: str, name: str, revision: int, sha256: str | None) -> LedgerEntry | None:
        """The restatement that a delivery was put aside by; None where it was not."""
        return restated_over(self._decided.get(scope, ()), name, revision, sha256)

    def restated_away(self, scope: str, name: str, revision: int) -> LedgerEntry | None:
        """The restatement over a delivery whose bytes were committed under its name before."""
        own = next((r for r in self.recorded.get(scope, {}).get(name, ()) if r.delivery.revision == revision), None)
        if own is None or self.restated is None:
            return None
        before = (self.batch(scope, name, r.delivery.revision) for r in self.recorded[scope][name])
        same = (b for b in before if b and b.id < self.restated.id and b.input_sha256 == own.delivery.sha256)
        return self.restated if any(same) else None

    def later(self, scope: str, name: str, order: str, revision: int) -> LedgerEntry | None:
        """A snapshot that is committed and comes after this one, since the table was last made from one."""
        if self._last_scope > scope:
            return self._since[self._last_scope][-1]
        return next((e for e in reversed(self._since.get(scope, [])) if e.is_newer_than(name, order, revision)), None)
