"""What has become of a run's partitions so far, and what there is to show of each.

A partition is reported to Dagster as materialised when all of its deliveries are: of a log or a series of snapshots one
partition may hold several, and with one of them refused it is not loaded, though the ones before it are committed.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.loading import Outcome
from etl_assets.orchestration import metadata
from etl_assets.orchestration.counting import TableRows
from etl_assets.orchestration.names import extract_key, table_key


@dataclass(frozen=True, slots=True)
class Shown:
    """One materialisation to report: of which asset and partition, with which metadata and data version."""

    asset: dg.AssetKey
    scope: str
    metadata: metadata.Metadata
    version: str


@dataclass(slots=True)
class Outcomes:
    """Outcomes of a run in their order. ``expected`` says how many deliveries a scope has, where that is not one.

    A delivery is done with its final outcome: that of the last of its batches.
    """

    pipeline: Pipeline
    scopes: Sequence[str]
    expected: Mapping[str, int] = field(default_factory=dict)
    all: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> str:
        """Take one more; returns how far the run is, as ``2/7 2024-01-02``."""
        self.all.append(outcome)
        return f"{self.scopes.index(outcome.scope) + 1}/{len(self.scopes)} {outcome.scope}"

    @property
    def refused(self) -> list[Outcome]:
        return [o for o in self.all if o.error]

    @property
    def open_scopes(self) -> list[str]:
        """Scopes that the run has not come to, or not to the end of."""
        return [s for s in self.scopes if s not in {o.scope for o in self.refused} and not self._complete(s)]

    @property
    def done(self) -> list[str]:
        """Scopes of which every delivery is committed, or frozen where that is what was asked for."""
        refused = {o.scope for o in self.refused}
        return [s for s in self.scopes if s not in refused and self._complete(s)]

    def shown(self, assets: Sequence[dg.AssetKey], rows: TableRows) -> Iterator[Shown]:
        """Materialisations of complete partitions; extracts first, else Dagster calls their tables stale."""
        if extract_key(self.pipeline) in assets:
            yield from self._extracts()
        if table_key(self.pipeline) in assets:
            yield from self._tables(rows)

    def _of(self, scope: str) -> list[Outcome]:
        return [o for o in self.all if o.scope == scope]

    def _complete(self, scope: str) -> bool:
        return sum(o.final for o in self._of(scope)) >= self.expected.get(scope, 1)

    def _extracts(self) -> Iterator[Shown]:
        for scope in filter(self._complete, self.scopes):
            each: list[metadata.Metadata] = []
            complete = True
            for outcome in self._of(scope):
                if outcome.extract:
                    # The extract is the whole delivery's, whatever its batches.
                    each += [metadata.extract_metadata(self.pipeline, outcome.extract)] if outcome.final else []
                elif outcome.receipt:
                    each.append(metadata.committed_extract_metadata(outcome.receipt.batch))
                else:
                    complete = False
            if complete:
                yield _shown(extract_key(self.pipeline), scope, each)

    def _tables(self, rows: TableRows) -> Iterator[Shown]:
        for scope in filter(self._complete, self.scopes):
            outcomes = self._of(scope)
            each = [metadata.table_metadata(self.pipeline, o.receipt, rows, o.extract) for o in outcomes if o.receipt]
            if len(each) == len(outcomes):
                yield _shown(table_key(self.pipeline), scope, each)


def _shown(asset: dg.AssetKey, scope: str, each: Sequence[metadata.Metadata]) -> Shown:
    digests = [str(one["digest"]) for one in each]
    version = digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
    return Shown(asset, scope, metadata.add_up(each), version)
