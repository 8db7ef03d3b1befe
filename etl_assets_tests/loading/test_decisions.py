"""What a person restated stands, by newer logic and in later runs too; what a changed contract makes, it makes once."""

from __future__ import annotations

from typing import Any

import pytest

from etl_assets.contract import integer, text, transform
from etl_assets.errors import BatchIdentityConflict, Superseded
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[0], DAYS[1]
PEAR, FIG, NUT = f"1,{DAY},pear,3", f"2,{DAY},fig,5", f"3,{DAY},nut,1"
AS_PEAR, AS_FIG, AS_NUT = (3, DAY, 1, "pear"), (5, DAY, 2, "fig"), (1, DAY, 3, "nut")


def content(*rows: str, header: str = "id,day,item,amount") -> str:
    return "\n".join([header, *rows]) + "\n"


def by_version(number: int) -> Any:
    return orders(transform=transform(lambda frame: frame, version=number))


def states(world: World, pipeline: Any = None) -> list[tuple[str, int, str]]:
    return [(s.name, s.revision, s.state) for s in world.survey(pipeline).statuses]


@pytest.fixture
def restated(world: World) -> World:
    """``1.csv`` is restated over ``2.csv``."""
    for name, row in (("1.csv", PEAR), ("2.csv", FIG)):
        world.deliver(DAY, content(row), name)
        world.load(DAY, pipeline=by_version(1))
    world.load(DAY, delivery="1.csv", restate="2.csv was withdrawn", pipeline=by_version(1))
    return world


def test_newer_logic_makes_the_delivery_again_that_was_restated(restated: World) -> None:
    (outcome,) = restated.load(DAY, pipeline=by_version(2))
    assert (outcome.status, outcome.batch) == ("committed", f"orders/{DAY}/1.csv#1@2")
    assert restated.rows() == [AS_PEAR]
    state = restated.ledger()
    for _ in range(2):  # in later plain runs, too
        (again,) = restated.load(DAY, pipeline=by_version(2))
        assert (again.status, again.batch) == ("already committed", f"orders/{DAY}/1.csv#1@2")
    assert restated.load_pending(by_version(2)) == []
    assert restated.ledger() == state
    assert states(restated, by_version(2)) == [("1.csv", 1, "committed"), ("2.csv", 1, "superseded")]


@pytest.mark.parametrize("first", ["1.csv", None], ids=["after the other was made again", "at once"])
def test_what_was_restated_away_is_refused_by_its_name_under_newer_logic(restated: World, first: str | None) -> None:
    if first:
        (made,) = restated.load(DAY, delivery=first, pipeline=by_version(2))
        assert made.status == "committed"
    (named,) = restated.load(DAY, delivery="2.csv", pipeline=by_version(2))
    assert isinstance(named.error, Superseded)
    assert f"orders/{DAY}/1.csv#1@1+1 was restated over this delivery (2.csv was withdrawn)" in str(named.error)
    assert restated.rows() == [AS_PEAR]


def test_the_restated_delivery_is_made_again_though_it_left_landing(restated: World) -> None:
    (restated.landing / "orders" / DAY / "1.csv").unlink()
    (outcome,) = restated.load(DAY, pipeline=by_version(2))
    assert (outcome.status, outcome.batch) == ("committed", f"orders/{DAY}/1.csv#1@2")
    assert restated.rows() == [AS_PEAR]


def test_a_newer_name_or_new_bytes_end_the_decision(restated: World) -> None:
    restated.deliver(DAY, content(NUT), "2.csv")
    assert [o.batch for o in restated.load_pending(by_version(2))] == [f"orders/{DAY}/2.csv#2@2"]
    assert restated.rows() == [AS_NUT]
    restated.deliver(DAY, content(FIG), "2.csv")  # and the old bytes after them are news again
    assert [o.batch for o in restated.load_pending(by_version(2))] == [f"orders/{DAY}/2.csv#3@2"]
    restated.deliver(DAY, content(PEAR, NUT), "3.csv")
    assert [o.batch for o in restated.load_pending(by_version(2))] == [f"orders/{DAY}/3.csv#1@2"]


def test_the_bytes_that_were_restated_away_do_not_come_back_as_a_new_revision(restated: World) -> None:
    restated.deliver(DAY, "no header at all\n", "2.csv")
    (broken,) = restated.load(DAY, pipeline=by_version(1))
    assert broken.status == "refused"
    restated.deliver(DAY, content(FIG), "2.csv")
    assert restated.load_pending(by_version(2)) == []
    restated.load(DAY, pipeline=by_version(2))
    assert restated.rows() == [AS_PEAR]
    assert ("2.csv", 3, "superseded") in states(restated, by_version(2))


