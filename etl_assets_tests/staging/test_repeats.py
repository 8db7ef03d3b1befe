"""Keys that repeat within a delivery: the newest row stands where the contract says what newer is (39)."""

from __future__ import annotations

import datetime as dt
import itertools
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from etl_assets.contract import (
    PartitionedTable,
    ReferenceTable,
    date,
    decimal,
    integer,
    quarantine,
    real,
    repair,
    text,
    timestamp,
    transform,
)
from etl_assets.errors import DuplicateKey, ForeignRows, InvalidRows
from etl_assets.staging import reading, sorting
from etl_assets_tests.staging.bench import Bench, rejects, rows, table
from etl_assets_tests.world import DAYS, World, orders


def stock(**changes: Any) -> PartitionedTable:
    columns = (integer("id"), timestamp("at", resolution="s"), integer("seq"), text("item"))
    return table(*columns, **({"key": ["id"], "newest_by": ["at", "seq"]} | changes))


def of(*lines: str, header: str = "id,at,seq,item") -> str:
    """Rows such as ``1,03,2,pear``: of the third of January, at midnight UTC."""
    full = []
    for line in lines:
        key, day, *rest = line.split(",")
        full.append(",".join([key, f"2024-01-{day}T00:00:00Z" if day else "", *rest]))
    return "\n".join([header, *full]) + "\n"


def items(extract: Any) -> list[tuple[int, str]]:
    return [(row[0], row[3]) for row in rows(extract)]


def test_the_newest_row_of_a_key_stands_wherever_in_the_file_it_is(bench: Bench) -> None:
    lines = ["1,03,1,new", "1,02,9,old", "1,03,0,older", "2,01,1,alone"]
    for number, order in enumerate(itertools.permutations(lines)):
        extract = bench.freeze(stock(), of(*order), name=f"{number}.csv")
        assert items(extract) == [(1, "new"), (2, "alone")]
        assert (extract.manifest.source_rows, extract.manifest.rows, extract.manifest.duplicates) == (4, 2, 2)


@pytest.mark.parametrize(
    "column, older, newer, kept",
    [
        (integer("v"), "9", "10", 10),
        (real("v"), "9.5", "1e1", 10.0),
        (decimal("v", 5, 2), "9.50", "10.25", Decimal("10.25")),
        (date("v"), "2023-12-31", "2024-01-01", dt.date(2024, 1, 1)),
        (
            timestamp("v", resolution="s"),
            "2024-01-01T01:00:00+08:00",
            "2023-12-31T18:00:00Z",
            dt.datetime(2023, 12, 31, 18, tzinfo=dt.UTC),
        ),
    ],
)
def test_newer_is_told_by_value_and_not_by_text(bench: Bench, column: Any, older: str, newer: str, kept: Any) -> None:
    contract = table(integer("id"), column, key=["id"], newest_by=["v"])
    for name, pair in (("1.csv", (older, newer)), ("2.csv", (newer, older))):
        assert bench.read(contract, "id,v\n" + "".join(f"1,{v}\n" for v in pair), name=name) == [(1, kept)]


def test_a_tie_is_refused_with_the_lines_of_both_rows_and_the_order_that_ties(bench: Bench) -> None:
    with pytest.raises(DuplicateKey) as caught:
        bench.freeze(stock(), of('1,03,1,"pear\n"', "2,03,1,fig", "1,03,1,apple", "3,01,1,kiwi", "3,01,2,lime"))
    assert str(caught.value) == (
        "1.csv: the key (id) repeats within the delivery, and the order newest_by (at, seq) ties; which row counts cannot "
        "be told.\n"
        "  lines 2 and 5: id=1, both with at=2024-01-03T00:00:00+00:00, seq=1"
    )


def test_a_tie_below_a_newer_row_is_refused_too_since_the_order_is_not_what_the_contract_says(bench: Bench) -> None:
    with pytest.raises(DuplicateKey, match="lines 2 and 3: id=1, both with at=2024-01-02"):
        bench.freeze(stock(), of("1,02,1,a", "1,02,1,b", "1,03,1,c"))


