"""What the showcase tells: days and carriers whose mean departure delay passes half an hour; and derived tables that tell."""

from __future__ import annotations

import csv as csv_module
import io
from collections import defaultdict
from contextlib import closing
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

from etl_assets.contract import DerivedTable, Notification, date, integer, repair, same_partition
from etl_assets.outbox import deliver, open_relay
from etl_assets.pipelines.departures_by_day import departures_by_day
from etl_assets.pipelines.flights import flights
from etl_assets_tests.outbox.receiver import Receiver
from etl_assets_tests.outbox.shop import A, B, csv, said
from etl_assets_tests.world import SHOWCASE, World, orders

DAY = "2013-11-07"


REAL = (SHOWCASE / "flights" / DAY / "1.csv").read_text()


def read(content: str) -> list[dict[str, str]]:
    return list(csv_module.DictReader(io.StringIO(content)))


def delivery(delay: int = 0) -> str:
    """The real delivery of a day, every departure so many minutes later than it was."""
    rows = read(REAL)
    for row in rows:
        if row["dep_delay"] not in ("", "NA"):
            row["dep_delay"] = str(int(row["dep_delay"]) + delay)
    text = io.StringIO()
    writer = csv_module.DictWriter(text, rows[0].keys(), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def mean(content: str) -> tuple[float, int]:
    """Mean departure delay of those that departed, and the number of rows."""
    rows = read(content)
    delays = [int(r["dep_delay"]) for r in rows if r["dep_delay"] not in ("", "NA")]
    return round(sum(delays) / len(delays), 1), len(rows)


def send(world: World, receiver: Receiver) -> None:
    with closing(open_relay(receiver.url)) as relay:
        assert {a.status for a in deliver(world.warehouse, relay)} <= {"sent"}


def test_a_day_that_passes_thirty_minutes_is_told_once_and_again_when_a_correction_changes_it(
    tmp_path: Path, receiver: Receiver
) -> None:
    world = World(tmp_path, flights)
    wanted: list[dict[str, Any]] = []
    # 13.6 minutes as it was; 33.6; the same again under a new name; 28.6, which is not told; 40.6.
    for number, delay in enumerate((0, 20, 20, 15, 27), start=1):
        content = delivery(delay)
        world.deliver(DAY, content, f"{number}.csv")
        assert [o.status for o in world.load(DAY)] == ["committed"]
        minutes, departures = mean(content)
        told = {"day": DAY, "mean_delay": minutes, "departures": departures}
        if minutes > 30 and told not in wanted:
            wanted.append(told)
        send(world, receiver)
        assert receiver.told("late-days") == wanted
    assert [told["mean_delay"] for told in wanted] == [33.6, 40.6]
    assert len(receiver.requests) == 2


def test_carriers_of_the_showcase_are_told_by_the_derived_table(tmp_path: Path, receiver: Receiver) -> None:
    world = World(tmp_path, flights)
    world.deliver(DAY, REAL)
    world.load(DAY)
    world.load(DAY, pipeline=departures_by_day)  # type: ignore[arg-type]
    send(world, receiver)
    by_carrier = defaultdict(list)
    for row in read(REAL):
        by_carrier[row["origin"], row["carrier"]].append(row["dep_delay"])
    late = []
    for (origin, carrier), delays in sorted(by_carrier.items()):
        known = [int(delay) for delay in delays if delay not in ("", "NA")]
        if known and sum(known) / len(known) > 30:
            of = {"day": DAY, "origin": origin, "carrier": carrier, "departures": len(delays)}
            exact = Decimal(sum(known)) / len(known)
            late.append(of | {"mean_delay": float(exact.quantize(Decimal("0.01"), ROUND_HALF_UP))})
    assert len(late) == 7
    assert receiver.told("late-carriers") == late
    assert receiver.told("late-days") == []


def test_a_row_that_moves_makes_a_derived_table_tell_of_both_days_and_of_nothing_twice(tmp_path: Path) -> None:
    shop = orders(moved_keys=repair(order="delivery"))
    fields: dict[str, Any] = {
        "name": "totals",
        "partitions": shop.partitions,
        "upstream": [same_partition(shop)],
        "sql": "SELECT day, sum(amount) AS total FROM orders GROUP BY day",
        "columns": [date("day"), integer("total")],
        "key": ["day"],
    }
    high = Notification(name="high", topic="t", sql="SELECT day, total FROM totals WHERE total > 9", key=["day"])
    totals: Any = DerivedTable(**fields, notifications=[high])
    assert totals.code == DerivedTable(**fields).code
    world = World(tmp_path, shop)
    world.deliver(A, csv(f"1,{A},pear,10", f"2,{A},fig,10"), "1.csv")
    world.load(A)
    world.load(A, pipeline=totals)
    world.deliver(B, csv(f"2,{B},fig,30"), "2.csv")
    world.load(B)
    for _ in range(2):
        world.load(A, B, pipeline=totals)
    assert said(world) == [(A, {"day": A, "total": 20}), (A, {"day": A, "total": 10}), (B, {"day": B, "total": 30})]
