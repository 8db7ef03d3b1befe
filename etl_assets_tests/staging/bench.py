"""Staging alone: bytes in, an extract or a refusal out. No landing, no warehouse.

Belongs here: what the tests of staging arrange and look at. Real components only.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from etl_assets.contract import PartitionedTable, Static, text
from etl_assets.model import Delivery, Extract, Fetched
from etl_assets.naming import natural_order
from etl_assets.staging import StagedFolder
from etl_assets.staging.candidate import candidate_batches, candidate_schema
from etl_assets.staging.extract import INPUT, MANIFEST, candidate_file, rejected_lines
from etl_assets.staging.packed import unpack
from etl_assets.staging.stage import stage


def table(*columns: Any, **changes: Any) -> PartitionedTable:
    """A contract of one partition ``p``; a column given by its name is text that keeps empty fields."""
    made = [text(c, missing=()) if isinstance(c, str) else c for c in columns]
    fields: dict[str, Any] = {
        "name": "files",
        "partitions": Static("p"),
        "landing": "files/{partition}/*",
        "columns": made,
    }
    return PartitionedTable(**(fields | changes))


class Bench:
    """A staged folder, and deliveries frozen into it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staged = StagedFolder(root / "staged")

    def freeze(
        self,
        contract: PartitionedTable,
        content: str | bytes,
        scope: str = "p",
        name: str = "1.csv",
        revision: int = 1,
        declared: str | None = None,
    ) -> Extract:
        data = content if isinstance(content, bytes) else content.encode()
        digest = hashlib.sha256(data).hexdigest()
        delivery = Delivery(contract.name, scope, name, revision, natural_order(name), digest, len(data), "stamp")
        with self.staged.workspace() as work:
            (work / "input").write_bytes(data)
            fetched = Fetched(str(work / "input"), digest, len(data), declared)
            return stage(contract, delivery, fetched, name, self.staged, work)

    def read(self, contract: PartitionedTable, content: str | bytes, **options: Any) -> list[tuple[Any, ...]]:
        """Freeze and give back the candidate rows, in their order."""
        return rows(self.freeze(contract, content, **options))

    def rejects(self, contract: PartitionedTable, content: str | bytes, **options: Any) -> list[dict[str, Any]]:
        """Freeze under a name of its own, and give back the rejected rows."""
        options.setdefault("name", f"{uuid.uuid4().hex}.csv")
        return rejects(self.freeze(contract, content, **options))


def rows(extract: Extract) -> list[tuple[Any, ...]]:
    """The candidate rows in their order, columns in the contract's."""
    found = candidates(extract)
    return list(zip(*(column.to_pylist() for column in found.columns), strict=True)) if found.num_rows else []


def records(extract: Extract) -> list[dict[str, Any]]:
    return candidates(extract).to_pylist()


def candidates(extract: Extract) -> pa.Table:
    file = candidate_file(extract)
    schema = candidate_schema(file)
    return pa.Table.from_batches(candidate_batches(file, schema.names), schema)


def rejects(extract: Extract) -> list[dict[str, Any]]:
    with rejected_lines(extract) as lines:
        return [json.loads(line) for line in lines]


def contents(extract: Extract) -> dict[str, bytes]:
    """Every file of an extract, byte by byte, whether it is packed or a folder."""
    place = Path(extract.folder)
    if place.is_file():
        return unpack(place.read_bytes())
    return {str(p.relative_to(extract.folder)): p.read_bytes() for p in sorted(Path(extract.folder).rglob("*"))}


#: Of a small extract without rejected rows.
FILES = {INPUT, "candidate.arrow", MANIFEST}
