"""One sensor for all pipelines: what is wrong with one keeps no other waiting, and it looks where something has changed."""

import dagster as dg
import pytest

from etl_assets.contract import PartitionedTable
from etl_assets.errors import LandingUnreachable
from etl_assets.orchestration import findings, sensors
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import DAYS, World, orders

HEADER = "id,day,item,amount\n"
NAMES = ("apples", "beans", "corn", "dates")


def table(name: str) -> PartitionedTable:
    return orders(name=name, table=name, landing=f"{name}/{{partition}}/*.csv")


def deliver(world: World, name: str, day: str = DAYS[0], file: str = "1.csv") -> None:
    world.deliver(day, f"{HEADER}{int(day[-2:])},{day},pear,1\n", file, pipeline=name)


@pytest.fixture
def shop(desk: Desk) -> Desk:
    """A desk of four pipelines. It is made after `desk`, which takes the pauses out."""
    first, *others = map(table, NAMES)
    return Desk(desk.world, desk.instance, first, others)


def asked(tick: dg.SensorResult) -> list[tuple[str | None, str | None]]:
    return [(request.job_name, request.partition_key) for request in tick.run_requests or ()]


def test_a_tick_asks_for_what_waits_in_every_pipeline_by_its_own_job(shop: Desk) -> None:
    for name in ("beans", "dates"):
        deliver(shop.world, name)
    shop.world.deliver(DAYS[1], b"", "1.csv.part", pipeline="corn")
    assert asked(shop.tick()) == [("beans_job", DAYS[0]), ("dates_job", DAYS[0])]
    for name in ("beans", "dates"):
        shop.world.load(DAYS[0], pipeline=table(name))
    said = str(shop.tick().skip_message).splitlines()
    assert said[0].startswith("corn: nothing to ask for: 0 partitions are committed")
    assert f"still arriving: {DAYS[1]}/1.csv.part#1" in said[0]
    assert said[1:] == ["3 pipelines have nothing to ask for: all that has arrived is committed"]


def fail_at(monkeypatch: pytest.MonkeyPatch, broken: str, error: Exception) -> None:
    find = findings.find

    def found(settings, pipeline):
        if pipeline.name == broken:
            raise error
        return find(settings, pipeline)

    monkeypatch.setattr(findings, "find", found)