def test_rows_that_repeat_to_the_letter_are_one_and_counted(bench: Bench) -> None:
    extract = bench.freeze(stock(), of("1,03,1,a", "1,03,1,a", "1,02,1,", "1,02,1,", "1,03,1,a"))
    assert items(extract) == [(1, "a")]
    assert extract.manifest.duplicates == 4
    # A column that only the delivery has is part of a row, too.
    contract = stock(new_columns="add")
    content = of("1,03,1,a,x", "1,03,1,a,", header="id,at,seq,item,note")
    with pytest.raises(DuplicateKey, match="lines 2 and 3"):
        bench.freeze(contract, content, name="2.csv")


def test_without_the_order_rows_that_repeat_to_the_letter_are_refused_as_ever(bench: Bench) -> None:
    with pytest.raises(DuplicateKey, match="repeats within the delivery; which row counts"):
        bench.freeze(stock(newest_by=()), of("1,03,1,a", "1,03,1,a"))


def test_batches_and_runs_do_not_change_which_row_stands(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i % 20},{(i * 7) % 28 + 1:02},{i},{i}" for i in range(200)]
    newest: dict[int, tuple[str, int]] = {}
    for line in lines:
        key, day, seq, _ = line.split(",")
        newest[int(key)] = max(newest.get(int(key), ("", 0)), (day, int(seq)))
    expected = [(key, str(newest[key][1])) for key in sorted(newest)]
    memory = bench.freeze(stock(), of(*lines), name="memory.csv")
    assert items(memory) == expected
    monkeypatch.setattr(reading, "BLOCK", 200)
    monkeypatch.setattr(sorting, "RUN_BYTES", 600)
    for size in (1, 2, 3, 7):
        monkeypatch.setattr(sorting, "BATCH_ROWS", size)
        disk = bench.freeze(stock(), of(*lines), name=f"{size}.csv")
        assert items(disk) == expected
        assert (disk.manifest.digest, disk.manifest.duplicates) == (memory.manifest.digest, 180)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_tie_across_batches_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(sorting, "BATCH_ROWS", size)
    with pytest.raises(DuplicateKey, match="lines 3 and 5: id=1"):
        bench.freeze(stock(), of("1,01,1,a", "1,02,1,b", "2,01,1,c", "1,02,1,d"))


def test_a_row_without_a_value_of_the_order_is_invalid(bench: Bench) -> None:
    content = of("1,03,1,a", "1,,2,b", "1,02,,c")
    with pytest.raises(InvalidRows, match="line 3: at is required and has no value"):
        bench.freeze(stock(), content)
    extract = bench.freeze(stock(invalid_rows=quarantine(0.9)), content, name="2.csv")
    assert items(extract) == [(1, "a")]
    assert [r["line"] for r in rejects(extract)] == [3, 4]
    assert (extract.manifest.rejected_rows, extract.manifest.duplicates) == (2, 0)


def test_an_invalid_row_competes_with_none(bench: Bench) -> None:
    columns = (integer("id"), integer("seq"), integer("n"))
    contract = table(*columns, key=["id"], newest_by=["seq"], invalid_rows=quarantine(0.5))
    assert bench.read(contract, "id,seq,n\n1,1,7\n1,2,x\n") == [(1, 1, 7)]


