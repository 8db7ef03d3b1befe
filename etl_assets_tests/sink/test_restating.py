"""A restatement is one decision, however many runs carry it out; each run has a claim of its own."""

from __future__ import annotations

from etl_assets.model import Restatement
from etl_assets_tests.world import World

DAY = "2024-01-01"
HEADER = "id,day,item,amount\n"


def test_a_run_that_is_executed_again_answers_what_its_restatement_has_done(world: World) -> None:
    world.deliver(DAY, f"{HEADER}1,{DAY},pear,3\n")
    world.load(DAY)
    (first,) = world.engine().load([DAY], "run-1", Restatement("new prices", "decision-1"))
    before = world.state()
    (again,) = world.engine().load([DAY], "run-2", Restatement("new prices", "decision-1"))
    assert (first.status, again.status, again.batch) == ("committed", "already committed", first.batch)
    assert world.state() == before
    (other,) = world.engine().load([DAY], "run-3", Restatement("new prices", "decision-2"))
    assert (other.status, other.batch) == ("committed", f"orders/{DAY}/1.csv#1@1+2")
    assert [(b.operation_id, b.run) for b in world.ledger()[1:]] == [("decision-1", "run-1"), ("decision-2", "run-3")]


def test_a_finished_restatement_executed_again_does_not_touch_what_has_arrived_since(world: World) -> None:
    world.deliver(DAY, f"{HEADER}1,{DAY},pear,3\n")
    world.load(DAY)
    (first,) = world.engine().load([DAY], "run-1", Restatement("new prices", "decision-1"))
    world.deliver(DAY, f"{HEADER}1,{DAY},pear,4\n", "2.csv")
    world.load(DAY)
    before = world.state()
    (again,) = world.engine().load([DAY], "run-2", Restatement("new prices", "decision-1"))
    assert (again.status, again.batch) == ("already committed", first.batch)
    assert again.receipt is not None
    assert again.receipt.superseded_by == f"orders/{DAY}/2.csv#1@1"
    assert world.state() == before


def test_a_restatement_that_was_cut_off_is_finished_by_a_later_run_for_the_scopes_that_are_left(world: World) -> None:
    days = (DAY, "2024-01-02")
    for number, day in enumerate(days, 1):
        world.deliver(day, f"{HEADER}{number},{day},pear,3\n")
    world.load(*days)
    list(world.engine().load([DAY], "run-1", Restatement("new prices", "decision-1")))
    world.load(*days)
    outcomes = list(world.engine().load(days, "run-2", Restatement("new prices", "decision-1")))
    assert [o.status for o in outcomes] == ["already committed", "committed"]
    assert [b.batch for b in world.ledger()[2:]] == [f"orders/{day}/1.csv#1@1+1" for day in days]


def test_a_delivery_after_one_that_was_refused_too_often_is_asked_for(world: World) -> None:
    world.deliver(DAY, b"")
    for _ in range(world.pipeline.attempts):
        world.load(DAY)
    assert world.survey().waiting(world.pipeline.attempts) == []
    world.deliver(DAY, f"{HEADER}1,{DAY},pear,3\n", "2.csv")
    assert [s.name for s in world.survey().waiting(world.pipeline.attempts)] == ["2.csv"]
