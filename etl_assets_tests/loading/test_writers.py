"""Who may write: a run claims its scopes once, and a newer run fences it at the commit (cases 3, 4 and 26b)."""

from __future__ import annotations

import pytest

from etl_assets.contract import Daily
from etl_assets.errors import StaleWriter
from etl_assets_tests.world import World, orders

DAYS = [f"2024-01-{d:02}" for d in range(1, 31)]


def deliver(world: World, scopes: list[str], name: str = "1.csv", amount: int = 1) -> None:
    for number, scope in enumerate(scopes):
        world.deliver(scope, f"id,day,item,amount\n{number},{scope},pear,{amount}\n", name)


def test_a_zombie_that_was_paused_in_its_range_is_refused_on_the_rest_after_a_successor_did_it_all(
    world: World,
) -> None:
    deliver(world, DAYS)
    zombie = world.engine().load(DAYS, "zombie")
    done = [next(zombie) for _ in range(19)]
    assert {o.status for o in done} == {"committed"}
    # The run is requested anew: newer deliveries have come meanwhile, and the successor publishes the whole range.
    deliver(world, DAYS, "2.csv", amount=2)
    assert {o.status for o in world.load(*DAYS, run="successor")} == {"committed"}
    before = world.state()
    rest = list(zombie)
    assert [o.scope for o in rest] == DAYS[19:]
    assert {type(o.error) for o in rest} == {StaleWriter}
    assert "run zombie holds generation 1, but run successor has since claimed the scope" in rest[0].message
    assert world.state() == before


def test_a_zombie_that_had_frozen_its_delivery_is_refused_at_the_commit(world: World) -> None:
    deliver(world, DAYS[:2])
    engine = world.engine()
    (staged,) = engine.load(DAYS[:1], "zombie", publish=False)
    claim = engine.sink.claim(world.pipeline, DAYS[:1], "zombie")[DAYS[0]]  # the same claim is given back
    assert staged.extract is not None
    assert staged.delivery is not None
    world.load(DAYS[0], run="successor")
    before = world.state()
    stage = engine.sink.prepare(world.pipeline, staged.extract, world.root)
    with pytest.raises(StaleWriter):
        engine.sink.publish(world.pipeline, claim, staged.delivery, staged.extract, stage)
    assert world.state() == before
    (again,) = world.load(DAYS[0], run="zombie")  # nothing to do needs no permission
    assert again.status == "already committed"
    assert world.state() == before


def test_a_stale_writer_leaves_no_trace_in_the_record_of_deliveries(world: World) -> None:
    deliver(world, DAYS[:1])
    zombie = world.engine().load(DAYS[:2], "zombie")
    next(zombie)
    world.load(DAYS[1], run="successor")  # there is no delivery yet, and so no claim
    world.deliver(DAYS[1], "id,day,item,amount\nbroken\n")
    (outcome,) = world.load(DAYS[1], run="successor")
    assert outcome.error is not None
    before = world.state()
    assert [o.status for o in zombie] == ["refused"]
    assert world.state() == before


def test_a_run_that_asks_for_its_claim_again_is_given_the_same_generation(world: World) -> None:
    sink = world.warehouse
    first = sink.claim(world.pipeline, DAYS[:2], "one")
    assert sink.claim(world.pipeline, DAYS[:3], "one") == {**first, DAYS[2]: first[DAYS[0]].__class__(
        "orders", DAYS[2], "one", 1)}  # fmt: skip
    assert {c.generation for c in sink.claim(world.pipeline, DAYS[:2], "two").values()} == {2}
    assert {c.generation for c in sink.claim(world.pipeline, DAYS[:2], "one").values()} == {1}
    assert sorted(world.sql("SELECT scope, generation, run FROM etl_writer")) == [
        (DAYS[0], 1, "one"), (DAYS[0], 2, "two"), (DAYS[1], 1, "one"), (DAYS[1], 2, "two"), (DAYS[2], 1, "one"),
    ]  # fmt: skip


def test_two_pipelines_with_the_same_scopes_do_not_fence_each_other(world: World) -> None:
    deliver(world, DAYS[:1])
    other = orders(
        name="others", landing="orders/{partition}/*.csv", partitions=Daily(start="2024-01-01", end="2024-02-01")
    )
    running = world.engine().load(DAYS[:1], "one")
    world.load(DAYS[0], pipeline=other, run="two")
    assert next(running).status == "committed"
