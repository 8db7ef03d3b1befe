"""Which delivery a run takes, and what becomes of it: order, revisions, restating, identity, and size."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from etl_assets.contract import Daily, integer, text, transform
from etl_assets.errors import (
    BatchIdentityConflict,
    MissingDelivery,
    RewrittenDelivery,
    ShrunkDelivery,
    StillArriving,
    Superseded,
    UnknownScope,
)
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[0], DAYS[1]


def content(*rows: str) -> str:
    return "\n".join(["id,day,item,amount", *rows]) + "\n"


PEAR, FIG, NUT = f"1,{DAY},pear,3", f"2,{DAY},fig,5", f"3,{DAY},nut,1"
AS_PEAR, AS_FIG, AS_NUT = (3, DAY, 1, "pear"), (5, DAY, 2, "fig"), (1, DAY, 3, "nut")


def statuses(world: World) -> list[tuple[str, int, str]]:
    return [(s.name, s.revision, s.state) for s in world.survey().statuses]


def test_a_then_b_then_a_under_one_name_are_three_deliveries_and_the_third_is_published(world: World) -> None:
    for rows in ([PEAR], [FIG], [PEAR]):
        world.deliver(DAY, content(*rows))
        (outcome,) = world.load_pending()
        assert outcome.status == "committed"
    assert world.rows() == [AS_PEAR]
    assert [b.batch for b in world.ledger()] == [f"orders/{DAY}/1.csv#{n}@1" for n in (1, 2, 3)]
    first, _, third = world.ledger()
    assert (first.digest, first.input_sha256) == (third.digest, third.input_sha256)
    assert world.load_pending() == []


def test_the_same_bytes_written_anew_are_the_same_delivery(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    (world.landing / "orders" / DAY / "1.csv").unlink()
    world.deliver(DAY, content(PEAR))
    assert statuses(world) == [("1.csv", 1, "committed")]
    (outcome,) = world.load(DAY)
    assert outcome.status == "already committed"
    assert len(world.ledger()) == 1


def test_the_same_bytes_under_a_new_name_are_a_new_delivery_that_changes_no_row(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    rows = world.sql("SELECT * FROM orders")
    world.deliver(DAY, content(PEAR), "2.csv")
    (outcome,) = world.load_pending()
    assert (outcome.status, outcome.counts.unchanged) == ("committed", 1)
    assert world.sql("SELECT * FROM orders") == rows
    assert statuses(world) == [("1.csv", 1, "superseded"), ("2.csv", 1, "committed")]


def test_of_two_files_that_came_at_once_the_newest_by_name_is_taken_and_numbers_count_as_numbers(world: World) -> None:
    world.deliver(DAY, content(PEAR), "10.csv")
    world.deliver(DAY, content(PEAR, FIG), "9.csv")
    (outcome,) = world.load_pending()
    assert outcome.batch == f"orders/{DAY}/10.csv#1@1"
    assert world.rows() == [AS_PEAR]
    assert statuses(world) == [("9.csv", 1, "superseded"), ("10.csv", 1, "committed")]
    assert world.load_pending() == []


def test_an_older_delivery_is_superseded_and_restating_it_is_recorded_with_its_reason(world: World) -> None:
    world.deliver(DAY, content(PEAR), "1.csv")
    world.deliver(DAY, content(PEAR, FIG), "2.csv")
    world.load(DAY)
    before = world.rows()
    (old,) = world.load(DAY, delivery="1.csv")
    assert isinstance(old.error, Superseded)
    assert f"orders/{DAY}/2.csv#1@1 is committed" in str(old.error)
    assert "delivery 2.csv#1 is newer" in str(old.error)
    assert world.rows() == before
    (restated,) = world.load(DAY, delivery="1.csv", restate="2.csv was withdrawn")
    assert restated.status == "committed"
    assert restated.batch == f"orders/{DAY}/1.csv#1@1+1"
    assert world.rows() == [AS_PEAR]
    assert [(b.operation, b.reason, b.supersedes) for b in world.ledger()] == [
        ("replace", None, None),
        ("restate", "2.csv was withdrawn", f"orders/{DAY}/2.csv#1@1"),
    ]
    # A plain run does not bring the withdrawn one back, and says what stands in its place.
    state = world.state()
    (plain,) = world.load(DAY)
    assert plain.message == f"already committed; superseded by orders/{DAY}/1.csv#1@1+1"
    assert world.load_pending() == []
    assert world.state() == state
    assert statuses(world) == [("1.csv", 1, "committed"), ("2.csv", 1, "superseded")]
    # A newer delivery goes on from there.
    world.deliver(DAY, content(NUT), "3.csv")
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert world.rows() == [AS_NUT]


def test_restating_twice_is_two_operations(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    for reason in ("once", "twice"):
        world.load(DAY, restate=reason)
    assert [(b.ordinal, b.reason) for b in world.ledger()] == [(0, None), (1, "once"), (2, "twice")]
    assert world.rows() == [AS_PEAR]


def test_a_superseded_batch_that_was_committed_says_what_superseded_it(world: World) -> None:
    world.deliver(DAY, content(PEAR), "1.csv")
    world.load(DAY)
    world.deliver(DAY, content(FIG), "2.csv")
    world.load(DAY)
    (outcome,) = world.load(DAY, delivery="1.csv")
    assert outcome.message == f"already committed; superseded by orders/{DAY}/2.csv#1@1"
    assert outcome.receipt is not None
    assert outcome.receipt.batch == world.ledger()[0]
    assert world.rows() == [AS_FIG]


def test_an_earlier_revision_is_restated_from_the_bytes_that_its_extract_keeps(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    world.deliver(DAY, content(FIG))
    world.load(DAY)
    (outcome,) = world.load(DAY, delivery="1.csv#1", restate="the first was right")
    assert outcome.status == "committed"
    assert world.rows() == [AS_PEAR]
    (never,) = world.load(DAY, delivery="1.csv#7")
    assert isinstance(never.error, MissingDelivery)
    assert "revision 7 of '1.csv' was never read" in str(never.error)
    (unknown,) = world.load(DAY, delivery="8.csv")
    assert "no delivery is named '8.csv'; there are 1.csv" in str(unknown.error)
    assert world.rows() == [AS_PEAR]


def test_rewritten_names_are_refused_where_the_contract_says_so(world: World) -> None:
    strict = orders(redelivery="strict")
    world.deliver(DAY, content(PEAR))
    world.load(DAY, pipeline=strict)
    world.deliver(DAY, content(FIG))
    (outcome,) = world.load(DAY, pipeline=strict)
    assert isinstance(outcome.error, RewrittenDelivery)
    assert world.rows() == [AS_PEAR]


# --------------------------------------------------------------------------- missing, empty, arriving


def test_missing_arriving_empty_and_unknown_are_four_answers_and_only_the_empty_one_changes_rows(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    before = world.state()
    (missing,) = world.load(NEXT)
    assert isinstance(missing.error, MissingDelivery)
    assert f"searched {world.landing}/orders/{NEXT}/*.csv, 0 files matched" in str(missing.error)
    world.deliver(NEXT, content(PEAR), "1.csv.part")
    (arriving,) = world.load(NEXT)
    assert isinstance(arriving.error, StillArriving)
    with pytest.raises(UnknownScope, match="has no partition '2025-01-01'"):
        world.load("2025-01-01")
    assert {k: v for k, v in world.state().items() if k != "etl_writer"} == {
        k: v for k, v in before.items() if k != "etl_writer"
    }
    world.deliver(DAY, content(), "2.csv")
    (empty,) = world.load(DAY)
    assert (empty.status, empty.counts.deleted) == ("committed", 1)
    assert world.rows() == []
    assert world.warehouse.rows("orders") == {DAY: 0}
    assert world.warehouse.verify(world.pipeline) == []


# --------------------------------------------------------------------------- size


def refused(world: World, pipeline: Any, *words: str) -> None:
    before, ledger = world.rows(), world.ledger()
    (outcome,) = world.load(DAY, pipeline=pipeline)
    assert isinstance(outcome.error, ShrunkDelivery)
    for word in words:
        assert word in str(outcome.error)
    assert world.rows() == before
    assert world.ledger() == ledger


def test_a_delivery_that_shrinks_beyond_the_limit_is_refused_until_it_is_restated(world: World) -> None:
    limited = orders(shrink_limit=0.4)
    world.deliver(DAY, content(PEAR, FIG, NUT))
    world.load(DAY, pipeline=limited)
    world.deliver(DAY, content(PEAR), "2.csv")
    refused(world, limited, "1 rows where", "had 3", "66.7% fewer", "allows 40.0%")
    world.deliver(DAY, content(), "3.csv")
    refused(world, limited, "100.0% fewer")
    world.deliver(DAY, content(PEAR, FIG), "4.csv")
    (within,) = world.load(DAY, pipeline=limited)
    assert within.status == "committed"
    (restated,) = world.load(DAY, pipeline=limited, delivery="2.csv", restate="the shop was closed")
    assert restated.status == "committed"
    assert world.rows() == [AS_PEAR]


def test_a_delivery_with_fewer_rows_than_the_minimum_is_refused(world: World) -> None:
    at_least = orders(min_rows=2)
    world.deliver(DAY, content(PEAR, FIG))
    assert world.load(DAY, pipeline=at_least)[0].status == "committed"
    world.deliver(DAY, content(PEAR), "2.csv")
    refused(world, at_least, "1 rows", "at least 2")


def test_a_delivery_that_differs_from_its_control_file_is_refused_and_without_one_it_is_still_arriving(
    world: World,
) -> None:
    counted = orders(row_count_file=".count")
    world.deliver(DAY, content(PEAR, FIG))
    (arriving,) = world.load(DAY, pipeline=counted)
    assert isinstance(arriving.error, StillArriving)
    world.deliver(DAY, "2\n", "1.csv.count")
    assert world.load(DAY, pipeline=counted)[0].status == "committed"
    world.deliver(DAY, content(PEAR), "2.csv")
    world.deliver(DAY, "2", "2.csv.count")
    refused(world, counted, "1 rows", "declares 2")
    world.deliver(DAY, content(PEAR), "3.csv")
    world.deliver(DAY, "many", "3.csv.count")
    refused(world, counted, "'many' is not a count of rows")


# --------------------------------------------------------------------------- contract and logic


def times(factor: int, version: int) -> Any:
    def multiply(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.assign(amount=frame["amount"] * factor)

    return orders(transform=transform(multiply, version=version), attempts=3 + factor)


def test_other_logic_under_an_old_label_is_found_by_what_it_gives(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    assert world.load(DAY, pipeline=times(2, 1))[0].status == "committed"
    before, ledger = world.rows(), world.ledger()
    changed = times(5, 1)
    # The module that declares a transform stands for its logic; this one was edited.
    edited = world.root / "edited.py"
    edited.write_text("# the same module, with another line in it\n")
    changed = changed.model_copy(update={"source_file": str(edited)})
    changed.__dict__.pop("code", None)
    (outcome,) = world.load(DAY, pipeline=changed)
    assert isinstance(outcome.error, BatchIdentityConflict)
    assert "the same bytes now give other rows" in str(outcome.error)
    assert "Raise the transform's version" in str(outcome.error)
    assert (world.rows(), world.ledger()) == (before, ledger)
    edited.write_text("# a comment that changes no row\n")
    harmless = times(2, 1).model_copy(update={"source_file": str(edited)})
    harmless.__dict__.pop("code", None)
    assert world.load(DAY, pipeline=harmless)[0].status == "already committed"
    assert (world.rows(), world.ledger()) == (before, ledger)


def test_a_raised_version_publishes_each_partition_once_more_and_older_logic_is_superseded(world: World) -> None:
    scopes = DAYS
    for number, scope in enumerate(scopes):
        world.deliver(scope, content(f"{number},{scope},pear,3"))
    old, new = times(2, 1), times(5, 2)
    world.load(*scopes, pipeline=old)
    first = world.ledger()
    told = [s.reason for s in world.survey(new).statuses]
    assert all("by transform version 1, the contract has 2" in reason for reason in told)
    assert [o.status for o in world.load(*scopes, pipeline=new)] == ["committed"] * 3
    assert [r[0] for r in world.rows()] == [15, 15, 15]
    state = world.state()
    assert [o.status for o in world.load(*scopes, pipeline=new)] == ["already committed"] * 3
    assert world.state() == state
    assert world.ledger()[:3] == first
    assert [b.transform_version for b in world.ledger()] == [1, 1, 1, 2, 2, 2]
    assert not any("by transform version" in s.reason for s in world.survey(new).statuses)
    world.deliver(DAY, content(f"0,{DAY},pear,4"), "2.csv")
    (outcome,) = world.load(DAY, pipeline=old)  # a worker that was not updated yet
    assert isinstance(outcome.error, Superseded)
    assert "transform version 2 is newer" in str(outcome.error)
    assert [r[0] for r in world.rows()] == [15, 15, 15]


def test_a_start_that_moves_earlier_keeps_the_ledger_and_lists_what_is_missing(world: World) -> None:
    world.deliver(DAYS[1], content(f"1,{DAYS[1]},pear,3"))
    world.load(DAYS[1])
    before, rows = world.ledger(), world.rows()
    earlier = orders(partitions=Daily(start="2023-12-30", end="2024-02-01"))
    assert world.load(DAYS[1], pipeline=earlier)[0].status == "already committed"
    assert (world.ledger(), world.rows()) == (before, rows)
    world.deliver("2023-12-30", content("7,2023-12-30,oak,1"))
    found = world.survey(earlier)
    assert [(s.scope, s.state) for s in found.statuses] == [("2023-12-30", "arrived"), (DAYS[1], "committed")]
    assert found.missing == ("2023-12-31", "2024-01-01")
    assert [o.status for o in world.load_pending(earlier)] == ["committed"]
    assert world.ledger(DAYS[1])[0].batch == f"orders/{DAYS[1]}/1.csv#1@1"


def test_a_new_optional_column_in_the_contract_leaves_old_partitions_committed(world: World) -> None:
    world.deliver(DAY, content(PEAR))
    world.load(DAY)
    columns = [*world.pipeline.columns, integer("weight", optional=True), text("colour", optional=True)]
    wider = orders(columns=columns)
    before = {k: v for k, v in world.state().items() if k != "etl_writer"}
    (outcome,) = world.load(DAY, pipeline=wider)
    assert outcome.status == "already committed"
    now = world.state()
    now.pop("etl_writer")
    assert {k: v for k, v in now.items() if k != "etl_delivery"} == {
        k: v for k, v in before.items() if k != "etl_delivery"
    }
    world.deliver(DAY, f"id,day,item,amount,weight\n1,{DAY},pear,3,9\n", "2.csv")
    assert world.load(DAY, pipeline=wider)[0].status == "committed"
    assert world.sql("SELECT weight, colour FROM orders") == [(9, None)]
