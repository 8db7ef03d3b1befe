"""What the ledger says of a table for Dagster to show: how many rows it has, and the data version of each partition."""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from etl_assets.contract import Pipeline, ReplacedTable
from etl_assets.sink import Sink


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows of a table in all, and of each scope; ``by_scope`` is None where a scope holds events or a snapshot."""

    total: int
    by_scope: Mapping[str, int] | None


def count_rows(sink: Sink, pipeline: Pipeline) -> TableRows:
    """Count by the ledger, which is as cheap for a large table as for a small one; ``verify`` counts the rows."""
    if isinstance(pipeline, ReplacedTable):
        by_scope = sink.rows(pipeline.name)
        return TableRows(sum(by_scope.values()), by_scope)
    counts = [batch.counts for batch in sink.ledger(pipeline.name)]
    return TableRows(sum(c.inserted + c.restored - c.deleted for c in counts), None)


def data_versions(sink: Sink, pipeline: Pipeline, scopes: Sequence[str] | None = None) -> dict[str, str]:
    """The data version of each committed scope, or of these: the same whoever tells Dagster of it, and when."""
    if pipeline.newest_counts:
        return {scope: batch.digest for scope, batch in sink.current(pipeline.name, scopes).items()}
    digests: defaultdict[str, list[str]] = defaultdict(list)
    for batch in sink.ledger(pipeline.name, scopes):
        digests[batch.scope].append(batch.digest)
    return {scope: data_version(each) for scope, each in digests.items()}


def data_version(digests: Sequence[str]) -> str:
    """The digest of the only batch of a scope, or one of the digests of all of them."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("\n".join(digests).encode()).hexdigest()
