"""Snapshots with a watermark: which rows of them are looked at, which stand, and what an absent key means."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Static, date, decimal, integer, lookback, quarantine, text, timestamp, window
from etl_assets.errors import (
    ContractError,
    EmptyDelivery,
    InvalidRows,
    LedgerMismatch,
    RaggedRow,
    Superseded,
    VersionConflict,
)
from etl_assets.staging.extract import rejected_lines
from etl_assets_tests.patterns.logs import YEAR, A, B, C, D, done, kept, position, readings, refused, snapshot, versions
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import World

DAY_OF = {f"2024-01-{n:02d}T00:00:00Z": n for n in range(1, 32)}


def world_of(root: Path, **changes: Any) -> World:
    return World(root, readings(**changes))


def live(world: World) -> list[tuple[Any, ...]]:
    """Key, day of the last change, and value."""
    return [(k, DAY_OF.get(u, u), v) for k, u, v in world.sql("SELECT id, updated, value FROM readings ORDER BY id")]


def load(world: World, *contents: str) -> list[tuple[str, dict[str, int]]]:
    """Each content as the delivery of a day of its own."""
    outcomes = []
    for scope, content in zip((A, B, C, D), contents, strict=False):
        world.deliver(scope, content)
        outcomes += done(world.load(scope))
    return outcomes


# --------------------------------------------------------------------------- bounds

FIRST = snapshot("a,03,1", "b,03,2", "c,02,3")
#: A row that ties with the watermark, a late new one, a late change, a newer one, and one that is as it was.
SECOND = snapshot("t,03,9", "late,01,8", "c,02,3", "a,04,7", "b,03,2")


@pytest.mark.parametrize(
    "bounds, expected, counts",
    [
        ("strict", "a b c", {"updated": 1, "skipped": 4, "ties": 2, "missed": 2}),
        ("inclusive", "a b c t", {"inserted": 1, "updated": 1, "unchanged": 1, "skipped": 2, "ties": 2, "missed": 1}),
        (
            lookback(hours=24),
            "a b c t",
            {"inserted": 1, "updated": 1, "unchanged": 2, "skipped": 1, "ties": 2, "missed": 1},
        ),
        (lookback(days=2), "a b c late t", {"inserted": 2, "updated": 1, "unchanged": 2, "ties": 2}),
        ("none", "a b c late t", {"inserted": 2, "updated": 1, "unchanged": 2, "ties": 2}),
    ],
    ids=["strict", "inclusive", "a day back", "two days back", "none"],
)
def test_bounds_say_which_ties_and_late_rows_are_taken_and_all_are_counted(
    tmp_path: Path, bounds: Any, expected: str, counts: dict[str, int]
) -> None:
    world = world_of(tmp_path, bounds=bounds)
    assert load(world, FIRST, SECOND) == [("committed", {"inserted": 3}), ("committed", counts)]
    rows = {"a": 7, "b": 2, "c": 3, "t": 9, "late": 8}
    days = {"a": 4, "b": 3, "c": 2, "t": 3, "late": 1}
    assert live(world) == [(key, days[key], rows[key]) for key in expected.split()]
    assert world.warehouse.verify(world.pipeline) == []


def test_a_late_snapshot_does_not_take_the_watermark_back(tmp_path: Path) -> None:
    world = world_of(tmp_path, bounds=lookback(days=5))
    load(world, snapshot("a,09,1"), snapshot("b,05,2"), snapshot("c,03,3", "d,04,4"))
    assert [r[0] for r in live(world)] == ["a", "b", "d"]
    assert position(world) == max(b.upper or 0 for b in world.ledger())
    assert world.warehouse.verify(world.pipeline) == []


def test_a_lookback_of_a_part_of_a_day_takes_the_whole_day_where_watermarks_are_dates(tmp_path: Path) -> None:
    columns = [text("id"), date("updated"), integer("value")]
    world = world_of(tmp_path, columns=columns, bounds=lookback(hours=1))
    load(world, "id,updated,value\na,2024-01-05,1\n", "id,updated,value\nb,2024-01-04,1\nc,2024-01-03,1\n")
    assert [r[0] for r in live(world)] == ["a", "b"]


def test_watermarks_may_be_integers_and_are_compared_as_numbers(tmp_path: Path) -> None:
    world = world_of(tmp_path, columns=[text("id"), integer("updated"), integer("value")])
    load(world, "id,updated,value\na,9,1\nb,10,1\n", "id,updated,value\na,10,2\nb,9,2\nc,9,1\n")
    assert live(world) == [("a", 10, 2), ("b", 10, 1), ("c", 9, 1)]


def test_instants_of_any_offset_and_fraction_are_one_watermark_in_utc_at_one_width(tmp_path: Path) -> None:
    columns = [text("id"), timestamp("updated", resolution="ms", timezone="Europe/Rome"), integer("value")]
    world = world_of(tmp_path, columns=columns, bounds="none")
    header = "id,updated,value\n"
    load(
        world,
        f"{header}a,2024-01-03T08:00:00+08:00,1\nb,2024-01-03T00:00:00.5Z,1\nc,2024-01-03T01:00:00,1\n",
        f"{header}a,2024-01-03T00:00:00Z,1\nb,2024-01-03T00:00:00.250Z,9\nc,2024-01-03T00:00:00.001Z,2\n",
    )
    assert world.sql("SELECT * FROM readings ORDER BY id") == [
        ("a", "2024-01-03T00:00:00.000Z", 1, 1),
        ("b", "2024-01-03T00:00:00.500Z", 1, 1),
        ("c", "2024-01-03T00:00:00.001Z", 2, 2),
    ]


# --------------------------------------------------------------------------- versions


def test_the_newest_row_of_a_key_stands_wherever_it_is_in_the_file(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    load(world, snapshot("a,03,3", "a,02,2", "b,01,1", "a,01,1", "b,04,4"))
    assert live(world) == [("a", 3, 3), ("b", 4, 4)]
    assert [b.counts.source for b in world.ledger()] == [5]


def test_an_older_version_is_stale_where_the_bounds_let_it_in(tmp_path: Path) -> None:
    world = world_of(tmp_path, bounds="none")
    assert load(world, snapshot("a,03,3"), snapshot("a,02,2"))[1] == ("committed", {"stale": 1})
    assert live(world) == [("a", 3, 3)]


def test_an_equal_watermark_with_other_values_is_a_conflict_and_all_of_it_is_rolled_back(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    load(world, snapshot("a,03,3"))
    world.deliver(B, snapshot("a,03,4", "b,05,5"))
    refused(world, VersionConflict, "id='a'", "'value': 3", "'value': 4", "Nothing was changed", scope=B)
    assert live(world) == [("a", 3, 3)]


def test_an_equal_watermark_with_other_values_in_one_file_names_the_lines_of_the_file(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.deliver(A, snapshot("a,01,1", "x,03,3", "b,01,1", "x,03,4"))
    refused(world, VersionConflict, "line 3: {", "line 5: {", "id='x'")


def test_rows_that_repeat_to_the_letter_are_one(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    assert load(world, snapshot("a,03,3", "a,03,3")) == [("committed", {"inserted": 1, "duplicates": 1})]


def test_rows_without_a_watermark_are_quarantined_with_their_line_and_reason(tmp_path: Path) -> None:
    world = world_of(tmp_path, invalid_rows=quarantine(up_to=0.5))
    content = snapshot("a,03,3", "b,,2", ",04,4", "c,02,1")
    assert load(world, content) == [("committed", {"rejected": 2, "inserted": 2})]
    assert [r[0] for r in live(world)] == ["a", "c"]
    (outcome,) = world.load(A)
    assert outcome.extract is not None
    with rejected_lines(outcome.extract) as lines:
        rejects = "".join(lines)
    assert "updated is required and has no value" in rejects
    assert "id is part of the key and" in rejects


def test_rows_without_a_watermark_refuse_the_snapshot_where_nothing_may_be_quarantined(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    world.deliver(A, snapshot("a,03,3", "b,,2"))
    refused(world, InvalidRows, "updated is required and has no value", "line 3")


# --------------------------------------------------------------------------- what absence means


def test_a_key_that_a_partial_snapshot_lacks_is_left_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    assert load(world, snapshot("a,03,3", "b,03,3"), snapshot("a,04,4"))[1] == ("committed", {"updated": 1})
    assert live(world) == [("a", 4, 4), ("b", 3, 3)]


def test_a_key_that_a_whole_snapshot_lacks_is_withdrawn_and_remembered(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    first, second, third = load(world, snapshot("a,03,3", "b,03,3"), snapshot("a,03,3"), snapshot("a,03,3", "c,01,1"))
    assert (first[1], second[1]) == ({"inserted": 2}, {"deleted": 1, "unchanged": 1, "ties": 1})
    assert third[1]["inserted"] == 1
    assert [r[0] for r in live(world)] == ["a", "c"]
    assert versions(world)[1][2] == 1
    assert world.warehouse.verify(world.pipeline) == []


def test_a_whole_snapshot_brings_a_key_back_though_its_watermark_did_not_move(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    *_, back = load(world, snapshot("a,03,3", "b,03,3"), snapshot("a,03,3"), snapshot("a,03,3", "b,03,3"))
    assert back == ("committed", {"restored": 1, "unchanged": 1, "ties": 2})
    assert live(world) == [("a", 3, 3), ("b", 3, 3)]
    assert world.warehouse.verify(world.pipeline) == []


def test_a_key_that_comes_back_with_other_values_under_its_old_watermark_is_a_conflict(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    load(world, snapshot("a,03,3", "b,03,3"), snapshot("a,03,3"))
    world.deliver(C, snapshot("a,03,3", "b,03,4"))
    refused(world, VersionConflict, "id='b'", scope=C)


def test_a_window_withdraws_only_inside_of_its_range(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete=window("value"))
    load(world, snapshot("a,01,10", "b,01,20", "c,01,30", "d,01,40"), snapshot("b,01,20", "d,01,40", "e,01,25"))
    assert [r[0] for r in live(world)] == ["a", "b", "d", "e"]
    assert [v for v in versions(world) if v[2]] == [("c", versions(world)[2][1], 1)]


def test_a_window_that_is_a_single_instant_or_empty_withdraws_nothing_beside_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete=window("value"))
    verdicts = load(world, snapshot("a,01,10", "b,01,20", "c,01,20"), snapshot("b,01,20"), snapshot())
    assert [r[0] for r in live(world)] == ["a", "b"]
    assert verdicts[2] == ("committed", {})


def test_a_snapshot_that_came_too_late_does_not_hold_up_the_later_ones_of_its_day(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    for name, content in (("1.csv", snapshot("a,01,1")), ("3.csv", snapshot("a,01,1", "b,02,2"))):
        world.deliver(A, content, name)
        world.load(A)
    world.deliver(A, snapshot("b,02,2", "z,01,9"), "2.csv")
    world.deliver(A, snapshot("b,02,2", "c,03,3"), "4.csv")
    verdicts = [(o.status, type(o.error).__name__) for o in world.load(A)]
    assert verdicts == [
        ("already committed", "NoneType"),
        ("refused", "Superseded"),
        ("already committed", "NoneType"),
        ("committed", "NoneType"),
    ]
    assert live(world) == [("b", 2, 2), ("c", 3, 3)]
    assert world.survey().waiting() == []
    assert world.warehouse.verify(world.pipeline) == []


def test_an_older_complete_snapshot_after_a_later_one_is_superseded(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    world.deliver(A, snapshot("a,01,1", "b,01,1"))
    world.deliver(B, snapshot("a,02,2"))
    world.load(B)
    refused(world, Superseded, f"readings/{B}/1.csv#1@1, a later one, is committed", scope=A)
    assert live(world) == [("a", 2, 2)]
    assert [(s.scope, s.state) for s in world.survey().statuses] == [(A, "superseded"), (B, "committed")]


def test_partial_snapshots_give_the_same_table_in_any_order_without_bounds(tmp_path: Path) -> None:
    contents = {A: snapshot("a,01,1", "b,05,5"), B: snapshot("a,04,4", "c,02,2"), C: snapshot("b,03,3", "c,06,6")}
    tables = []
    for number, order in enumerate(((A, B, C), (C, B, A), (B, C, A))):
        world = world_of(tmp_path / str(number), bounds="none")
        for scope, content in contents.items():
            world.deliver(scope, content)
        world.load(*order)
        tables.append((live(world), versions(world), position(world)))
    assert tables[0][0] == [("a", 4, 4), ("b", 5, 5), ("c", 6, 6)]
    assert tables[1:] == tables[:1] * 2


def test_a_whole_snapshot_without_a_row_is_refused_where_the_table_has_some(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    load(world, snapshot("a,03,3"))
    world.deliver(B, snapshot())
    refused(world, EmptyDelivery, "has a header and no rows, and 'readings' has 1", scope=B)
    (outcome,) = world.load(B, restate="the register was closed")
    assert (outcome.status, outcome.counts.deleted, live(world)) == ("committed", 1, [])
    world.deliver(C, snapshot("a,01,1"))
    assert done(world.load(C)) == [("committed", {"inserted": 1})]
    assert world.warehouse.verify(world.pipeline) == []


def test_a_whole_snapshot_without_a_row_withdraws_all_where_the_contract_allows_it(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole", allow_empty=True)
    assert load(world, snapshot("a,03,3"), snapshot())[1] == ("committed", {"deleted": 1})
    assert versions(world)[0][2] == 1


def test_a_partial_snapshot_without_a_row_changes_nothing_and_does_not_move_progress(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    load(world, snapshot("a,03,3"))
    before = position(world), live(world)
    world.deliver(B, snapshot())
    assert done(world.load(B)) == [("committed", {})]
    assert (position(world), live(world)) == before


def test_a_quarantined_row_does_not_withdraw_the_key_that_it_may_be(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole", invalid_rows=quarantine(up_to=0.5))
    load(world, snapshot("a,03,3", "b,03,3"), snapshot("a,04,4", "b,04,no"))
    assert live(world) == [("a", 4, 4), ("b", 3, 3)]
    world.deliver(C, snapshot("a,04,4"))
    world.load(C)
    assert [r[0] for r in live(world)] == ["a"]


def test_withdrawing_takes_time_by_the_snapshots_length_and_not_by_its_square(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    rows = [f"k{n:06d},03,{n}" for n in range(40_000)]
    load(world, snapshot(*rows))
    world.deliver(B, snapshot(*rows[1:]))
    began = time.monotonic()
    assert done(world.load(B)) == [("committed", {"deleted": 1, "unchanged": 39_999, "ties": 39_999})]
    assert time.monotonic() - began < 10


# --------------------------------------------------------------------------- replays, restating, evolution


def test_the_same_snapshot_again_is_already_committed_and_a_copy_of_it_changes_no_row(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    load(world, snapshot("a,03,3", "b,02,2"))
    before = world.state()
    assert [o.status for _ in range(2) for o in world.load(A)] == ["already committed"] * 2
    assert world.state() == before
    world.deliver(A, snapshot("a,03,3", "b,02,2"), "2.csv")
    assert done(world.load(A))[1] == ("committed", {"unchanged": 2, "ties": 1})
    assert kept(world)["_versions_readings"] == before["_versions_readings"]


def test_restating_a_partial_snapshot_lets_its_own_rows_stand_and_leaves_the_others_alone(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    load(world, snapshot("a,01,1", "b,01,1"), snapshot("a,05,5", "c,05,5"))
    world.deliver(C, snapshot("a,02,7", "d,01,1"))
    (outcome,) = world.load(C, restate="the change of the fifth was of another plant")
    assert done([outcome]) == [("committed", {"inserted": 1, "updated": 1})]
    assert live(world) == [("a", 2, 7), ("b", 1, 1), ("c", 5, 5), ("d", 1, 1)]
    assert [b.operation for b in world.ledger()] == ["merge", "merge", "amend"]
    assert world.warehouse.verify(world.pipeline) == []
    assert {s.state for s in world.survey().statuses} == {"committed"}
    world.deliver(D, snapshot("a,03,3"))
    assert done(world.load(D)) == [("committed", {"updated": 1})]
    assert world.warehouse.verify(world.pipeline) == []


def test_restating_makes_the_table_that_snapshot_and_begins_the_watermark_anew(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    load(world, snapshot("a,01,1", "b,01,1"), snapshot("a,05,5", "b,01,1", "c,05,5"))
    (outcome,) = world.load(A, restate="the second was of another plant")
    assert done([outcome]) == [("committed", {"deleted": 1, "updated": 1, "unchanged": 1})]
    assert [(o.status, o.batch) for o in world.load(A)] == [("already committed", outcome.batch)]
    assert live(world) == [("a", 1, 1), ("b", 1, 1)]
    assert world.warehouse.verify(world.pipeline) == []
    world.deliver(C, snapshot("a,02,2", "b,01,1"))
    assert done(world.load(C)) == [("committed", {"updated": 1, "unchanged": 1, "ties": 1})]
    assert live(world) == [("a", 2, 2), ("b", 1, 1)]
    assert [b.reason for b in world.ledger()] == [None, None, "the second was of another plant", None]
    assert world.warehouse.verify(world.pipeline) == []


def test_new_columns_are_added_to_table_and_view_and_are_null_in_older_rows(tmp_path: Path) -> None:
    world = world_of(tmp_path, new_columns="add", bounds="none")
    load(
        world,
        snapshot("a,01,1", "b,01,1"),
        snapshot("a,02,2,red", "b,01,1,blue", header="id,updated,value,colour"),
        snapshot("a,02,2", "b,03,3"),
    )
    assert world.sql("SELECT id, value, colour, _batch FROM readings ORDER BY id") == [
        ("a", 2, "red", 2),
        ("b", 3, None, 3),
    ]
    assert [(b.counts.updated, b.counts.unchanged) for b in world.ledger()] == [(0, 0), (1, 1), (1, 1)]


def test_an_optional_column_that_a_snapshot_lacks_contradicts_nothing_and_another_value_does(tmp_path: Path) -> None:
    columns = [*readings().columns, text("colour", optional=True)]
    world = world_of(tmp_path, columns=columns)
    wide = "id,updated,value,colour"
    load(world, snapshot("a,01,1,red", header=wide), snapshot("a,01,1"))
    assert world.sql("SELECT id, colour FROM readings") == [("a", "red")]
    world.deliver(C, snapshot("a,01,1,blue", header=wide))
    refused(world, VersionConflict, "'colour': 'red'", "'colour': 'blue'", scope=C)


def test_what_one_snapshot_says_of_an_optional_column_is_kept_whichever_of_one_version_comes_first(
    tmp_path: Path,
) -> None:
    columns = [*readings().columns, text("colour", optional=True), text("form", optional=True)]
    snapshots = {
        A: snapshot("a,01,1,red", "b,02,2,blue", header="id,updated,value,colour"),
        B: snapshot("a,01,1", "b,01,1"),
        C: snapshot("a,01,1,round", "b,02,2,", header="id,updated,value,form"),
    }
    ends = set()
    for number, order in enumerate(itertools.permutations(snapshots)):
        world = world_of(tmp_path / str(number), columns=columns, bounds="none")
        for scope in order:
            world.deliver(scope, snapshots[scope])
            assert [o.error for o in world.load(scope)] == [None]
        assert world.warehouse.verify(world.pipeline) == []
        ends.add(tuple(world.sql("SELECT id, value, colour, form FROM readings ORDER BY id")))
        counts = [b.counts for b in world.ledger()]
        assert [c.inserted + c.updated + c.unchanged + c.stale for c in counts] == [2, 2, 2]
    assert ends == {(("a", 1, "red", "round"), ("b", 2, "blue", None))}


def test_one_bad_snapshot_of_a_day_keeps_no_later_one_waiting(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    world.deliver(A, snapshot("a,01,1"), "1.csv")
    world.deliver(A, snapshot("a,02,2,x"), "2.csv")
    world.deliver(A, snapshot("a,03,3"), "3.csv")
    assert [type(o.error) for o in world.load(A)] == [type(None), RaggedRow, type(None)]
    assert live(world) == [("a", 3, 3)]
    world.deliver(A, snapshot("a,02,2"), "2.csv")
    assert [type(o.error) for o in world.load(A)] == [type(None), Superseded, type(None)]
    assert live(world) == [("a", 3, 3)]


# --------------------------------------------------------------------------- contracts and truth


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"key": []}, "key: "),
        ({"updated": "nothing"}, "updated: 'nothing' is not a timestamp, date or integer column"),
        ({"updated": "id"}, "updated: 'id' is not"),
        ({"updated": "value", "bounds": lookback(hours=1)}, "bounds: a lookback is for timestamps and dates"),
        ({"complete": "whole", "partitions": Static("x")}, "complete: snapshots are ordered by their time"),
        ({"complete": window("nothing")}, "complete: 'nothing' is not one of the columns"),
        ({"complete": window("id")}, "complete: 'id' is text, and has no range"),
        (
            {"complete": window("d"), "columns": [*readings().columns, decimal("d", precision=9, scale=1)]},
            "complete: 'd' is decimal",
        ),
    ],
)
def test_a_contract_that_does_not_hold_together_is_refused(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(ContractError, match=words):
        readings(**({"partitions": YEAR} | fields))


@pytest.mark.parametrize(
    "statement, words",
    [
        ("DELETE FROM _versions_readings WHERE id = 'a'", "0 live rows, by the ledger 1"),
        ("UPDATE _versions_readings SET _deleted = 0", "2 live rows, by the ledger 1"),
        ("DELETE FROM etl_progress", "position None, by the ledger "),
        ("DROP VIEW readings", "its table cannot be read"),
    ],
)
def test_what_was_changed_around_the_ledger_is_found(tmp_path: Path, statement: str, words: str) -> None:
    world = world_of(tmp_path, complete="whole")
    load(world, snapshot("a,01,1", "b,01,1"), snapshot("a,01,1"))
    assert world.warehouse.verify(world.pipeline) == []
    around(world, statement)
    assert [words in difference for difference in world.warehouse.verify(world.pipeline)] == [True]


# --------------------------------------------------------------------------- around the ledger, and by other names


def test_versions_that_were_dropped_are_noticed_and_restating_makes_rows_and_view_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    load(world, snapshot("a,01,1"))
    around(world, "DROP VIEW readings", "DROP TABLE _versions_readings")
    world.deliver(B, snapshot("a,02,2"))
    (outcome,) = world.load(B)
    assert isinstance(outcome.error, LedgerMismatch)
    assert "the ledger has 1 batches: they were dropped around the ledger" in str(outcome.error)
    (restated,) = world.load(B, restate="the table was dropped by mistake")
    assert restated.status == "committed"
    assert live(world) == [("a", 2, 2)]


def test_after_restating_an_earlier_snapshot_the_ones_between_are_in_order_again(tmp_path: Path) -> None:
    world = world_of(tmp_path, complete="whole")
    world.deliver(A, snapshot("a,01,1"))
    world.load(A)
    world.deliver(C, snapshot("a,03,3"))
    world.load(C)
    world.load(A, restate="the one of the third day was of another plant")
    states = {s.scope: s.state for s in world.survey().statuses}
    assert states == {A: "committed", C: "superseded"}
    world.deliver(B, snapshot("a,02,2"))
    assert {s.scope: s.state for s in world.survey().statuses}[B] == "arrived"
    (outcome,) = world.load(B)
    assert outcome.status == "committed", outcome.message
    assert live(world) == [("a", 2, 2)]


@pytest.mark.parametrize("name", ["same", "goes", "newer", "was_gone", "candidate", "rowid", "theirs"])
@pytest.mark.parametrize("complete", ["no", "whole"])
def test_columns_may_have_the_names_of_our_own_helpers(tmp_path: Path, complete: Any, name: str) -> None:
    columns = [text("id"), timestamp("updated", resolution="s"), integer(name)]
    world = world_of(tmp_path, columns=columns, complete=complete)
    header = f"id,updated,{name}"
    load(world, snapshot("a,01,1", "b,01,1", header=header), snapshot("a,02,2", "b,01,1", header=header))
    assert world.sql(f'SELECT id, "{name}" FROM readings ORDER BY id') == [("a", 2), ("b", 1)]
