"""Newer logic over a table of versions: what a raised transform version makes again, and what gives way to it.

A snapshot that older logic has committed is made again as it was made then: bounded by the watermark that stood before it.
Where newer logic says a row of the same version, it stands in the place of the older one; where it says none, the row that
older logic made of this delivery ends. Once newer logic is in the table, older logic is superseded. What a person restated
stands all the same: no delivery that was committed before comes back over it.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from etl_assets.contract import WatermarkTable
from etl_assets.errors import Superseded
from etl_assets.model import Manifest
from etl_assets.naming import is_later
from etl_assets.sink.sqlite import ledger


@dataclass(frozen=True, slots=True)
class Logic:
    """What the ledger says of a snapshot that is about to be merged.

    Rows that were written before the batch ``since`` are by older logic. ``overtaken_by`` is a batch of a later snapshot,
    ``made`` the one that older logic made of this delivery, ``watermark`` how far the table was before it. ``kept`` are
    batches that restated rows after ``made``, ``later`` those of later snapshots.
    """

    since: int
    overtaken_by: str | None
    made: int | None
    watermark: int | None
    kept: tuple[int, ...] = ()
    later: tuple[int, ...] = ()


#: Batches of a pipeline since the table was last made of one snapshot alone.
_OWN = (
    "FROM etl_batch WHERE pipeline = :pipeline AND id >= "
    "(SELECT coalesce(max(id), 0) FROM etl_batch WHERE pipeline = :pipeline AND operation = 'restate') "
)


def look_back(connection: sqlite3.Connection, pipeline: WatermarkTable, manifest: Manifest, number: int) -> Logic:
    """Read the ledger for batch ``number``, which is to be made of this extract. Raises :class:`Superseded`."""
    names = {
        "pipeline": manifest.pipeline,
        "scope": manifest.scope,
        "delivery": manifest.delivery,
        "place": manifest.order,
        "revision": manifest.revision,
        "version": manifest.transform_version,
        "sha256": manifest.input_sha256 if pipeline.complete != "no" else None,
    }
    connection.create_function("is_later", 2, is_later, deterministic=True)
    _check_restated_away(connection, manifest, names)
    newer = connection.execute(
        f"SELECT batch, transform_version {_OWN} AND transform_version > :version ORDER BY id DESC LIMIT 1", names
    ).fetchone()
    if newer:
        raise Superseded(
            f"{manifest.batch} is superseded: {newer[0]} is committed for {manifest.pipeline}, and its transform version "
            f"{newer[1]} is newer. Nothing was changed. Run it by the newer logic"
        )
    (since,) = connection.execute(f"SELECT min(id) {_OWN} AND transform_version = :version", names).fetchone()
    later = (
        []
        if pipeline.complete == "no"
        else connection.execute(
            f"SELECT id, batch {_OWN} AND (scope > :scope OR scope = :scope AND "
            "CASE WHEN delivery = :delivery THEN revision > :revision ELSE is_later(delivery_order, :place) END) "
            "ORDER BY scope DESC, delivery_order DESC, revision DESC",
            names,
        ).fetchall()
    )
    (made,) = connection.execute(
        f"SELECT min(id) {_OWN} AND (scope, delivery, revision) = (:scope, :delivery, :revision)", names
    ).fetchone()
    watermark = ledger.position(connection, manifest.pipeline)
    kept: list[tuple[int]] = []
    if made is not None:
        names |= {"made": made}
        # The watermark begins again where rows were restated.
        (watermark,) = connection.execute(
            f"SELECT max(upper) {_OWN} AND id < :made AND id >= "
            "(SELECT coalesce(max(id), 0) FROM etl_batch WHERE pipeline = :pipeline AND operation = 'amend' AND id < :made)",
            names,
        ).fetchone()
        kept = connection.execute(
            # Of such a delivery also what newer logic made of it since.
            "SELECT DISTINCT b.id FROM etl_batch b JOIN etl_batch r ON b.pipeline = r.pipeline AND b.id >= r.id "
            "AND (b.scope, b.delivery, b.revision) = (r.scope, r.delivery, r.revision) "
            "WHERE r.pipeline = :pipeline AND r.operation = 'amend' AND r.id > :made "
            "AND (r.scope, r.delivery, r.revision) <> (:scope, :delivery, :revision)",
            names,
        ).fetchall()
    return Logic(
        since=since or number,
        overtaken_by=later[0][1] if later else None,
        made=made,
        watermark=watermark,
        kept=tuple(batch for (batch,) in kept),
        later=tuple(batch for batch, _ in later),
    )


def _check_restated_away(connection: sqlite3.Connection, manifest: Manifest, names: dict[str, object]) -> None:
    """Raise :class:`Superseded` for a delivery that was committed before the table was made of another one alone.

    The bytes of such a delivery that are there again under its name are the same delivery, where snapshots are complete.
    """
    away = connection.execute(
        "SELECT r.batch, r.reason FROM etl_batch r WHERE r.id = (SELECT max(id) FROM etl_batch WHERE pipeline = :pipeline "
        "AND operation = 'restate') AND (r.scope, r.delivery, r.revision) <> (:scope, :delivery, :revision) "
        "AND EXISTS (SELECT 1 FROM etl_batch b WHERE b.pipeline = :pipeline AND b.id < r.id "
        "AND (b.scope, b.delivery) = (:scope, :delivery) AND (b.revision = :revision OR b.input_sha256 = :sha256)) "
        "AND NOT EXISTS (SELECT 1 FROM etl_batch b WHERE b.pipeline = :pipeline AND b.id > r.id "
        "AND (b.scope, b.delivery, b.revision) = (:scope, :delivery, :revision))",
        names,
    ).fetchone()
    if away:
        raise Superseded(
            f"{manifest.batch} is superseded: {away[0]} was restated over this delivery ({away[1]}). Nothing was changed. "
            "Deliver a newer snapshot, or restate this one with a reason"
        )
