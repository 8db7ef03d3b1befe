"""A log in shards: each has positions of its own, and a gap in one holds up no other (case 37)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import Daily, PartitionedTable, Sharded, integer, native
from etl_assets.errors import ContractError, UnexpectedCursor, UnknownScope, VersionConflict
from etl_assets_tests.patterns.logs import YEAR, A, B, C, delete, done, kept, lines, prices, upsert, versions
from etl_assets_tests.sink.test_tables import around
from etl_assets_tests.world import World

EU, US = "eu", "us"
A_EU, A_US, B_EU, B_US, C_EU, C_US = (f"{day}|{shard}" for day in (A, B, C) for shard in (EU, US))


def sharded(**changes: Any) -> Any:
    fields = {"partitions": Sharded(YEAR, EU, US), "landing": "prices/{partition}/{shard}/*.jsonl"}
    return prices(**(fields | changes))


@pytest.fixture
def log(tmp_path: Path) -> World:
    return World(tmp_path, sharded())


def deliver(log: World, scope: str, *events: str, name: str = "1.jsonl") -> None:
    log.deliver(scope.replace("|", "/"), lines(*events), name)


def progress(log: World) -> list[tuple[Any, ...]]:
    return log.sql("SELECT shard, position FROM etl_progress ORDER BY shard")


def audit(log: World) -> list[tuple[Any, ...]]:
    return log.sql(
        "SELECT shard, sum(source), min(lower), max(upper), sum(stale) FROM etl_batch GROUP BY shard ORDER BY shard"
    )


def test_each_shard_has_positions_of_its_own(log: World) -> None:
    deliver(log, A_EU, upsert(1, 1, 1), upsert(2, 1, 2))
    deliver(log, A_US, upsert(1, 1, 7, "fig"))
    deliver(log, B_EU, upsert(3, 2, 2, "nut"))
    deliver(log, B_US, delete(2, 2, 7), upsert(3, 1, 8))
    assert done(log.load(A_EU, A_US, B_EU, B_US)) == [
        ("committed", {"inserted": 2}),
        ("committed", {"inserted": 1}),
        ("committed", {"updated": 1}),
        ("committed", {"inserted": 1, "deleted": 1}),
    ]
    assert [row[0] for row in log.sql("SELECT id FROM prices ORDER BY id")] == [1, 2, 8]
    assert progress(log) == [(EU, 3), (US, 3)]
    assert audit(log) == [(EU, 3, 0, 3, 0), (US, 3, 0, 3, 0)]
    assert [b.batch for b in log.ledger()][:2] == [f"prices/{A}|eu/1.jsonl#1@1", f"prices/{A}|us/1.jsonl#1@1"]
    assert log.warehouse.verify(log.pipeline) == []
    before = kept(log)
    assert {o.status for o in log.load(B_US, A_EU, B_EU, A_US)} == {"already committed"}
    assert kept(log) == before


def test_a_gap_in_one_shard_does_not_hold_up_another(log: World) -> None:
    deliver(log, A_EU, upsert(1, 1, 1))
    deliver(log, B_EU, upsert(3, 1, 3))
    deliver(log, A_US, upsert(1, 1, 7))
    deliver(log, B_US, upsert(2, 1, 8))
    outcomes = log.load(A_EU, A_US, B_EU, B_US)
    assert [o.status for o in outcomes] == ["committed", "committed", "refused", "committed"]
    assert isinstance(outcomes[2].error, UnexpectedCursor)
    assert "positions 2 to 2 are missing: a gap" in str(outcomes[2].error)
    assert progress(log) == [(EU, 1), (US, 2)]
    states = {s.scope: (s.state, s.waits) for s in log.survey().statuses}
    assert states == {
        A_EU: ("committed", False),
        A_US: ("committed", False),
        B_EU: ("staged", True),
        B_US: ("committed", False),
    }
    deliver(log, A_EU, upsert(2, 1, 2), name="2.jsonl")
    assert [o.status for o in log.load_pending()] == ["already committed", "committed", "committed"]
    assert (progress(log), versions(log)) == ([(EU, 3), (US, 2)], [(k, 1, 0) for k in (1, 2, 3, 7, 8)])


@pytest.mark.parametrize("order", [(A_EU, A_US), (A_US, A_EU)])
def test_one_keys_events_of_two_shards_are_ordered_by_its_version(log: World, order: tuple[str, str]) -> None:
    deliver(log, A_EU, upsert(1, 5, 1, "new"), upsert(2, 1, 2))
    deliver(log, A_US, upsert(1, 4, 1, "old"), delete(2, 3, 1))
    log.load(*order)
    assert versions(log) == [(1, 5, 0), (2, 1, 0)]
    # What is stale depends on what came first; what stands does not.
    assert {shard: stale for shard, _, _, _, stale in audit(log)} == {EU: 0, US: 2 if order[0] == A_EU else 1}


def test_an_equal_version_with_another_state_in_another_shard_is_a_conflict(log: World) -> None:
    deliver(log, A_EU, upsert(1, 5, 1, "one"))
    deliver(log, A_US, upsert(1, 5, 1, "two"))
    (first, second) = log.load(A_EU, A_US)
    assert first.status == "committed"
    assert isinstance(second.error, VersionConflict)
    assert progress(log) == [(EU, 1)]


def test_shards_have_their_own_batches_and_their_own_stated_bounds(tmp_path: Path) -> None:
    log = World(tmp_path, sharded(events=native(bounds="stated"), batch_events=1))
    for shard, upper in ((EU, 50), (US, 70)):
        deliver(
            log, f"{A}|{shard}", json.dumps({"lower": 0, "upper": upper}), upsert(10, 1, upper), upsert(20, 2, upper)
        )
        deliver(log, f"{B}|{shard}", json.dumps({"lower": upper, "upper": 90}))
    assert {o.status for o in log.load(A_EU, A_US, B_EU, B_US)} == {"committed"}
    assert (progress(log), audit(log)) == ([(EU, 90), (US, 90)], [(EU, 2, 0, 90, 0), (US, 2, 0, 90, 0)])
    assert [b.batch for b in log.ledger()][:2] == [f"prices/{A}|eu/1.jsonl#1@1:{b}" for b in ("1..10", "11..50")]


def test_the_same_events_in_two_shards_are_two_deliveries(log: World) -> None:
    for scope in (A_EU, A_US):
        deliver(log, scope, upsert(1, 1, 1))
    assert done(log.load(A_EU, A_US)) == [("committed", {"inserted": 1}), ("committed", {"unchanged": 1})]
    assert progress(log) == [(EU, 1), (US, 1)]


# --------------------------------------------------------------------------- landing


@pytest.mark.parametrize(
    "pattern, path",
    [
        ("prices/{partition}/{shard}/*.jsonl", f"prices/{A}/eu/1.jsonl"),
        ("prices/{shard}/{partition}/*.jsonl", f"prices/eu/{A}/1.jsonl"),
        ("{shard}/prices-{partition}.jsonl", f"eu/prices-{A}.jsonl"),
        ("prices/{partition}_{shard}_*.jsonl", f"prices/{A}_eu_1.jsonl"),
        ("prices/{shard}-{partition}/{partition}*.jsonl", f"prices/eu-{A}/{A}.1.jsonl"),
        ("prices/*/{shard}/{partition}/{shard}.jsonl", f"prices/any/eu/{A}/eu.jsonl"),
    ],
)
def test_a_shard_may_stand_anywhere_in_a_path(tmp_path: Path, pattern: str, path: str) -> None:
    log = World(tmp_path, sharded(landing=pattern))
    for each in (path, path.replace("eu", "us"), path.replace(A, B)):
        (log.landing / each).parent.mkdir(parents=True, exist_ok=True)
        (log.landing / each).write_text(lines(upsert(1, 1, 1)))
    arrivals = log.engine().source.arrivals()
    assert [(a.scope, a.known) for a in arrivals] == [(A_EU, True), (A_US, True), (B_EU, True)]
    for arrival in arrivals:
        assert log.engine().source.arrivals(arrival.scope) == [arrival]
    assert log.engine().source.arrivals(B_US) == []


def test_a_shard_that_the_contract_does_not_have_is_passed_over_by_name(log: World) -> None:
    deliver(log, A_EU, upsert(1, 1, 1))
    deliver(log, f"{A}|asia", upsert(1, 1, 2))
    deliver(log, "yesterday|eu", upsert(1, 1, 3))
    (log.landing / "prices" / f"{B}|eu" / "us").mkdir(parents=True)
    (log.landing / "prices" / f"{B}|eu" / "us" / "1.jsonl").write_text(lines(upsert(1, 1, 4)))
    states = {s.scope: s.state for s in log.survey().statuses}
    assert states == {
        A_EU: "arrived",
        f"{A}|asia": "unknown partition",
        "yesterday|eu": "unknown partition",
        f"{B}|eu|us": "unknown partition",
    }
    assert [o.scope for o in log.load_pending()] == [A_EU]
    assert f"searched {log.landing}/prices/{B}/us/*.jsonl, 0 files matched" in log.load(B_US)[0].message


@pytest.mark.parametrize("scope", [A, f"{A}|asia", "eu", f"eu|{A}", f"{A}|", f"{A}|eu|eu"])
def test_what_is_no_day_and_shard_is_no_partition(log: World, scope: str) -> None:
    with pytest.raises(UnknownScope, match=r"each by shard eu, us \(2013-10-25\|eu\)"):
        log.load(scope)


# --------------------------------------------------------------------------- contracts, ranges, truth


def test_a_range_is_one_of_days_times_one_of_shards() -> None:
    partitions = Sharded(Daily(start=A, end="2024-01-04"), "eu", "us", "asia")
    assert partitions.keys()[:4] == [f"{A}|eu", f"{A}|us", f"{A}|asia", f"{B}|eu"]
    assert len(partitions.keys()) == 9
    assert partitions.between(f"{A}|us", f"{C}|us") == [f"{day}|us" for day in (A, B, C)]
    assert partitions.between(f"{A}|us", f"{B}|asia") == [f"{d}|{s}" for d in (A, B) for s in ("us", "asia")]
    assert partitions.between(f"{B}|eu", f"{A}|us") == []


@pytest.mark.parametrize(
    "make, words",
    [
        (lambda: sharded(landing="prices/{partition}/*.jsonl"), "landing: {shard} stands in it where"),
        (lambda: prices(landing="prices/{partition}/{shard}/*.jsonl"), "landing: {shard} stands in it where"),
        (lambda: sharded(events=native(version=None)), "events: positions of two shards do not compare"),
        (lambda: Sharded(YEAR, "a|b"), "cannot be a shard"),
        (lambda: Sharded(YEAR, "a", "a"), "repeat"),
        (lambda: Sharded(YEAR), "shards"),
        (
            lambda: PartitionedTable(
                name="x", partitions=Sharded(YEAR, "a"), landing="{partition}/{shard}/*", columns=[integer("id")]
            ),
            "only a ChangeLogTable has shards",
        ),
    ],
)
def test_a_contract_whose_shards_do_not_hold_together_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ContractError) as caught:
        make()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    "statement, words",
    [
        ("UPDATE etl_progress SET position = 9 WHERE shard = 'us'", "prices: position 9 of shard us, by the ledger 1"),
        ("DELETE FROM etl_progress WHERE shard = 'eu'", "prices: position None of shard eu, by the ledger 1"),
    ],
)
def test_progress_of_a_shard_that_was_changed_around_the_ledger_is_found(
    log: World, statement: str, words: str
) -> None:
    deliver(log, A_EU, upsert(1, 1, 1))
    deliver(log, A_US, upsert(1, 1, 7))
    log.load(A_EU, A_US)
    assert log.warehouse.verify(log.pipeline) == []
    around(log, statement)
    assert log.warehouse.verify(log.pipeline) == [words]
    assert log.warehouse.profile("prices")["status"] == "DEGRADED"


def test_a_log_that_has_been_consumed_without_shards_does_not_go_on_as_the_first_of_them(tmp_path: Path) -> None:
    """Its positions belong to no shard; each begins where the contract says that the log does."""
    log = World(tmp_path, prices(landing="prices/{partition}/*.jsonl"))
    log.deliver(A, lines(upsert(1, 1, 1), upsert(2, 1, 2)), "1.jsonl")
    log.load(A)
    log.pipeline = sharded()
    deliver(log, B_EU, upsert(1, 2, 1, "fig"))
    assert done(log.load(B_EU)) == [("committed", {"updated": 1})]
    assert progress(log) == [("", 2), (EU, 1)]
    assert log.warehouse.verify(log.pipeline) == []


# --------------------------------------------------------------------------- the command line

CONTRACT = """
from etl_assets_tests.patterns.test_shards import sharded
prices = sharded()
"""


def run(log: World, *words: str) -> tuple[int, Any]:
    (log.root / "pipelines.py").write_text(CONTRACT)
    places = ["--landing", log.settings.landing, "--staged", log.settings.staged, "--warehouse", log.settings.warehouse]
    command = [sys.executable, "-m", "etl_assets", *words, *places, "--json"]
    environment = {"ETL_PIPELINES": str(log.root / "pipelines.py"), "PYTHONPATH": ":".join(sys.path)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return result.returncode, json.loads(result.stdout)


def test_the_command_line_takes_a_shards_partition_a_range_and_what_is_pending(log: World) -> None:
    for number, day in enumerate((A, B, C), 1):
        for shard, key in ((EU, 1), (US, 2)):
            deliver(log, f"{day}|{shard}", upsert(number, number, key))
    code, document = run(log, "run", "prices", "--partition", A_EU)
    assert (code, [b["batch"] for b in document["batches"]]) == (0, [f"prices/{A}|eu/1.jsonl#1@1"])
    code, document = run(log, "run", "prices", "--from", A_US, "--to", B_US)
    assert (code, [b["scope"] for b in document["batches"]]) == (0, [A_US, B_US])
    code, document = run(log, "run", "prices", "--pending")
    assert (code, [b["scope"] for b in document["batches"]]) == (0, [B_EU, C_EU, C_US])
    code, document = run(log, "ledger", "prices", "--partition", C_US)
    assert (code, [(b["scope"], b["shard"], b["upper"]) for b in document["batches"]]) == (0, [(C_US, US, 3)])
    assert run(log, "run", "prices", "--partition", A)[0] == 2
    assert (progress(log), versions(log)) == ([(EU, 3), (US, 3)], [(1, 3, 0), (2, 3, 0)])
