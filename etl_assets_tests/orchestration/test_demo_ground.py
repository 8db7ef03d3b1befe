"""The demo clears what an earlier demo left, and refuses to clear anything else."""

import shutil
from pathlib import Path

import pytest

from etl_assets.loading import Engine
from etl_assets.orchestration.demo.ground import MARKER, SHOWCASE, ForeignData, Ground
from etl_assets.orchestration.demo.plan import ACCIDENT, LEFT, PARTS
from etl_assets.pipelines.flights import flights
from etl_assets.settings import Settings

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    places = Settings(*(str(tmp_path / name) for name in ("landing", "staged", "warehouse.sqlite")))
    return Ground(places, tmp_path / "home", PROJECT)


def play(ground: Ground) -> None:
    """What a demo leaves: deliveries, extracts, a warehouse and a Dagster home."""
    ground.clear()
    ground.prepare()
    scopes = ground.deliver("flights", "*/2.csv")
    list(Engine(ground.settings, flights).load(scopes[:2], "test"))
    (ground.home / "storage").mkdir()


def everything(ground: Ground) -> list[Path]:
    root = ground.landing.parent
    return sorted(p.relative_to(root) for p in root.rglob("*") if p.is_file())


def test_an_earlier_demo_is_cleared_away(ground: Ground) -> None:
    play(ground)
    assert ground.clear() == list(ground.places)
    assert everything(ground) == []
    play(ground)


def test_what_was_copied_from_the_showcase_since_is_cleared_away_too(ground: Ground) -> None:
    play(ground)
    (ground.landing / LEFT).parent.mkdir(parents=True)
    shutil.copy(PROJECT / SHOWCASE / LEFT, ground.landing / LEFT)
    ground.clear()
    assert everything(ground) == []


def test_every_delivery_of_the_showcase_but_the_one_that_is_left_has_its_part_in_the_demo(ground: Ground) -> None:
    ground.prepare()
    for part in (*PARTS, ACCIDENT):
        first, later = (set(ground.deliver(part.folder, *patterns)) for patterns in (part.first, part.later))
        assert part is ACCIDENT or (first and later), part.pipeline.name
    delivered = {str(p.relative_to(ground.landing)) for p in ground.landing.glob("*/*/*")}
    showcase = PROJECT / SHOWCASE
    assert {str(p.relative_to(showcase)) for p in showcase.glob("*/*/*")} - delivered == {LEFT}


def foreign_delivery(ground: Ground) -> None:
    shutil.copy(next(ground.landing.glob("flights/*/2.csv")), ground.landing / "flights" / "mine.csv")


def edited_delivery(ground: Ground) -> None:
    next(ground.landing.glob("flights/*/2.csv")).write_text("year\n")


def foreign_batch(ground: Ground) -> None:
    scope = ground.deliver("flights", "*/1.csv")[0]
    file = ground.landing / "flights" / scope / "1.csv"
    delivered = file.read_bytes()
    file.write_bytes(b"".join(delivered.splitlines(keepends=True)[:-1]))
    list(Engine(ground.settings, flights).load([scope], "test", delivery="1.csv"))
    shutil.rmtree(ground.settings.staged)
    file.write_bytes(delivered)


@pytest.mark.parametrize("add", [foreign_delivery, edited_delivery, foreign_batch])
def test_what_no_demo_put_there_is_refused_and_stays(ground: Ground, add) -> None:
    play(ground)
    add(ground)
    before = everything(ground)
    with pytest.raises(ForeignData, match="was not put there by a demo"):
        ground.clear()
    assert everything(ground) == before


@pytest.mark.parametrize("place", ["landing/flights/2013-10-25/1.csv", "staged/x", "warehouse.sqlite"])
def test_folders_that_are_in_use_without_a_demo_are_refused(ground: Ground, place: str) -> None:
    path = ground.landing.parent / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("mine")
    with pytest.raises(ForeignData, match="set ETL_LANDING"):
        ground.clear()
    assert path.read_text() == "mine"
    assert not (ground.landing / MARKER).exists()
