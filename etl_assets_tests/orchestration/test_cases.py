"""The cases that concern every load pattern, as Dagster shows them: runs executed again, sensors, days without a daemon."""

import dagster as dg
import pytest
from dagster._core.definitions.job_base import InMemoryJob
from dagster._core.execution.api import execute_run_iterator

from etl_assets.orchestration import requests
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets.orchestration.names import job_name, table_key
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.patterns.kinds import KINDS, Kind, day
from etl_assets_tests.patterns.logs import lines, upsert
from etl_assets_tests.world import World

KINDS_HERE = {name: KINDS[name] for name in ("reference", "log", "inclusive", "whole")}
every = pytest.mark.parametrize("kind", KINDS_HERE.values(), ids=KINDS_HERE)
ordered = pytest.mark.parametrize(
    "kind", [k for k in KINDS_HERE.values() if not k.replaces], ids=["log", "inclusive", "whole"]
)


@pytest.fixture
def desk(kind: Kind, world: World, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(requests, "SETTLE_SECONDS", 0.0)
    world.pipeline = kind.pipeline  # type: ignore[assignment]
    return Desk(world, instance)


def asked(tick: dg.SensorResult) -> list[str]:
    found = []
    for request in tick.run_requests or ():
        found.append(request.partition_key or f"{request.tags[RANGE_START_TAG]}..{request.tags[RANGE_END_TAG]}")
    return found


def statuses(desk: Desk) -> list[str]:
    """What each materialisation of the table said of its batch."""
    return [m["status"] for _, m in desk.materializations(table_key(desk.pipeline).path[-1])]


@every
def test_executing_a_finished_run_again_is_a_no_op_that_says_so(kind: Kind, desk: Desk) -> None:  # CASE 8
    kind.deliver(desk.world, 1)
    first = desk.launch(kind.scope(1))
    before = desk.world.state()
    parent = desk.instance.get_run_by_id(first.run_id)
    assert parent is not None
    job = desk.defs.resolve_job_def(job_name(kind.pipeline))
    run = desk.instance.create_run_for_job(
        job, tags=parent.tags, parent_run_id=parent.run_id, root_run_id=parent.run_id
    )
    list(execute_run_iterator(InMemoryJob(job), run, desk.instance))
    again = desk.instance.get_run_by_id(run.run_id)
    assert again is not None
    assert again.status is dg.DagsterRunStatus.SUCCESS
    assert desk.world.state() == before
    assert desk.world.rows() == kind.rows(1)
    assert statuses(desk) == ["committed", "already committed"]
    assert "already committed" in desk.logged(run.run_id)


@every
def test_a_delivery_that_breaks_the_contract_is_asked_for_once_and_then_shown(
    kind: Kind, desk: Desk
) -> None:  # CASE 15
    kind.deliver(desk.world, 1)
    desk.carry_out(desk.tick())
    desk.world.deliver(kind.scope(2), "no such columns\n", kind.file(2))
    seen = []
    while (tick := desk.tick()).run_requests:
        seen.append(asked(tick))
        desk.carry_out(tick)
        assert len(seen) < 9, "it is asked for without end"
    assert seen == [[kind.scope(2)]]
    assert f"needs attention: {kind.scope(2)}/{kind.file(2)}#1 (refused once: " in str(tick.skip_message)
    assert desk.world.rows() == kind.rows(1)
    kind.deliver(desk.world, 2)
    tick = desk.tick()
    assert asked(tick) == [kind.scope(2)]
    desk.carry_out(tick)
    assert desk.world.rows() == kind.rows(2)
    assert ": nothing to ask for: " in str(desk.tick().skip_message)


@ordered
def test_after_eight_days_without_a_daemon_all_that_arrived_is_asked_for_in_its_order(
    kind: Kind, desk: Desk
) -> None:  # CASE 16
    kind.deliver(desk.world, 1)
    desk.carry_out(desk.tick())
    days = [2, 3, 4, 6, 7, 8]
    for number, where in enumerate(days, 2):
        desk.world.deliver(day(where), kind.content(number), kind.file(number))
    seen = []
    while (tick := desk.tick()).run_requests:
        seen += asked(tick)
        assert all(r.success for r in desk.carry_out(tick))
    assert seen == [f"{day(2)}..{day(4)}", f"{day(6)}..{day(8)}"]
    assert [b.scope for b in desk.world.ledger()] == [day(n) for n in (1, *days)]
    assert desk.world.rows() == kind.rows(7)
    assert desk.world.survey().missing == (day(5),)


@pytest.mark.parametrize("kind", [KINDS["log"]], ids=["log"])
def test_a_gap_that_a_log_has_after_days_without_a_daemon_is_named_by_its_positions(kind: Kind, desk: Desk) -> None:
    for number in (1, 2, 4):
        kind.deliver(desk.world, number)
    while (tick := desk.tick()).run_requests:
        desk.carry_out(tick)
    assert f"waits: {day(4)}/1.jsonl#1 (its turn: positions 7 to 9 are missing)" in str(tick.skip_message)
    assert desk.world.rows() == kind.rows(2)
    kind.deliver(desk.world, 3)
    while (tick := desk.tick()).run_requests:
        desk.carry_out(tick)
    assert desk.world.rows() == kind.rows(4)


@every
def test_content_a_then_b_then_a_under_one_name_is_three_deliveries_and_each_is_settled(
    kind: Kind, desk: Desk
) -> None:  # CASE 13
    for number in (1, 2, 1):
        desk.world.deliver(kind.scope(1), kind.content(number), kind.file(1))
        tick = desk.tick()
        assert asked(tick) == [kind.scope(1)]
        desk.carry_out(tick)
    # The second content of the log goes on where the first ends; the first one again repeats it, and adds no event.
    wanted = ["superseded", "superseded", "committed"] if kind.replaces else ["committed"] * 3
    assert [(s.revision, s.state) for s in desk.world.survey().statuses] == list(enumerate(wanted, 1))
    assert ": nothing to ask for: " in str(desk.tick().skip_message)


@every
def test_two_identical_files_in_one_tick_are_settled_and_not_asked_for_without_end(
    kind: Kind, desk: Desk
) -> None:  # CASE 14
    for name in ("1", "2"):
        kind.deliver(desk.world, 1, f"{name}{kind.suffix}")
    ticks = 0
    while (tick := desk.tick()).run_requests:
        ticks += 1
        desk.carry_out(tick)
        assert ticks < 4, "it is asked for without end"
    assert desk.world.rows() == kind.rows(1)
    assert ": nothing to ask for: " in str(tick.skip_message)


@pytest.mark.parametrize("kind", [KINDS["log"]], ids=["log"])
def test_a_run_that_was_killed_is_asked_for_again_with_all_that_has_come_since(kind: Kind, desk: Desk) -> None:
    kind.deliver(desk.world, 1)
    (request,) = desk.tick().run_requests
    run = desk.instance.create_run_for_job(
        desk.defs.resolve_job_def(job_name(kind.pipeline)),
        tags={**request.tags, "dagster/partition": day(1), "dagster/run_key": str(request.run_key)},
        status=dg.DagsterRunStatus.STARTED,
    )
    desk.world.deliver(day(1), lines(upsert(4, 1, 90)), "2.jsonl")
    assert asked(desk.tick()) == []
    desk.instance.report_run_failed(run, "killed: out of memory")
    tick = desk.tick()
    assert asked(tick) == [day(1)]
    assert [r.run_key for r in tick.run_requests] != [request.run_key]
    desk.carry_out(tick)
    assert desk.world.rows() == sorted([*kind.rows(1), (90, "pear", "1.0000")], key=repr)
