"""Contracts that do not hold together are refused when they are made, naming the field."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pydantic
import pytest

from etl_assets.contract import (
    Column,
    Daily,
    FileFormat,
    Hourly,
    Monthly,
    PartitionedTable,
    Quarantine,
    Sharded,
    Static,
    Weekly,
    boolean,
    date,
    date_of,
    decimal,
    integer,
    json,
    quarantine,
    real,
    repair,
    text,
    timestamp,
    transform,
)
from etl_assets.contract.columns import MAX_COLUMNS
from etl_assets.errors import ContractError, EtlError
from etl_assets_tests.world import orders

WRONG_COLUMNS: list[tuple[Any, dict[str, Any], str]] = [
    (text, {"name": ""}, "name: a name is blank"),
    (text, {"name": "  "}, "name: a name is blank"),
    (text, {"name": "a\0b"}, "name: .*NUL or a lone surrogate"),
    (text, {"name": "\ud800"}, "name: .*NUL or a lone surrogate"),
    (text, {"name": "x" * 201}, "name: .*201 characters; at most 200"),
    (text, {"name": "_batch"}, "name: .*starts with '_'"),
    (text, {"name": "etl_x"}, "name: .*prefix that is kept"),
    (text, {"name": "SQLITE_x"}, "name: .*prefix that is kept"),
    (text, {"name": 5}, "name: .*valid string"),
    (text, {"name": "a", "nonsense": 1}, "nonsense: Extra inputs"),
    (text, {"name": "a", "missing": "NA"}, "missing: .*tuple"),
    (text, {"name": "a", "missing": (1,)}, "missing.0: .*string"),
    (text, {"name": "a", "aliases": "b"}, "aliases: .*tuple"),
    (text, {"name": "a", "optional": "perhaps"}, "optional: .*boolean"),
    (text, {"name": "a", "required": 7}, "required: .*boolean"),
    (text, {"name": "a", "minimum": "a"}, "'a': bounds are for numbers"),
    (boolean, {"name": "a", "maximum": 1}, "'a': bounds are for numbers"),
    (json, {"name": "a", "minimum": 1}, "'a': bounds are for numbers"),
    (integer, {"name": "a", "minimum": 1.5}, "'a': minimum 1.5 is not a integer of 64 bits"),
    (integer, {"name": "a", "minimum": "1"}, "'a': minimum '1' is not a integer"),
    (integer, {"name": "a", "maximum": 2**63}, "'a': maximum 9223372036854775808 is not a integer of 64 bits"),
    (integer, {"name": "a", "minimum": 2, "maximum": 1}, "'a': minimum 2 is larger than maximum 1"),
    (real, {"name": "a", "minimum": "x"}, "'a': minimum 'x' is not a real"),
    (real, {"name": "a", "minimum": float("nan")}, "'a': minimum nan is not a real that is finite"),
    (real, {"name": "a", "maximum": float("inf")}, "'a': maximum inf is not a real that is finite"),
    (date, {"name": "a", "minimum": "01.02.2024"}, "'a': minimum '01.02.2024' is not a date"),
    (date, {"name": "a", "minimum": dt.datetime(2024, 1, 1)}, "'a': minimum .* is not a date"),  # noqa: DTZ001
    (date, {"name": "a", "minimum": "2024-02-01", "maximum": "2024-01-01"}, "minimum 2024-02-01 is larger"),
    (timestamp, {"name": "a", "minimum": "2024-01-01T00:00:00"}, "minimum .* is not a timestamp with an offset"),
    (
        timestamp,
        {"name": "a", "resolution": "s", "minimum": "2024-01-01T00:00:00.5Z"},
        "is not a timestamp with an offset, no finer than s",
    ),
    (timestamp, {"name": "a", "timezone": "Mars/Olympus"}, "timezone: 'Mars/Olympus' is not a time zone"),
    (timestamp, {"name": "a", "timezone": "../etc/passwd"}, "timezone: .* is not a time zone"),
    (timestamp, {"name": "a", "resolution": "ns"}, "resolution: .*'s', 'ms' or 'us'"),
    (timestamp, {"name": "a", "format": "%Q"}, "format '%Q': 'Q' is a bad directive"),
    (date, {"name": "a", "format": "%Y-%"}, "format '%Y-%': stray %"),
    (date, {"name": "a", "format": "%Y %Y"}, "format '%Y %Y'"),
    (boolean, {"name": "a", "true": ("1", "Y"), "false": ("y",)}, r"'a': \['y'\] mean both true and false"),
    (integer, {"name": "a", "scale": 2}, "'a': scale is for decimal columns, not for integer"),
    (real, {"name": "a", "precision": 2}, "'a': precision is for decimal columns, not for real"),
    (date, {"name": "a", "timezone": "UTC"}, "'a': timezone is for timestamp columns, not for date"),
    (text, {"name": "a", "format": "%Y"}, "'a': format is for date and timestamp columns, not for text"),
    (text, {"name": "a", "true": ("1",)}, "'a': true is for boolean columns, not for text"),
    (integer, {"name": "a", "resolution": "s"}, "'a': resolution is for timestamp columns, not for integer"),
]


@pytest.mark.parametrize("make, fields, message", WRONG_COLUMNS)
def test_a_column_that_does_not_hold_together_is_refused_naming_the_field(
    make: Any, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        make(**fields)


@pytest.mark.parametrize(
    "precision, scale, options, message",
    [
        (0, 0, {}, "precision: .*greater than or equal to 1"),
        (39, 0, {}, "precision: .*less than or equal to 38"),
        (5, 6, {}, "'a': scale 6 is larger than precision 5"),
        (5, -1, {}, "scale: .*greater than or equal to 0"),
        (5, 2, {"minimum": "0.005"}, r"'a': minimum '0.005' is not a decimal\(5,2\)"),
        (5, 2, {"maximum": 100_000}, r"'a': maximum 100000 is not a decimal\(5,2\)"),
        (5, 2, {"maximum": "x"}, r"'a': maximum 'x' is not a decimal\(5,2\)"),
        (5, 2, {"minimum": 1, "maximum": "0.99"}, "'a': minimum 1 is larger than maximum 0.99"),
    ],
)
def test_a_decimal_that_does_not_hold_together_is_refused(
    precision: int, scale: int, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        decimal("a", precision, scale, **options)


def test_bounds_of_a_wide_decimal_are_exact() -> None:
    assert str(decimal("a", 38, 8, minimum="1" * 30 + ".00000001").bounds[0]) == "1" * 30 + ".00000001"


def twice(column: Column = integer("z")) -> list[Column]:  # noqa: B008
    return [integer("id"), date("day"), column, column]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": "Orders Table"}, "name: .*pattern"),
    ({"name": "1orders"}, "name: .*pattern"),
    ({"name": "orders\n"}, "name: .*pattern"),
    ({"name": "x" * 64}, "name: .*pattern"),
    ({"name": "ordérs"}, "name: .*pattern"),
    ({"table": "etl_batch"}, "table: .*prefix that is kept"),
    ({"table": "_aside"}, "table: .*starts with '_'"),
    ({"table": "sqlite_master"}, "table: .*prefix that is kept"),
    ({"table": ""}, "table: a name is blank"),
    ({"landing": "orders/*.csv"}, r"landing: .*does not say where \{partition\} stands"),
    ({"landing": "/orders/{partition}/*.csv"}, "landing: .*below the landing root"),
    ({"landing": "../{partition}/*.csv"}, "landing: .*below the landing root"),
    ({"landing": "a/../{partition}/*.csv"}, "landing: .*below the landing root"),
    ({"landing": "a//{partition}"}, "landing: .*below the landing root"),
    ({"landing": "./{partition}"}, "landing: .*below the landing root"),
    ({"landing": "{partition}/"}, "landing: .*below the landing root"),
    ({"landing": "{partition}/**/*.csv"}, "landing: .*below the landing root"),
    ({"landing": "{partition}/{name}.csv"}, "landing: .*another {placeholder}"),
    ({"landing": "{partition}/{}.csv"}, "landing: .*another {placeholder}"),
    ({"columns": []}, "columns: .*at least 1"),
    ({"columns": [integer("id"), integer("ID"), date("day")]}, "columns: 'ID' and 'id' are the same name"),
    ({"columns": twice()}, "columns: 'z' and 'z' are the same name"),
    ({"columns": [integer("id", aliases=("DAY",)), date("day")]}, "columns: 'day' and 'DAY' are the same name"),
    ({"columns": [integer("id", aliases=("x", "x")), date("day")]}, "columns: 'id' has the alias 'x' twice"),
    (
        {"columns": [integer("id", aliases=("id",)), date("day")]},
        "columns: 'id' has the alias 'id' twice, or as its own",
    ),
    ({"inputs": [text("Item")]}, "columns: 'Item' and 'item' are the same name"),
    ({"columns": [*(integer(f"c{i}") for i in range(MAX_COLUMNS + 1))]}, "columns: 1999 are more than the 1998"),
    ({"columns": ["id"]}, "columns.0: "),
    ({"key": "id"}, "key: .*tuple"),
    ({"key": ["ID"]}, "key: 'ID' is not one of the columns"),
    ({"key": ["id", "id"]}, "key: a column stands twice"),
    ({"key_unique_in": "database"}, "key_unique_in: "),
    ({"partition_by": "when"}, "partition_by: 'when' is not one of the columns"),
    ({"partition_by": "amount"}, "partition_by: a integer column gives no partition here; wanted date or timestamp"),
    ({"partition_by": date_of("y", "m", "d")}, "partition_by: 'y' is not one of the columns"),
    ({"partition_by": date_of("id", "day", "amount")}, "partition_by: date_of needs integer columns, 'day' is date"),
    (
        {"partitions": Static("a"), "partition_by": "day"},
        "partition_by: a date column gives no partition here; wanted text",
    ),
    (
        {"partitions": Static("a"), "partition_by": date_of("id", "id", "id")},
        "partition_by: date_of goes with time partitions",
    ),
    (
        {"partitions": Hourly(start="2024-01-01-00:00")},
        "partition_by: a date column gives no partition here; wanted timestamp",
    ),
    (
        {"partitions": Hourly(start="2024-01-01-00:00"), "partition_by": date_of("id", "amount", "amount")},
        "partition_by: date_of tells the day, not the hour",
    ),
    ({"partitions": ["a"]}, "partitions"),
    ({"newest_by": ["nope"]}, "newest_by: 'nope' is not one of the columns"),
    ({"newest_by": ["amount"], "key": []}, "newest_by: rows without a key"),
    ({"newest_by": ["id"]}, "newest_by: 'id' tells nothing apart: it is part of the key"),
    ({"newest_by": ["amount", "amount"]}, "newest_by: 'amount' tells nothing apart"),
    ({"newest_by": ["item"]}, "newest_by: 'item' is text, by which no row is newer"),
    ({"newest_by": "amount"}, "newest_by: .*tuple"),
    ({"moved_keys": repair("item")}, "moved_keys: 'item' is neither 'delivery' nor a column that orders rows"),
    ({"moved_keys": repair("nope")}, "moved_keys: 'nope' is neither"),
    ({"moved_keys": repair(), "key": []}, "moved_keys: repair is for keys that are unique in the table"),
    ({"moved_keys": repair(), "key": ["id", "day"]}, "moved_keys: repair is for keys .* can change partition"),
    ({"moved_keys": repair(), "key_unique_in": "partition"}, "moved_keys: repair is for keys"),
    ({"moved_keys": "repair"}, "moved_keys"),
    ({"new_columns": "keep"}, "new_columns: "),
    ({"invalid_rows": "quarantine"}, "invalid_rows"),
    ({"invalid_rows": 0.1}, "invalid_rows"),
    ({"foreign_rows": "ignore"}, "foreign_rows: "),
    ({"foreign_rows": "quarantine"}, "foreign_rows: quarantine needs a share"),
    ({"redelivery": "never"}, "redelivery: "),
    ({"min_rows": -1}, "min_rows: "),
    ({"shrink_limit": 1.0}, "shrink_limit: .*less than 1"),
    ({"shrink_limit": -0.1}, "shrink_limit: "),
    ({"row_count_file": "count"}, "row_count_file: 'count' must be a suffix"),
    ({"row_count_file": "."}, "row_count_file: '.' must be a suffix"),
    ({"row_count_file": "./x"}, "row_count_file: './x' must be a suffix"),
    ({"row_count_file": ".csv"}, "row_count_file: '.csv' ends the names of the deliveries"),
    ({"attempts": 0}, "attempts: "),
    ({"max_partitions_per_run": 0}, "max_partitions_per_run: "),
    ({"transform": lambda: None}, "Transform .*\n  function: .* must take one argument"),
    ({"transform": 5}, "transform"),
    ({"owners": "me"}, "owners: .*tuple"),
    ({"owners": ("me",)}, "owners: 'me' is no owner of Dagster's"),
    ({"owners": ("a@b.example", "team:")}, "owners: 'team:' is no owner"),
    ({"group": "nyc-taxi"}, "group: 'nyc-taxi' is no group of Dagster's"),
    ({"group": ""}, "group: '' is no group"),
    ({"group": "a b"}, "group: 'a b' is no group"),
    ({"group": "a\n"}, "group: .* is no group"),
    ({"group": "a//b"}, "group: 'a//b' is no group"),
    ({"description": 5}, "description: .*string"),
    *(
        ({"name": name}, f"name: '{name}' is a name that Dagster")
        for name in ("input", "type", "class", "None", "outbox")
    ),
    (
        {"foreign_rows": "quarantine", "invalid_rows": quarantine(0.1), "partition_by": None},
        "foreign_rows: without partition_by",
    ),
    ({"key_": ["id"]}, "key_: Extra inputs"),
]


@pytest.mark.parametrize("changes, message", WRONG)
def test_a_contract_that_does_not_hold_together_is_refused_naming_the_field(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ContractError, match=message) as caught:
        orders(**changes)
    assert isinstance(caught.value, EtlError)


@pytest.mark.parametrize("field", ["name", "partitions", "landing", "columns"])
def test_a_contract_without_a_field_that_it_needs_names_it(field: str) -> None:
    fields = {"name": "o", "partitions": Static("a"), "landing": "{partition}", "columns": [text("a")]}
    with pytest.raises(ContractError, match=f"{field}: Field required"):
        PartitionedTable(**{k: v for k, v in fields.items() if k != field})


@pytest.mark.parametrize(
    "fields, message",
    [
        ({"delimiter": ""}, "delimiter: '' must be one ASCII character"),
        ({"delimiter": "||"}, "delimiter: "),
        ({"delimiter": "§"}, "delimiter: "),
        ({"delimiter": "\n"}, "delimiter: "),
        ({"quote": "''"}, "quote: "),
        ({"delimiter": '"'}, "delimiter and quote are the same"),
        ({"encoding": "utf-9"}, "encoding: 'utf-9' is not a text encoding"),
        ({"encoding": "base64"}, "encoding: 'base64' is not a text encoding"),
        ({"encoding": "rot13"}, "encoding: 'rot13' is not a text encoding"),
        ({"encoding": "undefined"}, "encoding: 'undefined' is not a text encoding"),
        ({"skip_lines": -1}, "skip_lines: "),
        ({"header": False}, "header: Extra inputs"),
    ],
)
def test_a_file_format_that_does_not_hold_together_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ContractError, match=message):
        FileFormat(**fields)


@pytest.mark.parametrize("share", [0, -0.1, 1.1, "x"])
def test_a_share_that_is_none_is_refused(share: Any) -> None:
    with pytest.raises(ContractError, match="up_to"):
        quarantine(share)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: transform(lambda f: f, version=0), "version: .*greater than or equal to 1"),
        (lambda: transform(lambda f: f, version="a"), "version: "),  # type: ignore[arg-type]
        (lambda: transform(lambda a, b: a, version=1), "function: .*must take one argument"),
        (lambda: transform("x", version=1), "function: "),  # type: ignore[arg-type]
        (lambda: Daily(start="01.01.2024"), "start: '01.01.2024' is not a date"),
        (lambda: Daily(start="2024-01-01", end="2024-01-01"), "end .* is not after start"),
        (lambda: Daily(start="2024-01-01", timezone="Nowhere"), "timezone: 'Nowhere' is not a time zone"),
        (lambda: Monthly(start=None), "start: "),  # type: ignore[arg-type]
        (lambda: Weekly(start=dt.datetime(2024, 1, 1, tzinfo=dt.UTC)), "give them without offset"),  # type: ignore[arg-type]
        (lambda: Static(), "names: .*at least 1"),
        (lambda: Static("a", "b", "a"), r"names: partition keys repeat: \['a'\]"),
        (lambda: Static(""), "names: '' cannot be a partition key"),
        (lambda: Static(" a"), "names: ' a' cannot be a partition key"),
        (lambda: Static("a\0"), "cannot be a partition key"),
        (lambda: Static("\udcff"), "cannot be a partition key"),
        (lambda: Static("a...b"), "cannot be a partition key"),
        (lambda: Static("a\nb"), "cannot be a partition key"),
        (lambda: Static("a\tb"), "cannot be a partition key"),
        (lambda: Sharded(Daily(start="2024-01-01"), "a,b"), "cannot be a shard .it holds ','"),
        (lambda: Sharded(Daily(start="2024-01-01"), "a[0]"), "cannot be a shard"),
    ],
)
def test_a_part_that_does_not_hold_together_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ContractError, match=message):
        make()


def test_a_contract_and_its_parts_cannot_be_changed() -> None:
    contract = orders()
    for part, field in ((contract, "key"), (contract.columns[0], "name"), (contract.partitions, "start")):
        with pytest.raises(pydantic.ValidationError, match="frozen"):
            setattr(part, field, None)


def test_the_table_is_named_like_the_pipeline_unless_it_says_otherwise() -> None:
    assert orders().table == "orders"
    assert orders(table='Order "lines", 2024').table == 'Order "lines", 2024'


def test_the_key_the_partition_and_the_order_are_required_columns() -> None:
    contract = orders(moved_keys=repair("amount"), columns=[*orders().columns, text("note", required=True)])
    assert contract.required_columns == {"id", "day", "amount", "note"}


@pytest.mark.parametrize(
    "changes, move",
    [
        ({}, True),
        ({"key": []}, False),
        ({"key_unique_in": "partition"}, False),
        ({"key": ["id", "day"]}, False),
        ({"partition_by": None}, True),
    ],
)
def test_a_key_can_move_unless_it_holds_the_partition(changes: dict[str, Any], move: bool) -> None:
    assert orders(**changes).keys_can_move is move


def same(frame: Any) -> Any:
    return frame


def test_the_fingerprint_follows_what_changes_an_extract_and_nothing_else() -> None:
    code = orders().code
    assert orders().code == code
    told = {"description": "x", "group": "y/z", "owners": ("team:z",), "attempts": 9, "max_partitions_per_run": 1}
    assert {orders(**{k: v}).code for k, v in told.items()} == {code}
    changes: list[dict[str, Any]] = [
        {"columns": [integer("id"), date("day"), text("item"), integer("amount", missing=("", "-"))]},
        {"columns": [integer("id"), date("day"), text("item"), integer("amount", minimum=0)]},
        {"key": ["id", "day"]},
        {"format": FileFormat(delimiter=";")},
        {"invalid_rows": quarantine(0.1)},
        {"invalid_rows": Quarantine(up_to=0.2)},
        {"new_columns": "add"},
        {"min_rows": 1},
        {"newest_by": ["amount"]},
        {"transform": transform(same, version=1)},
        {"transform": transform(same, version=2)},
    ]
    assert len({code, *(orders(**change).code for change in changes)}) == len(changes) + 1


def test_a_field_that_was_added_since_leaves_the_fingerprint_of_contracts_that_do_not_use_it() -> None:
    assert "newest_by" not in orders().model_dump_json()
    assert '"newest_by":["amount"]' in orders(newest_by=["amount"]).model_dump_json()


def test_what_tells_a_row_newer_is_required_in_every_row() -> None:
    assert orders(newest_by=["amount"]).required_columns == {"id", "day", "amount"}
