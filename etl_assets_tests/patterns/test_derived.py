"""Derived tables: computed of what the ledger says of their upstream, and again when that has a successor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.contract import (
    Daily,
    DerivedTable,
    Hourly,
    PartitionedTable,
    Static,
    date,
    integer,
    partitions_around,
    real,
    repair,
    same_partition,
    text,
    timestamp,
    whole,
)
from etl_assets.errors import (
    BatchIdentityConflict,
    ContractError,
    DuplicateKey,
    LedgerMismatch,
    MissingDelivery,
    StillArriving,
    TransformFailed,
    UpstreamMoved,
)
from etl_assets.staging.extract import kept_bytes
from etl_assets_tests.patterns.logs import YEAR, A, B, C, D, delete, kept, lines, prices, upsert
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import World, orders

SUMS = "SELECT :partition AS day, item, sum(amount) AS total FROM orders GROUP BY item"


def totals(upstream: Any = None, sql: str = SUMS, **changes: Any) -> DerivedTable:
    """Of each day and item the sum of its orders."""
    fields: dict[str, Any] = {
        "name": "totals",
        "partitions": YEAR,
        "upstream": [same_partition(ORDERS)],
        "sql": sql,
        "columns": [date("day"), text("item"), integer("total")],
        "key": ["day", "item"],
    }
    if upstream is not None:
        fields["upstream"] = upstream
    return DerivedTable(**(fields | changes))


ORDERS = orders(moved_keys=repair(order="delivery"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, ORDERS)


def csv(*rows: str) -> str:
    return "\n".join(["id,day,item,amount", *rows]) + "\n"


def deliver(world: World, scope: str, *rows: str, name: str = "1.csv") -> None:
    world.deliver(scope, csv(*(f"{row.split(',')[0]},{scope},{','.join(row.split(',')[1:])}" for row in rows)), name)


def pending(world: World, pipeline: Any) -> list[str]:
    """Load what waits; the batches that were committed, without the pipeline's name."""
    outcomes = world.load_pending(pipeline)
    assert [o.error for o in outcomes] == [None] * len(outcomes)
    return [o.batch.partition("/")[2] for o in outcomes if o.batch and o.status == "committed"]


def seen(world: World) -> list[tuple[Any, ...]]:
    """Which upstream batch each committed batch was computed of."""
    return world.sql(
        "SELECT b.batch, u.scope, s.batch FROM etl_upstream u JOIN etl_batch b ON b.id = u.batch "
        "JOIN etl_batch s ON s.id = u.seen ORDER BY b.id, u.scope"
    )


def test_a_partition_is_computed_of_its_upstream_once_that_is_there(world: World) -> None:
    derived = totals()
    (absent,) = world.load(A, pipeline=derived)
    assert isinstance(absent.error, MissingDelivery)
    assert "computed of orders, and not all of them have something committed" in str(absent.error)
    deliver(world, A, "1,pear,3", "2,fig,5", "3,pear,4")
    deliver(world, B, "4,pear,1")
    world.load(A, B)
    assert pending(world, derived) == [f"{A}/upstream#1@1", f"{B}/upstream#1@1"]
    assert world.rows("totals") == [(A, "fig", 5), (A, "pear", 7), (B, "pear", 1)]
    assert seen(world) == [
        (f"totals/{A}/upstream#1@1", A, f"orders/{A}/1.csv#1@1"),
        (f"totals/{B}/upstream#1@1", B, f"orders/{B}/1.csv#1@1"),
    ]
    before = world.state()
    again = world.load(A, B, pipeline=derived)
    assert [(o.status, o.counts.inserted) for o in again] == [("already committed", 2), ("already committed", 1)]
    assert world.state() == before
    assert world.warehouse.verify(derived) == []


def test_a_correction_of_an_old_day_makes_that_day_stale_and_no_other(world: World) -> None:
    derived = totals()
    for scope in (A, B, C):
        deliver(world, scope, f"{scope[-1]},pear,3")
    world.load(A, B, C)
    pending(world, derived)
    deliver(world, A, "1,pear,9", name="2.csv")
    world.load(A)
    stale = [(s.scope, s.revision, s.reason) for s in world.survey(derived).waiting()]
    assert stale == [(A, 2, "stale: a batch that it was computed of has a successor")]
    assert pending(world, derived) == [f"{A}/upstream#2@1"]
    assert world.rows("totals") == [(A, "pear", 9), (B, "pear", 3), (C, "pear", 3)]
    assert pending(world, derived) == []


