"""Rows of a snapshot that claim to have changed after it was read: no source can know that, so they are invalid.

The bound is the time at which the delivery was first read. It is recorded with the delivery, so that an extract that is
made again has the same rows, whenever that is.
"""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc

from etl_assets.contract import WatermarkTable

#: How far the clock of a source may be ahead of this machine's.
CLOCK_SKEW = dt.timedelta(minutes=15)
#: How far the calendar day of a place may be ahead of UTC. A date says no place.
FIRST_ZONE = dt.timedelta(hours=14)


def find_future(contract: WatermarkTable, table: pa.Table, read_at: str | None) -> dict[int, list[str]]:
    """Rows (by position) that changed after ``read_at``, with the reason. Integer watermarks are versions and tell no time."""
    values = table[contract.updated]
    if read_at is None or pa.types.is_integer(values.type):
        return {}
    latest = dt.datetime.fromisoformat(read_at) + CLOCK_SKEW
    if pa.types.is_date(values.type):
        bound = pa.scalar((latest + FIRST_ZONE).date()).cast(values.type)
    else:
        values = pc.cast(values, pa.timestamp("us", "UTC"))
        bound = pa.scalar(latest, values.type)
    found = pc.indices_nonzero(pc.fill_null(pc.greater(values, bound), False)).to_pylist()
    reason = "{} is {}, which is after the delivery was first read ({})"
    return {row: [reason.format(contract.updated, _shown(values[row].as_py()), read_at)] for row in found}


def _shown(value: dt.date) -> str:
    return value.isoformat().replace("+00:00", "Z")
