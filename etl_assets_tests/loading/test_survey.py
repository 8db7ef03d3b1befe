"""What is waiting, and why: landing beside ledger, worked out anew each time (cases 11, 14, 15 and 16)."""

from __future__ import annotations

import os

from etl_assets.errors import ShrunkDelivery, TransformFailed
from etl_assets.model import Refusal
from etl_assets_tests.world import World, orders

DAYS = [f"2024-01-{d:02}" for d in range(1, 11)]
BROKEN = "id,day,item,amount\nx,y\n"


def content(scope: str, number: int = 1) -> str:
    return f"id,day,item,amount\n{scope[-2:]}{number},{scope},pear,{number}\n"


def waiting(world: World, attempts: int | None = None) -> list[tuple[str, str]]:
    return [(s.scope, s.name) for s in world.survey().waiting(attempts)]


def test_after_eight_days_without_a_run_nothing_is_lost_and_the_gap_is_listed(world: World) -> None:
    world.deliver(DAYS[0], content(DAYS[0]))
    world.load(DAYS[0])
    arrived = [DAYS[i] for i in (1, 2, 3, 6, 7, 8)]
    for scope in arrived:
        world.deliver(scope, content(scope))
    found = world.survey()
    assert found.missing == (DAYS[4], DAYS[5])
    assert [s.scope for s in found.waiting(3)] == arrived
    assert [o.status for o in world.load_pending()] == ["committed"] * 6
    assert world.survey().waiting() == []
    assert world.survey().missing == (DAYS[4], DAYS[5])


def test_a_delivery_with_an_old_time_is_waiting_as_any_other(world: World) -> None:
    world.deliver(DAYS[1], content(DAYS[1]))
    world.load(DAYS[1])
    path = world.deliver(DAYS[0], content(DAYS[0]))
    os.utime(path, (0, 0))
    os.utime(path.parent, (0, 0))
    assert waiting(world, 3) == [(DAYS[0], "1.csv")]


def test_a_broken_delivery_is_asked_for_once_and_then_needs_attention(world: World) -> None:
    world.deliver(DAYS[0], BROKEN)
    assert waiting(world, 3) == [(DAYS[0], "1.csv")]
    (outcome,) = world.load(DAYS[0])
    assert outcome.attempts == 1
    (status,) = world.survey().statuses
    assert (status.state, status.attempts) == ("needs attention", 1)
    assert status.reason.startswith("refused once: ")
    assert "line 2" in status.reason
    assert waiting(world, 3) == []
    assert waiting(world) == [(DAYS[0], "1.csv")]  # a person who asks for all that is pending still gets it


def test_a_refusal_in_which_the_table_has_a_say_is_asked_for_again_a_few_times(world: World) -> None:
    shrinks = orders(shrink_limit=0.5)
    world.deliver(DAYS[0], "".join([content(DAYS[0]), *(f"{n},{DAYS[0]},fig,1\n" for n in range(100, 110))]))
    world.load(DAYS[0], pipeline=shrinks)
    world.deliver(DAYS[0], content(DAYS[0]), "2.csv")
    for attempt in (1, 2, 3):
        assert [s.name for s in world.survey(shrinks).waiting(3)] == ["2.csv"]
        (outcome,) = world.load(DAYS[0], pipeline=shrinks)
        assert (type(outcome.error), outcome.attempts) == (ShrunkDelivery, attempt)
    assert world.survey(shrinks).waiting(3) == []
    assert world.survey(shrinks).statuses[-1].reason.startswith("refused 3 times: ")


def test_a_kind_of_refusal_that_is_not_known_is_asked_for_again() -> None:
    assert [Refusal(kind, "", "", 1).needs_attention(3) for kind in ("ZeroBytes", "MovedKeys", "Elsewhere")] == [
        True,
        False,
        False,
    ]


