"""Every kind of bad delivery through a Dagster run: its own clear message, and the partition keeps its rows."""

import dagster as dg
import pytest

from etl_assets.contract import timestamp
from etl_assets_tests.orchestration.desk import Desk
from etl_assets_tests.world import World, orders

DAY = "2024-01-01"
HEADER = "id,day,item,amount\n"
GOOD = f"{HEADER}1,{DAY},pear,3\n2,{DAY},fig,5\n"

#: What is delivered, the kind of the refusal, and what the message must hold.
BAD: dict[str, tuple[bytes, str, tuple[str, ...]]] = {
    "zero bytes": (b"", "ZeroBytes", ("zero bytes", "Deliver it again")),
    "rows of another day": (f"{HEADER}1,2024-01-02,pear,3\n".encode(), "ForeignRows", ("line 2", "2024-01-01")),
    "an empty key": (f"{HEADER},{DAY},pear,3\n".encode(), "InvalidRows", ("line 2", "id")),
    "a key that repeats": (
        f"{HEADER}1,{DAY},pear,3\n1,{DAY},fig,4\n".encode(),
        "DuplicateKey",
        ("lines 2 and 3", "id=1"),
    ),
    "another encoding": (f"{HEADER}1,{DAY},".encode() + b"p\xe4r,3\n", "Undecodable", ("line 2",)),
    "a short row": (f"{HEADER}1,{DAY},pear\n".encode(), "RaggedRow", ("line 2",)),
    "a long row": (f"{HEADER}1,{DAY},pear,3,4\n".encode(), "RaggedRow", ("line 2",)),
    "a header that repeats": (f"id,day,item,item,amount\n1,{DAY},a,b,3\n".encode(), "BadHeader", ("item",)),
    "a blank header": (f"id,day,item,amount,\n1,{DAY},pear,3,4\n".encode(), "BadHeader", ()),
    "a NUL": (f"{HEADER}1,{DAY},p\0r,3\n".encode(), "BrokenDelivery", ("NUL",)),
    "an unterminated quote": (f'{HEADER}1,{DAY},"pear,3\n'.encode(), "BadQuoting", ("line 2",)),
    "another delimiter": (GOOD.replace(",", ";").encode(), "BadHeader", ()),
    "an integer beyond 64 bits": (f"{HEADER}1,{DAY},pear,12345678901234567890\n".encode(), "InvalidRows", ("amount",)),
    "a fraction in an integer": (f"{HEADER}1,{DAY},pear,1.5\n".encode(), "InvalidRows", ("amount", "1.5")),
    "a missing column": (f"id,day,item\n1,{DAY},pear\n".encode(), "BadHeader", ("amount",)),
    "a new column": (f"id,day,item,amount,shop\n1,{DAY},pear,3,x\n".encode(), "BadHeader", ("shop",)),
    "text where numbers were": (f"{HEADER}1,{DAY},pear,three\n".encode(), "InvalidRows", ("line 2", "amount", "three")),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_delivery_fails_in_its_own_words_and_the_partition_keeps_its_rows(desk: Desk, what: str) -> None:
    content, kind, holds = BAD[what]
    desk.world.deliver(DAY, GOOD)
    assert desk.launch(DAY).success
    rows, ledger = desk.world.rows(), desk.world.ledger()
    desk.world.deliver(DAY, content, "2.csv")
    result = desk.launch(DAY)
    said = desk.failure(result)
    assert said.splitlines()[0] == "1 of 1 partitions of orders were not loaded"
    assert said.splitlines()[1].startswith(f"{DAY}: {kind}: ")
    for part in ("2.csv", *holds):
        assert part in said
    assert "Traceback" not in said
    assert (desk.world.rows(), desk.world.ledger()) == (rows, ledger)
    assert desk.evaluations(result.run_id) == [("delivery_accepted", DAY, False)]
    assert desk.status("orders") == {DAY: "FAILED"}


def test_a_timestamp_without_offset_is_refused_where_the_contract_names_no_zone(
    world: World, instance: dg.DagsterInstance
) -> None:
    desk = Desk(world, instance, orders(columns=[*orders().columns, timestamp("at")]))
    world.deliver(DAY, f"id,day,item,amount,at\n1,{DAY},pear,3,2024-01-01 08:00:00\n")
    said = desk.failure(desk.launch(DAY))
    assert "InvalidRows" in said
    assert "at: " in said
    assert world.rows() == []


def test_empty_missing_broken_and_unreachable_are_four_outcomes_with_four_messages(desk: Desk) -> None:
    desk.world.deliver("2024-01-01", HEADER)
    empty = desk.launch("2024-01-01")
    assert empty.success
    assert [(b.scope, b.rows) for b in desk.world.ledger()] == [("2024-01-01", 0)]
    missing = desk.launch("2024-01-02")
    assert "MissingDelivery" in desk.failure(missing)
    assert "orders/2024-01-02/*.csv, 0 files matched" in desk.failure(missing)
    assert desk.evaluations(missing.run_id) == []
    desk.world.deliver("2024-01-03", b"")
    assert "ZeroBytes" in desk.failure(desk.launch("2024-01-03"))
    desk.world.deliver("2024-01-04", GOOD, "1.csv.part")
    assert "StillArriving" in desk.failure(desk.launch("2024-01-04"))
    desk.world.landing.rename(desk.world.root / "elsewhere")
    assert desk.failure(desk.launch("2024-01-05")).startswith("LandingUnreachable: ")
    assert [(b.scope, b.rows) for b in desk.world.ledger()] == [("2024-01-01", 0)]
