"""Names that SQLite might take for something else: each loads a row and gives it back under its own name, or is refused."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import (
    ChangeLogTable,
    DerivedTable,
    PartitionedTable,
    WatermarkTable,
    date,
    integer,
    repair,
    same_partition,
    text,
)
from etl_assets.errors import BadHeader, ContractError
from etl_assets.sink.sqlite.connection import quoted
from etl_assets_tests.patterns.logs import YEAR, A, B
from etl_assets_tests.world import World, orders

#: https://sqlite.org/lang_keywords.html
KEYWORDS = re.findall(
    r"\S+",
    """ABORT ACTION ADD AFTER ALL ALTER ALWAYS ANALYZE AND AS ASC ATTACH AUTOINCREMENT BEFORE BEGIN BETWEEN BY CASCADE CASE
CAST CHECK COLLATE COLUMN COMMIT CONFLICT CONSTRAINT CREATE CROSS CURRENT CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP
DATABASE DEFAULT DEFERRABLE DEFERRED DELETE DESC DETACH DISTINCT DO DROP EACH ELSE END ESCAPE EXCEPT EXCLUDE EXCLUSIVE
EXISTS EXPLAIN FAIL FILTER FIRST FOLLOWING FOR FOREIGN FROM FULL GENERATED GLOB GROUP GROUPS HAVING IF IGNORE
IMMEDIATE IN INDEX INDEXED INITIALLY INNER INSERT INSTEAD INTERSECT INTO IS ISNULL JOIN KEY LAST LEFT LIKE LIMIT MATCH
MATERIALIZED NATURAL NO NOT NOTHING NOTNULL NULL NULLS OF OFFSET ON OR ORDER OTHERS OUTER OVER PARTITION PLAN PRAGMA
PRECEDING PRIMARY QUERY RAISE RANGE RECURSIVE REFERENCES REGEXP REINDEX RELEASE RENAME REPLACE RESTRICT RETURNING
RIGHT ROLLBACK ROW ROWS SAVEPOINT SELECT SET TABLE TEMP TEMPORARY THEN TIES TO TRANSACTION TRIGGER UNBOUNDED UNION
UNIQUE UPDATE USING VACUUM VALUES VIEW VIRTUAL WHEN WHERE WINDOW WITH WITHOUT""",
)
#: What names something in SQLite, in a statement of ours, or in a wrong reading of quotes.
OTHERS = re.findall(
    r"\S+",
    """rowid oid ROWID Oid main temp stage candidate standing plan contested demoted coming_back column1 column2 strict nan