def test_a_revision_restated_over_a_later_one_stands_by_newer_logic(world: World) -> None:
    for row in (PEAR, FIG):
        world.deliver(DAY, content(row))
        world.load(DAY, pipeline=by_version(1))
    world.load(DAY, delivery="1.csv#1", restate="#2 was a mistake", pipeline=by_version(1))
    (outcome,) = world.load(DAY, pipeline=by_version(2))
    assert (outcome.status, outcome.batch) == ("committed", f"orders/{DAY}/1.csv#1@2")
    assert world.rows() == [AS_PEAR]
    assert states(world, by_version(2)) == [("1.csv", 1, "committed"), ("1.csv", 2, "superseded")]


# --------------------------------------------------------------------------- a contract that changed


def with_colour(**options: Any) -> Any:
    return orders(columns=[*orders().columns, text("colour", **options)], new_columns="ignore")


def ignoring() -> Any:
    return orders(new_columns="ignore")


def test_a_column_that_is_declared_now_is_filled_by_a_run_once(world: World) -> None:
    for day in (DAY, NEXT):
        row = f"{day[-1]},{day},pear,3,red"
        world.deliver(day, content(row, header="id,day,item,amount,colour"))
        world.load(day, pipeline=ignoring())
    reasons = [s.reason for s in world.survey(with_colour()).statuses]
    assert all("by an older contract" in reason for reason in reasons)
    assert world.survey(with_colour()).waiting() == []
    (outcome,) = world.load(DAY, pipeline=with_colour())
    assert (outcome.status, outcome.counts.updated) == ("committed", 1)
    assert outcome.batch == f"orders/{DAY}/1.csv#1@1+1"
    assert world.sql("SELECT id, colour FROM orders ORDER BY id") == [(1, "red"), (2, None)]
    assert ["by an older contract" in s.reason for s in world.survey(with_colour()).statuses] == [False, True]
    again = world.load(DAY, NEXT, pipeline=with_colour())
    assert [o.status for o in again] == ["already committed", "committed"]
    assert [o.status for o in world.load(DAY, NEXT, pipeline=with_colour())] == ["already committed"] * 2
    assert [(b.operation, b.ordinal) for b in world.ledger(DAY)] == [("replace", 0), ("replace", 1)]
    assert world.warehouse.verify(with_colour()) == []


def test_an_optional_column_without_a_value_leaves_what_is_committed_and_is_proved_once(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    wider = orders(columns=[*orders().columns, text("colour", optional=True)])
    assert [o.status for o in world.load(DAY, pipeline=wider)] == ["already committed"]
    (status,) = world.survey(wider).statuses
    assert "older contract" not in status.reason
    state = world.state()
    assert [o.status for o in world.load(DAY, pipeline=wider)] == ["already committed"]
    assert world.state() == state


def test_a_narrower_contract_takes_values_back_and_a_later_delivery_is_not_undone(world: World) -> None:
    header = "id,day,item,amount,colour"
    world.deliver(DAY, content(f"{PEAR},red", header=header), "1.csv")
    world.load(DAY, pipeline=with_colour())
    assert [o.status for o in world.load(DAY, pipeline=ignoring())] == ["committed"]
    assert world.sql("SELECT colour FROM orders") == [(None,)]
    world.deliver(DAY, content(f"{FIG},blue", header=header), "2.csv")
    world.load(DAY, pipeline=ignoring())
    (older,) = world.load(DAY, pipeline=with_colour(), delivery="1.csv")
    assert isinstance(older.error, Superseded)
    assert [o.status for o in world.load(DAY, pipeline=with_colour())] == ["committed"]
    assert world.sql("SELECT id, colour FROM orders") == [(2, "blue")]


def test_where_a_transform_makes_the_rows_its_version_still_has_to_be_raised(world: World) -> None:
    def loud(frame: Any) -> Any:
        return frame.assign(item=frame["item"].str.upper())

    world.deliver(DAY, content(PEAR))
    world.load(DAY, pipeline=by_version(1))
    changed = orders(transform=transform(loud, version=1), columns=[*orders().columns, integer("n", optional=True)])
    (outcome,) = world.load(DAY, pipeline=changed)
    assert isinstance(outcome.error, BatchIdentityConflict)
    assert world.rows() == [AS_PEAR]
