"""Newer logic over a table of versions: what a raised transform version makes anew, and what gives way to it.

A snapshot that older logic has committed is made anew as it was made then: bounded by the watermark that stood before it.
Where newer logic says a row of the same version, it stands in the place of the older one; where it says none, the row that
older logic made of this delivery ends. Once newer logic is in the table, older logic is superseded.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from etl_assets.errors import Superseded
from etl_assets.model import Manifest
from etl_assets.naming import is_later
from etl_assets.sink.sqlite import ledger


@dataclass(frozen=True, slots=True)
class Logic:
    """What the ledger says of a snapshot that is about to be merged.

    Rows that were written before the batch ``since`` are by older logic. ``overtaken_by`` is a batch of a later snapshot,
    ``made`` the one that older logic made of this delivery, ``watermark`` how far the table was before it.
    """

    since: int
    overtaken_by: str | None
    made: int | None
    watermark: int | None


#: Batches of a pipeline since the table was last made anew.
_OWN = (
    "FROM etl_batch WHERE pipeline = :pipeline AND id >= "
    "(SELECT coalesce(max(id), 0) FROM etl_batch WHERE pipeline = :pipeline AND operation = 'restate') "
)


def look_back(connection: sqlite3.Connection, manifest: Manifest, number: int) -> Logic:
    """Read the ledger for batch ``number``, which is to be made of this extract. Raises :class:`Superseded`."""
    names = {
        "pipeline": manifest.pipeline,
        "scope": manifest.scope,
        "delivery": manifest.delivery,
        "place": manifest.order,
        "revision": manifest.revision,
        "version": manifest.transform_version,
    }
    connection.create_function("is_later", 2, is_later, deterministic=True)
    newer = connection.execute(
        f"SELECT batch, transform_version {_OWN} AND transform_version > :version ORDER BY id DESC LIMIT 1", names
    ).fetchone()
    if newer:
        raise Superseded(
            f"{manifest.batch} is superseded: {newer[0]} is committed for {manifest.pipeline}, and its transform version "
            f"{newer[1]} is newer. Nothing was changed. Run it by the newer logic"
        )
    (since,) = connection.execute(f"SELECT min(id) {_OWN} AND transform_version = :version", names).fetchone()
    later = connection.execute(
        f"SELECT batch {_OWN} AND (scope > :scope OR scope = :scope AND "
        "CASE WHEN delivery = :delivery THEN revision > :revision ELSE is_later(delivery_order, :place) END) "
        "ORDER BY scope DESC, delivery_order DESC, revision DESC LIMIT 1",
        names,
    ).fetchone()
    (made,) = connection.execute(
        f"SELECT min(id) {_OWN} AND (scope, delivery, revision) = (:scope, :delivery, :revision)", names
    ).fetchone()
    watermark = ledger.position(connection, manifest.pipeline)
    if made is not None:
        (watermark,) = connection.execute(f"SELECT max(upper) {_OWN} AND id < :made", names | {"made": made}).fetchone()
    return Logic(since or number, later[0] if later else None, made, watermark)
