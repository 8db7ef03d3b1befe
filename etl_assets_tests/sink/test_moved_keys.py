"""Keys that two partitions claim: the table is a function of the current deliveries, whatever the order (26, 26a)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import PartitionedTable, date, decimal, integer, repair, text, timestamp
from etl_assets.errors import MovedKeys, Superseded
from etl_assets_tests.world import World, orders

A, B, C = "2024-01-01", "2024-01-02", "2024-01-03"
Event = tuple[str, str]  # (partition, name of the delivery)
#: For each delivery, its rows: key to version.
Deliveries = dict[Event, dict[int, Any]]


def put(world: World, deliveries: Deliveries) -> None:
    for (scope, name), rows in deliveries.items():
        lines = [f"{key},{scope},{scope[-2:]} by {name},{version}" for key, version in rows.items()]
        world.deliver(scope, "\n".join(["id,day,item,amount", *lines]) + "\n", name)


def expected(deliveries: Deliveries, current: dict[str, str], by: str) -> list[tuple[Any, ...]]:
    """What the table must hold, worked out from the current deliveries alone."""
    claims: dict[int, list[tuple[Any, str, str, Any]]] = {}
    for scope, name in current.items():
        for key, version in deliveries[scope, name].items():
            order = name if by == "delivery" else Decimal(str(version))
            claims.setdefault(key, []).append((order, scope, name, version))
    rows = []
    for key, claimed in claims.items():
        _, scope, name, version = max(claimed)
        rows.append((version, scope, key, f"{scope[-2:]} by {name}"))
    return sorted(rows, key=repr)


def publish_all(world: World, deliveries: Deliveries, events: Iterable[Event], by: str = "delivery") -> dict[str, str]:
    """Publish in this order, comparing the whole table with what it must hold after each one."""
    current: dict[str, str] = {}
    for scope, name in events:
        (outcome,) = world.load(scope, delivery=name)
        if name < current.get(scope, ""):
            assert isinstance(outcome.error, Superseded)
        else:
            assert outcome.status == "committed", outcome.message
            current[scope] = name
        assert world.rows() == expected(deliveries, current, by)
        assert world.warehouse.verify(world.pipeline) == []
    return current


#: The sequence in the design under "Moved keys": release 3 of day 1 holds the key, so does release 2 of day 2, which
#: drops it with release 4; then day 1 drops it, too, and takes it again.
TWO: Deliveries = {
    (A, "3.csv"): {1: 10, 2: 10},
    (A, "5.csv"): {2: 10},
    (B, "2.csv"): {1: 20, 7: 20},
    (B, "4.csv"): {7: 20},
}
THREE: Deliveries = {
    (A, "1.csv"): {1: 10, 2: 31, 3: 10},
    (A, "6.csv"): {1: 12, 4: 10},
    (B, "2.csv"): {1: 20, 3: 20, 4: 20},
    (B, "5.csv"): {2: 22},
    (C, "3.csv"): {1: 30, 2: 30, 4: 5},
    (C, "4.csv"): {3: 31, 4: 32},
}


def in_turn(deliveries: Deliveries) -> list[tuple[Event, ...]]:
    """Every order in which each partition's own deliveries come one after the other."""
    scopes = sorted(scope for scope, _ in deliveries)
    found = []
    for order in set(itertools.permutations(scopes)):
        names = {scope: iter(sorted(n for s, n in deliveries if s == scope)) for scope in scopes}
        found.append(tuple((scope, next(names[scope])) for scope in order))
    return sorted(found)


def end_states(root: Path, deliveries: Deliveries, all_events: Iterable[Sequence[Event]], by: str) -> int:
    """Publish in each of the orders, each in a new world; returns how many end states there were."""
    ends = set()
    for number, events in enumerate(all_events):
        world = World(root / str(number), orders(moved_keys=repair(order=by)))
        put(world, deliveries)
        publish_all(world, deliveries, events, by)
        ends.add(repr(world.rows()))
    return len(ends)


@pytest.mark.parametrize("by", ["delivery", "amount"])
def test_two_partitions_that_claim_one_key_end_the_same_in_every_order_of_publishing(tmp_path: Path, by: str) -> None:
    assert end_states(tmp_path, TWO, itertools.permutations(TWO), by) == 1


@pytest.mark.parametrize("by", ["delivery", "amount"])
def test_three_partitions_that_claim_one_key_end_the_same_in_some_orders_of_publishing(tmp_path: Path, by: str) -> None:
    assert end_states(tmp_path, THREE, in_turn(THREE)[::8], by) == 1


@pytest.mark.long
@pytest.mark.parametrize("by", ["delivery", "amount"])
def test_three_partitions_that_claim_one_key_end_the_same_in_every_order_of_publishing(tmp_path: Path, by: str) -> None:
    assert end_states(tmp_path, THREE, in_turn(THREE), by) == 1


