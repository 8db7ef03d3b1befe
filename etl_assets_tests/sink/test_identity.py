"""What must not be confused: bytes under one revision, decisions and plain runs, rows that are there and rows that were."""

from __future__ import annotations

import sqlite3

import pytest

from etl_assets.contract import repair
from etl_assets.errors import (
    BadHeader,
    BatchIdentityConflict,
    ContractError,
    LedgerMismatch,
    StaleWriter,
    Superseded,
    WarehouseError,
)
from etl_assets.loading import engine
from etl_assets.loading.reading import Reader
from etl_assets.sink import open_sink
from etl_assets.sink.sqlite import connection
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[:2]
HEADER = "id,day,item,amount\n"


def test_two_processes_of_one_run_that_read_different_bytes_leave_the_truth_about_both(world: World) -> None:
    """They hold the same generation; what was read first is recorded, and what lies in landing is loaded next."""
    loader = world.engine()
    path = world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    claim = loader.sink.claim(world.pipeline, [DAY], "one run")[DAY]
    with loader.staged.workspace() as work:
        reader = Reader(loader.pipeline, loader.source, loader.sink, loader.staged, [DAY])
        read = reader.read(DAY, None, work)
        assert read.fetched is not None
        path.write_text(HEADER + f"1,{DAY},pear,2\n")
        (fast,) = loader.load([DAY], "one run")
        assert fast.status == "committed"
        with pytest.raises(StaleWriter, match="other bytes were recorded as this revision"):
            loader.sink.record(claim, read.delivery)
    assert world.load(DAY)[0].status == "already committed"
    path.write_text(HEADER + f"1,{DAY},pear,3\n")
    (again,) = world.load(DAY)
    assert (again.status, again.batch) == ("committed", f"orders/{DAY}/1.csv#2@1")
    assert world.rows() == [(3, DAY, 1, "pear")]


def test_a_plain_run_does_not_undo_a_restatement(world: World) -> None:
    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY)
    world.deliver(DAY, HEADER + f"1,{DAY},pear,2\n", "2.csv")
    world.load(DAY, restate="never published but on purpose")
    world.load(DAY, restate="the vendor withdrew 2.csv", delivery="1.csv")
    before = world.state()
    (plain,) = world.load(DAY)
    assert plain.status == "already committed"
    assert plain.receipt is not None
    assert plain.receipt.superseded_by == f"orders/{DAY}/1.csv#1@1+1"
    assert {k: v for k, v in world.state().items() if k != "etl_writer"} == {
        k: v for k, v in before.items() if k != "etl_writer"
    }
    assert world.rows() == [(1, DAY, 1, "pear")]


def test_newer_logic_does_not_bring_back_what_was_restated_away(world: World) -> None:
    def pipeline(version: int) -> object:
        from etl_assets.contract import transform

        return orders(transform=transform(lambda frame: frame, version=version))

    world.pipeline = pipeline(1)  # type: ignore[assignment]
    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY)
    world.deliver(DAY, HEADER + f"1,{DAY},pear,2\n", "2.csv")
    world.load(DAY)
    world.load(DAY, restate="the vendor withdrew 2.csv", delivery="1.csv")
    world.pipeline = pipeline(2)  # type: ignore[assignment]
    (outcome,) = world.load(DAY, delivery="2.csv")
    assert isinstance(outcome.error, Superseded)
    assert "the vendor withdrew 2.csv" in str(outcome.error)
    (plain,) = world.load(DAY)
    assert (plain.status, plain.batch) == ("committed", f"orders/{DAY}/1.csv#1@2")
    assert world.rows() == [(1, DAY, 1, "pear")]


@pytest.mark.parametrize("statement", ["DELETE FROM orders", "DROP TABLE orders"])
def test_a_run_that_has_nothing_to_do_notices_that_the_rows_are_gone(world: World, statement: str) -> None:
    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY)
    around(world, statement)
    assert world.warehouse.verify(world.pipeline) != []
    (outcome,) = world.load(DAY)
    assert isinstance(outcome.error, LedgerMismatch)
    (restated,) = world.load(DAY, restate="restored from the delivery")
    assert restated.status == "committed"
    assert (world.rows(), world.warehouse.verify(world.pipeline)) == ([(1, DAY, 1, "pear")], [])


def test_a_table_under_another_name_is_not_already_committed(world: World) -> None:
    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY)
    with pytest.raises(ContractError, match="its rows are in table 'orders'"):
        world.load(DAY, pipeline=orders(table="renamed"))