def test_a_row_that_moves_makes_both_days_stale(world: World) -> None:
    derived = totals()
    deliver(world, A, "1,pear,3", "2,fig,5", name="1.csv")
    deliver(world, B, "7,oak,7", name="1.csv")
    deliver(world, C, "8,elm,8", name="1.csv")
    world.load(A, B, C)
    pending(world, derived)
    deliver(world, B, "7,oak,7", "2,fig,6", name="2.csv")
    world.load(B)
    assert pending(world, derived) == [f"{A}/upstream#2@1", f"{B}/upstream#2@1"]
    assert world.rows("totals") == [(A, "pear", 3), (B, "fig", 6), (B, "oak", 7), (C, "elm", 8)]
    # It is given back: both again.
    deliver(world, B, "7,oak,7", name="3.csv")
    world.load(B)
    assert pending(world, derived) == [f"{A}/upstream#3@1", f"{B}/upstream#3@1"]
    assert world.rows("totals") == [(A, "fig", 5), (A, "pear", 3), (B, "oak", 7), (C, "elm", 8)]


def test_an_upstream_that_is_restated_makes_its_day_stale(world: World) -> None:
    derived = totals()
    deliver(world, A, "1,pear,3")
    world.load(A)
    deliver(world, A, "1,pear,9", name="2.csv")
    world.load(A)
    pending(world, derived)
    world.load(A, delivery="1.csv", restate="the correction was wrong")
    assert pending(world, derived) == [f"{A}/upstream#2@1"]
    assert world.rows("totals") == [(A, "pear", 3)]


def test_an_upstream_day_that_becomes_empty_empties_the_derived_one(world: World) -> None:
    derived = totals()
    deliver(world, A, "1,pear,3")
    world.load(A)
    pending(world, derived)
    deliver(world, A, name="2.csv")
    world.load(A)
    assert pending(world, derived) == [f"{A}/upstream#2@1"]
    assert world.rows("totals") == []
    assert world.warehouse.rows("totals") == {A: 0}


def test_an_optional_upstream_is_not_waited_for_and_counts_when_it_comes(world: World) -> None:
    names = PartitionedTable(
        name="names",
        partitions=YEAR,
        landing="names/{partition}/*.csv",
        columns=[text("item"), text("name")],
        key=["item"],
        key_unique_in="partition",
    )
    derived = totals(
        [same_partition(ORDERS), same_partition(names, optional=True)],
        "SELECT :partition AS day, coalesce(n.name, o.item) AS item, sum(amount) AS total "
        "FROM orders o LEFT JOIN names n USING (item) GROUP BY 2",
    )
    deliver(world, A, "1,pear,3")
    world.load(A)
    assert pending(world, derived) == [f"{A}/upstream#1@1"]
    assert world.rows("totals") == [(A, "pear", 3)]
    world.deliver(A, "item,name\npear,Birne\n", pipeline="names")
    world.load(A, pipeline=names)
    assert pending(world, derived) == [f"{A}/upstream#2@1"]
    assert world.rows("totals") == [(A, "Birne", 3)]


def test_a_day_sees_the_days_around_it_that_it_declares(world: World) -> None:
    derived = totals([partitions_around(ORDERS, before=1)])
    for scope in (A, B, C, D):
        deliver(world, scope, f"{scope[-1]},pear,{scope[-1]}")
    world.load(A, B, C, D)
    pending(world, derived)
    wanted = [(A, "pear", 1), (B, "pear", 3), (C, "pear", 5), (D, "pear", 7), ("2024-01-05", "pear", 4)]
    assert world.rows("totals") == wanted
    deliver(world, B, "2,pear,20", name="2.csv")
    world.load(B)
    assert pending(world, derived) == [f"{B}/upstream#2@1", f"{C}/upstream#2@1"]
    wanted[1:3] = [(B, "pear", 21), (C, "pear", 23)]
    assert world.rows("totals") == wanted


