"""Preparing one step ahead: in order, never further, and nothing is left behind."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from etl_assets.loading import engine
from etl_assets.loading.ahead import prepared
from etl_assets_tests.world import DAYS, World


@dataclass
class Made:
    """What was prepared, and whether it was let go of."""

    item: int
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@dataclass
class Bench:
    """Prepares numbers, and remembers which; ``bad`` ones fail."""

    bad: int | None = None
    made: list[Made] = field(default_factory=list)
    second: threading.Event = field(default_factory=threading.Event)

    def prepare(self, item: int) -> Made:
        if item == self.bad:
            raise ValueError(f"{item} is bad")
        self.made.append(Made(item))
        if item == 2:
            self.second.set()
        return self.made[-1]


def test_the_next_item_is_prepared_while_the_present_one_is_used_and_no_further_one() -> None:
    bench = Bench()
    coming = prepared([1, 2, 3], bench.prepare, lambda _: True)
    item, made = next(coming)
    assert (item, made.closed) == (1, False)
    assert bench.second.wait(10)
    assert [m.item for m in bench.made] == [1, 2]
    assert [i for i, _ in coming] == [2, 3]
    assert all(m.closed for m in bench.made)


def test_nothing_is_prepared_ahead_of_what_is_too_large() -> None:
    bench = Bench()
    coming = prepared([1, 2], bench.prepare, lambda item: item != 2)
    next(coming)
    assert not bench.second.wait(0.2)
    assert [i for i, _ in coming] == [2]


def test_what_was_prepared_and_is_not_wanted_any_more_is_closed() -> None:
    bench = Bench()
    coming = prepared([1, 2, 3], bench.prepare, lambda _: True)
    next(coming)
    assert bench.second.wait(10)
    coming.close()
    assert [(m.item, m.closed) for m in bench.made] == [(1, True), (2, True)]
    assert not [t for t in threading.enumerate() if t.name.startswith("ahead")]


def test_an_error_of_preparing_is_raised_when_its_turn_comes() -> None:
    bench = Bench(bad=2)
    coming = prepared([1, 2, 3], bench.prepare, lambda _: True)
    assert next(coming)[0] == 1
    with pytest.raises(ValueError, match="2 is bad"):
        next(coming)
    assert [(m.item, m.closed) for m in bench.made] == [(1, True)]


@pytest.mark.parametrize("ahead", [0, 1 << 30])
def test_a_run_ends_in_the_same_state_with_and_without_preparing_ahead(
    world: World, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    monkeypatch.setattr(engine, "AHEAD_BYTES", ahead)
    for number, day in enumerate(DAYS):
        world.deliver(day, f"id,day,item,amount\n{number},{day},pear,{number}\n")
    world.deliver(DAYS[1], "not a delivery\n", "2.csv")
    outcomes = world.load(*DAYS, *DAYS)  # a scope that is named twice is loaded once
    assert [(o.scope, o.status) for o in outcomes] == [
        (DAYS[0], "committed"),
        (DAYS[1], "refused"),
        (DAYS[2], "committed"),
    ]
    assert world.rows() == [(0, DAYS[0], 0, "pear"), (2, DAYS[2], 2, "pear")]
    assert list((world.root / "staged" / ".incoming").iterdir()) == []
