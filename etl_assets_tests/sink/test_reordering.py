"""Orders of names that an earlier release wrote compare as those of this one."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from pathlib import Path

from etl_assets.contract import repair
from etl_assets.loading.preparing import Preparer, Turn
from etl_assets.naming import natural_order
from etl_assets.sink.sqlite.connection import writing
from etl_assets.sink.sqlite.reordering import reorder_names
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[0], DAYS[1]
NAMES = ["sales.csv", "9.csv", "a/10.csv", "-2.csv", "", "x\x01y.csv", "01\x011\x01", "é#1@2.csv", "7" * 300]


def as_before(name: str) -> str:
    parts = (
        f"0{len(n.lstrip('0') or '0'):04d}{n.lstrip('0') or '0'}" if n else o
        for n, o in re.findall(r"([0-9]+)|([^0-9]+)", name)
    )
    return "".join(parts) + "\x01" + name


def test_every_order_of_an_earlier_release_is_written_again(world: World) -> None:
    for number in range(len(NAMES)):
        world.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,{number}\n", f"{number}.csv")
        world.load(DAY)
    with writing(Path(world.settings.warehouse)) as connection:
        for number, name in enumerate(NAMES):
            for table, column in (("etl_batch", "delivery_order"), ("etl_delivery", "name_order")):
                name_column = "delivery" if table == "etl_batch" else "name"
                connection.execute(
                    f"UPDATE {table} SET {column} = ? WHERE {name_column} = ?", (as_before(name), f"{number}.csv")
                )
        reorder_names(connection)
    wanted = [natural_order(name) for name in NAMES]
    assert [order for (order,) in world.sql("SELECT delivery_order FROM etl_batch ORDER BY id")] == wanted
    assert [order for (order,) in world.sql("SELECT name_order FROM etl_delivery ORDER BY name")] == wanted


def test_the_order_of_a_batch_is_that_of_its_delivery_not_of_its_extract(world: World) -> None:
    world.deliver(DAY, f"id,day,item,amount\n1,{DAY},pear,1\n", "sales.csv")
    engine = world.engine()
    claim = engine.sink.claim(world.pipeline, [DAY], "run")[DAY]
    made = Preparer(world.pipeline, engine.source, engine.sink, engine.staged, [DAY]).prepare(Turn(DAY, None, claim, 1))
    with contextlib.closing(made):
        assert made.extract
        assert made.delivery
        assert made.stage
        old = replace(made.extract, manifest=replace(made.extract.manifest, order=as_before("sales.csv")))
        engine.sink.publish(world.pipeline, claim, made.delivery, old, made.stage)
    assert world.ledger()[0].order == natural_order("sales.csv")


def test_names_of_two_partitions_that_tell_no_order_decide_no_moved_key(tmp_path: Path) -> None:
    world = World(tmp_path, orders(moved_keys=repair(order="delivery"), partition_by=None))
    for day, name in ((DAY, "jan.csv"), (NEXT, "feb.csv")):
        world.deliver(day, f"id,day,item,amount\n1,{day},pear,1\n", name)
    first, second = world.load(DAY, NEXT)
    assert (first.status, second.error and second.error.kind) == ("committed", "MovedKeys")
    assert world.rows() == [(1, DAY, 1, "pear")]
    (later,) = (world.landing / "orders" / NEXT).iterdir()
    later.rename(later.with_name("jan-2.csv"))
    assert world.load(NEXT)[0].status == "committed"
    assert world.rows() == [(1, NEXT, 1, "pear")]