@pytest.mark.parametrize("error", [LandingUnreachable("no such share"), RecursionError("a fault of ours")])
def test_a_pipeline_that_cannot_be_looked_at_is_told_and_stops_no_other(
    shop: Desk, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    for name in NAMES:
        deliver(shop.world, name)
    fail_at(monkeypatch, "apples", error)
    tick = shop.tick()
    assert asked(tick) == [(f"{name}_job", DAYS[0]) for name in NAMES[1:]]
    for name in NAMES[1:]:
        shop.world.load(DAYS[0], pipeline=table(name))
    with pytest.raises(Exception, match=f"apples: cannot be looked at: {type(error).__name__}: {error}"):
        shop.tick()


def test_a_tick_that_asks_for_all_it_may_goes_on_with_the_next_pipeline(
    shop: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sensors, "RUNS_PER_TICK", 2)
    for name in NAMES:
        deliver(shop.world, name)
    first = shop.tick()
    assert asked(first) == [("apples_job", DAYS[0]), ("beans_job", DAYS[0])]
    assert asked(shop.tick(cursor=first.cursor)) == [("corn_job", DAYS[0]), ("dates_job", DAYS[0])]
    assert asked(shop.tick(cursor="a pipeline that is gone")) == asked(first)


def test_a_tick_that_takes_long_leaves_the_rest_to_the_next_one(shop: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sensors, "SECONDS_PER_TICK", -1.0)
    deliver(shop.world, "apples")
    tick = shop.tick()
    assert (tick.cursor, str(tick.skip_message)) == ("apples", "the rest, from apples on, at the next tick")


def test_a_survey_is_made_again_only_where_something_has_changed(shop: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    surveyed: list[str] = []
    find = findings.find

    def counting(settings, pipeline):
        surveyed.append(pipeline.name)
        return find(settings, pipeline)

    def looked_at() -> list[str]:
        surveyed.clear()
        shop.tick()
        return list(surveyed)

    monkeypatch.setattr(findings, "find", counting)
    assert looked_at() == [*NAMES]
    assert looked_at() == []
    deliver(shop.world, "corn")
    assert looked_at() == ["corn"]
    shop.world.load(DAYS[0], pipeline=table("corn"))
    assert looked_at() == ["corn"]
    shop.world.deliver(DAYS[1], b"", pipeline="beans")
    assert looked_at() == ["beans"]
    shop.world.load(DAYS[1], pipeline=table("beans"))  # it is refused
    assert looked_at() == ["beans"]
    shop.world.load(DAYS[1], pipeline=table("beans"))  # and once more
    assert looked_at() == ["beans"]
    assert looked_at() == []
    monkeypatch.setattr(findings, "KEPT_SECONDS", -1.0)
    assert looked_at() == [*NAMES]


def test_a_control_file_that_is_mended_is_noticed_at_the_next_tick(desk: Desk) -> None:
    counted = orders(row_count_file=".count")
    desk = Desk(desk.world, desk.instance, counted)
    deliver(desk.world, "orders")
    control = desk.world.landing / "orders" / DAYS[0] / "1.csv.count"
    control.write_text("2")
    for _ in range(counted.attempts):
        desk.carry_out(desk.tick())
    assert not desk.tick().run_requests
    control.write_text("1")
    assert all(r.success for r in desk.carry_out(desk.tick()))
    assert [b.scope for b in desk.world.ledger()] == [DAYS[0]]


def test_a_file_that_nearly_fits_the_pattern_is_told_from_the_next_tick_on(shop: Desk) -> None:
    deliver(shop.world, "apples")
    shop.carry_out(shop.tick())
    assert "does not fit" not in str(shop.tick().skip_message)
    misfit = shop.world.deliver(DAYS[0], "x", "2\u202e.CSV", pipeline="apples")
    said = str(shop.tick().skip_message)
    assert (
        "apples: nothing to ask for: 1 partitions are committed with their newest delivery. 1 file lies there" in said
    )
    assert rf"{DAYS[0]}/2\u202e.CSV (upper and lower case" in said
    misfit.unlink()
    assert "does not fit" not in str(shop.tick().skip_message)


def test_names_that_a_terminal_would_obey_are_shown_escaped(desk: Desk) -> None:
    deliver(desk.world, "orders", DAYS[0], "1\x1b[2J.csv")
    desk.world.deliver(DAYS[1], b"", "1\x1b[2J\u202e.csv")
    assert [r.success for r in desk.carry_out(desk.tick())] == [False]
    said = str(desk.tick().skip_message)
    assert rf"needs attention: {DAYS[1]}/1\x1b[2J\u202e.csv#1 (refused once: " in said
    evaluations = desk.job("check_ledger").get_asset_check_evaluations()
    checks = "\n".join(str(e.description) for e in evaluations)
    assert rf"{DAYS[1]}/1\x1b[2J\u202e.csv#1: needs attention" in checks
    assert [m["delivery"] for _, m in desk.materializations("orders")] == [r"1\x1b[2J.csv#1"]
    assert "\x1b" not in said + checks
    assert "\u202e" not in said + checks


def test_names_that_do_not_tell_the_newest_need_attention_in_a_tick(desk: Desk) -> None:
    for file in ("jan.csv", "feb.csv"):
        deliver(desk.world, "orders", file=file)
    tick = desk.tick()
    said = str(tick.skip_message)
    assert (tick.run_requests, "needs attention: " in said) == ([], True)
    assert f"{DAYS[0]}/jan.csv#1 (the names 'jan.csv' and 'feb.csv' do not tell" in said
    # The check has a paragraph for each, which Markdown keeps apart.
    evaluations = {e.check_name: str(e.description) for e in desk.job("check_ledger").get_asset_check_evaluations()}
    paragraphs = evaluations["delivery_accepted"].split("\n\n")
    assert [p.split(":")[0] for p in paragraphs] == [f"{DAYS[0]}/{name}.csv#1" for name in ("feb", "jan")]


def test_parts_that_share_no_key_need_attention_in_a_tick(desk: Desk) -> None:
    for number in (1, 2):
        desk.world.deliver(DAYS[0], f"{HEADER}{number},{DAYS[0]},pear,1\n", f"part-{number}.csv")
    assert [r.success for r in desk.carry_out(desk.tick())] == [False]
    tick = desk.tick()
    assert not tick.run_requests
    assert f"needs attention: {DAYS[0]}/part-1.csv#1 (" in str(tick.skip_message)
    assert f", {DAYS[0]}/part-2.csv#1 (" in str(tick.skip_message)
    assert desk.world.ledger() == []