def test_a_day_is_made_of_its_hours_in_its_own_time_zone(world: World) -> None:
    hours = PartitionedTable(
        name="hours",
        partitions=Hourly(start="2024-01-01", end="2024-01-05"),
        landing="hours/{partition}/*.csv",
        columns=[timestamp("at", resolution="s"), integer("amount")],
        key=["at"],
        partition_by="at",
    )
    derived = DerivedTable(
        name="days",
        partitions=Daily(start="2024-01-01", end="2024-01-05", timezone="America/New_York"),
        upstream=[same_partition(hours)],
        sql="SELECT :partition AS day, :start AS begins, :end AS ends, sum(amount) AS total FROM hours",
        columns=[date("day"), timestamp("begins", resolution="s"), timestamp("ends", resolution="s"), integer("total")],
        key=["day"],
    )
    for number, hour in enumerate(("02-04:00", "02-05:00", "03-04:00", "03-05:00")):
        at = f"2024-01-{hour[:2]}T{hour[3:]}:30Z"
        world.deliver(f"2024-01-{hour}", f"at,amount\n{at},{10**number}\n", pipeline="hours")
    world.load(*(f"2024-01-{h}" for h in ("02-04:00", "02-05:00", "03-04:00", "03-05:00")), pipeline=hours)
    assert pending(world, derived) == [f"2024-01-0{n}/upstream#1@1" for n in (1, 2, 3)]
    assert world.sql("SELECT day, begins, ends, total FROM days") == [
        ("2024-01-01", "2024-01-01T05:00:00Z", "2024-01-02T05:00:00Z", 1),
        ("2024-01-02", "2024-01-02T05:00:00Z", "2024-01-03T05:00:00Z", 110),
        ("2024-01-03", "2024-01-03T05:00:00Z", "2024-01-04T05:00:00Z", 1000),
    ]


def test_static_partitions_see_their_own_name_or_the_whole(world: World) -> None:
    shops = PartitionedTable(
        name="shops",
        partitions=Static("north", "south"),
        landing="shops/{partition}/*.csv",
        columns=[integer("id"), integer("amount")],
        key=["id"],
        key_unique_in="partition",
    )
    columns = [integer("total")]
    each = DerivedTable(
        name="each",
        partitions=Static("north", "south"),
        upstream=[same_partition(shops)],
        sql="SELECT sum(amount) AS total FROM shops",
        columns=columns,
    )
    both = DerivedTable(
        name="both",
        partitions=Static("all"),
        upstream=[whole(shops)],
        sql="SELECT sum(amount) AS total FROM shops",
        columns=columns,
    )
    world.deliver("north", "id,amount\n1,1\n", pipeline="shops")
    world.deliver("south", "id,amount\n1,10\n", pipeline="shops")
    world.load("north", "south", pipeline=shops)
    assert pending(world, each) == ["north/upstream#1@1", "south/upstream#1@1"]
    assert pending(world, both) == ["all/upstream#1@1"]
    world.deliver("south", "id,amount\n1,20\n", "2.csv", pipeline="shops")
    world.load("south", pipeline=shops)
    assert pending(world, each) == ["south/upstream#2@1"]
    assert pending(world, both) == ["all/upstream#2@1"]
    assert (world.rows("each"), world.rows("both")) == ([(1,), (20,)], [(21,)])


def test_a_log_is_seen_whole_as_its_live_rows(world: World) -> None:
    log = prices()
    derived = DerivedTable(
        name="dearest",
        partitions=Static("all"),
        upstream=[whole(log)],
        sql="SELECT item, CAST(price AS INTEGER) AS price FROM prices",
        columns=[text("item"), integer("price")],
        key=["item"],
    )
    world.deliver(A, lines(upsert(1, 1, 1, "pear", "3"), upsert(2, 1, 2, "fig", "5")), pipeline="prices")
    world.load(A, pipeline=log)
    assert pending(world, derived) == ["all/upstream#1@1"]
    world.deliver(B, lines(delete(3, 2, 2)), pipeline="prices")
    world.load(B, pipeline=log)
    assert pending(world, derived) == ["all/upstream#2@1"]
    assert world.rows("dearest") == [("pear", 3)]


