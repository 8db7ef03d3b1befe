"""What the UI shows of a materialisation: counts and identities as values, rejects and corrections as tables."""

import datetime as dt
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline, WatermarkTable
from etl_assets.contract.columns import Column
from etl_assets.model import Batch, Changes, Extract, ExtractColumn, Receipt
from etl_assets.naming import shown
from etl_assets.orchestration.counting import TableRows
from etl_assets.staging.extract import rejected_lines

Metadata = dict[str, Any]

#: Rejected rows that are shown; all of them are in the extract.
REJECTS_SHOWN = 20
#: The counts that a batch of each pattern can have.
COUNTS = {
    "replace": ("inserted", "updated", "deleted", "unchanged", "moved", "aside", "restored", "duplicates", "rejected"),
    "consume": ("inserted", "updated", "deleted", "unchanged", "stale", "rejected"),
    "merge": (
        *(
            "inserted",
            "updated",
            "deleted",
            "restored",
            "unchanged",
            "stale",
            "skipped",
            "missed",
            "ties",
            "duplicates",
        ),
        "rejected",
    ),
}
#: What adds up where a partition has several deliveries.
ADDED = {
    *itertools.chain(*COUNTS.values()),
    "source_rows",
    "rejected_rows",
    "input_bytes",
    "dagster/partition_row_count",
}


def column_schema(pipeline: Pipeline, added: Iterable[ExtractColumn] = ()) -> dg.TableSchema:
    """The table's columns by the contract, and those that deliveries have added."""
    columns = [_table_column(pipeline, c) for c in pipeline.columns]
    note = "Added by a delivery (new_columns='add'); not in the contract"
    return dg.TableSchema(columns=[*columns, *(dg.TableColumn(c.name, c.type, note) for c in added)])


def _table_column(pipeline: Pipeline, column: Column) -> dg.TableColumn:
    marks = [f"unit: {column.unit}"] if column.unit else []
    in_partition = isinstance(pipeline, DerivedTable) or getattr(pipeline, "key_unique_in", "table") == "partition"
    marks += [f"key{', unique in its partition' if in_partition else ''}"] if column.name in pipeline.key else []
    marks += ["optional in deliveries"] if column.optional else []
    kind = f"decimal({column.precision},{column.scale})" if column.type == "decimal" else column.type
    required = column.name in pipeline.required_columns
    unique = pipeline.key == (column.name,) and not in_partition
    constraints = dg.TableColumnConstraints(nullable=not required, unique=unique, other=marks)
    return dg.TableColumn(column.name, kind, column.description, constraints)


def extract_metadata(pipeline: Pipeline, extract: Extract) -> Metadata:
    """What is frozen: the delivery, its bytes, and how many rows it came to."""
    manifest = extract.manifest
    metadata: Metadata = {
        "dagster/partition_row_count": manifest.rows,
        "delivery": shown(f"{manifest.delivery}#{manifest.revision}"),
        "source_rows": manifest.source_rows,
        "rejected_rows": manifest.rejected_rows,
        "input_bytes": manifest.input_size,
        "input_sha256": manifest.input_sha256,
        "digest": manifest.digest,
        "transform_version": manifest.transform_version,
        "folder": dg.MetadataValue.path(extract.folder),
        "dagster/column_schema": column_schema(pipeline, [c for c in manifest.columns if c.added]),
    }
    if manifest.rejected_rows:
        metadata["rejects"] = dg.MetadataValue.md(rejects_table(extract))
    return metadata


def committed_extract_metadata(batch: Batch) -> Metadata:
    """What the ledger knows of the extract that a batch was published from."""
    return {
        "dagster/partition_row_count": batch.rows,
        "delivery": shown(f"{batch.delivery}#{batch.revision}"),
        "source_rows": batch.counts.source,
        "rejected_rows": batch.counts.rejected,
        "input_sha256": batch.input_sha256,
        "digest": batch.digest,
        "transform_version": batch.transform_version,
    }


