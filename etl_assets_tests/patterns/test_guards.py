"""Guards of tables of versions that only show where two rare things meet."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from etl_assets.contract import debezium, decimal, integer, native, quarantine, text, transform
from etl_assets.errors import BadEvent, BatchIdentityConflict, EmptyDelivery, VersionConflict
from etl_assets_tests.patterns.logs import (
    A,
    B,
    delete,
    done,
    kept,
    lines,
    position,
    prices,
    readings,
    refused,
    snapshot,
    upsert,
    versions,
)
from etl_assets_tests.world import World


def test_a_whole_snapshot_of_quarantined_rows_alone_is_no_success(tmp_path: Path) -> None:
    world = World(tmp_path, readings(complete="whole", invalid_rows=quarantine(up_to=1.0)))
    world.deliver(A, snapshot("a,01,1"))
    world.load(A)
    at = position(world)
    world.deliver(B, snapshot("a,02,x", "b,,2"))
    refused(world, EmptyDelivery, "has no valid row: all of its 2 are rejected", scope=B)
    assert [(v[0], v[2]) for v in versions(world)] == [("a", 0)]
    assert position(world) == at
    assert world.warehouse.verify(world.pipeline) == []


def test_an_empty_first_snapshot_that_newer_logic_makes_anew_empties_nothing_and_is_not_refused(tmp_path: Path) -> None:
    def logic(version: int) -> Any:
        return readings(complete="whole", transform=transform(lambda frame: frame, version=version))

    world = World(tmp_path, logic(1))
    world.deliver(A, snapshot())
    world.deliver(B, snapshot("a,02,1"))
    world.load(A, B)
    world.pipeline = logic(2)
    assert done(world.load(A)) == [("committed", {})]
    assert [(v[0], v[2]) for v in versions(world)] == [("a", 0)]


def test_an_event_that_names_a_column_twice_is_refused_by_its_line(tmp_path: Path) -> None:
    columns = [integer("id"), text("item", aliases=("Item",)), decimal("price", precision=20, scale=4)]
    world = World(tmp_path, prices(columns=columns))  # type: ignore[arg-type]
    world.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2, Item="fig")))
    refused(world, BadEvent, "line 2: the row has the column 'item' under more than one of its names")


def test_a_log_whose_versions_are_read_from_elsewhere_is_not_what_was_committed(tmp_path: Path) -> None:
    """The rows are the same to the letter; what a later event is compared with is not."""
    world = World(tmp_path, prices())  # type: ignore[arg-type]
    world.deliver(A, lines(upsert(1, 9, 1), upsert(2, 9, 2)))
    world.load(A)
    before = kept(world)
    world.pipeline = prices(events=native(version=None))  # type: ignore[assignment]
    (outcome,) = world.load(A)
    assert isinstance(outcome.error, BatchIdentityConflict)
    assert kept(world) == before


def test_two_ends_of_a_row_are_one_though_they_remember_different_things_of_it(tmp_path: Path) -> None:
    world = World(tmp_path, prices(events=debezium()))  # type: ignore[arg-type]
    whole, key_only = {"id": 1, "item": "pear", "price": "1"}, {"id": 1}
    events = [{"op": "c", "after": whole}, {"op": "d", "before": whole}, {"op": "d", "before": key_only}]
    versioned = zip(events, (1, 2, 2), strict=True)
    for pos, (event, version) in enumerate(versioned, 1):
        world.deliver(A, json.dumps({"pos": pos, "version": version, **event}) + "\n", f"{pos}.jsonl")
    assert done(world.load(A))[-1] == ("committed", {"unchanged": 1})
    assert versions(world) == [(1, 2, 1)]


def test_a_newer_row_that_lacks_an_added_column_has_no_value_there_and_does_not_keep_the_older_ones(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, readings(new_columns="add"))  # type: ignore[arg-type]
    world.deliver(A, snapshot("a,01,1,red", "b,01,1,blue", header="id,updated,value,colour"))
    world.deliver(B, snapshot("a,02,2"))
    assert done(world.load(A, B))[1] == ("committed", {"updated": 1})
    assert world.sql("SELECT id, value, colour FROM readings ORDER BY id") == [("a", 2, None), ("b", 1, "blue")]


def test_what_is_said_twice_within_a_delivery_is_said_once_with_missing_values_and_ends_too(tmp_path: Path) -> None:
    world = World(tmp_path, prices(events=debezium()))  # type: ignore[arg-type]
    blank, whole = {"id": 1, "item": None, "price": None}, {"id": 2, "item": "fig", "price": "1"}
    events = [
        {"version": 1, "op": "c", "after": blank},
        {"version": 1, "op": "u", "after": blank},
        {"version": 2, "op": "d", "before": whole},
        {"version": 2, "op": "d", "before": {"id": 2}},
    ]
    world.deliver(A, lines(*(json.dumps({"pos": pos, **event}) for pos, event in enumerate(events, 1))))
    assert done(world.load(A)) == [("committed", {"inserted": 1})]
    assert world.rows() == [(1, None, None)]
    assert versions(world) == [(1, 1, 0), (2, 2, 1)]


def test_a_row_and_its_end_under_one_version_in_one_delivery_are_a_conflict(tmp_path: Path) -> None:
    world = World(tmp_path, prices())  # type: ignore[arg-type]
    world.deliver(A, lines(upsert(1, 1, 1), delete(2, 1, 1)))
    refused(world, VersionConflict, "id=1, version 1", "line 1: {", "line 2: deleted")


def test_a_delivery_that_was_refused_and_is_committed_by_a_mended_contract_is_no_longer_a_refused_one(
    tmp_path: Path,
) -> None:
    world = World(tmp_path, readings())  # type: ignore[arg-type]
    world.deliver(A, snapshot("a,01,1", "b,,2"))
    assert world.load(A)[0].attempts == 1
    assert [r.refusal is None for r in world.warehouse.deliveries("readings")] == [False]
    world.pipeline = readings(invalid_rows=quarantine(up_to=0.5))  # type: ignore[assignment]
    assert [o.status for o in world.load(A)] == ["committed"]
    assert [r.refusal for r in world.warehouse.deliveries("readings")] == [None]
    assert world.sql("SELECT refused_kind, refused_reason, attempts FROM etl_delivery") == [(None, None, 0)]