@pytest.mark.parametrize(
    "later, earlier", [("10.50", "9.75"), ("-9.00", "-10.00"), ("0.05", "-3.00"), ("2.10", "2.09")]
)
def test_decimal_versions_compare_as_numbers(tmp_path: Path, later: str, earlier: str) -> None:
    columns = [integer("id"), date("day"), text("item"), decimal("amount", 9, 2)]
    deliveries = {(A, "1.csv"): {1: later}, (B, "2.csv"): {1: earlier}}
    for number, events in enumerate(itertools.permutations(deliveries)):
        world = World(tmp_path / str(number), orders(columns=columns, moved_keys=repair(order="amount")))
        put(world, deliveries)
        publish_all(world, deliveries, events, "amount")
        assert world.rows() == [(later, A, 1, "01 by 1.csv")]


def test_timestamp_versions_compare_as_instants(tmp_path: Path) -> None:
    columns = [integer("id"), date("day"), text("item"), timestamp("amount", resolution="ms")]
    world = World(tmp_path, orders(columns=columns, moved_keys=repair(order="amount")))
    put(world, {(A, "1.csv"): {1: "2024-01-01T01:00:00+02:00"}, (B, "1.csv"): {1: "2023-12-31T23:00:00.001Z"}})
    world.load(A, B)
    assert world.sql("SELECT item, amount FROM orders") == [("02 by 1.csv", "2023-12-31T23:00:00.001Z")]


def test_a_row_that_moved_is_in_its_new_partition_only_and_the_repair_is_in_the_ledger(world: World) -> None:
    world = World(world.root, orders(moved_keys=repair()))
    put(world, {(A, "1.csv"): {1: 1, 2: 2}, (B, "2.csv"): {2: 3, 3: 3}})
    world.load(A)
    (outcome,) = world.load(B)
    assert (outcome.counts.inserted, outcome.counts.moved) == (1, 1)
    assert outcome.receipt is not None
    assert outcome.receipt.changes.touched == ((A, 1, 0),)
    assert world.sql("SELECT id, day, _batch FROM orders ORDER BY id") == [(1, A, 1), (2, B, 2), (3, B, 2)]
    assert world.sql("SELECT scope, rows FROM etl_partition ORDER BY scope") == [(A, 1), (B, 2)]
    assert world.sql(
        "SELECT t.batch, scope, taken, restored FROM etl_touched t JOIN etl_partition ON id = partition"
    ) == [(2, A, 1, 0)]
    world.deliver(B, f"id,day,item,amount\n3,{B},again,3\n", "3.csv")
    (outcome,) = world.load(B)
    assert outcome.receipt is not None
    assert outcome.receipt.changes.touched == ((A, 0, 1),)
    assert world.sql("SELECT id, day, _batch FROM orders ORDER BY id") == [(1, A, 1), (2, A, 3), (3, B, 3)]


def test_restating_an_older_delivery_gives_way_to_newer_claims_and_gives_back_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, orders(moved_keys=repair()))
    put(world, {(A, "1.csv"): {1: 1}, (A, "3.csv"): {1: 3, 2: 3}, (B, "2.csv"): {1: 2, 2: 2, 3: 2}})
    world.load(A, delivery="1.csv")
    world.load(A, B)
    assert world.sql("SELECT id, day FROM orders ORDER BY id") == [(1, A), (2, A), (3, B)]
    (outcome,) = world.load(A, delivery="1.csv", restate="release 3 was withdrawn")
    assert outcome.status == "committed", outcome.message
    assert world.sql("SELECT id, day, amount FROM orders ORDER BY id") == [(1, B, 2), (2, B, 2), (3, B, 2)]
    assert world.warehouse.verify(world.pipeline) == []


@pytest.mark.parametrize("by", ["delivery", "amount"])
def test_an_equal_order_is_undecidable_and_refused_with_both_rows(tmp_path: Path, by: str) -> None:
    world = World(tmp_path, orders(moved_keys=repair(order=by)))
    put(world, {(A, "1.csv"): {1: 5, 2: 5}, (B, "1.csv"): {1: 5, 2: 5, 3: 5}})
    world.load(A)
    before = world.rows()
    (outcome,) = world.load(B)
    assert isinstance(outcome.error, MovedKeys)
    message = str(outcome.error)
    assert "2 keys are held by another partition too" in message
    assert f"{B}: id=1, day='{B}', item='02 by 1.csv', amount=5" in message
    assert f"{A}: id=1, day='{A}', item='01 by 1.csv', amount=5" in message
    assert world.rows() == before
    assert [b.scope for b in world.ledger()] == [A]


def test_a_tie_with_a_row_that_is_kept_aside_is_refused_too(tmp_path: Path) -> None:
    world = World(tmp_path, orders(moved_keys=repair()))
    put(world, {(A, "1.csv"): {1: 10}, (B, "2.csv"): {1: 20}, (C, "1.csv"): {1: 30}})
    world.load(A, B)
    (outcome,) = world.load(C)
    assert isinstance(outcome.error, MovedKeys)
    assert f"{A}: id=1, day='{A}', item='01 by 1.csv', amount=10" in str(outcome.error)
    assert world.rows() == [(20, B, 1, "02 by 2.csv")]


