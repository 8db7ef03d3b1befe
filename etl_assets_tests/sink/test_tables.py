"""The pipeline's own table: names, types, ownership, and what happens when someone changes it around the ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Static, date, decimal, integer, real, repair, text, timestamp
from etl_assets.errors import BadHeader, ContractError, LedgerMismatch
from etl_assets.landing import Landing
from etl_assets.loading import Outcome
from etl_assets_tests.world import World, orders

DAY, NEXT = "2024-01-01", "2024-01-02"
ROWS = f"id,day,item,amount\n1,{DAY},pear,3\n2,{DAY},fig,5\n"
ODD = (
    "select", 'quo"te', "it's", "semi;colon", "a.b", "a b", "Größe", "数量", "x" * 190, "a,b", "[b]", "`c`", "%s", "a?b",
)  # fmt: skip


def refused_for(world: World, kind: type[Exception], *words: str, **load: Any) -> None:
    """Loading ends with this error and these words, and nothing but the claim has changed."""
    before = {name: rows for name, rows in world.state().items() if name not in ("etl_writer", "etl_delivery")}
    try:
        (outcome,) = world.load(DAY, **load)
        error: Exception | None = outcome.error
    except ContractError as raised:
        error = raised
    assert isinstance(error, kind), error
    for word in words:
        assert word in str(error)
    now = {name: rows for name, rows in world.state().items() if name not in ("etl_writer", "etl_delivery")}
    assert now == before


def around(world: World, *statements: str) -> None:
    """Write to the warehouse as nobody should: around the ledger."""
    connection = sqlite3.connect(world.settings.warehouse)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def committed(outcomes: list[Outcome]) -> Outcome:
    (outcome,) = outcomes
    assert outcome.status == "committed", outcome.message
    return outcome


# --------------------------------------------------------------------------- names


@pytest.mark.parametrize("key_moves", [True, False])
def test_odd_table_and_column_names_are_stored_as_they_are(tmp_path: Path, key_moves: bool) -> None:
    for number, name in enumerate(ODD):
        key = [name] if key_moves else [name, "day"]
        pipeline = orders(columns=[text(name), date("day"), integer("group")], key=key, table=name)
        world = World(tmp_path / str(number), pipeline)
        quoted = '"' + name.replace('"', '""') + '"'
        world.deliver(DAY, f"{quoted},day,group\nx,{DAY},1\ny,{DAY},2\n")
        committed(world.load(DAY))
        world.deliver(DAY, f"{quoted},day,group\nx,{DAY},3\nz,{DAY},2\n", "2.csv")
        counts = committed(world.load(DAY)).counts
        assert (counts.inserted, counts.updated, counts.deleted) == (1, 1, 1)
        assert world.sql(f'SELECT {quoted}, day, "group" FROM {quoted} ORDER BY 1') == [("x", DAY, 3), ("z", DAY, 2)]
        assert world.warehouse.verify(pipeline) == []


def test_partition_keys_of_any_characters_are_scopes_and_cannot_leave_their_folder(tmp_path: Path) -> None:
    names = ("a/b", "..", "x'y", 'q"z', "semi;--", "Zürich", "two words", ".hidden", "100%", "a\\b", "k" * 150)
    pipeline = orders(partitions=Static(*names), partition_by="item", key=["id", "item"])
    world = World(tmp_path, pipeline)
    for number, name in enumerate(names):
        folder = Path(Landing(str(world.landing), world.pipeline).pattern(name)).parent
        assert folder.parent == world.landing / "orders"
        folder.mkdir(parents=True)
        quoted = name.replace('"', '""')
        (folder / "1.csv").write_text(f'id,day,item,amount\n{number},{DAY},"{quoted}",1\n')
    assert [o.status for o in world.load(*names)] == ["committed"] * len(names)
    assert dict(world.sql("SELECT item, id FROM orders")) == {name: number for number, name in enumerate(names)}
    assert {b.scope for b in world.ledger()} == set(names)
    assert len({b.batch for b in world.ledger()}) == len(names)
    assert {p.name for p in tmp_path.iterdir()} <= {
        "landing", "staged", "warehouse.sqlite", "warehouse.sqlite-wal", "warehouse.sqlite-shm",
    }  # fmt: skip


def test_no_pipeline_takes_a_name_that_another_one_needs_for_an_index(tmp_path: Path) -> None:
    for name in ("orders", "orders_key", "orders_partition", "aside_orders"):
        pipeline = orders(name=name, moved_keys=repair())
        world = World(tmp_path, pipeline)
        world.deliver(DAY, ROWS, pipeline="orders")
        committed(world.load(DAY))
        assert world.rows() == [(3, DAY, 1, "pear"), (5, DAY, 2, "fig")]


# --------------------------------------------------------------------------- ownership


@pytest.mark.parametrize("table", ["orders", "Orders", "ORDERS"])
def test_a_table_belongs_to_one_pipeline(world: World, table: str) -> None:
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    other = orders(name="others", table=table)
    refused_for(world, ContractError, "table 'orders' belongs to pipeline 'orders'", pipeline=other)


@pytest.mark.parametrize("what", ["TABLE orders (x)", "VIEW orders AS SELECT 1", "TABLE ORDERS (x)"])
def test_a_table_that_no_pipeline_made_is_left_alone(world: World, what: str) -> None:
    around(world, f"CREATE {what}")
    world.deliver(DAY, ROWS)
    refused = what.split()[0].lower()
    refused_for_new(world, f"already has a {refused} named 'orders' that no pipeline made")


def refused_for_new(world: World, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        world.load(DAY)
    assert world.sql("SELECT count(*) FROM etl_batch") == [(0,)]
    assert world.sql("SELECT count(*) FROM etl_table") == [(0,)]


def test_a_pipeline_keeps_its_table(world: World) -> None:
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    world.deliver(DAY, ROWS.replace("pear", "plum"), "2.csv")
    refused_for(world, ContractError, "its rows are in table 'orders'", pipeline=orders(table="renamed"))
    refused_for(world, ContractError, "its rows are in table 'orders'", pipeline=orders(table="Orders"))


@pytest.mark.parametrize("change", [{"key": ["id", "item"]}, {"key": []}, {"key_unique_in": "partition"}])
def test_a_key_cannot_be_changed_under_rows_that_are_there(world: World, change: dict[str, Any]) -> None:
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    world.deliver(DAY, ROWS.replace("pear", "plum"), "2.csv")
    refused_for(world, ContractError, "cannot be changed under rows", pipeline=orders(**change))


# --------------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "before, after",
    [
        (integer("amount"), text("amount")),
        (integer("amount"), real("amount")),
        (text("amount"), integer("amount")),
        (text("amount"), date("amount", missing=("", "3", "5"))),
        (decimal("amount", 9, 1), decimal("amount", 9, 2)),
        (decimal("amount", 9, 2), text("amount")),
        (text("amount"), decimal("amount", 9, 2)),
    ],
)
def test_a_column_whose_values_would_be_written_in_another_form_is_refused(
    tmp_path: Path, before: Any, after: Any
) -> None:
    columns = [integer("id"), date("day"), text("item")]
    world = World(tmp_path, orders(columns=[*columns, before]))
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    world.deliver(DAY, ROWS.replace("pear", "plum"), "2.csv")
    refused_for(world, ContractError, "column 'amount'", pipeline=orders(columns=[*columns, after]))


def test_a_timestamp_of_another_resolution_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, orders(columns=[integer("id"), timestamp("at", resolution="s")], partition_by=None))
    world.deliver(DAY, "id,at\n1,2024-01-01T00:00:00Z\n")
    committed(world.load(DAY))
    world.deliver(DAY, "id,at\n1,2024-01-01T00:00:00.5Z\n", "2.csv")
    finer = orders(columns=[integer("id"), timestamp("at", resolution="ms")], partition_by=None)
    refused_for(world, ContractError, "timestamp(ms) by the contract", "timestamp(s)", pipeline=finer)


def test_a_decimal_may_get_more_digits_before_the_point(tmp_path: Path) -> None:
    columns = [integer("id"), date("day"), text("item")]
    world = World(tmp_path, orders(columns=[*columns, decimal("amount", 3, 2)]))
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    world.deliver(DAY, ROWS.replace(",3\n", ",1234\n"), "2.csv")
    committed(world.load(DAY, pipeline=orders(columns=[*columns, decimal("amount", 9, 2)])))
    assert world.rows() == [("1234.00", DAY, 1, "pear"), ("5.00", DAY, 2, "fig")]


def test_an_added_column_is_null_in_older_rows_and_declaring_it_as_another_type_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path, orders(new_columns="add"))
    world.deliver(DAY, ROWS)
    world.deliver(NEXT, f"id,day,item,amount,colour\n3,{NEXT},oak,1,7\n")
    world.load(DAY, NEXT)
    assert world.sql("SELECT id, colour FROM orders ORDER BY id") == [(1, None), (2, None), (3, "7")]
    world.deliver(DAY, f"id,day,item,amount,colour\n1,{DAY},pear,3,red\n2,{DAY},fig,5,\n", "2.csv")
    counts = committed(world.load(DAY)).counts
    assert (counts.updated, counts.unchanged) == (1, 1)
    assert world.sql("SELECT id, colour, _batch FROM orders ORDER BY id") == [(1, "red", 3), (2, None, 1), (3, "7", 2)]
    # A later delivery without the column says that its rows have none.
    world.deliver(DAY, ROWS, "3.csv")
    assert committed(world.load(DAY)).counts.updated == 1
    assert world.sql("SELECT id, colour FROM orders ORDER BY id") == [(1, None), (2, None), (3, "7")]
    world.deliver(DAY, ROWS.replace("pear", "plum"), "4.csv")
    declared = orders(columns=[*world.pipeline.columns, integer("colour", optional=True)])
    refused_for(world, ContractError, "column 'colour' is integer by the contract", "as text", pipeline=declared)


def test_an_added_column_that_differs_only_in_case_from_an_earlier_one_refuses_that_delivery_alone(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, orders(new_columns="add"))
    world.deliver(DAY, f"id,day,item,amount,colour\n1,{DAY},pear,3,red\n")
    committed(world.load(DAY))
    world.deliver(DAY, f"id,day,item,amount,Colour\n1,{DAY},pear,3,blue\n", "2.csv")
    world.deliver(NEXT, f"id,day,item,amount\n3,{NEXT},oak,1\n")
    first, second = world.load(DAY, NEXT)
    assert isinstance(first.error, BadHeader)
    assert "'Colour'" in str(first.error)
    assert "'colour'" in str(first.error)
    assert second.status == "committed"
    assert world.sql("SELECT id, colour FROM orders ORDER BY id") == [(1, "red"), (3, None)]


# --------------------------------------------------------------------------- around the ledger


@pytest.mark.parametrize(
    "meddling",
    [
        "DELETE FROM orders WHERE id = 1",
        "DELETE FROM orders",
        "INSERT INTO orders SELECT 9, day, item, amount, _partition, _batch FROM orders WHERE id = 1",
        "DROP TABLE orders",
    ],
)
def test_rows_that_were_changed_around_the_ledger_are_noticed_and_restating_mends_them(
    world: World, meddling: str
) -> None:
    world.deliver(DAY, ROWS)
    committed(world.load(DAY))
    around(world, meddling)
    assert len(world.warehouse.verify(world.pipeline)) == 1
    world.deliver(DAY, ROWS.replace("pear", "plum"), "2.csv")
    refused_for(world, LedgerMismatch, "around the ledger")
    committed(world.load(DAY, restate="rows were deleted by hand"))
    assert world.rows() == [(3, DAY, 1, "plum"), (5, DAY, 2, "fig")]
    assert world.warehouse.verify(world.pipeline) == []


def test_a_table_that_was_dropped_is_not_begun_anew_by_a_partition_without_rows(tmp_path: Path) -> None:
    world = World(tmp_path, orders(moved_keys=repair()))
    world.deliver(NEXT, ROWS.replace(DAY, NEXT))
    committed(world.load(NEXT))
    around(world, "DROP TABLE orders")
    world.deliver(DAY, f"id,day,item,amount\n8,{DAY},pear,3\n")
    refused_for(world, LedgerMismatch, "is not there", "2 rows in 1 partitions")
    assert world.warehouse.verify(world.pipeline) == [
        "orders: the ledger has batches, but its table cannot be read (no such table: orders)"
    ]
    committed(world.load(NEXT, restate="the table was dropped by hand"))
    committed(world.load(DAY))
    assert world.sql("SELECT id, day FROM orders ORDER BY id") == [(1, NEXT), (2, NEXT), (8, DAY)]
    assert world.warehouse.verify(world.pipeline) == []