def test_a_transform_may_make_the_order_and_a_tie_of_rows_without_lines_says_so(bench: Bench) -> None:
    def counted(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(n=frame["n"] * 2)

    columns = (integer("id"), integer("n"), text("t"))
    contract = table(*columns, key=["id"], newest_by=["n"], transform=transform(counted, version=1))
    assert bench.read(contract, "id,n,t\n1,2,b\n1,1,a\n") == [(1, 4, "b")]
    lost = transform(lambda frame: frame.assign(n=5).reset_index(drop=True), version=1)
    with pytest.raises(DuplicateKey, match="lines unknown and unknown: id=1, both with n=5"):
        bench.freeze(contract.model_copy(update={"transform": lost}), "id,n,t\n1,2,b\n1,1,a\n", name="2.csv")


# --------------------------------------------------------------------------- through to the table

ROWS = "id,day,item,amount\n"


def test_what_gave_way_is_counted_in_the_ledger(world: World) -> None:
    contract = orders(newest_by=["amount"])
    world.deliver(DAYS[0], f"{ROWS}1,{DAYS[0]},pear,3\n2,{DAYS[0]},fig,1\n1,{DAYS[0]},apple,4\n")
    (outcome,) = world.load(DAYS[0], pipeline=contract)
    assert {k: v for k, v in outcome.counts.as_dict().items() if v} == {"source": 3, "inserted": 2, "duplicates": 1}
    assert world.rows() == [(1, DAYS[0], 2, "fig"), (4, DAYS[0], 1, "apple")]
    assert world.sql("SELECT source, duplicates, rows FROM etl_batch") == [(3, 1, 2)]
    assert world.warehouse.verify(contract) == []
    world.deliver(DAYS[0], f"{ROWS}1,{DAYS[0]},plum,5\n1,{DAYS[0]},apple,4\n", "2.csv")
    (outcome,) = world.load(DAYS[0], pipeline=contract)
    assert {k: v for k, v in outcome.counts.as_dict().items() if v} == {
        "source": 2,
        "updated": 1,
        "deleted": 1,
        "duplicates": 1,
    }
    assert world.rows() == [(5, DAYS[0], 1, "plum")]


def test_a_tie_refuses_the_delivery_and_the_partition_keeps_its_rows(world: World) -> None:
    contract = orders(newest_by=["amount"])
    world.deliver(DAYS[0], f"{ROWS}1,{DAYS[0]},pear,3\n")
    world.load(DAYS[0], pipeline=contract)
    world.deliver(DAYS[0], f"{ROWS}1,{DAYS[0]},fig,4\n1,{DAYS[0]},lime,4\n", "2.csv")
    (outcome,) = world.load(DAYS[0], pipeline=contract)
    assert isinstance(outcome.error, DuplicateKey)
    assert world.rows() == [(3, DAYS[0], 1, "pear")]
    assert len(world.ledger()) == 1


def test_a_row_of_another_partition_is_foreign_even_where_a_newer_one_would_replace_it(world: World) -> None:
    world.deliver(DAYS[0], f"{ROWS}1,{DAYS[1]},pear,3\n1,{DAYS[0]},fig,4\n")
    (outcome,) = world.load(DAYS[0], pipeline=orders(newest_by=["amount"]))
    assert isinstance(outcome.error, ForeignRows)


@pytest.mark.parametrize("order", list(itertools.permutations(DAYS)))
def test_a_key_that_repeats_and_moves_stands_once_by_both_orders(world: World, order: tuple[str, ...]) -> None:
    contract = orders(newest_by=["amount"], moved_keys=repair("amount"))
    for number, day in enumerate(DAYS):
        world.deliver(day, f"{ROWS}1,{day},low,{number}\n1,{day},high,{number + 10}\n")
    for day in order:
        assert world.load(day, pipeline=contract)[0].status == "committed"
    assert world.rows() == [(12, DAYS[2], 1, "high")]
    assert world.sql("SELECT amount, item FROM _aside_orders ORDER BY 1") == [(10, "high"), (11, "high")]
    assert world.warehouse.verify(contract) == []


def test_a_reference_table_takes_the_order_too(tmp_path: Path) -> None:
    columns = [text("code"), integer("rev"), text("name")]
    codes = ReferenceTable(name="codes", landing="codes/*/*.csv", columns=columns, key=["code"], newest_by=["rev"])
    world = World(tmp_path, codes)
    world.deliver("2024-01-01", "code,rev,name\nNA,10,Namibia\nNA,9,South West Africa\n")
    (outcome,) = world.load("all")
    assert (outcome.status, outcome.counts.duplicates) == ("committed", 1)
    assert world.rows() == [("NA", "Namibia", 10)]
