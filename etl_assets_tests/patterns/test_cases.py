"""The cases that concern every load pattern: retries, revisions, copies, refusals, and the start that moves earlier.

Each test runs for each pattern (see `kinds`); what is particular to one of them is in its own module.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Daily, decimal, integer, quarantine, text, timestamp
from etl_assets.errors import BadEvent, BatchIdentityConflict, InvalidRows, RewrittenLog, Superseded
from etl_assets.staging.extract import rejected_lines
from etl_assets_tests.patterns.kinds import KINDS, ORDERED, SNAPSHOTS, Kind, coded, day
from etl_assets_tests.patterns.logs import done, kept, lines, position, prices
from etl_assets_tests.world import World

every = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
ordered = pytest.mark.parametrize("kind", ORDERED.values(), ids=ORDERED)
snapshots = pytest.mark.parametrize("kind", SNAPSHOTS.values(), ids=SNAPSHOTS)


def arrive(kind: Kind, world: World, *numbers: int) -> None:
    for number in numbers:
        kind.deliver(world, number)
        (outcome,) = world.load(kind.scope(number))
        assert outcome.status == "committed", outcome.message


def states(world: World) -> list[tuple[str, str, int, str]]:
    return [(s.scope, s.name, s.revision, s.state) for s in world.survey().statuses]


# --------------------------------------------------------------------------- what the deliveries add up to


@every
def test_each_delivery_does_what_its_pattern_says(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    for number in range(1, 5):
        arrive(kind, world, number)
        assert world.rows() == kind.rows(number)
        assert world.warehouse.verify(kind.pipeline) == []
    assert [b.batch for b in world.ledger()] == [kind.batch(n) for n in range(1, 5)]


# --------------------------------------------------------------------------- the same delivery again (cases 1 and 3)


@every
def test_the_same_delivery_three_times_is_one_ledger_entry_and_already_committed_twice(
    kind: Kind, tmp_path: Path
) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1, 2)
    before = world.state()
    for _ in range(2):
        (outcome,) = world.load(kind.scope(2))
        assert (outcome.status, outcome.batch) == ("already committed", kind.batch(2))
        assert world.state() == before
    # Read anew, since its stamp is another: the same bytes under a name are the same delivery.
    kind.deliver(world, 2)
    (outcome,) = world.load(kind.scope(2))
    assert (outcome.status, outcome.batch) == ("already committed", kind.batch(2))
    assert kept(world) == {k: v for k, v in before.items() if k in kept(world)}
    assert world.rows() == kind.rows(2)


@every
def test_a_publish_whose_answer_was_lost_is_answered_with_the_first_receipt(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1)
    kind.deliver(world, 2)
    engine = world.engine()
    (staged,) = engine.load([kind.scope(2)], "one", publish=False)
    assert staged.extract is not None
    assert staged.delivery is not None
    claim = engine.sink.claim(world.pipeline, [kind.scope(2)], "one")[kind.scope(2)]
    stage = engine.sink.prepare(world.pipeline, staged.extract, tmp_path)
    publish = (world.pipeline, claim, staged.delivery, staged.extract, stage)
    lost = engine.sink.publish(*publish)
    before = world.state()
    # The same process asks again, and so does the run that takes its place.
    again = engine.sink.publish(*publish)
    (outcome,) = world.load(kind.scope(2), run="successor")
    assert outcome.receipt is not None
    assert (lost.status, again.status, outcome.status) == ("committed", "already committed", "already committed")
    assert lost.batch == again.batch == outcome.receipt.batch == world.ledger()[-1]
    assert world.state() == before
    assert world.rows() == kind.rows(2)


# --------------------------------------------------------------------------- A, B, A under one name (case 13)


@snapshots
def test_snapshots_a_then_b_then_a_under_one_name_are_three_deliveries(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    for number in (1, 2, 1):
        world.deliver(day(1), kind.content(number))
        assert [o.status for o in world.load_pending()] == ["committed"]
    assert [b.batch for b in world.ledger()] == [kind.batch(1, revision) for revision in (1, 2, 3)]
    first, _, third = world.ledger()
    assert (first.digest, first.input_sha256) == (third.digest, third.input_sha256)
    assert states(world) == [(day(1), "1.csv", revision, "committed") for revision in (1, 2, 3)]
    # Rows of the first that changed since are old by their own words; what the third lacks is withdrawn if it is complete.
    again = {r[0]: r for r in kind.rows(1)}
    newer = {r[0]: r for r in kind.rows(2)}
    wanted = again | {k: r for k, r in newer.items() if k in again or kind.name not in ("whole", "window")}
    assert world.rows() == sorted(wanted.values(), key=repr)
    assert world.load_pending() == []
    assert world.warehouse.verify(kind.pipeline) == []


def test_a_log_that_is_rewritten_under_its_name_is_refused_until_it_is_put_back(tmp_path: Path) -> None:
    kind = KINDS["log"]
    world = kind.world(tmp_path)
    arrive(kind, world, 1)
    at = position(world)
    # Other events for the positions that are committed.
    world.deliver(day(1), kind.content(2).replace('"pos": 4', '"pos": 1').replace('"pos": 5', '"pos": 2')
                  .replace('"pos": 6', '"pos": 3'), "1.jsonl")  # fmt: skip
    before = kept(world)
    (outcome,) = world.load_pending()
    assert isinstance(outcome.error, RewrittenLog)
    assert "an overlap" in outcome.message
    assert (kept(world), states(world)[-1]) == (before, (day(1), "1.jsonl", 2, "needs attention"))
    world.deliver(day(1), kind.content(1), "1.jsonl")
    assert [o.counts.source for o in world.load_pending()] == [0]
    assert (position(world), world.load_pending()) == (at, [])
    assert [state[3] for state in states(world)] == ["committed", "refused", "committed"]
    arrive(kind, world, 2)
    assert world.rows() == kind.rows(2)


def test_a_reference_table_a_then_b_then_a_under_one_name_is_three_deliveries(tmp_path: Path) -> None:
    kind = KINDS["reference"]
    world = kind.world(tmp_path)
    for number in (1, 2, 1):
        world.deliver("all", kind.content(number))
        assert [o.status for o in world.load_pending()] == ["committed"]
        assert world.rows() == kind.rows(number)
    assert [b.batch for b in world.ledger()] == [f"codes/all/1.csv#{revision}@1" for revision in (1, 2, 3)]


# --------------------------------------------------------------------------- the same bytes under a new name (case 14)


@every
def test_the_same_bytes_under_a_new_name_change_no_row_and_are_settled_at_once(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1, 2)
    table = "_versions_" + kind.pipeline.table if kind.name in ORDERED else kind.pipeline.table
    before, at = world.state()[table], position(world)
    copy = kind.deliver(world, 2, f"9{kind.suffix}")
    outcome = world.load_pending()[-1]
    assert outcome.status == "committed", outcome.message
    assert (world.state()[table], position(world), world.rows()) == (before, at, kind.rows(2))
    assert (kind.scope(2), copy.name, 1, "committed") in states(world)
    assert world.load_pending() == []


@every
def test_two_identical_files_that_come_at_once_are_both_settled(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    for name in ("1", "2"):
        kind.deliver(world, 1, f"{name}{kind.suffix}")
    while outcomes := world.load_pending():
        assert len(outcomes) <= 2
    found = [state for *_, state in states(world)]
    assert found == (["superseded", "committed"] if kind.replaces else ["committed"] * 2)
    assert world.rows() == kind.rows(1)
    assert world.warehouse.verify(kind.pipeline) == []


# --------------------------------------------------------------------------- refused, bounded, and never lost (case 15)


@every
def test_a_refused_delivery_is_asked_for_once_then_shown_and_its_correction_loads(kind: Kind, tmp_path: Path) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1)
    before = kept(world)
    world.deliver(kind.scope(2), "no such columns\n", kind.file(2))
    attempts = kind.pipeline.attempts
    assert [s.scope for s in world.survey().waiting(attempts)] == [kind.scope(2)]
    outcome = world.load(kind.scope(2))[-1]
    assert (outcome.status, outcome.attempts) == ("refused", 1)
    assert world.survey().waiting(attempts) == []
    (status,) = (s for s in world.survey().statuses if s.state == "needs attention")
    assert (status.scope, status.name) == (kind.scope(2), kind.file(2))
    assert status.reason.startswith("refused once: ")
    assert kept(world) == before
    kind.deliver(world, 2)
    assert [s.state for s in world.survey().waiting(attempts)] == ["arrived"]
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert world.rows() == kind.rows(2)
    assert world.ledger()[-1].batch == kind.batch(2, revision=2)


@ordered
def test_what_comes_after_a_refused_delivery_is_not_lost_whatever_is_done_about_that_one(
    kind: Kind, tmp_path: Path
) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1)
    world.deliver(kind.scope(2), "no such columns\n", kind.file(2))
    kind.deliver(world, 3)
    world.load(kind.scope(2), kind.scope(3))
    kind.deliver(world, 2)
    while [o for o in world.load_pending() if o.status == "committed"]:
        pass
    if kind.name in ("strict", "inclusive"):  # beyond the watermark of the third: it is said, and wider bounds take it
        (left,) = world.survey().waiting()
        assert (left.scope, left.reason.count("Widen the contract's bounds")) == (kind.scope(2), 1)
        assert world.rows() == [r for r in kind.rows(3) if r[0] != "k2"]
        world.pipeline = kind.pipeline.model_copy(update={"bounds": "none"})
        assert [o.status for o in world.load_pending()] == ["committed"]
    # Of complete ones the third says it all, and the second comes too late.
    assert world.rows() == kind.rows(3)
    assert world.survey().waiting() == []
    assert world.warehouse.verify(kind.pipeline) == []


# --------------------------------------------------------------------------- nobody was there for days (case 16)


@ordered
def test_after_eight_days_without_a_run_all_that_arrived_is_loaded_in_order_and_the_gap_is_listed(
    kind: Kind, tmp_path: Path
) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1)
    days = [2, 3, 4, 6, 7, 8]
    for number, where in enumerate(days, 2):
        world.deliver(day(where), kind.content(number), kind.file(number))
    found = world.survey()
    assert [s.scope for s in found.waiting(3)] == [day(n) for n in days]
    assert found.missing == (day(5),)
    assert [o.status for o in world.load_pending()] == ["committed"] * 6
    assert world.rows() == kind.rows(7)
    assert world.survey().waiting() == []
    assert [b.scope for b in world.ledger()] == [day(n) for n in (1, *days)]


# --------------------------------------------------------------------------- the contract goes on (case 20)


@ordered
def test_a_start_that_moves_earlier_keeps_ledger_rows_and_progress_and_an_earlier_day_is_judged_as_any_other(
    kind: Kind, tmp_path: Path
) -> None:
    world = kind.world(tmp_path)
    arrive(kind, world, 1, 2)
    before, ledger = kept(world), world.ledger()
    fields: dict[str, Any] = {name: getattr(kind.pipeline, name) for name in type(kind.pipeline).model_fields}
    world.pipeline = type(kind.pipeline)(**fields | {"partitions": Daily(start="2023-12-01", end="2024-02-01")})  # type: ignore[assignment]
    assert {o.status for o in world.load(day(1), day(2))} == {"already committed"}
    assert kept(world) == before
    assert world.ledger() == ledger
    assert world.survey().waiting() == []
    world.deliver("2023-12-31", kind.content(3), kind.file(3))
    (outcome,) = world.load("2023-12-31")
    if kind.name in ("whole", "window"):
        assert isinstance(outcome.error, Superseded)
        assert kept(world) == before
    else:
        # Positions and changes order what they say; the day is when it arrived.
        assert outcome.status == "committed", outcome.message
        assert world.ledger()[:2] == ledger
        assert world.rows() == kind.rows(3)
    assert world.survey().waiting() == []
    assert world.warehouse.verify(world.pipeline) == []


def test_a_log_whose_contract_reads_the_same_bytes_differently_is_refused_with_advice_that_can_be_followed(
    tmp_path: Path,
) -> None:
    world = KINDS["log"].world(tmp_path)
    arrive(KINDS["log"], world, 1)
    before = kept(world)
    columns = [integer("id"), text("item", missing=("", "pear")), decimal("price", precision=20, scale=4)]
    world.pipeline = prices(columns=columns)  # type: ignore[assignment]
    (outcome,) = world.load(day(1))
    assert isinstance(outcome.error, BatchIdentityConflict)
    assert "the same bytes now give other rows" in outcome.message
    assert outcome.message.endswith("take the change of the contract back, or deliver correcting events")
    assert kept(world) == before
    assert states(world) == [(day(1), "1.jsonl", 1, "committed")]
    # What comes next is read by the contract as it is now.
    arrive(KINDS["log"], world, 2)
    assert world.rows() == [(1, "item 2", "1.0000"), (12, None, "1.0000")]


# --------------------------------------------------------------------------- keys that are none (case 38)

KEY = [integer("id"), coded("code")]
NO_KEYS = [(None, "x", "id is part of the key and has no value"), (1, "", "code is part of the key and is empty")]


def keyed(name: str) -> Any:
    """The pattern's pipeline with a key of two parts."""
    pipeline: Any = KINDS[name].pipeline
    changed = [timestamp("updated", resolution="s")] if name in SNAPSHOTS else []
    fields = {n: getattr(pipeline, n) for n in type(pipeline).model_fields}
    return type(pipeline)(**fields | {"columns": [*KEY, *changed, integer("value")], "key": ["id", "code"]})