def test_a_table_is_derived_of_a_derived_one(world: World) -> None:
    derived = totals()
    best = DerivedTable(
        name="best",
        partitions=YEAR,
        upstream=[same_partition(derived)],
        sql="SELECT max(total) AS total FROM totals",
        columns=[integer("total")],
    )
    deliver(world, A, "1,pear,3", "2,fig,5")
    world.load(A)
    assert pending(world, best) == []
    pending(world, derived)
    assert pending(world, best) == [f"{A}/upstream#1@1"]
    deliver(world, A, "1,pear,30", name="2.csv")
    world.load(A)
    assert pending(world, best) == []
    pending(world, derived)
    assert pending(world, best) == [f"{A}/upstream#2@1"]
    assert world.rows("best") == [(30,)]


def test_other_logic_under_an_old_version_is_refused_and_a_raised_one_replaces_each_day_once(world: World) -> None:
    deliver(world, A, "1,pear,3")
    deliver(world, B, "2,pear,4")
    world.load(A, B)
    pending(world, totals())
    other = SUMS.replace("sum(amount)", "2 * sum(amount)")
    before = kept(world)
    (refused,) = world.load(A, pipeline=totals(sql=other))
    assert isinstance(refused.error, BatchIdentityConflict)
    assert kept(world) == before
    raised = totals(sql=other, version=2)
    listed = [(s.scope, s.state, s.reason.partition("; ")[2]) for s in world.survey(raised).statuses]
    assert listed == [(d, "committed", "by transform version 1, the contract has 2") for d in (A, B)]
    assert [o.batch for o in world.load(A, B, pipeline=raised)] == [f"totals/{d}/upstream#1@2" for d in (A, B)]
    assert world.rows("totals") == [(A, "pear", 6), (B, "pear", 8)]
    assert [o.status for o in world.load(A, B, pipeline=raised)] == ["already committed"] * 2
    # SQL that is written differently and says the same is no other logic.
    same = totals(sql=f"WITH o AS (SELECT * FROM orders)\n{other.replace('orders', 'o')};", version=2)
    assert [o.status for o in world.load(A, B, pipeline=same)] == ["already committed"] * 2


@pytest.mark.parametrize(
    "sql, words",
    [
        ("SELECT :partition AS day, item, price AS total FROM orders", "no such column: price"),
        ("SELECT :partition AS day, item FROM", "syntax error"),
        ("SELECT :partition AS day, item, :other AS total FROM orders", "other"),
        ("SELECT 1 AS day; SELECT 2", "syntax error"),
        ("DELETE FROM orders", "syntax error"),
        ("SELECT :partition AS day, sha256 AS item, size AS total FROM etl_delivery", "etl_delivery"),
        ("SELECT :partition AS day, 'x' AS item, count(*) AS total FROM others", "others"),
        ("SELECT :partition AS day, item, amount AS total FROM main.orders", "orders"),
        ("SELECT :partition AS day, item, random() AS total FROM orders", "random"),
        ("SELECT :partition AS day, item, current_timestamp AS total FROM orders", "current_timestamp"),
        ("SELECT :partition AS day, item, amount FROM orders", "missing: total; not in the contract: amount"),
        ("SELECT :partition AS day, item, 1.5 AS total FROM orders", "'1.5' for 'total'"),
        ("SELECT :partition AS day, item, x'00' AS total FROM orders", "bytes for 'total'"),
        ("SELECT NULL AS day, item, amount AS total FROM orders", "day"),
    ],
)
def test_sql_that_does_not_do_what_the_contract_says_is_refused_and_named(world: World, sql: str, words: str) -> None:
    others = orders(name="others", landing="others/{partition}/*.csv")
    world.deliver(A, csv(f"1,{A},pear,3"), pipeline="others")
    deliver(world, A, "1,pear,3", "2,fig,5")
    world.load(A)
    world.load(A, pipeline=others)
    pending(world, totals())
    before = kept(world)
    wrong = totals(sql=sql, version=2)
    (outcome,) = world.load(A, pipeline=wrong)
    assert isinstance(outcome.error, TransformFailed), outcome.error
    assert words in str(outcome.error)
    assert "totals" in str(outcome.error)
    assert kept(world) == before
    # The refusal is remembered, as that of a delivery is; under other SQL the partition is asked for again.
    (recorded,) = world.warehouse.deliveries("totals")
    assert recorded.refusal is not None
    assert (recorded.refusal.kind, recorded.refusal.attempts) == ("TransformFailed", 1)


