"""Landing: what is found under which name, in which order, and what is not there yet."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contract import Hourly, PartitionedTable, Static
from etl_assets.errors import LandingUnreachable, StagingFailed, StillArriving
from etl_assets.landing import Landing, landing_segment, settling
from etl_assets.landing import landing as module
from etl_assets.model import Arrival
from etl_assets.naming import natural_order
from etl_assets_tests.world import World, orders

DAY, NEXT = "2024-01-01", "2024-01-02"


def lay(root: Path, *paths: str, content: bytes = b"x") -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)


def found(root: Path, pipeline: PartitionedTable) -> dict[str, list[str]]:
    """Names by scope in their order, which must be the same when each scope is listed by itself."""
    landing = Landing(str(root), pipeline)
    every: dict[str, list[Arrival]] = {}
    for arrival in landing.arrivals():
        every.setdefault(arrival.scope, []).append(arrival)
    for scope, arrivals in every.items():
        assert landing.arrivals(scope) == arrivals
        assert len({a.name for a in arrivals}) == len(arrivals)
        assert len({a.order for a in arrivals}) == len(arrivals)
    return {scope: [a.name for a in arrivals] for scope, arrivals in every.items()}


# --------------------------------------------------------------------------- the order of names


@pytest.mark.parametrize(
    "names",
    [
        ["1.csv", "2.csv", "9.csv", "10.csv", "11.csv", "100.csv"],
        ["01.csv", "1.csv", "02.csv", "2.csv"],
        ["2023-12-31.csv", "2024-1-2.csv", "2024-01-10.csv", "2024-2-1.csv"],
        ["a.csv", "a1.csv", "a2.csv", "a10.csv", "b.csv"],
        ["v1.9.csv", "v1.10.csv", "v2.0.csv"],
        ["9" * 200 + ".csv", "1" + "0" * 200 + ".csv"],
        ["9" * 999, "9" * 1000, "9" * 1001],
    ],
)
def test_names_are_ordered_as_people_do(names: list[str]) -> None:
    assert sorted(names, key=natural_order) == names


@given(
    st.lists(st.integers(0, 10**30), min_size=2, max_size=2), st.text("ab.-_é", max_size=4), st.text("xy.-", max_size=4)
)
def test_numbers_in_otherwise_equal_names_are_compared_by_value(numbers: list[int], before: str, after: str) -> None:
    one, two = (f"{before}{n}{after}" for n in numbers)
    assert (natural_order(one) < natural_order(two)) == (numbers[0] < numbers[1])


@given(st.text(max_size=12), st.text(max_size=12))
def test_only_equal_names_have_an_equal_order(one: str, two: str) -> None:
    assert (natural_order(one) == natural_order(two)) == (one == two)


@given(st.lists(st.text("0123a.é", max_size=8), max_size=8))
def test_the_database_orders_names_as_python_does(names: list[str]) -> None:
    orders_ = [natural_order(n) for n in names]
    assert sorted(orders_) == sorted(orders_, key=str.encode)


# --------------------------------------------------------------------------- patterns

PATTERNS: list[tuple[str, list[str], dict[str, list[str]]]] = [
    (
        "o/{partition}/*.csv",
        ["o/2024-01-01/10.csv", "o/2024-01-01/9.csv", "o/2024-01-01/x.txt"],
        {DAY: ["9.csv", "10.csv"]},
    ),
    ("o/{partition}.csv", ["o/2024-01-01.csv", "o/2024-01-02.csv"], {DAY: [f"{DAY}.csv"], NEXT: [f"{NEXT}.csv"]}),
    ("{partition}", ["2024-01-01", "2024-01-02"], {DAY: [DAY], NEXT: [NEXT]}),
    (
        "{partition}-*.csv",
        ["2024-01-01-1.csv", "2024-01-01-b-2.csv"],
        {DAY: ["2024-01-01-1.csv", "2024-01-01-b-2.csv"]},
    ),
    ("*{partition}*", ["a2024-01-01b", "2024-01-02"], {DAY: ["a2024-01-01b"], NEXT: [NEXT]}),
    ("o/in-{partition}/x.csv", ["o/in-2024-01-01/x.csv"], {DAY: ["in-2024-01-01/x.csv"]}),
    (
        "{partition}/{partition}-*.csv",
        ["2024-01-01/2024-01-01-2.csv", "2024-01-01/2024-01-02-2.csv"],
        {DAY: ["2024-01-01-2.csv"]},
    ),
    (
        "{partition}_{partition}.csv",
        ["2024-01-01_2024-01-01.csv", "2024-01-01_2024-01-02.csv"],
        {DAY: [f"{DAY}_{DAY}.csv"]},
    ),
    ("*/{partition}/*.csv", ["b/2024-01-01/1.csv", "a/2024-01-01/1.csv"], {DAY: ["a/1.csv", "b/1.csv"]}),
    (
        "o/{partition}/*/part-?.csv",
        [
            "o/2024-01-01/2/part-1.csv",
            "o/2024-01-01/10/part-1.csv",
            "o/2024-01-01/10/part-10.csv",
            "o/2024-01-01/part-1.csv",
        ],
        {DAY: ["2/part-1.csv", "10/part-1.csv"]},
    ),
    ("o/{partition}/raw/*.csv", ["o/2024-01-01/raw/1.csv", "o/2024-01-01/1.csv"], {DAY: ["raw/1.csv"]}),
    ("o/{partition}/data.csv", ["o/2024-01-01/data.csv", "o/2024-01-01/data_csv"], {DAY: ["data.csv"]}),
    ("o/{partition}/[a]+.csv", ["o/2024-01-01/[a]+.csv", "o/2024-01-01/a.csv"], {DAY: ["[a]+.csv"]}),
    ("o/{partition}/*", ["o/2024-01-01/.hidden", "o/2024-01-01/1.csv~", "o/2024-01-01/1.csv"], {DAY: ["1.csv"]}),
    ("o/{partition}/*.tmp", ["o/2024-01-01/1.tmp"], {DAY: ["1.tmp"]}),
    ("o/*/{partition}/*", ["o/.git/2024-01-01/1"], {}),
    ("o/{partition}/*.csv", ["o/2024-01-01/1.csv/2.csv"], {}),
    ("o/{partition}/*.csv", ["o"], {}),
]


@pytest.mark.parametrize("pattern, paths, wanted", PATTERNS)
def test_a_pattern_finds_its_files_under_one_name_however_they_are_listed(
    tmp_path: Path, pattern: str, paths: list[str], wanted: dict[str, list[str]]
) -> None:
    lay(tmp_path, *paths)
    assert found(tmp_path, orders(landing=pattern)) == wanted


def test_files_of_a_partition_that_the_contract_does_not_have_are_listed_as_unknown(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv", "orders/2023-12-31/1.csv", "orders/2024-02-30/1.csv", "orders/misc/1.csv")
    arrivals = Landing(str(tmp_path), orders()).arrivals()
    assert [(a.scope, a.known) for a in arrivals] == [
        ("2023-12-31", False),
        (DAY, True),
        ("2024-02-30", False),
        ("misc", False),
    ]


KEYS = (
    "a",
    "a-b",
    "../up",
    "x/y",
    "x%2Fy",
    ".hidden",
    "it's",
    'say "hi"',
    "semi;colon",
    "p[1]*?",
    "é ö",
    "~",
    "back\\slash",
    "t~",
)


def test_every_static_key_has_a_folder_of_its_own_inside_of_landing(tmp_path: Path) -> None:
    root = tmp_path / "landing"
    for key in KEYS:
        lay(root, f"orders/{landing_segment(key)}/1.csv")
    assert sorted(p.name for p in (root / "orders").iterdir()) == sorted(map(landing_segment, KEYS))
    pipeline = orders(partitions=Static(*KEYS), partition_by=None)
    assert found(root, pipeline) == {key: ["1.csv"] for key in KEYS}
    assert all(a.known for a in Landing(str(root), pipeline).arrivals())
    assert [p.name for p in tmp_path.iterdir()] == ["landing"]


def test_the_longer_of_two_keys_that_fit_a_name_is_meant(tmp_path: Path) -> None:
    lay(tmp_path, "a-1.csv", "a-b-1.csv", "a-b.csv")
    pipeline = orders(partitions=Static("a", "a-b"), partition_by=None, landing="{partition}-*.csv")
    assert found(tmp_path, pipeline) == {"a": ["a-1.csv", "a-b.csv"], "a-b": ["a-b-1.csv"]}


def test_the_repeated_hour_of_a_clock_change_has_a_folder_of_its_own(tmp_path: Path) -> None:
    lay(tmp_path, "o/2013-11-03-01:00/1.csv", "o/2013-11-03-01:00-0500/1.csv")
    hours = Hourly(start="2013-11-03-00:00", end="2013-11-04-00:00", timezone="America/New_York")
    pipeline = orders(partitions=hours, partition_by=None, landing="o/{partition}/*.csv")
    assert found(tmp_path, pipeline) == {"2013-11-03-01:00": ["1.csv"], "2013-11-03-01:00-0500": ["1.csv"]}
    flat = orders(partitions=hours, partition_by=None, landing="f/{partition}-*.csv")
    lay(tmp_path, "f/2013-11-03-01:00-1.csv", "f/2013-11-03-01:00-0500-1.csv")
    assert list(found(tmp_path, flat)) == ["2013-11-03-01:00", "2013-11-03-01:00-0500"]


def test_the_partitions_key_is_no_part_of_the_order_and_other_digits_are(tmp_path: Path) -> None:
    pipeline = orders(partitions=Static("1", "2"), partition_by=None, landing="{partition}/release-*-{partition}.csv")
    lay(tmp_path, *(f"{key}/release-{n}-{key}.csv" for key in "12" for n in (1, 2, 10, 11, 12)))
    assert found(tmp_path, pipeline) == {k: [f"release-{n}-{k}.csv" for n in (1, 2, 10, 11, 12)] for k in "12"}
    order: dict[str, set[str]] = {}
    for arrival in Landing(str(tmp_path), pipeline).arrivals():
        order.setdefault(arrival.name[:-6], set()).add(arrival.order)
    assert all(len(same) == 1 for same in order.values())


# --------------------------------------------------------------------------- missing, arriving, unreachable


def test_an_absent_folder_is_empty_and_an_absent_root_is_unreachable(tmp_path: Path) -> None:
    assert Landing(str(tmp_path), orders()).arrivals() == []
    with pytest.raises(LandingUnreachable, match=r"gone does not exist or is not a folder.*set ETL_LANDING"):
        Landing(str(tmp_path / "gone"), orders()).arrivals()
    lay(tmp_path, "file")
    with pytest.raises(LandingUnreachable, match="not a folder"):
        Landing(str(tmp_path / "file"), orders()).arrivals()


def test_a_landing_of_an_unknown_kind_is_unreachable() -> None:
    with pytest.raises(LandingUnreachable, match="nosuch://bucket cannot be opened"):
        Landing("nosuch://bucket", orders())


def test_a_folder_that_cannot_be_listed_is_no_empty_one(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv")
    if os.geteuid():
        (tmp_path / "orders").chmod(0)
    else:  # permissions do not stop root; a chain of links without end does
        (tmp_path / "orders").rename(tmp_path / "aside")
        (tmp_path / "orders").symlink_to("orders")
    try:
        with pytest.raises(LandingUnreachable, match=r"cannot be listed.*Nothing was changed"):
            Landing(str(tmp_path), orders()).arrivals()
    finally:
        if os.geteuid():
            (tmp_path / "orders").chmod(0o755)


@pytest.mark.parametrize("suffix", [".part", ".partial", ".tmp", ".filepart", ".crdownload", ".uploading"])
def test_a_file_whose_name_says_that_it_is_being_written_is_listed_and_not_read(tmp_path: Path, suffix: str) -> None:
    lay(tmp_path, f"orders/2024-01-01/1.csv{suffix}", f"orders/2024-01-01/other{suffix}")
    landing = Landing(str(tmp_path), orders())
    (arrival,) = landing.arrivals()
    assert arrival.name == f"1.csv{suffix}"
    assert arrival.arriving == f"its name says that it is being written ({suffix})"
    with pytest.raises(StillArriving, match="it is read once it is complete"):
        landing.fetch(arrival, tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def growing(path: Path, how: str) -> Any:
    """A function that touches a file as another process would, between listing and the end of reading."""

    def grow() -> None:
        match how:
            case "append":
                with path.open("ab") as file:
                    file.write(b"more")
            case "same size":
                path.write_bytes(bytes(reversed(path.read_bytes())))
            case "same size and time":
                before = path.stat()
                path.write_bytes(bytes(reversed(path.read_bytes())))
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
            case "another file":
                path.with_suffix(".new").write_bytes(path.read_bytes())
                path.with_suffix(".new").rename(path)
            case "truncate":
                path.write_bytes(b"")
            case "remove":
                path.unlink()

    return grow


@pytest.mark.parametrize("how", ["append", "same size", "same size and time", "another file", "truncate", "remove"])
@pytest.mark.parametrize("when", ["before", "while"])
def test_a_file_that_changes_between_listing_and_the_end_of_reading_is_still_arriving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, when: str
) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv", content=b"a" * 500_000 + b"b" * 500_000)
    path = tmp_path / "orders/2024-01-01/1.csv"
    landing = Landing(str(tmp_path), orders())
    (arrival,) = landing.arrivals()
    grow = growing(path, how)
    if when == "before":
        grow()
    else:
        monkeypatch.setattr(module, "CHUNK", 300_000)
        opened, reads = landing._open, []

        def opening(name: str) -> Any:
            file = opened(name)
            read = file.read

            def reading(size: int) -> bytes:
                reads.append(size)
                if len(reads) == 2:
                    grow()
                return read(size)

            file.read = reading
            return file

        monkeypatch.setattr(landing, "_open", opening)
    with pytest.raises(StillArriving, match=r"changed while it was read|vanished between listing and reading"):
        landing.fetch(arrival, tmp_path / "copy")


def test_a_growing_file_is_not_staged_and_is_taken_once_it_holds_still(world: World) -> None:
    content = "id,day,item,amount\n1,2024-01-01,pear,3\n"
    path = world.deliver(DAY, content)
    engine = world.engine()
    listed = engine.source.arrivals(DAY)
    path.write_text(content + "2,2024-01-01,fig,5\n")
    engine.source.arrivals = lambda scope=None: listed  # type: ignore[method-assign]  # as listed before it grew
    (outcome,) = engine.load([DAY], "run")
    assert (outcome.status, type(outcome.error)) == ("refused", StillArriving)
    assert not (world.root / "staged" / "orders").exists()
    assert world.ledger() == []
    (outcome,) = world.load(DAY)
    assert outcome.status == "committed"
    assert world.rows() == [(3, DAY, 1, "pear"), (5, DAY, 2, "fig")]


def test_what_is_fetched_is_the_file_and_its_digest(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv", content=b"hello")
    landing = Landing(str(tmp_path), orders())
    (arrival,) = landing.arrivals(DAY)
    fetched = landing.fetch(arrival, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"hello"
    digest = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
    assert (fetched.sha256, fetched.size, fetched.declared_rows) == (digest, 5, None)
    assert landing.sha256(arrival) == digest


def test_a_copy_that_cannot_be_written_is_no_fault_of_landing(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv")
    landing = Landing(str(tmp_path), orders())
    (arrival,) = landing.arrivals(DAY)
    with pytest.raises(StagingFailed, match=r"cannot write .*free some space"):
        landing.fetch(arrival, tmp_path / "no" / "copy")
    if Path("/dev/full").exists():
        with pytest.raises(StagingFailed, match="No space left"):
            landing.fetch(arrival, Path("/dev/full"))


def test_a_file_that_vanishes_before_its_digest_is_asked_is_still_arriving(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv")
    landing = Landing(str(tmp_path), orders())
    (arrival,) = landing.arrivals(DAY)
    (tmp_path / "orders/2024-01-01/1.csv").unlink()
    with pytest.raises(StillArriving, match="vanished"):
        landing.sha256(arrival)


def test_a_link_to_nothing_and_a_pipe_are_no_deliveries_and_keep_nobody_waiting(tmp_path: Path) -> None:
    lay(tmp_path, "orders/2024-01-01/1.csv")
    (tmp_path / "orders/2024-01-01/2.csv").symlink_to("3.csv")
    os.mkfifo(tmp_path / "orders/2024-01-01/4.csv")
    landing = Landing(str(tmp_path), orders())
    first, *others = landing.arrivals(DAY)
    assert (first.name, first.arriving) == ("1.csv", None)
    assert [a.name for a in others] == ["2.csv", "4.csv"]
    for arrival in others:
        with pytest.raises(StillArriving, match="it is not a regular file"):
            landing.fetch(arrival, tmp_path / "copy")


def test_a_file_name_that_is_not_utf8_is_shown_and_never_read(tmp_path: Path, world: World) -> None:
    folder = world.landing / "orders" / DAY
    folder.mkdir(parents=True)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff1.csv")).write_text("x")
    (arrival,) = world.engine().source.arrivals()
    assert (arrival.name, arrival.path) == ("\\xff1.csv", f"{folder}/\\xff1.csv")
    assert arrival.arriving == "its name is not UTF-8, and cannot be recorded; give it another one"
    (outcome,) = world.load(DAY)
    assert type(outcome.error) is StillArriving
    assert [(s.state, s.reason) for s in world.survey().statuses] == [("still arriving", arrival.arriving)]


@pytest.mark.parametrize("age, waits", [(0, True), (9.9, True), (10, False), (1e6, False), (-5, False)])
def test_a_file_settles_once_it_has_held_still(age: float, waits: bool) -> None:
    arrival = Arrival("p", "1.csv", "p/1.csv", 1, "stamp", "1", modified=1_000.0)
    assert (settling(arrival, 10, now=1_000.0 + age) is not None) == waits


# --------------------------------------------------------------------------- control files


@pytest.mark.parametrize("pattern", ["orders/{partition}/*.csv", "orders/{partition}/*", "orders/{partition}/1.csv"])
def test_a_delivery_with_a_control_file_arrives_with_it(tmp_path: Path, pattern: str) -> None:
    pipeline = orders(row_count_file=".count", landing=pattern)
    landing = Landing(str(tmp_path), pipeline)
    lay(tmp_path, "orders/2024-01-01/1.csv")
    (arrival,) = landing.arrivals(DAY)
    assert arrival.arriving == "its control file 1.csv.count is not there"
    lay(tmp_path, "orders/2024-01-01/1.csv.count.part", "orders/2024-01-01/2.csv.count")
    assert [(a.name, bool(a.arriving)) for a in landing.arrivals(DAY)] == [("1.csv", True)]
    lay(tmp_path, "orders/2024-01-01/1.csv.count", content=b" 17\n")
    (arrival,) = landing.arrivals(DAY)
    assert (arrival.name, arrival.arriving) == ("1.csv", None)
    assert landing.fetch(arrival, tmp_path / "copy").declared_rows == "17"


def test_a_change_only_extract_is_refused_by_its_control_file_and_the_partition_keeps_its_rows(tmp_path: Path) -> None:
    world = World(tmp_path, orders(row_count_file=".count"))
    header = "id,day,item,amount\n"
    world.deliver(DAY, header + "1,2024-01-01,a,1\n2,2024-01-01,b,2\n")
    world.deliver(DAY, "2", "1.csv.count")
    assert world.load(DAY)[0].status == "committed"
    before = (world.rows(), world.ledger())
    world.deliver(DAY, header + "2,2024-01-01,c,3\n", "2.csv")
    world.deliver(DAY, "2", "2.csv.count")
    (outcome,) = world.load(DAY)
    assert outcome.message.endswith(
        "2.csv: 1 rows, but its control file "
        + str(world.landing)
        + "/orders/2024-01-01/2.csv.count declares 2: not the "
        "whole delivery. Deliver it again"
    )
    assert (world.rows(), world.ledger()) == before


# --------------------------------------------------------------------------- the four states, through the engine


def test_missing_empty_broken_and_unreachable_are_four_outcomes_with_four_messages(world: World) -> None:
    header = "id,day,item,amount\n"
    world.deliver(DAY, header + "1,2024-01-01,a,1\n")
    world.load(DAY)
    world.deliver(DAY, header, "2.csv")
    world.deliver(NEXT, b"")
    empty, broken, missing = world.load(DAY, NEXT, "2024-01-03")
    assert (empty.status, empty.counts.deleted, world.rows()) == ("committed", 1, [])
    assert (broken.status, broken.error and broken.error.kind) == ("refused", "ZeroBytes")
    assert broken.message.startswith(f"{world.landing}/orders/{NEXT}/1.csv: zero bytes, so not even a header")
    assert (missing.status, missing.error and missing.error.kind) == ("refused", "MissingDelivery")
    assert missing.message == (
        f"orders/2024-01-03: no delivery: searched {world.landing}/orders/2024-01-03/*.csv, 0 files matched. "
        "The partition is missing, which is not empty: nothing was changed"
    )
    before = world.state()
    world.landing.rename(world.root / "unmounted")
    with pytest.raises(LandingUnreachable, match=r"does not exist or is not a folder. Nothing was changed"):
        world.load(DAY)
    assert world.state() == before
    assert [(b.scope, b.delivery, b.rows) for b in world.ledger()] == [(DAY, "1.csv", 1), (DAY, "2.csv", 0)]


# --------------------------------------------------------------------------- patterns and hostile names


@pytest.mark.parametrize(
    "pattern, name",
    [
        ("{partition}/*a*a*a*a*a*a*a*a*b.csv", "2024-01-01/" + "a" * 250),
        ("*a*a*a*a*a*a*a*a*{partition}*b.csv", "a" * 250),
        ("{partition}/*-*-*-*-*-*-*-*-*x", "2024-01-01/" + "-" * 250),
        ("*{partition}*-*-*-*-*-*x", "2024-01-01" + "-" * 240),
        ("{partition}-*-*-*-*-*-*x", "-" * 250),
        ("{partition}/?*?*?*?*?*?*?*?*?*x", "2024-01-01/" + "y" * 250),
    ],
)
def test_a_pattern_of_many_stars_is_matched_at_once(tmp_path: Path, pattern: str, name: str) -> None:
    lay(tmp_path, name)
    began = time.process_time()
    assert Landing(str(tmp_path), orders(landing=pattern)).arrivals() == []
    assert time.process_time() - began < 2


@pytest.mark.parametrize(
    "pattern, name, fits",
    [
        ("{partition}/*a*b*.csv", "2024-01-01/xaybz.csv", True),
        ("{partition}/*a*b*.csv", "2024-01-01/xbya.csv", False),
        ("{partition}/*ab*ab.csv", "2024-01-01/abab.csv", True),
        ("{partition}/*ab*ab.csv", "2024-01-01/ab.csv", False),
        ("{partition}/a*?b.csv", "2024-01-01/a-b-b.csv", True),
        ("*-{partition}-*x.csv", "2024-01-01-2024-01-02-yx.csv", True),
        ("{partition}*{partition}.csv", "2024-01-01-2024-01-01.csv", True),
    ],
)
def test_a_pattern_of_some_stars_fits_what_it_says(tmp_path: Path, pattern: str, name: str, fits: bool) -> None:
    lay(tmp_path, name)
    assert bool(found(tmp_path, orders(landing=pattern))) == fits


def test_the_shorter_of_two_keys_is_meant_where_the_longer_one_leaves_no_match(tmp_path: Path) -> None:
    lay(tmp_path, "xab", "aba-ab")
    pipeline = orders(partitions=Static("a", "ab"), partition_by=None, landing="*{partition}*b")
    assert found(tmp_path, pipeline) == {"a": ["xab"], "ab": ["aba-ab"]}
