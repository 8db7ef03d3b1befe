"""The showcase's snapshots: a rolling feed of thirty days, seven times downloaded, twice on one of the days."""

from __future__ import annotations

import csv
import itertools
import shutil
from pathlib import Path

import pytest

from etl_assets.errors import Superseded
from etl_assets.pipelines.quakes import quakes
from etl_assets_tests.patterns.logs import kept
from etl_assets_tests.world import SHOWCASE, World

FIRST = sorted((SHOWCASE / "quakes").glob("*/1.csv"))
SCOPES = [file.parent.name for file in FIRST]
SNAPSHOTS = sorted((SHOWCASE / "quakes").glob("*/*.csv"))
LATE = SHOWCASE / "quakes" / "2020-03-06" / "2.csv"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def deliver(world: World, files: list[Path]) -> None:
    for file in files:
        world.deliver(file.parent.name, file.read_bytes(), file.name)


@pytest.fixture
def feed(tmp_path: Path) -> World:
    """All seven snapshots, on their six days."""
    world = World(tmp_path, quakes)
    deliver(world, SNAPSHOTS)
    return world


def newest(files: list[Path]) -> dict[str, str]:
    """The newest change of each event, by its id."""
    found: dict[str, str] = {}
    for row in itertools.chain.from_iterable(map(read, files)):
        found[row["id"]] = max(found.get(row["id"], ""), row["updated"])
    return found


def versions(world: World) -> dict[str, tuple[str, int]]:
    return {k: (u, d) for k, u, d in world.sql("SELECT id, updated, _deleted FROM _versions_quakes")}


def withdrawn(world: World) -> list[str]:
    return sorted(key for key, (_, deleted) in versions(world).items() if deleted)


def test_seven_snapshots_give_every_event_once_two_withdrawn_and_the_rest_with_their_newest_change(
    feed: World,
) -> None:
    assert [o.status for o in feed.load(*SCOPES)] == ["committed"] * 7
    found = versions(feed)
    assert (len(found), len(withdrawn(feed))) == (1_603, 2)
    assert {key: updated for key, (updated, _) in found.items()} == newest(SNAPSHOTS)
    last = [b.counts for b in feed.ledger()][-1]
    assert last.deleted == 2
    live = feed.sql("SELECT id, time, updated, mag, place FROM quakes")
    texts = {row["id"]: row for row in itertools.chain.from_iterable(map(read, SNAPSHOTS))}
    # Lines that were not changed again are those of the newest snapshot that has the event.
    assert len(live) == 1_601
    assert all(texts[k]["time"] == t and texts[k]["place"] == p for k, t, u, _, p in live if texts[k]["updated"] == u)
    assert feed.warehouse.verify(quakes) == []


def test_events_that_rolled_off_are_live_and_only_those_inside_of_the_window_were_withdrawn(feed: World) -> None:
    feed.load(*SCOPES)
    last = {row["id"]: row["time"] for row in read(FIRST[-1])}
    gone = withdrawn(feed)
    times = dict(feed.sql("SELECT id, time FROM _versions_quakes"))
    assert all(min(last.values()) <= times[key] <= max(last.values()) for key in gone)
    assert gone == sorted(
        k for k, t in times.items() if k not in last and min(last.values()) <= t <= max(last.values())
    )


def test_the_second_delivery_of_a_day_adds_its_one_late_row(tmp_path: Path) -> None:
    feed = World(tmp_path, quakes)
    until = SCOPES.index("2020-03-06") + 1
    deliver(feed, FIRST[:until])
    feed.load(*SCOPES[:until])
    before = {key for (key,) in feed.sql("SELECT id FROM quakes")}
    deliver(feed, [LATE])
    again, late = feed.load("2020-03-06")
    assert again.status == "already committed"
    done = {k: v for k, v in late.counts.as_dict().items() if v and k not in ("unchanged", "source", "stale", "ties")}
    assert (late.status, done) == ("committed", {"inserted": 1})
    (added,) = {key for (key,) in feed.sql("SELECT id FROM quakes")} - before
    assert added in {row["id"] for row in read(LATE)} - {row["id"] for row in read(FIRST[until - 1])}


def test_every_snapshot_again_changes_nothing(feed: World) -> None:
    feed.load(*SCOPES)
    before = feed.state()
    for order in (SCOPES, list(reversed(SCOPES))):
        assert {o.status for o in feed.load(*order)} == {"already committed"}
    assert feed.state() == before


def test_copies_of_every_snapshot_under_new_names_change_nothing(feed: World) -> None:
    feed.load(*SCOPES)
    before, held = kept(feed), versions(feed)
    for file in FIRST:
        feed.deliver(file.parent.name, file.read_bytes(), "7.csv")
    outcomes = [feed.load(scope)[-1] for scope in SCOPES]
    assert [type(o.error) for o in outcomes[:-1]] == [Superseded] * 5
    assert outcomes[-1].status == "committed"
    counts = outcomes[-1].counts
    assert (counts.inserted, counts.updated, counts.deleted, counts.restored) == (0, 0, 0, 0)
    assert versions(feed) == held
    assert kept(feed)["_versions_quakes"] == before["_versions_quakes"]


def test_copies_of_all_snapshots_in_their_order_on_later_days_end_in_the_same_contents(feed: World) -> None:
    feed.load(*SCOPES)
    held = versions(feed), feed.rows()
    later = [f"2020-04-{day:02d}" for day in range(1, 8)]
    for day, file in zip(later, SNAPSHOTS, strict=True):
        feed.deliver(day, file.read_bytes())
    assert {o.status for o in feed.load(*later)} == {"committed"}
    assert (versions(feed), feed.rows()) == held


def test_a_snapshot_that_comes_after_a_later_one_is_superseded_and_needs_no_attention(feed: World) -> None:
    feed.load(SCOPES[-1])
    before = kept(feed)
    (outcome,) = feed.load(SCOPES[0])
    assert isinstance(outcome.error, Superseded)
    assert f"quakes/{SCOPES[-1]}/1.csv#1@1, a later one, is committed" in str(outcome.error)
    assert kept(feed) == before
    assert feed.survey().waiting() == []
    assert {s.state for s in feed.survey().statuses} == {"committed", "superseded"}


def test_a_restated_snapshot_becomes_the_table_and_the_next_one_goes_on_from_there(feed: World) -> None:
    feed.load(*SCOPES)
    (outcome,) = feed.load(SCOPES[2], restate="the later ones were of another region")
    assert outcome.status == "committed"
    wanted = sorted((row["id"], row["updated"]) for row in read(FIRST[2]))
    assert sorted(feed.sql("SELECT id, updated FROM quakes")) == wanted
    assert withdrawn(feed) == []
    assert feed.warehouse.verify(quakes) == []
    shutil.copyfile(FIRST[-1], feed.landing / "quakes" / SCOPES[-1] / "2.csv")
    feed.load(SCOPES[-1])
    last = {row["id"]: row["updated"] for row in read(FIRST[-1])}
    assert dict(feed.sql("SELECT id, updated FROM quakes")).items() >= last.items()
    assert feed.warehouse.verify(quakes) == []