def test_moves_may_be_repaired_from_now_on_where_they_were_refused(world: World) -> None:
    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.deliver(NEXT, HEADER + f"1,{NEXT},pear,2\n", "2.csv")
    assert [o.status for o in world.load(DAY, NEXT)] == ["committed", "refused"]
    world.pipeline = orders(moved_keys=repair(order="delivery"))
    assert [o.status for o in world.load(DAY, NEXT)] == ["already committed", "committed"]
    assert world.rows() == [(2, NEXT, 1, "pear")]
    assert world.rows("_aside_orders") == [(1, DAY, 1, "pear")]


def test_the_order_of_moves_cannot_be_changed_under_keys_that_were_settled_by_it(world: World) -> None:
    world.pipeline = orders(moved_keys=repair(order="delivery"))
    world.deliver(DAY, HEADER + f"1,{DAY},pear,9\n")
    world.deliver(NEXT, HEADER + f"1,{NEXT},pear,8\n", "2.csv")
    world.load(DAY, NEXT)
    world.deliver(DAY, HEADER + f"1,{DAY},pear,9\n2,{DAY},fig,1\n", "3.csv")
    with pytest.raises(ContractError, match="were settled by moved_keys='delivery'"):
        world.load(DAY, pipeline=orders(moved_keys=repair(order="amount")))
    assert world.rows() == [(8, NEXT, 1, "pear")]


def test_other_logic_under_an_old_label_is_refused(world: World) -> None:
    from etl_assets.contract import transform

    world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY, pipeline=orders(transform=transform(lambda frame: frame, version=1)))
    more = orders(transform=transform(lambda frame: frame.assign(amount=frame["amount"] + 1), version=1), min_rows=1)
    (outcome,) = world.load(DAY, pipeline=more)
    assert isinstance(outcome.error, BatchIdentityConflict)
    assert world.rows() == [(1, DAY, 1, "pear")]


def test_a_filesystem_without_a_write_ahead_log_is_named_at_once(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = sqlite3.connect(":memory:")  # its journal stays in memory, as a network mount's stays a file
    with pytest.raises(connection.WarehouseError, match="cannot use a write-ahead log"):
        connection._enter_wal(memory, timeout=60)
    memory.close()


def test_a_delivery_that_was_only_restated_is_not_published_again_when_its_file_is_touched(world: World) -> None:
    path = world.deliver(DAY, HEADER + f"1,{DAY},pear,1\n")
    world.load(DAY, restate="the first time, but on purpose")
    path.write_bytes(path.read_bytes())  # the same bytes, another stamp: the file is read again
    (plain,) = world.load(DAY)
    assert (plain.status, plain.batch) == ("already committed", f"orders/{DAY}/1.csv#1@1+1")
    assert len(world.ledger()) == 1


def test_columns_that_deliveries_add_one_after_the_other_end_at_what_a_table_can_hold(world: World) -> None:
    world.pipeline = orders(new_columns="add")
    for name, first in (("1.csv", 0), ("2.csv", 1_500)):
        added = [f"c{n}" for n in range(first, first + 1_500)]
        world.deliver(DAY, f"id,day,item,amount,{','.join(added)}\n1,{DAY},pear,1{',x' * 1_500}\n", name)
        (outcome,) = world.load(DAY)
    assert isinstance(outcome.error, BadHeader)
    assert "the table would have more than 1998" in str(outcome.error)
    assert [b.delivery for b in world.ledger()] == ["1.csv"]


def test_a_warehouse_that_was_replaced_after_the_claim_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "AHEAD_BYTES", 0)  # else it is read, ahead, while it is removed
    for day in DAYS[:2]:
        world.deliver(day, HEADER + f"1,{day},pear,1\n".replace("1,", f"{day[-1]},", 1))
    run = world.engine().load(DAYS[:2], "one")
    assert next(run).status == "committed"
    for path in world.root.glob("warehouse.sqlite*"):
        path.unlink()
    with pytest.raises(LedgerMismatch, match="the warehouse has no ledger any more"):
        list(run)


@pytest.mark.parametrize(
    "url", [":memory:", "sqlite:warehouse.sqlite", "file:warehouse.sqlite", "postgresql://host/db"]
)
def test_what_is_no_path_of_a_warehouse_is_not_taken_for_one(url: str) -> None:
    with pytest.raises(WarehouseError, match="given as a path or sqlite:///path"):
        open_sink(url)
