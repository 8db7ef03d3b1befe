"""What publish may have to do for change logs, snapshots and reference tables, for the sweeps of ``faults``."""

from __future__ import annotations

from typing import Any

from etl_assets.contract import (
    DerivedTable,
    ReferenceTable,
    Sharded,
    WatermarkTable,
    integer,
    native,
    same_partition,
    text,
    transform,
    window,
)
from etl_assets_tests.faults.scenarios import Scenario
from etl_assets_tests.patterns.logs import YEAR, A, B, C, delete, lines, prices, readings, snapshot, upsert
from etl_assets_tests.world import World, orders


def _nothing(world: World) -> None:
    """Before the first load there is no warehouse."""


def _first_events(world: World) -> None:
    world.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, "fig"), upsert(3, 5, 3), delete(4, 2, 9)))


def _consumed(world: World) -> None:
    _first_events(world)
    world.load(A, run="earlier")


def _next_events(world: World) -> None:
    world.deliver(B, lines(upsert(5, 2, 1, "plum"), delete(6, 2, 2), upsert(7, 4, 3, "old"), upsert(8, 1, 4)))


def _events_of_two_batches(world: World) -> None:
    """Key 1 changes in the first batch and ends in the second; key 3 is stale in both before it changes."""
    world.deliver(
        B,
        lines(
            *(upsert(5, 2, 1, "plum"), upsert(6, 1, 5), upsert(7, 4, 3, "old"), upsert(8, 3, 3, "older")),
            *(delete(9, 3, 1), upsert(10, 6, 3, "new")),
        ),
    )


def _empty_interval(world: World) -> None:
    world.deliver(A, lines('{"lower": 0, "upper": 90}', upsert(70, 1, 1)))
    world.load(A, run="earlier")
    world.deliver(B, lines('{"lower": 90, "upper": 200}'))


SHARDED = prices(partitions=Sharded(YEAR, "eu", "us"), landing="prices/{partition}/{shard}/*.jsonl")


def _two_shards(world: World) -> None:
    """The us shard is one event behind, and it is the older one of key 1."""
    world.deliver(f"{A}/eu", lines(upsert(1, 3, 1, "of eu"), upsert(2, 1, 2)), "1.jsonl")
    world.deliver(f"{A}/us", lines(upsert(1, 2, 1, "of us")), "1.jsonl")
    world.load(f"{A}|eu", f"{A}|us", run="earlier")


def _next_of_us(world: World) -> None:
    world.deliver(f"{B}/us", lines(upsert(2, 1, 1, "old"), upsert(3, 2, 2, "fig"), upsert(4, 1, 3)), "1.jsonl")


def _stale_events(world: World) -> None:
    world.deliver(B, lines(upsert(5, 4, 3, "old"), upsert(6, 1, 9, "ghost")))


def _two_snapshots(world: World) -> None:
    world.deliver(A, snapshot("a,01,10", "b,01,20", "c,01,30", "d,01,40"))
    world.deliver(B, snapshot("a,02,10", "b,01,20", "d,01,40"))
    world.load(A, B, run="earlier")


def _third_snapshot(world: World) -> None:
    """Brings c back, withdraws b, changes d, and adds e."""
    world.deliver(C, snapshot("a,02,10", "c,01,30", "d,03,41", "e,03,15"))


def _wider_snapshot(world: World) -> None:
    world.deliver(C, snapshot("a,03,11,red", "f,04,1,blue", header="id,updated,value,colour"))


def _codes(world: World, name: str, *rows: str) -> None:
    folder = world.landing / "codes"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("\n".join(["id,code", *rows]) + "\n")


def _reference(world: World) -> None:
    _codes(world, "1.csv", "1,NA", "2,ZW", "3,XX")
    world.load("all", run="earlier")


def _reloaded(world: World) -> None:
    _codes(world, "2.csv", "1,NA", "2,ZB", "4,YY")


def _computed(world: World) -> None:
    """Two days of orders and their sums."""
    world.deliver(A, f"id,day,item,amount\n1,{A},pear,3\n2,{A},fig,5\n", pipeline="orders")
    world.load(A, pipeline=orders(), run="earlier")
    world.load(A, run="earlier")


def _stale(world: World) -> None:
    world.deliver(A, f"id,day,item,amount\n1,{A},pear,3\n2,{A},fig,6\n3,{A},elm,1\n", "2.csv", pipeline="orders")
    world.load(A, pipeline=orders(), run="correction")


SUMS = DerivedTable(
    name="sums",
    partitions=orders().partitions,
    upstream=[same_partition(orders())],
    sql="SELECT item, sum(amount) AS total FROM orders GROUP BY item",
    columns=[text("item"), integer("total")],
    key=["item"],
)


def _halved(frame: Any) -> Any:
    """Every second row, and other values."""
    return frame[frame["value"] != 20].assign(value=frame["value"] // 2)


def _by_logic(version: int) -> WatermarkTable:
    logic = transform(_halved if version > 1 else lambda frame: frame, version=version)
    return readings(complete=window("value"), transform=logic)


def _by_older_logic(world: World) -> None:
    world.deliver(A, snapshot("a,01,10", "b,01,20", "c,01,30", "d,01,40"))
    world.deliver(B, snapshot("a,02,10", "b,01,20", "d,01,40"))
    world.load(A, B, run="earlier", pipeline=_by_logic(1))  # type: ignore[arg-type]


CODES = ReferenceTable(name="codes", landing="codes/*.csv", columns=[integer("id"), text("code")], key=["id"])
ALL = {
    s.name: s
    for s in (
        Scenario("first events", _nothing, _first_events, pipeline=prices()),
        Scenario("next events", _consumed, _next_events, scope=B, pipeline=prices()),
        Scenario("two batches", _consumed, _events_of_two_batches, scope=B, pipeline=prices(batch_events=3)),
        Scenario("empty interval", _nothing, _empty_interval, scope=B, pipeline=prices(events=native(bounds="stated"))),
        Scenario("one of two shards", _two_shards, _next_of_us, scope=f"{B}|us", pipeline=SHARDED),
        Scenario("stale events", _consumed, _stale_events, scope=B, pipeline=prices()),
        Scenario("complete snapshot", _two_snapshots, _third_snapshot, scope=C, pipeline=readings(complete=window("value"))),
        Scenario("new column", _two_snapshots, _wider_snapshot, scope=C, pipeline=readings(new_columns="add")),
        Scenario("restated snapshot", _two_snapshots, _nothing, pipeline=readings(complete="whole"), restate="undone"),
        Scenario("newer logic", _by_older_logic, _nothing, scope=B, pipeline=_by_logic(2)),
        Scenario("reference table", _reference, _reloaded, scope="all", pipeline=CODES),
        Scenario("derived table", _computed, _stale, pipeline=SUMS),
    )
}  # fmt: skip