def test_moves_are_refused_with_both_rows_unless_the_contract_repairs_them(world: World) -> None:
    put(world, {(A, "1.csv"): {1: 10, 2: 10}, (B, "2.csv"): {2: 20, 3: 20}, (A, "2.csv"): {1: 10}})
    world.load(A, delivery="1.csv")
    before = world.rows()
    (outcome,) = world.load(B)
    assert isinstance(outcome.error, MovedKeys)
    assert f"{A}: id=2, day='{A}', item='01 by 1.csv', amount=10" in str(outcome.error)
    assert f"{B}: id=2, day='{B}', item='02 by 2.csv', amount=20" in str(outcome.error)
    assert world.rows() == before
    first, second = world.load(A, B)  # once A has let go of the key, B may have it
    assert (first.status, second.status) == ("committed", "committed")
    assert world.sql("SELECT id, day FROM orders ORDER BY id") == [(1, A), (2, B), (3, B)]


#: Names that the statements of publish might have used for themselves.
HELPERS = ("rowid", "oid", "candidate", "other", "theirs", "mine", "fresh", "place", "here", "wanted", "k", "t", "c")


def named(key: Sequence[str], **changes: Any) -> PartitionedTable:
    columns = [date("day"), *(text(name) for name in HELPERS)]
    return orders(columns=columns, key=key, partition_by="day", **changes)


@pytest.mark.parametrize("movable", [True, False])
def test_columns_may_have_any_name_that_publish_could_want_for_itself(tmp_path: Path, movable: bool) -> None:
    pipeline = named(HELPERS if movable else ("day", *HELPERS), **({"moved_keys": repair()} if movable else {}))
    world = World(tmp_path, pipeline)
    header = ",".join(["day", *HELPERS])

    def row(day: str, what: str) -> str:
        return ",".join([day, *(f"{what}{name}" for name in HELPERS)])

    def deliver(scope: str, name: str, *rows: str) -> None:
        world.deliver(scope, "\n".join([header, *rows]) + "\n", name)
        (outcome,) = world.load(scope)
        assert outcome.status == "committed", outcome.message

    deliver(A, "1.csv", row(A, "z"), row(A, "a"))
    deliver(B, "2.csv", row(B, "z" if movable else "y"), row(B, "m"))
    deliver(A, "3.csv", row(A, "m" if movable else "z"), row(A, "b"))
    deliver(B, "4.csv", row(B, "n"))
    deliver(A, "5.csv", row(A, "n" if movable else "q"))
    deliver(A, "6.csv", row(A, "b"), row(A, "m" if movable else "z"))  # gives n back to B, where it had been taken
    found = world.sql('SELECT day, "rowid", "mine" FROM orders ORDER BY 1, 2')
    assert found == [(A, "browid", "bmine"), *([(A, "mrowid", "mmine")] if movable else [(A, "zrowid", "zmine")]),
                     (B, "nrowid", "nmine")]  # fmt: skip
    assert world.warehouse.verify(pipeline) == []


def test_a_bag_may_have_columns_of_any_such_name(tmp_path: Path) -> None:
    world = World(tmp_path, named(()))
    header = ",".join(["day", *HELPERS])
    one, two = (",".join([A, *(f"{what}{name}" for name in HELPERS)]) for what in ("x", "y"))
    world.deliver(A, "\n".join([header, two, one, one, one]) + "\n")
    world.load(A)
    world.deliver(A, "\n".join([header, one, two, two]) + "\n", "2.csv")
    (outcome,) = world.load(A)
    assert (outcome.counts.inserted, outcome.counts.deleted, outcome.counts.unchanged) == (1, 2, 2)
    assert world.sql('SELECT "rowid" FROM orders ORDER BY 1') == [("xrowid",), ("yrowid",), ("yrowid",)]


@pytest.mark.parametrize("first, second, winner", [("-1.25", "-1.75", A), ("-9.10", "-9.09", B), ("-0.01", "0.01", B)])
def test_of_negative_decimals_of_equal_length_the_larger_one_holds_the_key(
    tmp_path: Path, first: str, second: str, winner: str
) -> None:
    columns = [integer("id"), date("day"), text("item"), decimal("amount", precision=9, scale=2)]
    for number, order in enumerate(([A, B], [B, A])):
        world = World(tmp_path / str(number), orders(columns=columns, moved_keys=repair(order="amount")))
        world.deliver(A, f"id,day,item,amount\n1,{A},pear,{first}\n")
        world.deliver(B, f"id,day,item,amount\n1,{B},pear,{second}\n")
        assert [o.status for o in world.load(*order)] == ["committed"] * 2
        assert [row[1] for row in world.rows()] == [winner]
