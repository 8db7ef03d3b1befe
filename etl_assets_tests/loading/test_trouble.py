"""One object that is broken is its own partition's trouble: it is named, and the others go on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import ExtractDamaged, ShrunkDelivery, StillArriving, UnreadableDelivery
from etl_assets.loading import Engine
from etl_assets_tests.world import DAYS, World, orders

HEADER = "id,day,item,amount\n"


def content(day: str, amount: int = 1) -> str:
    return f"{HEADER}{int(day[-2:])},{day},pear,{amount}\n"


@pytest.fixture
def loaded(world: World) -> World:
    """Three days that are committed."""
    for day in DAYS:
        world.deliver(day, content(day))
    assert [o.status for o in world.load(*DAYS)] == ["committed"] * 3
    return world


def unreadable(path: Path) -> None:
    """A file of this name that opens, and whose bytes the system does not give."""
    path.unlink()
    path.symlink_to("/proc/self/mem")


def extracts(world: World, day: str) -> list[Path]:
    return sorted((Path(world.settings.staged) / "orders" / day).iterdir())


def test_a_committed_file_that_became_unreadable_is_named_and_the_others_go_on(loaded: World) -> None:
    unreadable(loaded.landing / "orders" / DAYS[0] / "1.csv")
    loaded.deliver(DAYS[1], content(DAYS[1], 2), "2.csv")
    first, *others = loaded.survey().statuses
    assert first.state == "committed"
    assert "whether it has changed since is not known" in first.reason
    assert [s.state for s in others] == ["committed", "arrived", "committed"]
    assert [o.status for o in loaded.load_pending()] == ["committed"]
    assert [o.status for o in loaded.load(*DAYS)] == ["refused", "already committed", "already committed"]
    assert isinstance(loaded.load(DAYS[0])[0].error, UnreadableDelivery)


def test_a_new_file_that_cannot_be_read_does_not_end_the_run_and_is_no_refusal(world: World) -> None:
    for day in DAYS:
        path = world.deliver(day, content(day))
    unreadable(world.landing / "orders" / DAYS[1] / "1.csv")
    outcomes = world.load(*DAYS)
    assert [o.status for o in outcomes] == ["committed", "refused", "committed"]
    assert isinstance(outcomes[1].error, UnreadableDelivery)
    assert outcomes[1].attempts == 0
    assert path.exists()
    assert [s.scope for s in world.survey().waiting(3)] == [DAYS[1]]


@pytest.mark.parametrize("damage", ["a byte", "emptied", "a folder"])
def test_a_damaged_extract_of_a_committed_delivery_is_named_and_the_others_go_on(loaded: World, damage: str) -> None:
    (extract,) = extracts(loaded, DAYS[1])
    bad = extract.read_bytes()
    extract.unlink()
    if damage == "a folder":
        extract.mkdir()
    else:
        extract.write_bytes(b"" if damage == "emptied" else bad[:-9] + b"x" + bad[-8:])
    assert [s.state for s in loaded.survey().statuses] == ["committed"] * 3
    outcomes = loaded.load(*DAYS)
    assert [o.status for o in outcomes][::2] == ["already committed"] * 2
    if outcomes[1].error:
        assert isinstance(outcomes[1].error, ExtractDamaged)
        assert DAYS[1] in str(outcomes[1].error)
    assert loaded.load_pending() == []


@pytest.mark.parametrize("damage", ["a byte", "emptied", "gone"])
def test_a_damaged_extract_in_a_range_leaves_the_sound_ones_committed(world: World, damage: str) -> None:
    for day in DAYS:
        world.deliver(day, content(day))
    list(world.engine().load(DAYS, "frozen", publish=False))
    (extract,) = extracts(world, DAYS[1])
    bad = extract.read_bytes()
    extract.unlink()
    if damage != "gone":
        extract.write_bytes(b"" if damage == "emptied" else bad[: len(bad) // 2] + b"x" + bad[len(bad) // 2 + 1 :])
    assert len(world.survey().waiting(3)) == 3
    outcomes = world.load(*DAYS)
    assert [o.status for o in outcomes][::2] == ["committed", "committed"]
    if damage == "gone":
        assert outcomes[1].status == "committed"
    else:
        assert isinstance(outcomes[1].error, ExtractDamaged)
        extract.unlink()
        assert [o.status for o in world.load_pending()] == ["committed"]


# --------------------------------------------------------------------------- control files


def test_a_control_file_that_is_mended_has_its_delivery_asked_for_again(world: World) -> None:
    counted = orders(row_count_file=".count")
    world.deliver(DAYS[0], content(DAYS[0]))
    world.deliver(DAYS[0], "2", "1.csv.count")
    for _ in range(3):
        (outcome,) = world.load(DAYS[0], pipeline=counted)
        assert isinstance(outcome.error, ShrunkDelivery)
    assert world.survey(counted).waiting(3) == []
    os.utime(world.landing / "orders" / DAYS[0] / "1.csv.count")  # says the same
    assert world.survey(counted).waiting(3) == []
    world.deliver(DAYS[0], "3", "1.csv.count")  # another mistake, and counted from one
    assert [s.state for s in world.survey(counted).waiting(3)] == ["arrived"]
    (outcome,) = world.load(DAYS[0], pipeline=counted)
    assert outcome.attempts == 1
    world.deliver(DAYS[0], "1", "1.csv.count")
    assert [o.status for o in world.load_pending(counted)] == ["committed"]


# --------------------------------------------------------------------------- written in pieces


def rewrite_half(path: Path) -> None:
    """Write one part of a file in place, as a program does that has not come to the other part."""
    with path.open("r+b") as file:
        file.seek(len(HEADER))
        file.write(b"9")


@pytest.mark.parametrize("ahead", [False, True], ids=["alone", "while the one before it is published"])
def test_a_file_that_is_written_to_after_it_was_read_is_not_committed(world: World, ahead: bool) -> None:
    days = DAYS[:2] if ahead else DAYS[1:2]
    for day in days:
        path = world.deliver(day, content(day))

    class Late(Engine):
        """The writer goes on between the freezing of the last delivery and its publishing."""

        def _finish_batch(self, turn: Any, made: Any, *rest: Any) -> Any:
            if turn.scope == days[-1]:
                rewrite_half(path)
            return super()._finish_batch(turn, made, *rest)

    *before, last = Late(world.settings, world.pipeline).load(days, "run")
    assert [o.status for o in before] == ["committed"] * len(before)
    assert isinstance(last.error, StillArriving)
    assert last.attempts == 0
    assert [s.scope for s in world.survey().waiting(3)] == [days[-1]]
    (again,) = world.load(days[-1])
    assert again.status == "committed"
    assert world.rows()[-1][2] == 9


def test_a_write_in_the_same_tick_of_the_clock_gives_the_file_another_stamp(world: World) -> None:
    path = world.deliver(DAYS[0], content(DAYS[0]))
    source = world.engine().source
    for number in range(10):
        path.write_text(content(DAYS[0], number))
        (arrival,) = source.arrivals(DAYS[0])
        source.fetch(arrival, world.root / "copy")
        rewrite_half(path)
        with pytest.raises(StillArriving):
            source.check_unchanged(arrival)