def said(name: str, *keys: tuple[int | None, str | None], op: str = "upsert", first: int = 1) -> str:
    """A delivery with a row for each key."""
    if name == "log":
        rows = [{"id": i, "code": c, "value": 1} for i, c in keys]
        return lines(*(json.dumps({"pos": n, "op": op, "version": 1, "row": r}) for n, r in enumerate(rows, first)))
    own = "updated," if name in SNAPSHOTS else ""
    value = "2024-01-02T00:00:00Z," if own else ""
    rows = [f"{'' if i is None else i},{c or ''},{value}1" for i, c in keys]
    return "\n".join([f"id,code,{own}value", *rows]) + "\n"


@pytest.mark.parametrize("name", ["partitioned", "reference", "log", "inclusive", "whole"])
@pytest.mark.parametrize("number, code, reason", NO_KEYS, ids=["null", "empty"])
def test_a_row_without_a_whole_key_is_never_a_row(
    name: str, number: int | None, code: str, reason: str, tmp_path: Path
) -> None:
    world = World(tmp_path, keyed(name))
    table, kind = world.pipeline.name, KINDS[name]
    world.deliver(kind.scope(1), said(name, (1, "a"), (number, code)), kind.file(1), pipeline=table)
    (outcome,) = world.load(kind.scope(1))
    assert isinstance(outcome.error, BadEvent if name == "log" else InvalidRows)
    assert f"line {2 if name == 'log' else 3}" in outcome.message
    assert reason in outcome.message
    assert kept(world).keys() <= {"etl_partition", "etl_schema"}
    if name == "log":
        # The end of a row that has no whole key ends nothing.
        world.deliver(kind.scope(1), said(name, (number, code), op="delete"), kind.file(1))
        (outcome,) = world.load(kind.scope(1))
        assert isinstance(outcome.error, BadEvent)
        assert reason in outcome.message
        return
    world.pipeline = world.pipeline.model_copy(update={"invalid_rows": quarantine(up_to=0.5)})
    world.pipeline.__dict__.pop("code", None)
    (outcome,) = world.load(kind.scope(1))
    assert (outcome.status, outcome.counts.rejected) == ("committed", 1)
    assert world.sql(f"SELECT id, code, value FROM {table}") == [(1, "a", 1)]
    assert outcome.extract is not None
    with rejected_lines(outcome.extract) as lines:
        assert reason in next(lines)


@pytest.mark.parametrize("name", ["partitioned", "reference", "log", "inclusive", "whole"])
def test_a_key_of_two_parts_is_told_apart_by_both(name: str, tmp_path: Path) -> None:
    world = World(tmp_path, keyed(name))
    kind = KINDS[name]
    keys: list[tuple[int | None, str | None]] = [(1, "a"), (1, "b"), (2, "a"), (12, "a"), (1, "2a"), (1, "NA")]
    world.deliver(kind.scope(1), said(name, *keys), kind.file(1), pipeline=world.pipeline.name)
    assert done(world.load(kind.scope(1))) == [("committed", {"inserted": 6})]
    assert sorted(world.sql(f"SELECT id, code FROM {world.pipeline.table}")) == sorted(keys)
