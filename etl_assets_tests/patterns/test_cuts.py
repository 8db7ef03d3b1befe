"""However a log is cut into files and batches: the same verdict, rows and counts as when its events come one by one."""

from __future__ import annotations

import itertools
import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import integer, text
from etl_assets.errors import VersionConflict
from etl_assets_tests.patterns.logs import A, lines, position, prices
from etl_assets_tests.world import World

SIZES = (1, 2, 3, 100)
COLUMNS = [integer("id"), text("item"), text("colour", optional=True), text("note", optional=True)]
Row = tuple[Any, ...]


@dataclass(frozen=True)
class Event:
    """A state of a key, or its end where ``item`` is None; ``colour`` and ``note`` are optional."""

    key: int
    version: int
    item: str | None
    colour: str | None = None
    note: str | None = None

    def line(self, pos: int) -> str:
        named = {"id": self.key, "item": self.item, "colour": self.colour, "note": self.note}
        row = {name: value for name, value in named.items() if value is not None}
        op = "delete" if self.item is None else "upsert"
        return json.dumps({"pos": pos, "op": op, "version": self.version, "row": row})


@dataclass
class Consumed:
    """What events come to, one after the other: the states of keys, stale events, and the first conflict's position."""

    states: dict[int, tuple[int, Row | None]]
    stale: int = 0
    conflict: int | None = None


def consumed(events: list[Event]) -> Consumed:
    """Each event meets the state that stands at its moment."""
    done = Consumed({})
    for pos, event in enumerate(events, 1):
        version, state = done.states.get(event.key, (0, None))
        said = None if event.item is None else (event.item, event.colour, event.note)
        if event.version < version:
            done.stale += 1
        elif event.version > version:
            done.states[event.key] = (event.version, said)
        elif (said is None) != (state is None):
            done.conflict = pos
            return done
        elif said is not None and state is not None:
            pairs = list(zip(state[1:], said[1:], strict=True))
            if state[0] != said[0] or any(None not in (a, b) and a != b for a, b in pairs):
                done.conflict = pos
                return done
            done.states[event.key] = (version, (state[0], *(b if a is None else a for a, b in pairs)))
    return done


def drawn(chance: random.Random) -> list[Event]:
    """Few keys, versions and values, so that they meet; most logs are short."""
    sure = chance.random() < 0.5  # no conflicts but those of optional columns
    events = []
    for _ in range(chance.randint(1, 8)):
        key, version = chance.randint(1, 2), chance.randint(1, 3)
        item = f"item {key} {version}" if sure else chance.choice(["a", "a", "b", None])
        events.append(Event(key, version, item, chance.choice([None, None, "red", "blue"]), chance.choice([None, "x"])))
    return events


def compare(root: Path, events: list[Event], cuts: tuple[int, ...], size: int) -> None:
    """Load a log in these files and batches, and compare all of it with the events one by one."""
    world = World(root, prices(columns=COLUMNS, batch_events=size))
    for start, end in itertools.pairwise((0, *cuts, len(events))):
        content = lines(*(event.line(pos) for pos, event in enumerate(events[start:end], start + 1)))
        world.deliver(A, content, f"{start:02d}.jsonl")
    errors = [o.error for o in world.load(A) if o.error]
    whole, done = consumed(events), position(world) or 0
    if whole.conflict is None:
        assert (errors, done) == ([], len(events))
    else:
        assert isinstance(errors[0], VersionConflict)
        # What is refused is the file's batch that holds the conflict.
        start, end = next(p for p in itertools.pairwise((0, *cuts, len(events))) if p[0] < whole.conflict <= p[1])
        assert done == start + (whole.conflict - 1 - start) // size * size
        assert whole.conflict <= end
    expected = consumed(events[:done])
    ledger = world.ledger()
    assert (sum(b.counts.source for b in ledger), sum(b.counts.stale for b in ledger)) == (done, expected.stale)
    assert sum(b.counts.inserted + b.counts.restored - b.counts.deleted for b in ledger) == len(
        [state for _, state in expected.states.values() if state]
    )
    if not done:
        return
    rows = world.sql("SELECT id, _version, _deleted, item, colour, note FROM _versions_prices ORDER BY id")
    assert {r[0]: (r[1], None if r[2] else r[3:]) for r in rows} == expected.states
    assert world.warehouse.verify(world.pipeline) == []


RED, BLUE, NONE = (Event(1, 1, "a", colour) for colour in ("red", "blue", None))
NEWER = Event(1, 2, "b")
FOUND = {
    "a conflict that a later event hides": [Event(1, 1, "a"), Event(1, 1, "b"), NEWER],
    "a conflict with a row that ends later": [Event(1, 1, "a"), Event(1, 1, "b"), Event(1, 2, None)],
    "an end and a state of one version": [Event(1, 1, None), Event(1, 1, "a"), NEWER],
    "two ends of one version": [Event(1, 1, None), Event(1, 1, None), NEWER],
    "two states that are stale": [NEWER, Event(1, 1, "a"), Event(1, 1, "c")],
    "two states, one of them stale": [Event(1, 1, "a"), NEWER, Event(1, 1, "c")],
    "an optional column that is there once": [RED, NONE],
    "an optional column that comes later": [NONE, RED, NEWER, Event(1, 2, "b", "blue")],
    "two values with none between them": [RED, NONE, BLUE],
    "two values with none between them, hidden": [RED, NONE, BLUE, NEWER],
    "values of two columns that add up": [Event(1, 1, "a", "red"), Event(1, 1, "a", None, "x"), NONE],
}


@pytest.mark.parametrize("events", FOUND.values(), ids=FOUND)
def test_a_log_has_one_verdict_however_it_is_cut(tmp_path: Path, events: list[Event]) -> None:
    for count in range(len(events)):
        for cuts in itertools.combinations(range(1, len(events)), count):
            size = 100 if cuts else 1
            compare(tmp_path / f"{cuts}-{size}", events, cuts, size)
    compare(tmp_path / "whole", events, (), 100)


def test_random_logs_have_one_verdict_however_they_are_cut(tmp_path: Path) -> None:
    sweep(tmp_path, seed=1, logs=12)


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_many_more_random_logs_have_one_verdict(tmp_path: Path) -> None:
    sweep(tmp_path, seed=2, logs=600)


def sweep(root: Path, seed: int, logs: int) -> None:
    chance = random.Random(seed)
    conflicts = 0
    for number in range(logs):
        events = drawn(chance)
        conflicts += consumed(events).conflict is not None
        for size in SIZES:
            cuts = tuple(sorted(chance.sample(range(1, len(events)), chance.randint(0, min(2, len(events) - 1)))))
            compare(root / f"{number}-{size}", events, cuts, size)
    assert 0 < conflicts < logs
