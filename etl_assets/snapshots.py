"""Snapshots of any CSV without a contract: a key column, a watermark column, everything else as text.

The same staging, ledger and sink as for pipelines; the contract is made from the file's header. Extracts, with the exact
input and the rejected rows, lie beside the database, in ``<db>.staged``.
"""

from __future__ import annotations

import csv
import itertools
import json
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.contract import Static, WatermarkTable, quarantine, text, timestamp
from etl_assets.errors import EtlError, LandingUnreachable
from etl_assets.landing import Landing
from etl_assets.landing.files import info, modified, stamp_of
from etl_assets.loading import Engine, Outcome
from etl_assets.model import Arrival, Restatement
from etl_assets.naming import natural_order
from etl_assets.settings import Settings
from etl_assets.sink import SQLiteWarehouse
from etl_assets.staging.extract import rejected_lines

SCOPE = "all"
#: What every snapshot is called in the ledger, wherever it lies; its revisions are told apart by their bytes.
NAME = "snapshot.csv"
#: Rejected rows that are shown; all of them are in the extract.
REJECTS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Applied:
    """What a snapshot did: rows ``applied``, ``ignored`` because the table knows them or newer ones, and ``errors``.

    Of a table that is built all rows are applied, and those that it did not have are ``changed``. ``rejects`` are the
    first of the rejected rows, each with its line and reasons.
    """

    source: str
    applied: int
    ignored: int
    errors: int
    max_watermark: str | None
    changed: int
    ties: int
    rejects: tuple[dict[str, Any], ...] = ()
    error: EtlError | None = None


class OneFile(Landing):
    """The landing of a single delivery: a file at any place, which is read where it lies."""

    def __init__(self, snapshot: Path, contract: WatermarkTable) -> None:
        super().__init__(str(snapshot.parent), contract)
        self.path = str(snapshot)

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """The one file."""
        facts = info(self.root.fs, self.path)
        return [Arrival(SCOPE, NAME, self.path, facts["size"], stamp_of(facts), natural_order(NAME), modified(facts))]


def apply_snapshot(db: Path, source: str, snapshot: Path, key: str, watermark: str, rebuild: bool = False) -> Applied:
    """Merge a snapshot into the table of ``source``, or with ``rebuild`` make the table that snapshot, atomically.

    A table that is built remembers the keys that the snapshot lacks, so that an older file does not bring them back.
    Raises :class:`LandingUnreachable` when there is no such file, and the contract's and the warehouse's errors.
    """
    if not snapshot.is_file():
        raise LandingUnreachable(f"{snapshot} is not there, or is not a file. Nothing was changed")
    _check_header(snapshot, key, watermark)
    contract = _contract(source, key, watermark)
    engine = Engine(Settings(str(snapshot.parent), f"{db}.staged", str(db)), contract, OneFile(snapshot, contract))
    run = f"snapshot-{uuid.uuid4().hex}"
    restate = Restatement("rebuilt from a snapshot", run) if rebuild else None
    (outcome,) = engine.load([SCOPE], run, restate)
    counts = outcome.counts
    done = outcome.status == "committed"
    new = counts.inserted + counts.updated + counts.restored if done else 0
    applied = new + counts.unchanged if rebuild else new
    rejected = outcome.extract.manifest.rejected_rows if outcome.extract else 0
    return Applied(
        source=source,
        applied=applied,
        ignored=counts.source - counts.rejected - applied if outcome.receipt else 0,
        errors=rejected if outcome.receipt else max(rejected, 1),
        max_watermark=SQLiteWarehouse(db).newest(contract, watermark),
        changed=new + counts.deleted if done else 0,
        ties=counts.ties if done else 0,
        rejects=_rejects(outcome),
        error=outcome.error,
    )


def _rejects(outcome: Outcome) -> tuple[dict[str, Any], ...]:
    """The first rejected rows of the extract."""
    if outcome.extract is None or not outcome.extract.manifest.rejected_rows:
        return ()
    with rejected_lines(outcome.extract) as lines:
        return tuple(json.loads(line) for line in itertools.islice(lines, REJECTS_SHOWN))


def profile(db: Path, source: str) -> dict[str, Any]:
    """Facts about a source's table, and whether they agree with the ledger."""
    if not db.is_file():
        raise LandingUnreachable(f"{db} is not there: build the source first")
    return SQLiteWarehouse(db).profile(source)


def _check_header(snapshot: Path, key: str, watermark: str) -> None:
    try:
        with snapshot.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file), [])
    except (UnicodeDecodeError, csv.Error) as error:
        raise LandingUnreachable(f"{snapshot} is not a CSV file in UTF-8: {error}. Nothing was changed") from error
    missing = [name for name in (key, watermark) if name not in header]
    if missing:
        raise LandingUnreachable(
            f"{snapshot}: the header lacks {', '.join(map(repr, missing))}: say --key and --watermark"
        )


def _contract(source: str, key: str, watermark: str) -> WatermarkTable:
    # Others are added as they come: rows of before have no value in them, whatever a later snapshot says.
    columns = [text(key, required=True), timestamp(watermark, timezone="UTC")]
    return WatermarkTable(
        name=source,
        partitions=Static(SCOPE),
        landing=f"{source}/*.csv",
        columns=columns,
        key=[key],
        updated=watermark,
        new_columns="add",
        bounds="none",
        invalid_rows=quarantine(up_to=1.0),
    )


def demonstrate(db: Path) -> dict[str, Any]:
    """Load twenty made-up rows twice and verify."""
    rows = [f"u{i},2026-01-{i:02d}T00:00:00Z,name {i}" for i in range(1, 21)]
    with tempfile.TemporaryDirectory(prefix="etl-demo-") as folder:
        snapshot = Path(folder) / "demo.csv"
        snapshot.write_text("id,src_updated,name\n" + "\n".join(rows) + "\n")
        first = apply_snapshot(db, "demo", snapshot, "id", "src_updated", rebuild=True)
        replay = apply_snapshot(db, "demo", snapshot, "id", "src_updated")
    return {"first_load": document(first), "replay": document(replay), "verify": profile(db, "demo")}


def document(applied: Applied) -> dict[str, Any]:
    """The figures for ``--json``-minded readers."""
    names = ("source", "applied", "ignored", "errors", "max_watermark", "changed", "ties")
    shown = {name: getattr(applied, name) for name in names}
    shown |= {"rejects": list(applied.rejects)} if applied.rejects else {}
    return shown | ({"error": f"{applied.error.kind}: {applied.error}"} if applied.error else {})
