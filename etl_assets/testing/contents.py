"""The whole contents of a pipeline's table, so that two warehouses can be compared to the row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from etl_assets.contract import Pipeline, ReplacedTable
from etl_assets.testing.workbench import Workbench

#: What can be compared. Which of them two ways of loading must agree in is the pattern's affair.
ROWS, ASIDE, VERSIONS, CURRENT, POSITION = (
    "rows",
    "rows kept aside",
    "versions and ends",
    "current deliveries",
    "position",
)
#: Which batch wrote a row, under which number its partition goes, and at which position an event stood, are the way's.
OF_THE_WAY = ("_batch", "_partition", "_position")
SHOWN = 5

#: Columns with their values, those without one left out: a column that nothing fills may be there or not.
Row = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Contents:
    """Rows of each part, with how often each occurs."""

    parts: Mapping[str, Counter[Row]]

    def differences(self, other: Contents, parts: Iterable[str], mine: str, theirs: str) -> str:
        """What differs in these parts, a row a line; empty where nothing does."""
        lines = []
        for part in parts:
            for name, rows in (
                (mine, self.parts[part] - other.parts[part]),
                (theirs, other.parts[part] - self.parts[part]),
            ):
                lines += [f"  {part}, only {name}: {dict(row)}" for row in sorted(rows.elements(), key=repr)[:SHOWN]]
                if rows.total() > SHOWN:
                    lines.append(f"  {part}, only {name}: … and {rows.total() - SHOWN:,} more")
        return "\n".join(lines)


def contents(bench: Workbench, pipeline: Pipeline) -> Contents:
    """Rows of the table with what stands behind it, the delivery that each partition stands for, and progress."""
    current: Counter[Row] = Counter()
    position: Counter[Row] = Counter()
    scopes: dict[Any, Any] = {}
    if bench.records("etl_partition"):
        scopes = dict(bench.sql("SELECT id, scope FROM etl_partition"))
        batches = bench.sql(
            "SELECT p.scope, b.delivery, b.revision, p.rows FROM etl_partition p JOIN etl_batch b ON b.id = p.batch "
            "WHERE p.pipeline = ?",
            pipeline.name,
        )
        current = Counter(tuple(zip(("partition", "delivery", "revision", "rows"), b, strict=True)) for b in batches)
        position = Counter(
            tuple((name, value) for name, value in sorted(row.items()) if name not in ("pipeline", "batch"))
            for row in bench.records("etl_progress")
            if row["pipeline"] == pipeline.name
        )

    def rows(table: str) -> Counter[Row]:
        partitioned = isinstance(pipeline, ReplacedTable)
        return Counter(
            tuple(
                sorted(
                    [(name, value) for name, value in row.items() if value is not None and name not in OF_THE_WAY]
                    + ([("_partition", scopes[row["_partition"]])] if partitioned else [])
                )
            )
            for row in bench.records(table)
        )

    return Contents(
        {
            ROWS: rows(pipeline.table),
            ASIDE: rows(f"_aside_{pipeline.table}"),
            VERSIONS: rows(f"_versions_{pipeline.table}"),
            CURRENT: current,
            POSITION: position,
        }
    )
