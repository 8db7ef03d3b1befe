"""What only a person can decide about a log: that it began again, or that positions will never come."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Daily, Sharded
from etl_assets.errors import RewrittenLog, StaleWriter, Superseded, UnclearDecision, UnexpectedCursor
from etl_assets.loading import Outcome
from etl_assets.model import Restatement
from etl_assets_tests.patterns.logs import A, B, C, D, kept, lines, position, prices, refused, upsert
from etl_assets_tests.world import World, orders

OLD = [upsert(n, n, 1, f"old {n}") for n in range(1, 6)]
NEW = [upsert(n, n, 2, f"new {n}") for n in range(1, 10)]


@pytest.fixture
def log(tmp_path: Path) -> World:
    """Five events of a log are committed, and a source that was made again begins with position 1 on another day."""
    log = World(tmp_path, prices())
    log.deliver(A, lines(*OLD), "old.jsonl")
    log.load(A)
    log.deliver(B, lines(*NEW[:2]), "1.jsonl")
    return log


def live(world: World) -> list[tuple[Any, ...]]:
    return world.sql("SELECT id, item FROM prices ORDER BY id")


def skip(world: World, scope: str, delivery: str | None = None, reason: str = "lost at the source") -> list[Outcome]:
    decision = Restatement(reason, f"skip {scope}", skip_gap=True)
    return list(world.engine().load([scope], f"run {scope} {delivery}", decision, delivery))


def shown(world: World) -> dict[str, str]:
    return {f"{s.scope}/{s.name}": s.state for s in world.survey().statuses}


def test_a_source_that_begins_again_is_never_consumed_by_itself(log: World) -> None:
    log.deliver(C, lines(*NEW[2:5]), "2.jsonl")
    log.deliver(D, lines(*NEW[5:]), "3.jsonl")  # begins where the old log ended
    before = kept(log)
    for _ in range(4):
        assert {o.status for o in log.load_pending()} == {"refused"}
    assert kept(log) == before
    assert shown(log) == {
        f"{A}/old.jsonl": "committed",
        f"{B}/1.jsonl": "needs attention",
        f"{C}/2.jsonl": "needs attention",
        f"{D}/3.jsonl": "staged",
    }
    assert log.survey().statuses[-1].waits


@pytest.mark.parametrize("size", [1, 2, 100])
def test_a_log_begins_again_with_a_delivery_by_a_persons_decision(log: World, size: int) -> None:
    log.pipeline = prices(batch_events=size)
    log.deliver(C, lines(*NEW[2:5]), "2.jsonl")
    log.deliver(D, lines(*NEW[5:]), "3.jsonl")
    log.load_pending()
    outcomes = log.load(B, restate="the source was made again")
    assert ({o.status for o in outcomes}, live(log), position(log)) == ({"committed"}, [(2, "new 2")], 2)
    first = log.ledger(B)[0]
    assert (first.operation, first.reason, first.batch.split("#")[1].split(":")[0], first.counts.deleted) == (
        *("restate", "the source was made again", "1@1+1"),
        1,
    )
    assert log.warehouse.verify(log.pipeline) == []
    assert log.survey().statuses[0].state == "superseded"
    assert {o.status for o in log.load_pending()} == {"committed"}
    assert (live(log), position(log)) == ([(2, "new 9")], 9)
    assert sum(b.counts.source for b in log.ledger() if b.id >= first.id) == 9
    before = log.state()
    assert {o.status for o in log.load(A, B, C, D)} == {"already committed"}
    assert (log.state(), log.survey().waiting(), log.warehouse.verify(log.pipeline)) == (before, [], [])


def test_old_versions_do_not_block_new_ones(log: World) -> None:
    log.deliver(B, lines(upsert(1, 1, 1, "again")), "1.jsonl")
    log.load(B, restate="made again")
    assert live(log) == [(1, "again")]


def test_what_was_committed_before_stays_superseded_even_by_name(log: World) -> None:
    log.load(B, restate="made again")
    before = kept(log)
    (outcome,) = log.load(A, delivery="old.jsonl")
    assert (outcome.status, outcome.receipt and outcome.receipt.superseded_by) == (
        "already committed",
        log.ledger(B)[0].batch,
    )
    shutil.rmtree(log.root / "staged")
    assert log.load(A, delivery="old.jsonl")[0].status == "already committed"
    assert kept(log) == before


def test_what_came_before_and_was_never_committed_waits_to_be_named(log: World) -> None:
    log.deliver(A, lines(*NEW[2:5]), "waits.jsonl")
    log.deliver(A, lines(*NEW[5:7]), "waits too.jsonl")
    log.load(A)
    log.load(B, restate="made again")
    before = kept(log)
    assert {type(o.error) for o in log.load_pending() if o.error} == {UnexpectedCursor}
    assert kept(log) == before
    assert shown(log)[f"{A}/waits.jsonl"] == "needs attention"
    assert log.survey().waiting(attempts=3) == []
    assert [o.status for o in log.load(A, delivery="waits.jsonl")] == ["committed"]
    assert position(log) == 5
    assert log.warehouse.verify(log.pipeline) == []


def test_a_log_may_begin_again_twice_and_with_what_it_began_with_first(log: World) -> None:
    log.load(B, restate="made again")
    log.load(A, restate="no, it was not", delivery="old.jsonl")
    assert (live(log), position(log)) == ([(1, "old 5")], 5)
    assert shown(log) == {f"{A}/old.jsonl": "committed", f"{B}/1.jsonl": "superseded"}
    log.load(B, restate="yes, it was")
    assert (live(log), position(log), [b.ordinal for b in log.ledger()]) == ([(2, "new 2")], 2, [0, 1, 1, 2])
    assert log.warehouse.verify(log.pipeline) == []


def test_a_new_snapshot_begins_anywhere(log: World) -> None:
    log.deliver(C, lines(upsert(41, 7, 3, "all"), upsert(42, 8, 4, "of it")), "snapshot.jsonl")
    assert log.load(C)[-1].status == "refused"
    log.load(C, restate="a new snapshot")
    assert (live(log), position(log)) == ([(3, "all"), (4, "of it")], 42)
    log.deliver(D, lines(upsert(43, 9, 3, "next")), "1.jsonl")
    assert [o.status for o in log.load_pending() if o.scope == D] == ["committed"]
    assert log.warehouse.verify(log.pipeline) == []


def test_the_same_decision_is_carried_out_once_and_finished_if_it_was_cut_off(log: World) -> None:
    log.pipeline = prices(batch_events=1)
    decision = Restatement("made again", "one decision")
    coming = log.engine().load([B], "cut off", decision)
    assert next(coming).status == "committed"
    coming.close()  # type: ignore[attr-defined]
    assert log.survey().statuses[-1].state == "staged"
    for run in ("again", "and again"):
        outcomes = list(log.engine().load([B], run, decision))
        assert {o.status for o in outcomes} <= {"committed", "already committed"}
    assert [(b.operation, b.lower, b.upper) for b in log.ledger(B)] == [("restate", 0, 1), ("consume", 1, 2)]
    assert (live(log), log.warehouse.verify(log.pipeline)) == ([(2, "new 2")], [])


def test_a_plain_run_finishes_what_a_decision_began(log: World) -> None:
    log.pipeline = prices(batch_events=1)
    coming = log.engine().load([B], "cut off", Restatement("made again", "one decision"))
    next(coming)
    coming.close()  # type: ignore[attr-defined]
    log.load_pending()
    assert (live(log), position(log), log.survey().waiting()) == ([(2, "new 2")], 2, [])
    assert log.warehouse.verify(log.pipeline) == []


def test_a_run_that_read_of_the_old_log_cannot_write_to_the_new_one(log: World) -> None:
    log.deliver(C, lines(*NEW[2:4]), "1.jsonl")
    log.pipeline = prices(batch_events=1)
    paused = log.engine().load([A, C], "paused")
    assert next(paused).status == "already committed"
    log.engine().sink.claim(log.pipeline, [C], "paused")
    log.load(B, restate="made again")
    assert [type(o.error) for o in paused] == [StaleWriter]
    assert position(log) == 2


def test_a_decision_names_one_delivery(log: World, tmp_path: Path) -> None:
    log.deliver(B, lines(*NEW[2:5]), "2.jsonl")
    for load in (lambda: log.load(B, restate="which?"), lambda: log.load(A, B, restate="which?")):
        with pytest.raises(UnclearDecision, match="name the partition and the delivery"):
            load()
    other = World(tmp_path / "orders", orders())
    with pytest.raises(UnclearDecision, match="no change log"):
        skip(other, A)


# --------------------------------------------------------------------------- a gap that never fills


@pytest.mark.parametrize("size", [1, 100])
def test_positions_that_never_come_are_given_up_with_a_reason(tmp_path: Path, size: int) -> None:
    log = World(tmp_path, prices(batch_events=size))
    log.deliver(A, lines(*OLD[:2]))
    log.load(A)
    log.deliver(C, lines(upsert(7, 7, 1, "after"), upsert(8, 8, 1, "the gap")))
    refused(log, UnexpectedCursor, "positions 3 to 6 are missing: a gap", "--skip-gap", "--restate", scope=C)
    assert {o.status for o in skip(log, C)} == {"committed"}
    first = log.ledger(C)[0]
    assert (first.operation, first.reason, first.lower) == ("skip", "lost at the source", 6)
    assert (live(log), position(log), log.survey().waiting()) == ([(1, "the gap")], 8, [])
    assert log.warehouse.verify(log.pipeline) == []
    before = log.state()
    assert {o.status for o in [*skip(log, C), *log.load(A, C)]} == {"already committed"}
    assert log.state() == before
    log.deliver(B, lines(*OLD[2:4]))
    refused(log, Superseded, "positions 3 to 4", "were given up", "lost at the source", scope=B)
    status = next(s for s in log.survey().statuses if s.scope == B)
    assert (status.state, "lost at the source" in status.reason) == ("superseded", True)
    log.deliver(
        D, lines(*OLD[:5], upsert(6, 6, 1), upsert(7, 7, 1, "after"), upsert(8, 8, 1, "the gap"), upsert(9, 9, 1))
    )
    assert [o.status for o in log.load(D)] == ["committed"]
    assert (position(log), log.warehouse.verify(log.pipeline)) == (9, [])


def test_a_decision_about_a_gap_that_is_filled_by_now_gives_nothing_up(log: World) -> None:
    log.deliver(C, lines(upsert(6, 6, 1, "next")), "2.jsonl")
    assert [o.status for o in skip(log, C)] == ["committed"]
    assert [b.operation for b in log.ledger()] == ["consume", "consume"]


def test_a_decision_about_a_gap_does_not_pass_over_a_dispute(log: World) -> None:
    log.load(B)
    log.deliver(C, lines(upsert(9, 9, 1)), "2.jsonl")
    assert isinstance(log.load(B)[-1].error, RewrittenLog)
    assert "waits for a decision" in str(skip(log, C)[-1].error)


# --------------------------------------------------------------------------- shards


def test_a_shard_begins_again_by_itself(tmp_path: Path) -> None:
    days = Sharded(Daily(start="2024-01-01", end="2024-02-01"), "eu", "us")
    log = World(tmp_path, prices(partitions=days, landing="prices/{partition}/{shard}/*"))
    for shard, key in (("eu", 1), ("us", 2)):
        log.bench.put(f"prices/{A}/{shard}/1.jsonl", lines(upsert(1, 1, key, shard), upsert(2, 2, key, shard)))
        log.load(f"{A}|{shard}")
    log.bench.put(f"prices/{B}/eu/1.jsonl", lines(upsert(1, 1, 3, "eu again")))
    assert log.load(f"{B}|eu")[0].status == "refused"
    assert [o.status for o in log.load(f"{B}|eu", restate="eu was made again")] == ["committed"]
    assert live(log) == [(2, "us"), (3, "eu again")]
    assert dict(log.sql("SELECT shard, position FROM etl_progress")) == {"eu": 1, "us": 2}
    assert log.warehouse.verify(log.pipeline) == []
    log.bench.put(f"prices/{B}/us/1.jsonl", lines(upsert(3, 3, 2, "us goes on")))
    assert [o.status for o in log.load(f"{B}|us")] == ["committed"]
    assert {s.state for s in log.survey().statuses} == {"superseded", "committed"}