def test_functions_over_tables_and_recursion_are_allowed(world: World) -> None:
    sql = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3) SELECT :partition AS day, "
        "o.item || i || j.value AS item, count(*) OVER () AS total FROM orders o, n, json_each('[7,8]') j"
    )
    deliver(world, A, "1,pear,3")
    world.load(A)
    assert pending(world, totals(sql=sql)) == [f"{A}/upstream#1@1"]
    assert world.rows("totals") == [(A, f"pear{i}{j}", 6) for i in (1, 2, 3) for j in (7, 8)]


def test_a_key_that_the_sql_returns_twice_is_refused_with_both_rows(world: World) -> None:
    deliver(world, A, "1,pear,3", "2,pear,5")
    world.load(A)
    (outcome,) = world.load(A, pipeline=totals(sql="SELECT :partition AS day, item, amount AS total FROM orders"))
    assert isinstance(outcome.error, DuplicateKey)
    for words in ("(day, item)", "'total': 3", "'total': 5"):
        assert words in str(outcome.error)


def test_values_arrive_as_they_are_and_no_value_is_not_an_empty_text(world: World) -> None:
    derived = DerivedTable(
        name="kinds",
        partitions=YEAR,
        upstream=[same_partition(ORDERS)],
        sql="SELECT 1 AS id, '' AS blank, NULL AS empty, 'NA' AS na, 1.0e22 AS large, 9007199254740993 AS whole FROM orders",
        columns=[integer("id"), text("blank"), text("empty"), text("na"), real("large"), integer("whole")],
        key=["id"],
    )
    deliver(world, A, "1,pear,3")
    world.load(A)
    pending(world, derived)
    row = world.sql("SELECT id, blank, empty, na, large, whole FROM kinds")
    assert row == [(1, "", None, "NA", 1e22, 9007199254740993)]


