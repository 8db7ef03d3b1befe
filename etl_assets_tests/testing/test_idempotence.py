"""The assertion for users' own pipelines: the showcase passes it, and each kind of wrong pipeline does not."""

from __future__ import annotations

import gzip
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from etl_assets.contract import (
    FileFormat,
    PartitionedTable,
    Pipeline,
    ReferenceTable,
    debezium,
    integer,
    lookback,
    native,
    repair,
    text,
    timestamp,
    transform,
    window,
)
from etl_assets.pipelines.airlines import airlines
from etl_assets.pipelines.countries import countries
from etl_assets.pipelines.flights import flights
from etl_assets.pipelines.frequencies import frequencies
from etl_assets.pipelines.quakes import quakes
from etl_assets.pipelines.weather import weather
from etl_assets.testing import assert_idempotent
from etl_assets.testing.deliveries import placed
from etl_assets.testing.ways import Way, other_ways
from etl_assets_tests.patterns.logs import delete, lines, prices, readings, snapshot, upsert
from etl_assets_tests.world import DAYS, SHOWCASE, orders

HEADER = "id,day,item,amount\n"
A, B, C = DAYS


def shown(pipeline: Pipeline, *globs: str) -> dict[str, Path]:
    """Deliveries of the showcase."""
    return {str(f.relative_to(SHOWCASE)): f for pattern in globs for f in sorted(SHOWCASE.glob(pattern))}


def day(scope: str, *rows: str) -> str:
    return HEADER + "".join(f"{row.split(',')[0]},{scope},{row.partition(',')[2]}\n" for row in rows)


ORDERS: dict[str, str | bytes | Path] = {
    f"orders/{A}/1.csv": day(A, "1,pear,1", "2,fig,2", "9,kiwi,9"),
    f"orders/{A}/2.csv": day(A, "1,pear,3", "9,kiwi,9"),
    f"orders/{B}/1.csv": day(B, "3,lime,1"),
}


def failure(pipeline: Pipeline, deliveries: Any, **options: Any) -> str:
    with pytest.raises(AssertionError) as caught:
        assert_idempotent(pipeline, deliveries, **options)
    return str(caught.value)


# --------------------------------------------------------------------------- what converges


