"""A notification that cannot work fails when its contract is made, as far as that can be told."""

from __future__ import annotations

from typing import Any

import pytest

from etl_assets.contract import Notification, text
from etl_assets.errors import ContractError
from etl_assets_tests.patterns.logs import prices
from etl_assets_tests.world import orders


def told(sql: str = "SELECT id FROM orders", **changes: Any) -> Notification:
    return Notification(**({"name": "told", "topic": "t", "sql": sql, "key": ["id"]} | changes))


def wrong(*words: str, **fields: Any) -> None:
    with pytest.raises(ContractError) as raised:
        orders(**fields)
    for word in words:
        assert word in str(raised.value)


@pytest.mark.parametrize(
    "sql, said",
    [
        ("INSERT INTO orders VALUES (1)", "a notification is a SELECT"),
        ("PRAGMA user_version", "a notification is a SELECT"),
        ("", "a notification is a SELECT"),
        ("-- SELECT id FROM orders", "a notification is a SELECT"),
        ("/* why */ -- so\n DELETE FROM orders", "a notification is a SELECT"),
        ("SELECT id FROM orders WHERE day < date('now')", "'now' .* is another time at each publish"),
        ("SELECT id, datetime ( ) AS at FROM orders", "is another time at each publish"),
        ("SELECT id, strftime('%Y') AS year FROM orders", "is another time at each publish"),
    ],
)
def test_what_is_no_query_is_refused_when_it_is_made(sql: str, said: str) -> None:
    with pytest.raises(ContractError, match=said):
        told(sql)


@pytest.mark.parametrize(
    "sql, said",
    [
        ("SELEC id FROM orders", "a notification is a SELECT"),
        ("SELECT id FROM orders WHERE", "incomplete input"),
        ("SELECT id FROM orders; SELECT 2", "one statement at a time"),
        ("SELECT id, colour FROM orders", "no such column: colour"),
        ("SELECT item FROM orders", "key: 'id' is not a column of the result; it has item"),
        ("SELECT id, item, day AS item FROM orders", "two columns of the result are named 'item'"),
        ("SELECT id FROM orders WHERE id = :other", "binding parameter :other"),
        ("SELECT id, random() AS r FROM orders", "not authorized to use function: random"),
        ("SELECT id, CURRENT_TIMESTAMP AS at FROM orders", "not authorized to use function: CURRENT_TIMESTAMP"),
        ("WITH x AS (SELECT 1) INSERT INTO orders (id) SELECT 1", "not authorized"),
        ("SELECT id FROM orders, pragma_table_info('orders')", "not authorized"),
        ("SELECT id, load_extension('x') FROM orders", "load_extension"),
    ],
)
def test_a_fault_in_its_sql_fails_the_contract_and_names_the_notification(sql: str, said: str) -> None:
    if said.startswith("a notification"):
        with pytest.raises(ContractError, match=said):
            told(sql)
    else:
        wrong(
            "PartitionedTable 'orders' does not hold together", "notifications: told: ", said, notifications=[told(sql)]
        )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT id, :partition AS day FROM orders;",
        "  -- large ones\n  with x as (select id, sum(amount) as n from orders group by id) select * from x where n > 3",
        "SELECT o.id, w.temp FROM orders o JOIN weather w USING (day)",
        "SELECT id, _batch, _partition FROM orders",
        "SELECT j.value AS id FROM orders, json_each(item) j",
        "VALUES (1)",
    ],
)
def test_a_query_that_can_work_is_taken(sql: str) -> None:
    key = ["column1"] if sql.startswith("VALUES") else ["id"]
    (taken,) = orders(notifications=[told(sql, key=key)]).notifications
    assert taken.sql == sql


def test_columns_that_deliveries_may_add_are_not_held_against_a_query() -> None:
    query = told("SELECT id, colour FROM orders")
    assert orders(new_columns="add", notifications=[query]).notifications == (query,)
    wrong("no such column: colour", new_columns="ignore", notifications=[query])


def test_a_table_with_any_name_is_read_under_it() -> None:
    query = told('SELECT id FROM "order ""book"""')
    assert orders(table='order "book"', notifications=[query]).notifications == (query,)


def test_a_log_has_no_partition_of_its_rows() -> None:
    query = told("SELECT id, _batch FROM prices")
    assert prices(notifications=[query]).notifications == (query,)
    with pytest.raises(ContractError, match="no such column: _partition"):
        prices(notifications=[told("SELECT id, _partition FROM prices")])


def test_two_notifications_of_a_table_have_two_names() -> None:
    wrong("notifications: two have the same name", notifications=[told(), told()])


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "of orders"},
        {"name": ""},
        {"topic": "a/b"},
        {"topic": ".."},
        {"topic": ""},
        {"key": []},
        {"table": "x"},
    ],
)
def test_a_field_that_is_wrong_is_named(changes: dict[str, Any]) -> None:
    with pytest.raises(ContractError, match=next(iter(changes))):
        told(**changes)


def test_what_is_told_is_no_part_of_the_fingerprint() -> None:
    plain = orders()
    assert plain.code == orders(notifications=[told()], attention_topic="attention").code
    assert plain.code != orders(columns=[*plain.columns, text("colour", optional=True)]).code
    wrong("attention_topic", attention_topic="no topic")
