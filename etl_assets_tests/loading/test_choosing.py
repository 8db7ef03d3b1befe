"""Which delivery counts where names tell it, and that none is guessed at where they, or the contents, do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etl_assets.contract import ChangeLogTable, Daily, WatermarkTable, integer, text
from etl_assets.errors import Superseded, UndecidedNames, UnrelatedDeliveries
from etl_assets_tests.world import DAYS, World, orders

DAY, NEXT = DAYS[0], DAYS[1]


def content(*rows: tuple[int, int]) -> str:
    return "\n".join(["id,day,item,amount", *(f"{key},{DAY},pear,{amount}" for key, amount in rows)]) + "\n"


def amounts(world: World) -> list[tuple[int, int]]:
    return sorted((key, amount) for amount, _, key, _ in world.rows())


def states(world: World) -> dict[str, str]:
    return {s.name: s.state for s in world.survey().statuses}


@pytest.mark.parametrize("name", ["sales-2.csv", "sales (1).csv", "sales.1.csv", "sales-corrected.csv", "SALES 2.csv"])
@pytest.mark.parametrize("together", [False, True])
def test_a_correction_whose_name_goes_on_is_loaded(world: World, name: str, together: bool) -> None:
    world.deliver(DAY, content((1, 1)), "sales.csv")
    if not together:
        world.load_pending()
    world.deliver(DAY, content((1, 2)), name)
    assert [(o.status, o.delivery and o.delivery.name) for o in world.load_pending()] == [("committed", name)]
    assert amounts(world) == [(1, 2)]
    assert states(world) == {"sales.csv": "superseded", name: "committed"}
    assert world.load_pending() == []


def test_names_that_tell_no_order_are_refused_whichever_came_first(world: World) -> None:
    world.deliver(DAY, content((1, 1)), "jan.csv")
    world.deliver(DAY, content((1, 2)), "feb.csv")
    for _ in range(2):
        (outcome,) = world.load_pending()
        assert isinstance(outcome.error, UndecidedNames)
        assert "the names 'jan.csv' and 'feb.csv' do not tell" in outcome.message
        assert "load one on purpose by its name (--delivery)" in outcome.message
        assert states(world) == {"jan.csv": "needs attention", "feb.csv": "needs attention"}
    assert world.survey().waiting(attempts=3) == []
    assert world.ledger() == []


@pytest.mark.parametrize("chosen, other", [("jan.csv", "feb.csv"), ("feb.csv", "jan.csv")])
def test_what_a_person_named_is_not_undone_by_a_plain_run(world: World, chosen: str, other: str) -> None:
    world.deliver(DAY, content((1, 1)), "jan.csv")
    world.deliver(DAY, content((1, 2)), "feb.csv")
    (outcome,) = world.load(DAY, delivery=chosen)
    assert outcome.status == "committed"
    rows = world.rows()
    for again in (world.load_pending, lambda: world.load(DAY)):
        (outcome,) = again()
        assert isinstance(outcome.error, UndecidedNames)
    assert states(world) == {chosen: "committed", other: "needs attention"}
    assert world.rows() == rows
    # A person may change his mind, and both of his decisions are in the ledger.
    assert world.load(DAY, delivery=other)[0].status == "committed"
    assert states(world) == {chosen: "superseded", other: "committed"}
    assert world.load_pending() == []
    # A later name decides, and what the ledger has settled is no question any more.
    stem = other.removesuffix(".csv")
    world.deliver(DAY, content((1, 3)), f"{stem}-2.csv")
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert amounts(world) == [(1, 3)]


def test_new_bytes_of_what_was_chosen_against_are_no_decision(world: World) -> None:
    world.deliver(DAY, content((1, 1)), "jan.csv")
    world.load_pending()
    world.deliver(DAY, content((1, 2)), "feb.csv")
    world.load(DAY, delivery="feb.csv")
    assert (world.load_pending(), amounts(world)) == ([], [(1, 2)])
    world.deliver(DAY, content((1, 33)), "jan.csv")
    (outcome,) = world.load_pending()
    assert isinstance(outcome.error, UndecidedNames)
    assert amounts(world) == [(1, 2)]


def test_a_name_is_compared_with_the_committed_one_that_is_gone(world: World) -> None:
    path = world.deliver(DAY, content((1, 1)), "sales.csv")
    world.load_pending()
    path.unlink()
    world.deliver(DAY, content((1, 2)), "other.csv")
    (outcome,) = world.load_pending()
    assert "'sales.csv' and 'other.csv'" in outcome.message or "'other.csv' and 'sales.csv'" in outcome.message
    assert amounts(world) == [(1, 1)]


def test_an_older_name_is_superseded_and_no_question(world: World) -> None:
    world.deliver(DAY, content((1, 1)), "sales.csv")
    world.deliver(DAY, content((1, 2)), "sales-2.csv")
    world.load_pending()
    (outcome,) = world.load(DAY, delivery="sales.csv")
    assert isinstance(outcome.error, Superseded)
    assert world.load(DAY)[0].status == "already committed"


def log(**changes: Any) -> ChangeLogTable:
    fields: dict[str, Any] = {
        "name": "log",
        "partitions": Daily(start=DAY, end="2024-02-01"),
        "landing": "log/{partition}/*",
        "columns": [integer("id"), text("item")],
        "key": ["id"],
    }
    return ChangeLogTable(**(fields | changes))


def snapshots(**changes: Any) -> WatermarkTable:
    fields: dict[str, Any] = {
        "name": "stock",
        "partitions": Daily(start=DAY, end="2024-02-01"),
        "landing": "stock/{partition}/*",
        "columns": [integer("id"), integer("at")],
        "key": ["id"],
        "updated": "at",
    }
    return WatermarkTable(**(fields | changes))


def test_names_of_partial_snapshots_are_in_nobodys_way(tmp_path: Path) -> None:
    world = World(tmp_path, snapshots())  # type: ignore[arg-type]
    world.deliver(DAY, "id,at\n1,1\n", "jan.csv")
    world.deliver(DAY, "id,at\n2,2\n", "feb.csv")
    assert [o.status for o in world.load_pending()] == ["committed"] * 2


def test_complete_snapshots_of_a_day_whose_names_tell_no_order_wait(tmp_path: Path) -> None:
    world = World(tmp_path, snapshots(complete="whole"))  # type: ignore[arg-type]
    world.deliver(DAY, "id,at\n1,1\n2,1\n", "jan.csv")
    world.deliver(DAY, "id,at\n1,2\n", "feb.csv")
    assert {type(outcome.error) for outcome in world.load_pending()} == {UndecidedNames}
    assert world.load(DAY, delivery="jan.csv")[0].status == "committed"
    assert states(world) == {"jan.csv": "committed", "feb.csv": "needs attention"}
    assert world.load(DAY, delivery="feb.csv")[0].status == "committed"
    assert world.rows() == [(2, 1)]
    assert (states(world), world.load_pending()) == ({"jan.csv": "committed", "feb.csv": "committed"}, [])


PARTS = {f"part-0000{n}-8f1c-c000.csv": content((2 * n + 1, n), (2 * n + 2, n)) for n in range(4)}


@pytest.mark.parametrize("key", [["id"], []])
def test_part_files_that_came_together_are_refused_all_of_them(tmp_path: Path, key: list[str]) -> None:
    world = World(tmp_path, orders(key=key))
    for name, rows in PARTS.items():
        world.deliver(DAY, rows, name)
    for _ in range(2):
        (outcome,) = world.load_pending()
        assert isinstance(outcome.error, UnrelatedDeliveries)
        assert f"part-00003-8f1c-c000.csv and {world.landing}" in outcome.message
        assert set(states(world).values()) == {"needs attention"}
    assert (world.ledger(), world.survey().waiting(attempts=3)) == ([], [])
    # What a person names is loaded, and stays.
    assert world.load(DAY, delivery="part-00002-8f1c-c000.csv")[0].status == "committed"
    rows = world.rows()
    assert isinstance(world.load_pending()[0].error, UnrelatedDeliveries)
    assert world.rows() == rows


def test_the_whole_in_one_file_goes_on_where_parts_were_refused(world: World) -> None:
    for name, rows in PARTS.items():
        world.deliver(DAY, rows, name)
    world.load_pending()
    whole = content(*((n, 5) for n in range(1, 9)))
    world.deliver(DAY, whole, "part-00003-8f1c-c000-whole.csv")
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert amounts(world) == [(n, 5) for n in range(1, 9)]


def test_a_part_that_is_left_alone_is_a_delivery(world: World) -> None:
    paths = [world.deliver(DAY, rows, name) for name, rows in PARTS.items()]
    world.load_pending()
    for path in paths[:-1]:
        path.unlink()
    assert states(world)["part-00003-8f1c-c000.csv"] == "staged"
    assert [o.status for o in world.load_pending()] == ["committed"]


@pytest.mark.parametrize(
    "files",
    [
        [content((1, 1), (2, 1)), content((2, 2), (3, 2))],
        [content((1, 1)), content()],
        [content(), content((1, 1))],
        [content((1, 1)), "broken", content((1, 2))],
        [content((1, 1)), b"", content((1, 2), (9, 9))],
    ],
)
def test_corrections_that_came_together_share_a_key_or_have_no_rows(world: World, files: list[str | bytes]) -> None:
    for number, rows in enumerate(files):
        world.deliver(DAY, rows, f"{number}.csv")
    assert [o.status for o in world.load_pending()] == ["committed"]


def test_parts_beside_an_empty_newest_one_are_seen(world: World) -> None:
    world.deliver(DAY, content((1, 1)), "part-0.csv")
    world.deliver(DAY, content((2, 1)), "part-1.csv")
    world.deliver(DAY, content(), "part-2.csv")
    (outcome,) = world.load_pending()
    assert isinstance(outcome.error, UnrelatedDeliveries)


def test_parts_that_came_beside_a_committed_delivery_are_seen(world: World) -> None:
    world.deliver(DAY, content((1, 1), (2, 1)), "sales-0.csv")
    world.load_pending()
    world.deliver(DAY, content((1, 2)), "sales-1.csv")
    world.deliver(DAY, content((2, 2)), "sales-2.csv")
    (outcome,) = world.load_pending()
    assert isinstance(outcome.error, UnrelatedDeliveries)
    assert amounts(world) == [(1, 1), (2, 1)]


def test_parts_of_a_complete_snapshot_withdraw_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, snapshots(complete="whole"))  # type: ignore[arg-type]
    world.deliver(DAY, "id,at\n1,1\n", "part-0.csv")
    world.deliver(DAY, "id,at\n2,1\n", "part-1.csv")
    assert {type(outcome.error) for outcome in world.load_pending()} == {UnrelatedDeliveries}
    assert (world.ledger(), set(states(world).values())) == ([], {"needs attention"})
    world.deliver(NEXT, "id,at\n1,1\n2,1\n")
    world.load_pending()
    assert world.rows() == [(1, 1), (1, 2)]
