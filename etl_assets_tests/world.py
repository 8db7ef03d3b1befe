"""A whole small world for a test: landing, staged and warehouse in a temporary folder, and a pipeline to load.

Belongs here: what many tests need to arrange and to look at. Real components only; nothing here is a stand-in.
"""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from etl_assets.contract import Daily, PartitionedTable, date, integer, text
from etl_assets.loading import Engine, Outcome, Survey, survey
from etl_assets.model import Batch, Restatement
from etl_assets.sink import SQLiteWarehouse
from etl_assets.testing import Workbench

SHOWCASE = Path(__file__).parent.parent / "data" / "showcase" / "landing"
DAYS = ("2024-01-01", "2024-01-02", "2024-01-03")


def orders(**changes: Any) -> PartitionedTable:
    """A small pipeline: ``id`` is the key, ``day`` gives the partition."""
    fields: dict[str, Any] = {
        "name": "orders",
        "partitions": Daily(start="2024-01-01", end="2024-02-01"),
        "landing": "orders/{partition}/*.csv",
        "columns": [integer("id"), date("day"), text("item"), integer("amount")],
        "key": ["id"],
        "partition_by": "day",
    }
    return PartitionedTable(**(fields | changes))


class World:
    """Landing, staged and warehouse under ``root``, and what tests do with them."""

    def __init__(self, root: Path, pipeline: PartitionedTable | None = None) -> None:
        self.root = root
        self.bench = Workbench(root)
        self.landing, self.settings = self.bench.landing, self.bench.settings
        self.pipeline = pipeline or orders()

    def deliver(self, scope: str, content: str | bytes, name: str = "1.csv", pipeline: str | None = None) -> Path:
        """Put a file where the pipeline's deliveries arrive (``<pipeline>/<scope>/<name>``)."""
        return self.bench.put(f"{pipeline or self.pipeline.name}/{scope}/{name}", content)

    def engine(self, pipeline: PartitionedTable | None = None) -> Engine:
        return Engine(self.settings, pipeline or self.pipeline)

    def load(
        self,
        *scopes: str,
        pipeline: PartitionedTable | None = None,
        run: str | None = None,
        restate: str | None = None,
        delivery: str | None = None,
    ) -> list[Outcome]:
        """Load scopes in the given order as one run."""
        run = run or f"test-{uuid.uuid4().hex}"
        restatement = Restatement(restate, operation=run) if restate else None
        return list(self.engine(pipeline).load(scopes, run, restatement, delivery))

    def load_pending(self, pipeline: PartitionedTable | None = None) -> list[Outcome]:
        waiting = self.survey(pipeline).waiting()
        return self.load(*(s.scope for s in waiting), pipeline=pipeline) if waiting else []

    def survey(self, pipeline: PartitionedTable | None = None) -> Survey:
        return survey(self.settings, pipeline or self.pipeline)

    @property
    def warehouse(self) -> SQLiteWarehouse:
        return SQLiteWarehouse(self.settings.warehouse)

    def ledger(self, scope: str | None = None) -> list[Batch]:
        return self.warehouse.ledger(self.pipeline.name, [scope] if scope is not None else None)

    def sql(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Query the warehouse as a reader with plain SQL does."""
        return self.bench.sql(query, *values)

    def rows(self, table: str | None = None) -> list[tuple[Any, ...]]:
        """The table's whole contents without our own columns, columns and rows in order."""
        found = self.bench.records(table or self.pipeline.table)
        rows = [tuple(v for k, v in sorted(row.items()) if not k.startswith("_")) for row in found]
        return sorted(rows, key=repr)

    def state(self) -> dict[str, list[tuple[Any, ...]]]:
        """Everything that a transaction could have changed: each table's full contents, our own ones included."""
        if not Path(self.settings.warehouse).exists():
            return {}
        names = [r[0] for r in self.sql("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {n: sorted(self.sql('SELECT * FROM "{}"'.format(n.replace('"', '""'))), key=repr) for n in names}
