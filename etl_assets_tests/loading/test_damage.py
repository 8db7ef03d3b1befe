"""Extracts that somebody has changed: found before anything is published, named, and nobody else's trouble."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import ExtractDamaged
from etl_assets.loading import Outcome
from etl_assets.model import Extract
from etl_assets.staging import extract as extracts
from etl_assets.staging.extract import INPUT, MANIFEST
from etl_assets_tests.staging.test_extract import contents, rewrite
from etl_assets_tests.world import DAYS, World

A, B, C = DAYS


def content(day: str) -> str:
    return f"id,day,item,amount\n{day[-1]},{day},pear,3\n{day[-1]}0,{day},fig,5\n"


@pytest.fixture(params=["packed", "folder"])
def staged(world: World, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> dict[str, Extract]:
    """Three days that are frozen and not published."""
    if request.param == "folder":
        monkeypatch.setattr(extracts, "SMALL_INPUT", -1)
    for day in DAYS:
        world.deliver(day, content(day))
    outcomes = list(world.engine().load(DAYS, "freeze", publish=False))
    assert {o.status for o in outcomes} == {"staged"}
    return {o.scope: o.extract for o in outcomes if o.extract}


def check_that_only_b_is_refused(world: World, staged: dict[str, Extract], outcomes: list[Outcome]) -> None:
    assert [(o.scope, o.status) for o in outcomes] == [(A, "committed"), (B, "refused"), (C, "committed")]
    assert isinstance(outcomes[1].error, ExtractDamaged)
    assert staged[B].folder in outcomes[1].message
    assert "Nothing was changed. Remove " in outcomes[1].message
    assert outcomes[1].attempts == 0
    assert [b.scope for b in world.ledger()] == [A, C]
    assert sorted(world.sql("SELECT day, id FROM orders")) == [(A, 1), (A, 10), (C, 3), (C, 30)]


@pytest.mark.parametrize(
    "name, value",
    [("rows", 1), ("scope", A), ("order", "zz"), ("source_rows", 3), ("digest", "0" * 64), ("upper", 7), ("seen", [1])],
)
def test_a_changed_manifest_is_found_before_it_is_published(
    world: World, staged: dict[str, Extract], name: str, value: Any
) -> None:
    fields = json.loads(contents(staged[B])[MANIFEST])
    assert fields[name] != value
    changed = json.dumps(fields | {name: value}, ensure_ascii=False) + "\n"
    rewrite(staged[B], {MANIFEST: changed.encode()})
    check_that_only_b_is_refused(world, staged, world.load(*DAYS))


@pytest.mark.parametrize("name", [INPUT, "candidate"])
@pytest.mark.parametrize("gone", [False, True], ids=["edited", "gone"])
def test_a_changed_file_is_found_before_it_is_published(
    world: World, staged: dict[str, Extract], name: str, gone: bool
) -> None:
    (name,) = (n for n in contents(staged[B]) if n.startswith(name))
    rewrite(staged[B], {name: None if gone else contents(staged[B])[name].replace(b"pear", b"peas")})
    check_that_only_b_is_refused(world, staged, world.load(*DAYS))


def test_what_was_refused_for_its_extract_is_loaded_once_that_is_removed(
    world: World, staged: dict[str, Extract]
) -> None:
    rewrite(staged[B], {INPUT: b"other"})
    check_that_only_b_is_refused(world, staged, world.load(*DAYS))
    place = Path(staged[B].folder)
    for path in [*place.glob("*"), *([place] if place.is_file() else [])]:
        path.unlink()
    if place.is_dir():
        place.rmdir()
    (outcome,) = world.load(B)
    assert outcome.status == "committed"
    assert [b.scope for b in world.ledger()] == [A, C, B]


def test_the_ledger_keeps_the_digest_of_the_manifest(world: World, staged: dict[str, Extract]) -> None:
    outcomes = world.load(*DAYS)
    assert {b.scope: b.manifest for b in world.ledger()} == {day: e.sha256 for day, e in staged.items()}
    for outcome in outcomes:
        assert outcome.extract is not None
        assert json.loads(contents(outcome.extract)[MANIFEST])["sha256"] == outcome.extract.sha256
