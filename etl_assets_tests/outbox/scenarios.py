"""Publishes with notifications, for the sweeps of ``faults``: their state holds the messages, too."""

from __future__ import annotations

from etl_assets.contract import Notification, repair
from etl_assets_tests.faults.scenarios import Scenario
from etl_assets_tests.outbox.shop import BUSY, LARGE, A, B, csv, shop
from etl_assets_tests.patterns.logs import delete, lines, prices, upsert
from etl_assets_tests.world import World


def _nothing(world: World) -> None:
    """Before the first load there is no warehouse."""


def _first(world: World) -> None:
    world.deliver(A, csv(f"1,{A},pear,3", f"2,{A},fig,5", f"3,{A},nut,7"))


def _told(world: World) -> None:
    _first(world)
    world.deliver(B, csv(f"7,{B},oak,9"), "2.csv")
    world.load(A, B, run="earlier")


def _moved(world: World) -> None:
    """Takes 3 from A, and changes 7: both days are said anew."""
    world.deliver(B, csv(f"3,{B},nut,7", f"7,{B},oak,8"), "3.csv")


def _consumed(world: World) -> None:
    world.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, "fig")))
    world.load(A, run="earlier")


def _next_events(world: World) -> None:
    world.deliver(B, lines(upsert(3, 2, 1, "plum"), delete(4, 2, 2), upsert(5, 1, 4)))


ITEMS = Notification(name="items", topic="items", sql="SELECT id, item FROM prices", key=["id"])
ALL = {
    s.name: s
    for s in (
        Scenario("first load, told", _nothing, _first, pipeline=shop()),
        Scenario("moved keys, told", _told, _moved, scope=B, pipeline=shop(LARGE, BUSY, moved_keys=repair(order="delivery"))),
        Scenario("next events, told", _consumed, _next_events, scope=B, pipeline=prices(notifications=[ITEMS])),
    )
}  # fmt: skip
