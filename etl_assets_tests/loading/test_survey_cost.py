"""The work of a survey grows with the number of deliveries, and not with its square: counted in lines, not in seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import etl_assets
from etl_assets.contract import (
    ChangeLogTable,
    DerivedTable,
    Hourly,
    PartitionedTable,
    Pipeline,
    Static,
    WatermarkTable,
    integer,
    same_partition,
)
from etl_assets.loading import survey
from etl_assets.testing import Workbench

HOURS = Hourly(start="2024-01-01", end="2024-02-01")
COLUMNS = [integer("id"), integer("v")]
PACKAGE = str(Path(etl_assets.__file__).parent)
CSV: dict[str, Any] = {"columns": COLUMNS, "key": ["id"]}

PARTITIONED = PartitionedTable(
    name="t", partitions=HOURS, landing="t/{partition}/*.csv", key_unique_in="partition", **CSV
)
REPEATED = PartitionedTable(name="t", partitions=Static("a"), landing="t/{partition}/*.csv", **CSV)
SNAPSHOTS = WatermarkTable(
    name="t", partitions=HOURS, landing="t/{partition}/*.csv", updated="v", complete="whole", **CSV
)
LOG = ChangeLogTable(name="t", partitions=Static("a"), landing="t/{partition}/*.csv", columns=COLUMNS, key=["id"])
DERIVED = DerivedTable(
    name="d", partitions=HOURS, upstream=[same_partition(PARTITIONED)], sql="SELECT id, v FROM t", columns=COLUMNS
)


def event(number: int) -> str:
    return f'{{"pos": {number}, "version": {number}, "op": "upsert", "row": {{"id": 1, "v": {number}}}}}\n'


def deliver(bench: Workbench, pipeline: Pipeline, count: int) -> None:
    """Commit so many deliveries: a partition for each, or all in the only one there is."""
    keys = pipeline.partitions.keys()
    for number in range(1, count + 1):
        scope = keys[number - 1] if len(keys) > 1 else keys[0]
        body = event(number) if isinstance(pipeline, ChangeLogTable) else f"id,v\n1,{number}\n"
        bench.put(f"t/{scope}/{number}.csv", body)
    assert {o.status for o in bench.load(pipeline, *keys[:count])} == {"committed"}
    if isinstance(pipeline, WatermarkTable):  # and as many that came too late
        for key in keys[:count]:
            bench.put(f"t/{key}/0.csv", f"id,v\n2,{count}\n")


def lines_of(work: Callable[[], object]) -> int:
    """How many lines of this package are run."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if event == "call":
            return trace if frame.f_code.co_filename.startswith(PACKAGE) else None
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


KINDS = {"days": PARTITIONED, "corrections": REPEATED, "snapshots": SNAPSHOTS, "log": LOG, "derived": DERIVED}


@pytest.mark.parametrize("pipeline", KINDS.values(), ids=KINDS)
def test_a_survey_of_twice_the_deliveries_is_twice_the_work(tmp_path: Path, pipeline: Pipeline) -> None:
    work = []
    for count in (15, 30, 60):
        bench = Workbench(tmp_path / str(count))
        deliver(bench, PARTITIONED if pipeline is DERIVED else pipeline, count)
        if pipeline is DERIVED:
            bench.load(DERIVED, *HOURS.keys()[:count])
        settings = bench.settings
        survey(settings, pipeline)  # what is kept between surveys is there
        work.append(lines_of(lambda settings=settings: survey(settings, pipeline)))
    once, twice, four_times = work
    assert four_times - twice < 2.2 * (twice - once)
