"""Rows against the contract: required values, bounds, keys and the partition they belong to."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.contract import (
    Daily,
    Hourly,
    Monthly,
    PartitionedTable,
    Static,
    Weekly,
    date,
    date_of,
    decimal,
    integer,
    quarantine,
    real,
    text,
    timestamp,
)
from etl_assets.errors import DuplicateKey, ForeignRows, InvalidRows, ShrunkDelivery
from etl_assets_tests.staging.bench import Bench, rejects, rows, table

HALF = quarantine(0.5)
NY = "America/New_York"


def test_a_row_without_a_key_or_required_value_is_never_a_row(bench: Bench) -> None:
    contract = table(
        integer("id"),
        text("code", missing=()),
        integer("n", required=True),
        text("free"),
        key=["id", "code"],
        invalid_rows=quarantine(1.0),
    )
    extract = bench.freeze(contract, 'id,code,n,free\n1,a,1,\n,a,2,x\n2,"",3,y\n3,c,,z\n,,,\n')
    assert rows(extract) == [(1, "a", 1, None)]
    assert [(r["line"], r["reasons"]) for r in rejects(extract)] == [
        (3, ["id is part of the key and has no value"]),
        (4, ["code is part of the key and is empty"]),
        (5, ["n is required and has no value"]),
        (
            6,
            [
                "id is part of the key and has no value",
                "code is part of the key and is empty",
                "n is required and has no value",
            ],
        ),
    ]


BOUNDED = [
    (
        integer("n", minimum=1, maximum=12),
        ["1", "12", ""],
        ["0", "13"],
        ["n is 0, less than 1", "n is 13, more than 12"],
    ),
    (real("n", minimum=0), ["0", "-0.0", "1e9"], ["-1e-9"], ["n is -1e-09, less than 0.0"]),
    (decimal("n", 5, 2, minimum="0.01", maximum="999.99"), ["0.01", "999.99"], ["0"], ["n is 0.00, less than 0.01"]),
    (
        date("n", minimum="2024-01-01", maximum=dt.date(2024, 12, 31)),
        ["2024-01-01", "2024-12-31"],
        ["2023-12-31"],
        ["n is 2023-12-31, less than 2024-01-01"],
    ),
    (
        timestamp("n", resolution="s", minimum="2024-01-01T00:00:00+01:00"),
        ["2023-12-31T23:00:00Z"],
        ["2023-12-31T22:59:59Z"],
        ["n is 2023-12-31 22:59:59+00:00, less than 2023-12-31 23:00:00+00:00"],
    ),
]


@pytest.mark.parametrize("column, good, bad, reasons", BOUNDED, ids=lambda v: getattr(v, "type", ""))
def test_bounds_are_inclusive_and_a_value_beyond_is_named(
    bench: Bench, column, good: list[str], bad: list[str], reasons: list[str]
) -> None:
    contract = table("id", column, key=["id"], invalid_rows=quarantine(0.9))
    content = "id,n\n" + "".join(f"{i},{v}\n" for i, v in enumerate([*good, *bad]))
    extract = bench.freeze(contract, content)
    assert [r[0] for r in rows(extract)] == [str(i) for i in range(len(good))]
    assert [r["reasons"] for r in rejects(extract)] == [[reason] for reason in reasons]


def test_a_repeated_key_is_refused_with_the_lines_of_both_rows(bench: Bench) -> None:
    contract = table(integer("id"), text("code"), text("v"), key=["id", "code"])
    with pytest.raises(DuplicateKey) as caught:
        bench.freeze(contract, 'id,code,v\n\n1,a,"x\n"\n2,a,y\n1,b,z\n01,a,w\n2,a,y\n')
    assert str(caught.value) == (
        "1.csv: the key (id, code) repeats within the delivery, 2 times so far; which row counts cannot be told.\n"
        "  lines 3 and 7: id=1, code='a'\n"
        "  lines 5 and 8: id=2, code='a'"
    )


def test_without_a_key_a_partition_is_a_bag_of_rows(bench: Bench) -> None:
    assert bench.read(table("a", integer("b")), "a,b\nx,1\nx,1\n,\n,\n") == [("", None), ("", None), ("x", 1), ("x", 1)]


def test_an_invalid_row_repeats_no_key(bench: Bench) -> None:
    contract = table(integer("id"), integer("n"), key=["id"], invalid_rows=HALF)
    assert bench.read(contract, "id,n\n1,1\n1,x\n") == [(1, 1)]


# --------------------------------------------------------------------------- counts


@pytest.mark.parametrize("declared", ["2", "02"])
def test_a_control_file_that_counts_the_rows_lets_them_pass(bench: Bench, declared: str) -> None:
    contract = table("a", row_count_file=".count")
    assert bench.freeze(contract, 'a\n"x\ny"\nz\n', declared=declared).manifest.source_rows == 2


@pytest.mark.parametrize(
    "declared, message",
    [
        ("3", "2 rows, but its control file 1.csv.count declares 3: not the whole delivery"),
        ("1", "declares 1"),
        ("0", "declares 0"),
        ("", "1.csv.count: '' is not a count of rows"),
        ("2 rows", "'2 rows' is not a count"),
        ("-2", "is not a count"),
        ("\uff12", "is not a count"),
        ("2.0", "is not a count"),
    ],
)
def test_a_control_file_that_counts_otherwise_refuses_the_delivery(bench: Bench, declared: str, message: str) -> None:
    with pytest.raises(ShrunkDelivery, match=message):
        bench.freeze(table("a", row_count_file=".count"), "a\nx\ny\n", declared=declared)


def test_fewer_rows_than_the_contract_expects_are_refused_even_none(bench: Bench) -> None:
    contract = table("a", min_rows=2)
    assert bench.freeze(contract, "a\nx\ny\n").manifest.rows == 2
    for content in ("a\nx\n", "a\n"):
        with pytest.raises(ShrunkDelivery, match="the contract expects at least 2: is this the complete contents"):
            bench.freeze(contract, content)


# --------------------------------------------------------------------------- the partition a row belongs to


def daily(column, by, zone: str = "UTC", **changes) -> PartitionedTable:
    options = {"partitions": Daily(start="2013-01-01", timezone=zone), "partition_by": by, "key": ["id"], **changes}
    return table("id", *(column if isinstance(column, tuple) else (column,)), **options)


def test_rows_of_another_day_are_refused_naming_them_and_their_day(bench: Bench) -> None:
    contract = daily(date("day"), "day")
    with pytest.raises(ForeignRows) as caught:
        bench.freeze(contract, "id,day\n1,2024-01-01\n2,2024-01-02\n3,2023-12-31\n", scope="2024-01-01")
    assert str(caught.value) == (
        "1.csv: 2 rows do not belong to partition 2024-01-01 (by day); foreign_rows='refuse'.\n"
        "  line 3: belongs to partition 2024-01-02, not 2024-01-01\n"
        "  line 4: belongs to partition 2023-12-31, not 2024-01-01"
    )


def test_rows_of_another_day_are_quarantined_by_policy_within_the_share(bench: Bench) -> None:
    contract = daily(date("day"), "day", foreign_rows="quarantine", invalid_rows=HALF)
    extract = bench.freeze(contract, "id,day\n1,2024-01-01\n2,2024-01-02\n", scope="2024-01-01")
    assert rows(extract) == [("1", dt.date(2024, 1, 1))]
    assert rejects(extract) == [
        {
            "line": 3,
            "reasons": ["belongs to partition 2024-01-02, not 2024-01-01"],
            "row": {"id": "2", "day": "2024-01-02"},
        }
    ]
    with pytest.raises(InvalidRows, match=r"2 of 3 rows are invalid; at most 50.00% may be set aside"):
        bench.freeze(contract, "id,day\n1,2024-01-01\n2,2024-01-02\n3,2024-01-03\n", scope="2024-01-01", name="2.csv")


@pytest.mark.parametrize(
    "day, inside, outside",
    [
        # 23 hours: clocks go forward at 2:00.
        (
            "2013-03-10",
            ["2013-03-10T05:00:00Z", "2013-03-10T06:59:59Z", "2013-03-11T03:59:59Z"],
            ["2013-03-10T04:59:59Z", "2013-03-11T04:00:00Z"],
        ),
        # 25 hours: clocks go back at 2:00.
        (
            "2013-11-03",
            ["2013-11-03T04:00:00Z", "2013-11-03T05:30:00Z", "2013-11-03T06:30:00Z", "2013-11-04T04:59:59Z"],
            ["2013-11-03T03:59:59Z", "2013-11-04T05:00:00Z"],
        ),
        # The UTC date is another business date; midnight belongs to the day that begins.
        (
            "2013-07-01",
            ["2013-07-02T03:59:59Z", "2013-07-01T00:00:00-04:00", "2013-07-01T23:59:59.999999-04:00"],
            ["2013-07-01T03:59:59Z", "2013-07-02T00:00:00-04:00"],
        ),
    ],
)
def test_an_instant_belongs_to_the_day_that_it_has_in_the_zone(
    bench: Bench, day: str, inside: list[str], outside: list[str]
) -> None:
    contract = daily(timestamp("at"), "at", NY, foreign_rows="quarantine", invalid_rows=HALF)
    content = "id,at\n" + "".join(f"{i},{at}\n" for i, at in enumerate([*inside, *outside]))
    extract = bench.freeze(contract, content, scope=day)
    assert [r[0] for r in rows(extract)] == [str(i) for i in range(len(inside))]
    assert len(rejects(extract)) == len(outside)


def test_the_hours_of_a_day_of_25_hours_are_25_partitions(bench: Bench) -> None:
    contract = table(
        "id",
        timestamp("at"),
        partitions=Hourly(start="2013-11-03-00:00", end="2013-11-04-00:00", timezone=NY),
        partition_by="at",
        foreign_rows="quarantine",
        invalid_rows=quarantine(1.0),
    )
    keys = contract.partitions.keys()
    assert len(keys) == 25
    assert keys[:4] == ("2013-11-03-00:00", "2013-11-03-01:00", "2013-11-03-01:00-0500", "2013-11-03-02:00")
    content = "id,at\n" + "".join(
        f"{h},{dt.datetime(2013, 11, 3, 4, 30, tzinfo=dt.UTC) + dt.timedelta(hours=h)}\n" for h in range(25)
    )
    found = [[r[0] for r in bench.read(contract, content, scope=key)] for key in keys]
    assert found == [[str(h)] for h in range(25)]


def test_a_date_over_three_columns_is_compared_as_a_date(bench: Bench) -> None:
    columns = (integer("y"), integer("m"), integer("d"))
    contract = daily(columns, date_of("y", "m", "d"), foreign_rows="quarantine", invalid_rows=quarantine(1.0))
    extract = bench.freeze(
        contract, f"id,y,m,d\n1,2013,2,28\n2,2013,2,29\n3,2013,3,1\n4,{2**62},2,28\n", scope="2013-02-28"
    )
    assert rows(extract) == [("1", 2013, 2, 28)]
    assert [r["reasons"][0] for r in rejects(extract)] == [
        "belongs to partition of 2013-2-29, which is no date, not 2013-02-28",
        "belongs to partition 2013-03-01, not 2013-02-28",
        f"belongs to partition of {2**62}-2-28, which is no date, not 2013-02-28",
    ]


PARTS = st.tuples(
    st.sampled_from([2023, 2024, 2024 + 2**60, -2024, 0, 9999]),
    st.integers(-1, 14),
    st.integers(-1, 33),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(PARTS, min_size=1, max_size=30),
    st.sampled_from(["weekly", "monthly", "daily"]),
    st.dates(dt.date(2023, 12, 1), dt.date(2025, 1, 31)),
)
def test_only_dates_that_exist_in_the_window_belong_to_it(
    bench: Bench, parts: list, cadence: str, inside: dt.date
) -> None:
    partitions = {"weekly": Weekly, "monthly": Monthly, "daily": Daily}[cadence](start="2020-01-01")
    key = partitions.key(dt.datetime(inside.year, inside.month, inside.day, tzinfo=dt.UTC))
    contract = table(
        integer("n"),
        *(integer(c) for c in "ymd"),
        partitions=partitions,
        partition_by=date_of("y", "m", "d"),
        foreign_rows="quarantine",
        invalid_rows=quarantine(1.0),
        key=["n"],
    )
    content = "n,y,m,d\n" + "".join(f"{n},{y},{m},{d}\n" for n, (y, m, d) in enumerate(parts))

    def belongs(y: int, m: int, d: int) -> bool:
        try:
            return partitions.key(dt.datetime(y, m, d, tzinfo=dt.UTC)) == key
        except (ValueError, OverflowError):
            return False

    expected = [(n, *p) for n, p in enumerate(parts) if belongs(*p)]
    assert bench.read(contract, content, scope=key, name=f"{hash(content)}.csv") == expected


def test_the_ends_of_the_calendar_are_foreign_and_no_error(bench: Bench) -> None:
    contract = daily(timestamp("at"), "at", NY, foreign_rows="quarantine", invalid_rows=quarantine(1.0))
    found = bench.rejects(contract, "id,at\n1,0001-01-01T00:00:00Z\n2,9999-12-31T23:59:59Z\n", scope="2013-07-01")
    assert [r["reasons"] for r in found] == [
        ["belongs to partition of 0001-01-01 00:00:00+00:00, not 2013-07-01"],
        ["belongs to partition 9999-12-31, not 2013-07-01"],
    ]


def test_a_static_partition_is_the_text_of_its_column(bench: Bench) -> None:
    contract = table(
        "id",
        text("shop"),
        partitions=Static("north", 'it\'s "south"'),
        partition_by="shop",
        foreign_rows="quarantine",
        invalid_rows=HALF,
    )
    found = bench.rejects(contract, 'id,shop\n1,"it\'s ""south"""\n2,North\n', scope='it\'s "south"')
    assert [r["reasons"] for r in found] == [["belongs to partition 'North', not it's \"south\""]]
