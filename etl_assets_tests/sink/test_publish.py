"""Publishing a partition: what changes, what does not, and what the ledger says of it."""

from __future__ import annotations

from etl_assets_tests.world import World


def test_the_same_delivery_published_three_times_is_one_ledger_entry(world: World) -> None:
    world.deliver("2024-01-01", "id,day,item,amount\n1,2024-01-01,pear,3\n2,2024-01-01,fig,5\n")
    first, *_ = world.load("2024-01-01")
    before = world.state()
    again, third = world.load("2024-01-01"), world.load("2024-01-01")
    assert (first.status, again[0].status, third[0].status) == ("committed", "already committed", "already committed")
    assert world.state() == before
    assert world.rows() == [(3, "2024-01-01", 1, "pear"), (5, "2024-01-01", 2, "fig")]


def test_a_correction_writes_only_the_rows_that_it_changes(world: World) -> None:
    world.deliver("2024-01-01", "id,day,item,amount\n1,2024-01-01,pear,3\n2,2024-01-01,fig,5\n3,2024-01-01,nut,1\n")
    world.load("2024-01-01")
    world.deliver(
        "2024-01-01", "id,day,item,amount\n1,2024-01-01,pear,3\n2,2024-01-01,fig,6\n4,2024-01-01,oak,\n", "2.csv"
    )
    (outcome,) = world.load("2024-01-01")
    counts = outcome.counts
    assert (counts.inserted, counts.updated, counts.deleted, counts.unchanged) == (1, 1, 1, 1)
    assert world.sql("SELECT id, item, amount, _batch FROM orders ORDER BY id") == [
        (1, "pear", 3, 1),
        (2, "fig", 6, 2),
        (4, "oak", None, 2),
    ]
    assert outcome.receipt is not None
    assert outcome.receipt.changes.columns == (("amount", 1),)
    assert outcome.receipt.changes.sample[0].values == (("amount", 5, 6),)