def test_rows_of_an_upstream_that_moved_on_before_the_commit_are_not_published(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    derived = totals()
    deliver(world, A, "1,pear,3")
    world.load(A)
    engine = world.engine(derived)  # type: ignore[arg-type]
    publish = engine.sink.publish

    def late(*args: Any, **kwargs: Any) -> Any:
        deliver(world, A, "1,pear,9", name="2.csv")
        world.load(A)
        return publish(*args, **kwargs)

    monkeypatch.setattr(engine.sink, "publish", late, raising=False)
    (outcome,) = engine.load([A], "slow")
    assert isinstance(outcome.error, UpstreamMoved)
    assert f"orders/{A}/2.csv#1@1" in str(outcome.error)
    assert world.rows("totals") == []
    assert pending(world, derived) == [f"{A}/upstream#1@1"]
    assert world.rows("totals") == [(A, "pear", 9)]


def test_a_named_revision_is_computed_by_another_contract_as_long_as_its_upstream_has_not_moved(world: World) -> None:
    deliver(world, A, "1,pear,3")
    world.load(A)
    assert pending(world, totals()) == [f"{A}/upstream#1@1"]
    newer = totals(sql=SUMS.replace("sum(amount)", "sum(amount) * 10"), version=2)
    (named,) = world.load(A, pipeline=newer, delivery="upstream#1")
    assert (named.batch, named.status) == (f"totals/{A}/upstream#1@2", "committed")
    assert world.rows("totals") == [(A, "pear", 30)]
    assert seen(world)[-1] == (f"totals/{A}/upstream#1@2", A, f"orders/{A}/1.csv#1@1")
    deliver(world, A, "1,pear,4", name="2.csv")
    world.load(A)
    (gone,) = world.load(A, pipeline=totals(version=3), delivery="upstream#1")
    assert isinstance(gone.error, UpstreamMoved)
    assert world.rows("totals") == [(A, "pear", 30)]


def test_an_upstream_table_that_was_dropped_is_not_taken_for_an_empty_one(world: World) -> None:
    deliver(world, A, "1,pear,3")
    world.load(A)
    assert pending(world, totals()) == [f"{A}/upstream#1@1"]
    deliver(world, A, "1,pear,4", name="2.csv")
    world.load(A)
    around(world, "DROP TABLE orders")
    (outcome,) = world.load(A, pipeline=totals())
    assert isinstance(outcome.error, LedgerMismatch)
    assert "its table 'orders' is not there" in str(outcome.error)
    assert world.rows("totals") == [(A, "pear", 3)]


def test_an_upstream_that_moved_on_between_listing_and_reading_is_read_at_the_next_run(world: World) -> None:
    derived = totals()
    deliver(world, A, "1,pear,3")
    world.load(A)
    engine = world.engine(derived)  # type: ignore[arg-type]
    listed = engine.source.arrivals(A)
    engine.source.arrivals = lambda scope=None: listed  # type: ignore[method-assign]  # as listed before it moved on
    deliver(world, A, "1,pear,9", name="2.csv")
    world.load(A)
    (outcome,) = engine.load([A], "late")
    assert isinstance(outcome.error, StillArriving), outcome
    assert world.warehouse.deliveries("totals") == []
    assert pending(world, derived) == [f"{A}/upstream#1@1"]
    assert world.rows("totals") == [(A, "pear", 9)]


def test_the_extract_lists_what_was_seen_and_its_bytes_are_the_identity(world: World) -> None:
    deliver(world, A, "1,pear,3")
    world.load(A)
    (outcome,) = world.load(A, pipeline=totals())
    assert outcome.extract
    with kept_bytes(outcome.extract) as path:
        document = json.loads(path.read_text())
    assert document == [{"pipeline": "orders", "scope": A, "batch": f"orders/{A}/1.csv#1@1"}]
    assert outcome.extract.manifest.input_sha256 == outcome.delivery.sha256 == outcome.delivery.stamp  # type: ignore[union-attr]


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: totals([same_partition(ORDERS), whole(ORDERS)]), "a table stands twice"),
    (lambda: totals([same_partition(ORDERS, optional=True)]), "all of it is optional"),
    (lambda: totals(upstream=()), "upstream"),
    (lambda: totals(name="orders"), "cannot be derived from itself"),
    (lambda: totals([same_partition(prices())]), "read it as a whole"),
    (lambda: totals(partitions=Static("all")), "they do not correspond"),
    (lambda: totals(columns=[date("day"), text("item", missing=("NA",)), integer("total")]), "say it in the SQL"),
    (lambda: totals(sql="SELECT date('now') AS day, item, 1 AS total FROM orders"), "no function of the tables"),
    (lambda: totals(sql="SELECT date() AS day, item, unixepoch( ) AS total FROM orders"), "no function of the tables"),
    (lambda: totals(key=["nothing"]), "'nothing' is not one of the columns"),
]


@pytest.mark.parametrize("make, words", WRONG)
def test_a_contract_that_does_not_hold_together_is_refused_when_it_is_made(
    make: Callable[[], object], words: str
) -> None:
    with pytest.raises(ContractError, match=words):
        make()


days = st.sampled_from([A, B, C])
steps = st.lists(st.tuples(days, st.lists(st.integers(1, 4), unique=True, max_size=3), st.booleans()), max_size=8)


@settings(max_examples=12, deadline=None)
@given(steps=steps)
def test_in_whatever_order_upstream_days_come_what_is_derived_ends_as_their_sum(
    steps: list[tuple[str, list[int], bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Keys move between days, releases come in any order, and what is stale is computed now and then."""
    world = World(tmp_path_factory.mktemp("world"), ORDERS)
    derived = totals()
    for number, (day, keys, between) in enumerate(steps, start=1):
        deliver(world, day, *(f"{k},item {k},{10 * number + k}" for k in keys), name=f"{number}.csv")
        assert [o.error for o in world.load(day)] == [None]
        if between:
            pending(world, derived)
    pending(world, derived)
    found = (
        world.sql("SELECT p.scope, item, total FROM totals t JOIN etl_partition p ON p.id = t._partition")
        if steps
        else []
    )
    wanted = (
        world.sql("SELECT p.scope, item, amount FROM orders o JOIN etl_partition p ON p.id = o._partition")
        if steps
        else []
    )
    assert sorted(found) == sorted(wanted)
    assert pending(world, derived) == []
    assert world.warehouse.verify(derived) == []