def test_a_new_delivery_after_one_that_needs_attention_is_asked_for_at_once(world: World) -> None:
    world.deliver(DAYS[0], BROKEN)
    for _ in range(4):
        world.load(DAYS[0])
    world.deliver(DAYS[0], content(DAYS[0]), "2.csv")
    assert waiting(world, 3) == [(DAYS[0], "2.csv")]
    assert [o.status for o in world.load_pending()] == ["committed"]
    assert [(s.name, s.state) for s in world.survey().statuses] == [("1.csv", "superseded"), ("2.csv", "committed")]


def test_a_broken_file_that_is_written_anew_is_a_new_revision_and_asked_for_at_once(world: World) -> None:
    world.deliver(DAYS[0], BROKEN)
    for _ in range(3):
        world.load(DAYS[0])
    world.deliver(DAYS[0], content(DAYS[0]))
    assert waiting(world, 3) == [(DAYS[0], "1.csv")]
    assert [o.status for o in world.load_pending()] == ["committed"]


def test_a_refused_newest_delivery_is_not_skipped_in_favour_of_an_older_one(world: World) -> None:
    world.deliver(DAYS[0], content(DAYS[0]), "1.csv")
    world.deliver(DAYS[0], BROKEN, "2.csv")
    (outcome,) = world.load_pending()
    assert outcome.status == "refused"
    assert world.rows() == []
    assert [(s.name, s.state, s.newest) for s in world.survey().statuses] == [
        ("1.csv", "arrived", False),
        ("2.csv", "needs attention", True),
    ]
    (named,) = world.load(DAYS[0], delivery="1.csv")  # a person may name the older one
    assert named.status == "committed"
    assert waiting(world) == [(DAYS[0], "2.csv")]


def test_attempts_begin_anew_when_contract_or_logic_change(world: World) -> None:
    def fails(frame: object) -> object:
        raise ValueError("no such luck")

    world.deliver(DAYS[0], content(DAYS[0]))
    for _ in range(3):
        (outcome,) = world.load(DAYS[0], pipeline=orders(transform=fails))
        assert isinstance(outcome.error, TransformFailed)
    assert world.survey(orders(transform=fails)).waiting(3) == []
    assert [s.state for s in world.survey().waiting(3)] == ["arrived"]


def test_what_is_frozen_and_not_published_is_staged(world: World) -> None:
    world.deliver(DAYS[0], content(DAYS[0]))
    list(world.engine().load(DAYS[:1], "one", publish=False))
    assert [(s.state, s.newest) for s in world.survey().statuses] == [("staged", True)]
    assert world.rows() == []
    assert [o.status for o in world.load_pending()] == ["committed"]


def test_a_run_that_was_cut_off_leaves_its_delivery_waiting(world: World) -> None:
    for scope in DAYS[:3]:
        world.deliver(scope, content(scope))
    running = world.engine().load(DAYS[:3], "cut off")
    next(running)
    running.close()
    assert waiting(world, 3) == [(DAYS[1], "1.csv"), (DAYS[2], "1.csv")]


def test_files_under_no_partition_of_the_contract_are_shown_and_never_loaded(world: World) -> None:
    world.deliver("2031-01-01", content("2031-01-01"))
    world.deliver("readme", "hello")
    assert {(s.scope, s.state) for s in world.survey().statuses} == {
        ("2031-01-01", "unknown partition"),
        ("readme", "unknown partition"),
    }
    assert world.load_pending() == []


def test_a_delivery_that_left_landing_stays_in_the_list(world: World) -> None:
    path = world.deliver(DAYS[0], content(DAYS[0]))
    world.load(DAYS[0])
    path.unlink()
    assert [(s.name, s.state, s.newest) for s in world.survey().statuses] == [("1.csv", "committed", False)]
    world.deliver(DAYS[0], content(DAYS[0], 2), "2.csv")
    world.deliver(DAYS[0], content(DAYS[0], 10), "10.csv")
    assert [s.name for s in world.survey().statuses] == ["1.csv", "2.csv", "10.csv"]
    (world.landing / "orders" / DAYS[0] / "2.csv").unlink()
    assert [s.name for s in world.survey().statuses] == ["1.csv", "10.csv"]
