"""Links in landing are followed by every way of listing; those that lead nowhere are one partition's trouble, named."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets.errors import LandingUnreachable, MissingDelivery, StillArriving
from etl_assets.landing import Landing
from etl_assets.model import Arrival
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[0], DAYS[1]


def content(day: str, amount: int) -> str:
    return f"id,day,item,amount\n{int(day[-2:])},{day},pear,{amount}\n"


def listed(world: World) -> list[Arrival]:
    """What lies there, which is the same when each partition is listed by itself."""
    landing = Landing(str(world.landing), world.pipeline)
    every = landing.arrivals()
    assert [a for scope in sorted({a.scope for a in every}) for a in landing.arrivals(scope)] == every
    return every


def test_a_link_to_a_file_is_loaded_and_what_it_leads_to_is_watched(world: World) -> None:
    target = world.root / "elsewhere.csv"
    target.write_text(content(DAY, 1))
    link = world.deliver(DAY, "", "1.csv")
    link.unlink()
    link.symlink_to(target)
    assert [(a.name, a.arriving, a.size) for a in listed(world)] == [("1.csv", None, target.stat().st_size)]
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert (world.load_pending(), world.load(DAY)[0].status) == ([], "already committed")
    target.write_text(content(DAY, 2))
    assert [o.batch for o in world.load_pending()] == [f"orders/{DAY}/1.csv#2@1"]
    other = world.root / "another.csv"
    other.write_text(content(DAY, 3))
    link.unlink()
    link.symlink_to(other)
    assert [o.batch for o in world.load_pending()] == [f"orders/{DAY}/1.csv#3@1"]
    assert world.rows() == [(3, DAY, 1, "pear")]


@pytest.mark.parametrize("which", ["orders", f"orders/{DAY}"])
def test_a_link_to_a_folder_is_a_folder(world: World, which: str) -> None:
    world.deliver(DAY, content(DAY, 1))
    world.deliver(NEXT, content(NEXT, 2))
    (world.landing / which).rename(world.root / "aside")
    (world.landing / which).symlink_to(world.root / "aside")
    assert [(a.scope, a.name, a.arriving) for a in listed(world)] == [(DAY, "1.csv", None), (NEXT, "1.csv", None)]
    assert [o.status for o in world.load_pending()] == ["committed", "committed"]


@pytest.mark.parametrize(
    "target, why",
    [("nowhere", "a link that leads nowhere"), ("broken.csv", "a link that leads in a circle")],
)
def test_a_link_that_leads_nowhere_is_named_and_the_others_are_loaded(world: World, target: str, why: str) -> None:
    world.deliver(DAY, content(DAY, 1))
    (world.landing / "orders" / DAY / "broken.csv").symlink_to(target)
    world.deliver(NEXT, content(NEXT, 2))
    by_name = {(a.scope, a.name): a.arriving for a in listed(world)}
    assert by_name == {
        (DAY, "1.csv"): None,
        (DAY, "broken.csv"): f"it is not a regular file but {why}",
        (NEXT, "1.csv"): None,
    }
    assert [(o.scope, o.status) for o in world.load_pending()] == [(DAY, "committed"), (NEXT, "committed")]


@pytest.mark.parametrize("target, why", [("nowhere", "nowhere"), (DAY, "in a circle")])
def test_a_partitions_folder_that_leads_nowhere_is_that_partitions_trouble(world: World, target: str, why: str) -> None:
    world.deliver(NEXT, content(NEXT, 2))
    (world.landing / "orders" / DAY).symlink_to(target)
    folder = f"{world.landing}/orders/{DAY}"
    first, second = listed(world)
    assert (first.scope, first.name, first.known) == (DAY, "*.csv", True)
    assert (first.arriving or "").startswith(f"the folder {folder} cannot be listed: ")
    assert (second.scope, second.arriving) == (NEXT, None)
    assert [(o.scope, o.status) for o in world.load_pending()] == [(NEXT, "committed")]
    refused, _ = world.load(DAY, NEXT)
    assert isinstance(refused.error, StillArriving)
    assert f"a link that leads {why}" in refused.message
    assert [(s.scope, s.state) for s in world.survey().statuses] == [(DAY, "still arriving"), (NEXT, "committed")]


def test_a_folder_of_all_partitions_that_leads_nowhere_is_unreachable(world: World) -> None:
    (world.landing / "orders").symlink_to("nowhere")
    with pytest.raises(LandingUnreachable, match="a link that leads nowhere"):
        world.survey()


def test_a_folder_that_leads_up_is_listed_once(world: World) -> None:
    world.deliver(DAY, content(DAY, 1))
    (world.landing / "orders" / DAY / "up").symlink_to("..")
    assert [(a.scope, a.name) for a in listed(world)] == [(DAY, "1.csv")]


def test_a_link_that_no_partition_is_known_of_is_listed_as_unknown(tmp_path: Path) -> None:
    world = World(tmp_path, orders(landing="*/{partition}/*.csv"))
    world.deliver(DAY, content(DAY, 1))
    (world.landing / "broken").symlink_to("nowhere")
    arrivals = Landing(str(world.landing), world.pipeline).arrivals()
    assert [(a.scope, a.known, bool(a.arriving)) for a in arrivals] == [(DAY, True, False), ("broken", False, True)]
    assert [o.status for o in world.load_pending()] == ["committed"]


# --------------------------------------------------------------------------- what nearly fits


@pytest.mark.parametrize(
    "pattern, path",
    [
        ("orders/{partition}/*.csv", "orders/2024-01-01/ORDERS.CSV"),
        ("orders/{partition}/*.csv", "orders/2024-01-01/1.Csv"),
        ("orders/{partition}/*.csv.gz", "orders/2024-01-01/1.CSV.GZ"),
        ("orders/{partition}/*.csv", "Orders/2024-01-01/1.csv"),
        ("orders/{partition}/größe*.csv", "orders/2024-01-01/gro\u0308ße1.csv"),
        ("größen/{partition}/*.csv", "gro\u0308ßen/2024-01-01/1.csv"),
        ("orders-{partition}.csv", "Orders-2024-01-01.csv"),
    ],
)
def test_what_the_pattern_fits_but_for_case_or_unicode_form_is_named(tmp_path: Path, pattern: str, path: str) -> None:
    world = World(tmp_path, orders(landing=pattern))
    world.bench.put(path, content(DAY, 1))
    found = world.survey()
    assert found.statuses == ()
    assert len(found.misfits) == 1
    assert f"{world.landing}/{path}".startswith(found.misfits[0])
    (outcome,) = world.load(DAY)
    assert isinstance(outcome.error, MissingDelivery)
    assert "0 files matched; 1 file lies there that the pattern does not fit: " in outcome.message


def test_what_is_named_otherwise_or_fits_is_no_near_miss(world: World) -> None:
    world.deliver(DAY, content(DAY, 1))
    for name in ("notes.txt", "_SUCCESS", ".1.CSV", "1.csv~"):
        world.deliver(DAY, "x", name)
    (world.landing / "orders" / DAY / "SUB.CSV").mkdir()
    assert world.survey().misfits == ()