inf infinity blob any hidden c t r a k p q x b s excluded new old value key json pos op row version before after""",
)
ODD = [
    'quo"te',
    "it's",
    "`c`",
    "[b]",
    "a.b",
    "a;b",
    "--",
    "/*",
    "%s",
    "?1",
    ":x",
    "@y",
    "$z",
    "1",
    "1e5",
    "x'00'",
    " lead",
    "'true'",
]
TRUTHS = ["true", "false", "TRUE", "False", "tRuE"]
COLUMNS = [*KEYWORDS, *(k.lower() for k in KEYWORDS), *OTHERS, *ODD]


def unlike(names: Sequence[str]) -> list[str]:
    """Names without those that differ in case only."""
    return list({name.casefold(): name for name in names}.values())


NAMES = [n for n in unlike(COLUMNS) if n not in ("id", "day", "u")]


def partitioned(columns: Sequence[str], key: Sequence[str] = ("id",), **more: Any) -> PartitionedTable:
    own = [integer("id"), date("day"), *(text(c) for c in columns)]
    return PartitionedTable(
        name="named",
        partitions=YEAR,
        landing="named/{partition}/*.csv",
        columns=own,
        key=key,
        partition_by="day",
        **more,
    )


def line(values: Sequence[str]) -> str:
    return ",".join('"' + v.replace('"', '""') + '"' for v in values)


def content(columns: Sequence[str], *rows: Sequence[str]) -> str:
    return "\n".join(map(line, (columns, *rows))) + "\n"


def read(world: World, table: str) -> list[dict[str, Any]]:
    """The rows as a reader gets them, by the names that the database gives its columns."""
    with closing(sqlite3.connect(world.settings.warehouse)) as connection:
        cursor = connection.execute(f"SELECT * FROM {quoted(table)}")
        names = [d[0] for d in cursor.description]
        rows = [{n: v for n, v in zip(names, row, strict=True) if n[0] != "_"} for row in cursor]
        for name in names:  # and each by its own name
            assert len(connection.execute(f"SELECT t.{quoted(name)} FROM {quoted(table)} t").fetchall()) == len(rows)
    return rows


def committed(world: World, *scopes: str, **load: Any) -> None:
    outcome = world.load(*scopes, **load)[-1]
    assert outcome.status == "committed", outcome.message


@pytest.mark.parametrize(
    "more", [{}, {"key_unique_in": "partition"}, {"moved_keys": repair(order="delivery")}, {"key": ()}]
)
def test_any_column_of_a_partitioned_table_is_read_back_under_its_name(tmp_path: Path, more: dict[str, Any]) -> None:
    world = World(tmp_path, partitioned(NAMES, **more))
    columns = ["id", "day", *NAMES]
    values = [f"{n} is here" for n in NAMES]
    world.deliver(A, content(columns, ["1", A, *values], ["2", A, *values]))
    committed(world, A)
    world.deliver(A, content(columns, ["1", A, *(v + "!" for v in values)], ["2", A, *values]), "2.csv")
    committed(world, A)
    if "moved_keys" in more:
        world.deliver(B, content(columns, ["2", B, *values]), "3.csv")
        committed(world, B)
        world.deliver(B, content(columns, ["9", B, *values]), "4.csv")
        committed(world, B)
        world.deliver(B, content(columns), "5.csv")
        committed(world, B)
    assert sorted(read(world, "named"), key=lambda r: r["id"]) == [
        dict(zip(columns, [1, A, *(v + "!" for v in values)], strict=True)),
        dict(zip(columns, [2, A, *values], strict=True)),
    ]


@pytest.mark.parametrize(
    "key", ["coming_back", "contested", "demoted", "standing", "plan", "candidate", "rowid", "oid", "order"]
)
def test_a_key_of_any_name_moves_and_comes_back(tmp_path: Path, key: str) -> None:
    world = World(tmp_path, partitioned([key], key=[key], moved_keys=repair(order="delivery")))
    columns = ["id", "day", key]
    world.deliver(A, content(columns, ["1", A, "x"], ["2", A, "y"]))
    world.deliver(B, content(columns, ["3", B, "y"]), "2.csv")
    committed(world, A)
    committed(world, B)
    assert sorted(r["id"] for r in read(world, "named")) == [1, 3]
    world.deliver(B, content(columns, ["4", B, "z"]), "3.csv")
    committed(world, B)
    assert sorted(r["id"] for r in read(world, "named")) == [1, 2, 4]
    assert world.warehouse.verify(world.pipeline) == []


@pytest.mark.parametrize("complete", ["no", "whole"])
def test_any_column_of_a_watermark_table_is_read_back_under_its_name(tmp_path: Path, complete: str) -> None:
    table = WatermarkTable(
        name="named",
        partitions=YEAR,
        landing="named/{partition}/*.csv",
        columns=[integer("id"), integer("u"), *(text(n) for n in NAMES)],
        key=["id"],
        updated="u",
        complete=complete,
    )
    world = World(tmp_path, table)  # type: ignore[arg-type]
    columns = ["id", "u", *NAMES]
    for number in (1, 2):
        values = [f"{n} is here {number}" for n in NAMES]
        world.deliver(A, content(columns, ["1", str(number), *values]), f"{number}.csv")
        committed(world, A)
        assert read(world, "named") == [dict(zip(columns, [1, number, *values], strict=True))]


def test_any_column_of_a_change_log_is_read_back_under_its_name(tmp_path: Path) -> None:
    table = ChangeLogTable(
        name="named",
        partitions=YEAR,
        landing="named/{partition}/*",
        columns=[integer("id"), *(text(n) for n in NAMES)],
        key=["id"],
    )
    world = World(tmp_path, table)  # type: ignore[arg-type]
    for number in (1, 2):
        row = {"id": 1, **{n: f"{n} is here {number}" for n in NAMES}}
        event = {"pos": number, "op": "upsert", "version": number, "row": row}
        world.deliver(A, json.dumps(event) + "\n", f"{number}.jsonl")
        committed(world, A)
        assert read(world, "named") == [row]


def test_any_column_of_a_derived_table_is_read_back_under_its_name(tmp_path: Path) -> None:
    source = partitioned(NAMES)
    listed = ", ".join(f"named.{quoted(n)}" for n in NAMES)
    derived = DerivedTable(
        name="derived",
        partitions=YEAR,
        upstream=[same_partition(source)],
        sql=f"SELECT id, {listed} FROM named",
        columns=[integer("id"), *(text(n) for n in NAMES)],
        key=["id"],
    )
    world = World(tmp_path, source)
    world.deliver(A, content(["id", "day", *NAMES], ["1", A, *(f"{n} is here" for n in NAMES)]))
    committed(world, A)
    committed(world, A, pipeline=derived)
    assert read(world, "derived") == [{"id": 1, **{n: f"{n} is here" for n in NAMES}}]


@pytest.mark.parametrize("name", [*TRUTHS, "_rowid_", "_batch", "sqlite_x", "SQLite_master", "etl_batch", ""])
def test_a_column_whose_name_cannot_be_kept_is_refused_with_its_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ContractError, match="name"):
        partitioned([name])
    world = World(tmp_path, partitioned([], new_columns="add"))
    world.deliver(A, content(["id", "day", name], ["1", A, "x"]))
    (outcome,) = world.load(A)
    assert isinstance(outcome.error, BadHeader)


@pytest.mark.parametrize("name", ["json_each", "JSON_tree", *TRUTHS, "sqlite_x", "etl_batch", "_aside_x"])
def test_a_table_whose_name_hides_something_is_refused(name: str) -> None:
    with pytest.raises(ContractError, match="name"):
        orders(table=name)


TABLES = unlike([*KEYWORDS, *OTHERS, *ODD, "sqlite", "etl", "dbstat", "pragma_table_info", "generate_series", "fts5"])


def load_under(root: Path, name: str) -> None:
    for number, changes in enumerate(({}, {"moved_keys": repair(order="delivery")})):
        world = World(root / str(number), orders(table=name, **changes))
        world.deliver(A, f"id,day,item,amount\n1,{A},pear,3\n2,{A},fig,4\n")
        committed(world, A)
        world.deliver(A, f"id,day,item,amount\n1,{A},pear,5\n", "2.csv")
        committed(world, A)
        assert read(world, name) == [{"id": 1, "day": A, "item": "pear", "amount": 5}]
        assert world.warehouse.verify(world.pipeline) == []


@pytest.mark.parametrize(
    "name", ["select", "Order", "temp", "main", "candidate", "standing", "coming_back", "rowid", "t", "a.b"]
)
def test_a_table_of_any_name_is_loaded_and_read_back(tmp_path: Path, name: str) -> None:
    load_under(tmp_path, name)


@pytest.mark.long
@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_every_name_is_loaded_and_read_back(tmp_path: Path, name: str) -> None:
    load_under(tmp_path, name)


def test_a_table_of_versions_with_as_many_columns_as_allowed_is_merged(tmp_path: Path) -> None:
    names = [f"c{n}" for n in range(1_988)]

    def table(*more: str) -> WatermarkTable:
        return WatermarkTable(
            name="named",
            partitions=YEAR,
            landing="named/{partition}/*.csv",
            columns=[integer("id"), integer("u"), *(text(n) for n in (*names, *more))],
            key=["id"],
            updated="u",
        )

    with pytest.raises(ContractError, match="1991 are more than the 1990 that such a table can hold"):
        table("one_more")
    world = World(tmp_path, table())  # type: ignore[arg-type]
    for number in ("1", "2"):
        world.deliver(A, content(["id", "u", *names], ["1", number, *(number for _ in names)]), f"{number}.csv")
        committed(world, A)
    assert world.sql("SELECT u, c0, c1987 FROM named") == [(2, "2", "2")]