def table_metadata(
    pipeline: Pipeline, receipt: Receipt, rows: TableRows | None, extract: Extract | None = None
) -> Metadata:
    """What the commit did, by its receipt; ``rows`` are those that the table has by now, if they can be counted.

    ``extract`` is what was published, where it is at hand: of a derived table it tells what was computed.
    """
    batch = receipt.batch
    counts = batch.counts.as_dict()
    metadata: Metadata = {
        "status": receipt.status,
        "batch": batch.batch,
        "delivery": shown(f"{batch.delivery}#{batch.revision}"),
    }
    # In the order in which a person asks: what happened, why, to how many rows; identities last.
    metadata |= _progress(pipeline, batch)
    if batch.supersedes and pipeline.newest_counts:
        metadata["supersedes"] = batch.supersedes
    if batch.reason:
        metadata["restated_because"] = batch.reason
    if receipt.superseded_by:
        metadata["superseded_by"] = receipt.superseded_by
    if extract and extract.manifest.seen:
        seen = [(one.pipeline, one.scope or "all of it", one.batch) for one in extract.manifest.seen]
        metadata["computed_of"] = dg.MetadataValue.md(markdown_table(("table", "partition", "batch"), seen))
    changes = changes_tables(batch, receipt.changes)
    if changes:
        metadata["changes"] = dg.MetadataValue.md(changes)
    metadata |= {name: counts[name] for name in COUNTS[pipeline.operation]}
    metadata["source_rows"] = batch.counts.source
    if rows is not None and rows.by_scope is not None:
        metadata["dagster/partition_row_count"] = rows.by_scope.get(batch.scope, 0)
    if rows is not None:
        metadata["dagster/row_count"] = rows.total
    metadata |= {
        "committed_at": batch.committed_at,
        "ledger_entry": batch.id,
        "transform_version": batch.transform_version,
        "generation": batch.generation,
        "digest": batch.digest,
    }
    return metadata


def _progress(pipeline: Pipeline, batch: Batch) -> Metadata:
    """How far a log or a series of snapshots has come with this batch."""
    if batch.lower is None or batch.upper is None:
        return {}
    if isinstance(pipeline, ChangeLogTable):
        return {"positions": f"{batch.lower + 1}..{batch.upper}"}
    if isinstance(pipeline, WatermarkTable):
        column = pipeline.column(pipeline.updated)
        if column is not None and column.type == "timestamp":
            newest = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=batch.upper)
            return {"newest_change": newest.isoformat(timespec="milliseconds").replace("+00:00", "Z")}
        if column is not None and column.type == "integer":
            return {"newest_change": str(batch.upper)}
    return {}


def add_up(each: Sequence[Metadata]) -> Metadata:
    """Metadata of a partition that several deliveries make up: a table of them, their sums, and the rest of the last."""
    last = each[-1]
    if len(each) == 1:
        return last
    totals = {name: sum(one.get(name, 0) for one in each) for name in last if name in ADDED}
    counted = [name for name in totals if any(one.get(name) for one in each)]
    progress = [name for name in ("positions", "newest_change") if name in last]
    columns = ["delivery", *(["status"] if "status" in last else []), *progress, *counted]
    table = markdown_table([c.rpartition("/")[2] for c in columns], [[one.get(c) for c in columns] for one in each])
    metadata = {"deliveries": dg.MetadataValue.md(table), **last, **totals}
    rejects = [f"**{one['delivery']}**\n\n{one['rejects'].md_str}" for one in each if "rejects" in one]
    return metadata | ({"rejects": dg.MetadataValue.md("\n\n".join(rejects))} if rejects else {})


# ------------------------------------------------------------------ tables for people


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table; what would break out of a cell is made harmless."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(value: object) -> str:
    text = "" if value is None else str(value)
    text = text if len(text) <= 200 else f"{text[:200]}…"
    for character in "\\|<>`*_[]":
        text = text if text == "---" else text.replace(character, f"\\{character}")
    return "<br>".join(text.splitlines())


def rejects_table(extract: Extract) -> str:
    """The first rejected rows: where they stand in the delivery, why, and what they are."""
    with rejected_lines(extract) as lines:
        first = [json.loads(line) for line in itertools.islice(lines, REJECTS_SHOWN)]
    rows = [(r["line"] or "unknown", "; ".join(r["reasons"]), _values(r["row"])) for r in first]
    more = extract.manifest.rejected_rows - len(rows)
    return markdown_table(("line", "why", "row"), rows) + (f"\n\n… and {more:,} more in the extract" if more else "")


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{k}={v}" for k, v in row.items() if v not in (None, ""))


def changes_tables(batch: Batch, changes: Changes) -> str:
    """What a correction changed: rows per column, other partitions touched, and some rows from old to new."""
    parts = []
    if changes.columns:
        parts.append(f"**{batch.counts.updated:,} rows updated**, by column:")
        parts.append(markdown_table(("column", "rows changed"), [(c, f"{n:,}") for c, n in changes.columns]))
    if changes.touched:
        parts.append("**Other partitions**, because keys moved:")
        parts.append(markdown_table(("partition", "rows taken from it", "rows given back to it"), changes.touched))
    if changes.sample:
        parts.append(f"The first {len(changes.sample)} updated rows:")
        parts.append(markdown_table(("key", "column", "old", "new"), _sample_rows(changes)))
    return "\n\n".join(parts)


def _sample_rows(changes: Changes) -> Iterator[tuple[object, ...]]:
    for change in changes.sample:
        key = ", ".join(f"{name}={value}" for name, value in change.key)
        for name, old, new in change.values:
            yield key, name, "no value" if old is None else old, "no value" if new is None else new
            key = ""
