"""The assertion for derived tables: whenever they are computed, they end alike; and it can fail."""

from __future__ import annotations

import re
from typing import Any

import pytest

from etl_assets.contract import DerivedTable, date, integer, repair, same_partition, text
from etl_assets.pipelines.departures_by_day import departures_by_day
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.weather import weather
from etl_assets.testing import assert_idempotent
from etl_assets_tests.testing.test_idempotence import ORDERS, A, B, day, failure, shown
from etl_assets_tests.world import orders

SHOP = orders(moved_keys=repair(order="delivery"))
MOVING = ORDERS | {f"orders/{B}/3.csv": day(B, "3,lime,1", "1,pear,4", "9,fig,1")}


def summed(sql: str = "SELECT :partition AS day, sum(amount) AS total, max(item) AS items FROM orders") -> DerivedTable:
    return DerivedTable(
        name="summed",
        partitions=SHOP.partitions,
        upstream=[same_partition(SHOP)],
        sql=sql,
        columns=[date("day"), integer("total"), text("items")],
        key=["day"],
    )


def test_a_derived_table_passes_whenever_it_is_computed_and_whatever_moves() -> None:
    assert_idempotent(summed(), MOVING, upstream=[SHOP])


def test_the_showcases_derived_table_passes() -> None:
    deliveries = shown(flights, "flights/2013-11-0[23]/*.csv", "weather/2013-11-0[234]/*.csv")
    assert_idempotent(departures_by_day, deliveries, upstream=[flights, weather], ways=3)


def test_sql_that_asks_the_clock_in_disguise_is_refused_by_name() -> None:
    asking = "SELECT :partition AS day, sum(amount) AS total, strftime('%J', 'no' || 'w') AS items FROM orders"
    told = failure(summed(asking), MOVING, upstream=[SHOP])
    assert "strftime() asks the clock" in told


def test_lists_and_sums_of_floats_do_not_depend_on_the_order_in_which_rows_came() -> None:
    listed = summed(
        "SELECT :partition AS day, sum(amount) AS total, group_concat(item) || sum(amount * 0.1) AS items FROM orders"
    )
    assert_idempotent(listed, MOVING, upstream=[SHOP])


def test_sql_that_fails_is_told_with_its_reason() -> None:
    told = failure(
        summed("SELECT :partition AS day, price AS total, item AS items FROM orders"), MOVING, upstream=[SHOP]
    )
    assert told.startswith(
        f"summed some partitions cannot be computed:\n{A}: summed/{A}: the SQL of summed: no such column: price"
    )


@pytest.mark.parametrize(
    "deliveries, upstream, words",
    [
        (ORDERS, [], "is computed: give the pipelines of its deliveries, upstream=[orders]"),
        (ORDERS | {"other/1.csv": ""}, [SHOP], "other/1.csv: no delivery of orders"),
    ],
)
def test_what_is_no_upstream_is_named(deliveries: Any, upstream: Any, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        assert_idempotent(summed(), deliveries, upstream=upstream)