@pytest.mark.parametrize(
    "pipeline, globs",
    [
        (airlines, ["airlines/*/*"]),
        (countries, ["countries/202[15]*/*"]),
        (flights, ["flights/2013-11-0[12]/*"]),
        (weather, ["weather/2013-10-2[56]/*"]),
        (frequencies, ["frequencies_cdc/2022-0*/*"]),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_showcase_passes(pipeline: Pipeline, globs: list[str]) -> None:
    deliveries = shown(pipeline, *globs)
    if pipeline is frequencies:
        deliveries = shown(pipeline, "frequencies_cdc/2021*/*", *globs)
    assert_idempotent(pipeline, deliveries, ways=3)


def test_a_rolling_feed_passes_in_its_order() -> None:
    assert_idempotent(quakes, shown(quakes, "quakes/2020-03-0[36]/*"), ways=2)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(
    "pipeline, glob",
    [
        (airlines, "airlines/*/*"),
        (countries, "countries/*/*"),
        (flights, "flights/2013-1[01]-*/*"),
        (weather, "weather/2013-1[01]-*/*"),
        (frequencies, "frequencies_cdc/*/*"),
        (quakes, "quakes/*/*"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_whole_showcase_passes_in_many_more_ways(pipeline: Pipeline, glob: str, seed: int) -> None:
    assert_idempotent(pipeline, shown(pipeline, glob), ways=8, seed=seed)


@pytest.mark.parametrize(
    "pipeline",
    [
        orders(),
        orders(newest_by=["amount"]),
        orders(key=[]),
        orders(key_unique_in="partition"),
        orders(new_columns="add"),
        orders(transform=transform(lambda frame: frame.assign(amount=frame["amount"] + 1), version=1, rowwise=True)),
    ],
)
def test_partitions_pass(pipeline: PartitionedTable) -> None:
    assert_idempotent(pipeline, ORDERS, ways=3)


def test_keys_that_move_pass_by_a_declared_order_and_what_is_kept_aside_is_compared() -> None:
    deliveries = {
        f"orders/{A}/3.csv": day(A, "7,pear,1"),
        f"orders/{B}/2.csv": day(B, "7,fig,2", "9,kiwi,1"),
        f"orders/{B}/4.csv": day(B, "8,lime,1", "9,kiwi,1"),
        f"orders/{C}/1.csv": day(C, "7,old,0"),
    }
    assert_idempotent(orders(moved_keys=repair("delivery")), deliveries, ways=4)
    assert_idempotent(orders(moved_keys=repair("amount")), deliveries, ways=2)


def test_a_key_that_waits_for_another_partition_to_drop_it_passes() -> None:
    """Moves are refused, so that day B has to wait until the correction of day A is there."""
    deliveries = {
        f"orders/{A}/1.csv": day(A, "7,pear,1", "9,kiwi,1"),
        f"orders/{A}/2.csv": day(A, "8,pear,1", "9,kiwi,1"),
        f"orders/{B}/1.csv": day(B, "7,fig,2"),
    }
    assert_idempotent(orders(), deliveries, ways=6)


EVENTS = [
    upsert(1, 1, 1, price="1.10"),
    upsert(2, 1, 2),
    delete(3, 2, 1),
    upsert(4, 1, 1, price="1.10"),  # said again
    upsert(5, 3, 1, item="back"),
    upsert(6, 2, 2, price="2.5"),
    delete(7, 3, 2),
]
LOG = {
    f"prices/{A}/1.jsonl": lines(*EVENTS[:3]),
    f"prices/{A}/2.jsonl": lines(*EVENTS[3:4]),
    f"prices/{B}/1.jsonl": lines(*EVENTS[4:]),
}


def test_a_log_passes_with_a_version_and_without_and_packed() -> None:
    assert_idempotent(prices(), LOG, ways=9)
    log = {**LOG, f"prices/{A}/2.jsonl": lines(upsert(4, 2, 3))}
    assert_idempotent(prices(events=native(version=None)), log, ways=4)
    packed = {f"{path}.gz": gzip.compress(content.encode()) for path, content in log.items()}
    assert_idempotent(prices(), packed, ways=2)
    hidden = {path: gzip.compress(content.encode()) for path, content in log.items()}
    assert_idempotent(prices(format=FileFormat(gzip=True)), hidden, ways=2)


def test_a_log_in_the_envelope_of_debezium_passes() -> None:
    def event(pos: int, op: str, version: int, before: Any = None, after: Any = None) -> str:
        return json.dumps({"pos": pos, "version": version, "op": op, "before": before, "after": after})

    pear = {"id": 1, "item": "pear", "price": "1"}
    content = lines(
        event(1, "c", 1, None, pear), event(2, "u", 2, pear, pear | {"id": 2}), event(3, "d", 3, pear | {"id": 2})
    )
    assert_idempotent(prices(events=debezium()), {f"prices/{A}/1.jsonl": content}, ways=4)


SNAPSHOTS = {
    f"readings/{A}/1.csv": snapshot("a,01,1", "b,02,2", "c,02,3"),
    f"readings/{A}/2.csv": snapshot("a,03,2", "b,02,2"),
    f"readings/{B}/1.csv": snapshot("a,03,2", "c,04,4"),
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bounds": "strict"},
        {"bounds": lookback(hours=30)},
        {"bounds": "none"},
        {"complete": "whole"},
        {"complete": window("updated")},
    ],
    ids=str,
)
def test_snapshots_pass_in_the_orders_that_their_policies_allow(changes: dict[str, Any]) -> None:
    assert_idempotent(readings(**changes), SNAPSHOTS, ways=3)


# --------------------------------------------------------------------------- what does not


def numbered() -> Any:
    """A transform that counts the rows it has ever seen."""
    seen = itertools.count(1)
    return lambda frame: frame.assign(amount=[next(seen) for _ in range(len(frame))])


def test_a_transform_that_counts_what_it_has_seen_is_caught() -> None:
    told = failure(orders(transform=transform(numbered(), version=1)), ORDERS)
    assert told.startswith("orders: when everything is read and loaded again, some deliveries are refused:\n")
    assert "the same bytes now give other rows" in told
    assert f"each when it arrives, in order:\n  orders/{A}/1.csv\n  then orders/{A}/2.csv\n" in told


def test_a_transform_that_looks_at_the_clock_is_caught() -> None:
    def stamped(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(item=str(pd.Timestamp.now(tz="UTC").value))

    assert "the same bytes now give other rows" in failure(orders(transform=transform(stamped, version=1)), ORDERS)


def test_a_transform_that_is_rowwise_by_word_only_is_caught_and_the_rows_are_shown() -> None:
    ranked = transform(lambda frame: frame.assign(amount=frame["amount"].cumsum()), version=1, rowwise=True)
    told = failure(orders(transform=ranked), {f"orders/{A}/1.csv": day(A, "1,pear,1", "2,fig,2", "3,lime,3")})
    assert told == (
        "orders ends otherwise than when each delivery is loaded as it arrives, in order.\n"
        "in order, handed to the rowwise transform in 3 pieces:\n"
        f"  orders/{A}/1.csv\n"
        f"after orders/{A}/1.csv:\n"
        f"  rows, only in order: {{'_partition': '{A}', 'amount': 3, 'day': '{A}', 'id': 2, 'item': 'fig'}}\n"
        f"  rows, only in order: {{'_partition': '{A}', 'amount': 6, 'day': '{A}', 'id': 3, 'item': 'lime'}}\n"
        f"  rows, only this way: {{'_partition': '{A}', 'amount': 2, 'day': '{A}', 'id': 2, 'item': 'fig'}}\n"
        f"  rows, only this way: {{'_partition': '{A}', 'amount': 3, 'day': '{A}', 'id': 3, 'item': 'lime'}}"
    )
    # It is seen as well where a correction has replaced those rows in the end.
    deliveries = {f"orders/{A}/1.csv": day(A, "1,pear,1", "2,fig,2"), f"orders/{A}/2.csv": day(A, "1,pear,1")}
    assert f"after orders/{A}/1.csv:" in failure(orders(transform=ranked), deliveries)
    whole = transform(ranked.function, version=1)
    assert_idempotent(orders(transform=whole), ORDERS, ways=2)


def test_a_key_that_is_too_narrow_is_caught() -> None:
    told = failure(orders(), {f"orders/{A}/1.csv": day(A, "1,pear,1", "1,fig,2")})
    assert "some deliveries are refused:\n  orders/2024-01-01/1.csv#1@1: " in told
    assert "lines 2 and 3: id=1" in told
    told = failure(orders(), {f"orders/{A}/1.csv": day(A, "1,pear,1"), f"orders/{B}/1.csv": day(B, "1,fig,2")})
    assert "some deliveries are refused" in told
    assert f"orders/{B}/1.csv#1@1" in told


def test_a_newest_delivery_that_is_refused_leaves_nothing_to_prove() -> None:
    codes = ReferenceTable(name="codes", landing="codes/*/*.csv", columns=[text("code")], key=["code"])
    told = failure(codes, {"codes/1/1.csv": "code\nNA\n", "codes/2/1.csv": "code\n"})
    assert "allow_empty=False" in told


def test_whole_snapshots_of_a_source_that_goes_back_in_time_are_caught_and_the_order_is_named() -> None:
    """The row came back in an older version, which stands only where its absence was heard in between."""
    deliveries = {
        f"readings/{A}/1.csv": snapshot("a,05,5", "b,01,1"),
        f"readings/{B}/1.csv": snapshot("b,01,1"),
        f"readings/{C}/1.csv": snapshot("a,03,3", "b,01,1"),
    }
    told = failure(readings(complete="whole"), deliveries)
    assert "rows, only in order: {'id': 'a', 'updated': '2024-01-03T00:00:00Z', 'value': 3}" in told
    assert "rows, only this way: {'id': 'a', 'updated': '2024-01-05T00:00:00Z', 'value': 5}" in told
    assert f"each when it arrives, in another order:\n  readings/{A}/1.csv\n  then readings/{C}/1.csv\n" in told


def test_a_log_that_says_two_things_under_one_version_is_caught() -> None:
    log = {f"prices/{A}/1.jsonl": lines(upsert(1, 1, 1)), f"prices/{B}/1.jsonl": lines(upsert(2, 1, 1, item="fig"))}
    assert "another state than the table under the same version" in failure(prices(), log)


def test_a_log_that_repeats_an_old_version_gives_one_verdict_for_every_cut() -> None:
    """The second state of version 1 is stale, in a delivery of its own as beside the first."""
    log = {
        f"prices/{A}/1.jsonl": lines(upsert(1, 1, 1), upsert(2, 2, 1)),
        f"prices/{B}/1.jsonl": lines(upsert(3, 1, 1, item="fig")),
    }
    assert_idempotent(prices(), log, ways=6)


# --------------------------------------------------------------------------- which ways


def rounds(way: Way) -> list[list[str]]:
    return [[p.path for p in group] for group in way.rounds]


def test_few_deliveries_are_tried_in_every_order_and_many_in_a_bounded_number_that_the_seed_draws() -> None:
    pipeline = orders()
    few = placed(pipeline, ORDERS)
    singly = {tuple(p for (p,) in rounds(w)) for w in other_ways(pipeline, few, 50, 0) if len(w.rounds) == 3}
    assert singly == set(itertools.permutations(ORDERS)) - {tuple(ORDERS)}
    many = placed(pipeline, {f"orders/{scope}/{n}.csv": HEADER for scope in DAYS for n in range(4)})
    one, two = other_ways(pipeline, many, 12, 0), other_ways(pipeline, many, 12, 1)
    assert (len(one), len(two)) == (12, 12)
    assert [str(w) for w in one] == [str(w) for w in other_ways(pipeline, many, 12, 0)] != [str(w) for w in two]
    assert len({str(w) for w in one}) == 12
    # Every way but the one that says so lets each delivery arrive.
    every = sorted(p.path for p in many)
    others = [w for w in one if w.title != "only the newest of each partition"]
    assert len(others) == 11
    assert all(sorted(itertools.chain(*rounds(w))) == every for w in others)


def test_snapshots_whose_order_matters_are_loaded_in_order_only() -> None:
    for changes in ({"bounds": "inclusive"}, {"bounds": "strict"}, {"complete": window("updated")}):
        pipeline = readings(**changes)
        found = other_ways(pipeline, placed(pipeline, SNAPSHOTS), 50, 0)
        assert len(found) > 2
        assert {tuple(itertools.chain(*rounds(w))) for w in found} == {tuple(SNAPSHOTS)}
    pipeline = readings(bounds="none")
    assert (
        len({tuple(itertools.chain(*rounds(w))) for w in other_ways(pipeline, placed(pipeline, SNAPSHOTS), 50, 0)}) == 6
    )


def test_a_log_is_cut_anew_at_any_boundary_and_says_some_events_again() -> None:
    pipeline = prices()
    ways = [w for w in other_ways(pipeline, placed(pipeline, LOG), 40, 0) if "of another cut" in w.title]
    assert {len(w.rounds) for w in ways} >= {1, 3, 4, 7}
    for way in ways:
        events = [json.loads(line) for (file,) in way.rounds for line in file.content.splitlines()]
        assert [e["pos"] for e in events] == list(range(1, len(events) + 1))
        originals = [json.loads(e) for e in EVENTS]
        assert events[:7] == originals
        assert all(e | {"pos": 0} in [o | {"pos": 0} for o in originals] for e in events[7:])
        assert ("said again" in way.title) == (len(events) > 7)
    assert any("said again" in w.title for w in ways)


# --------------------------------------------------------------------------- deliveries


def test_a_folder_that_is_laid_out_as_the_landing_gives_the_pipelines_own_deliveries(tmp_path: Path) -> None:
    for path, content in ORDERS.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(str(content))
    (tmp_path / "orders" / "README.md").write_text("no delivery")
    assert [(p.path, p.scope, p.name) for p in placed(orders(), tmp_path)] == [
        (f"orders/{A}/1.csv", A, "1.csv"),
        (f"orders/{A}/2.csv", A, "2.csv"),
        (f"orders/{B}/1.csv", B, "1.csv"),
    ]
    assert_idempotent(orders(), str(tmp_path), ways=1)


def test_control_files_arrive_with_their_deliveries() -> None:
    contract = orders(row_count_file=".count")
    deliveries = {f"orders/{A}/1.csv": day(A, "1,pear,1"), f"orders/{A}/1.csv.count": "1"}
    (delivery,) = placed(contract, deliveries)
    assert delivery.control == (f"orders/{A}/1.csv.count", b"1")
    assert_idempotent(contract, deliveries, ways=1)
    assert "1.csv.count" in failure(contract, deliveries | {f"orders/{A}/1.csv.count": "2"})


@pytest.mark.parametrize(
    "deliveries, words",
    [
        ({}, "no deliveries of orders: nothing fits its pattern 'orders/{partition}/*.csv'"),
        ({"orders/2024-01-01/1.txt": HEADER}, "orders/2024-01-01/1.txt: no delivery of orders"),
        ({"orders/2025-01-01/1.csv": HEADER}, "'2025-01-01' is not among the"),
        ({"orders/2024-01-01/1.csv.part": HEADER}, "its name says that it is being written"),
    ],
)
def test_paths_that_are_no_deliveries_are_an_error_of_the_test(deliveries: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        assert_idempotent(orders(), deliveries)


def test_columns_that_only_some_orders_meet_are_no_difference_where_nothing_fills_them() -> None:
    columns = [integer("id"), text("item"), timestamp("at", timezone="UTC", optional=True)]
    codes = ReferenceTable(name="codes", landing="codes/*/*.csv", columns=columns, key=["id"], new_columns="add")
    deliveries = {"codes/1/1.csv": "id,item,extra\n1,a,x\n", "codes/2/1.csv": "id,item\n1,a\n"}
    assert_idempotent(codes, deliveries, ways=4)
