"""What has become of a run's partitions so far, and what there is to show of each.

A partition is reported to Dagster as materialised when all of its deliveries are: of a log or a series of snapshots one
partition may hold several, and with one of them refused it is not loaded, though the ones before it are committed.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import dagster as dg

from etl_assets.contract import Pipeline
from etl_assets.loading import Outcome
from etl_assets.orchestration import metadata
from etl_assets.orchestration.counting import TableRows, data_version
from etl_assets.orchestration.names import extract_key, table_key


@dataclass(frozen=True, slots=True)
class Shown:
    """One materialisation to report: of which asset and partition, with which metadata and data version."""

    asset: dg.AssetKey
    scope: str
    metadata: metadata.Metadata
    version: str


class Outcomes:
    """Outcomes of a run in their order. ``expected`` says how many deliveries a scope has, where that is not one.

    A delivery is done with its final outcome: that of the last of its batches.
    """

    def __init__(self, pipeline: Pipeline, scopes: Sequence[str], expected: Mapping[str, int] | None = None) -> None:
        self.pipeline, self.scopes, self.expected = pipeline, scopes, expected or {}
        self.refused: list[Outcome] = []
        self._place = {scope: number for number, scope in enumerate(scopes, 1)}
        self._of: defaultdict[str, list[Outcome]] = defaultdict(list)

    def add(self, outcome: Outcome) -> str:
        """Take one more; returns how far the run is, as ``2/7 2024-01-02``."""
        self._of[outcome.scope].append(outcome)
        if outcome.error:
            self.refused.append(outcome)
        return f"{self._place[outcome.scope]}/{len(self.scopes)} {outcome.scope}"

    @property
    def open_scopes(self) -> list[str]:
        """Scopes that the run has not come to, or not to the end of."""
        refused = {o.scope for o in self.refused}
        return [s for s in self.scopes if s not in refused and not self._complete(s)]

    @property
    def done(self) -> list[str]:
        """Scopes of which every delivery is committed, or frozen where that is what was asked for."""
        refused = {o.scope for o in self.refused}
        return [s for s in self.scopes if s not in refused and self._complete(s)]

    def shown(
        self, assets: Sequence[dg.AssetKey], rows: TableRows | None, versions: Mapping[str, str]
    ) -> Iterator[Shown]:
        """Materialisations of complete partitions; extracts first, else Dagster calls their tables stale.

        ``versions`` are the data versions of what is committed, by the ledger.
        """
        if extract_key(self.pipeline) in assets:
            yield from self._extracts(versions)
        if table_key(self.pipeline) in assets:
            yield from self._tables(rows, versions)

    def _complete(self, scope: str) -> bool:
        return sum(o.final for o in self._of[scope]) >= self.expected.get(scope, 1)

    def _extracts(self, versions: Mapping[str, str]) -> Iterator[Shown]:
        for scope in filter(self._complete, self.scopes):
            each: list[metadata.Metadata] = []
            complete = True
            for outcome in self._of[scope]:
                if outcome.extract:
                    # The extract is the whole delivery's, whatever its batches.
                    each += [metadata.extract_metadata(self.pipeline, outcome.extract)] if outcome.final else []
                elif outcome.receipt:
                    each.append(metadata.committed_extract_metadata(outcome.receipt.batch))
                else:
                    complete = False
            if complete:
                yield _shown(extract_key(self.pipeline), scope, each, versions)

    def _tables(self, rows: TableRows | None, versions: Mapping[str, str]) -> Iterator[Shown]:
        for scope in filter(self._complete, self.scopes):
            outcomes = self._of[scope]
            each = [metadata.table_metadata(self.pipeline, o.receipt, rows, o.extract) for o in outcomes if o.receipt]
            if len(each) == len(outcomes):
                yield _shown(table_key(self.pipeline), scope, each, versions)


def _shown(asset: dg.AssetKey, scope: str, each: Sequence[metadata.Metadata], versions: Mapping[str, str]) -> Shown:
    version = versions.get(scope) or data_version([str(one["digest"]) for one in each])
    return Shown(asset, scope, metadata.add_up(each), version)
