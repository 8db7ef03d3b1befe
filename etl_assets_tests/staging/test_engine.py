"""Names, sizes and business days all the way from a file in landing to rows in the warehouse."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from etl_assets.contract import Daily, Static, decimal, integer, real, text, timestamp
from etl_assets.landing import landing_segment
from etl_assets.pipelines.weather import settle_utc_hour, weather
from etl_assets_tests.world import DAYS, SHOWCASE, World, orders

DAY = DAYS[0]
HEADER = "id,day,item,amount\n"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


# --------------------------------------------------------------------------- names

NAMES = [
    "two words",
    'say "hi"',
    "it's",
    "a,b;c",
    "a.b",
    "a/b\\c",
    "select",
    "TABLE",
    "rowid",
    "x" * 64,
    "x" * 198,
    "größe_日本",
    "[a]",
    "`a`",
    'x"; DROP TABLE etl_batch; --',
    "'); DELETE FROM etl_batch; --",
    "a\nb",
    "?1",
    ":a",
    "@a",
    "$a",
    "%s",
    "{0}",
    " padded ",
    "-",
    "0",
    "index",
    "record",
    "batch",
    "candidate",
    "stage",
    "main",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", [["id"], ["id", "NAME"], []], ids=["movable", "fixed", "bag"])
def test_a_table_and_a_column_of_any_name_are_stored_right(tmp_path: Path, name: str, key: list[str]) -> None:
    pipeline = orders(
        table=name,
        partitions=Static("p"),
        partition_by=None,
        columns=[integer("id"), text(name), text(f"{name}2")],
        key=[name if k == "NAME" else k for k in key],
        key_unique_in="partition" if len(key) > 1 else "table",
        landing="orders/{partition}/*",
        new_columns="add",
    )
    world = World(tmp_path, pipeline)
    head = ",".join(map(quoted, ("id", name, f"{name}2")))
    world.deliver("p", f'{head}\n1,x,"it\'s ""y"""\n2,z,\n')
    (outcome,) = world.load("p")
    assert outcome.status == "committed", outcome.message
    select = f"SELECT id, {quoted(name)}, {quoted(name + '2')} FROM {quoted(name)} ORDER BY id"
    assert world.sql(select) == [(1, "x", 'it\'s "y"'), (2, "z", None)]
    world.deliver("p", f"{head},{quoted(name + '3')}\n1,x,w,n\n3,v,,\n", "2")
    (outcome,) = world.load("p")
    assert outcome.status == "committed", outcome.message
    select = f"SELECT id, {quoted(name)}, {quoted(name + '2')}, {quoted(name + '3')} FROM {quoted(name)} ORDER BY id"
    assert world.sql(select) == [(1, "x", "w", "n"), (3, "v", None, None)]
    assert [(b.delivery, b.rows) for b in world.ledger()] == [("1.csv", 2), ("2", 2)]


KEYS = [
    "two words",
    'say "hi"',
    "it's",
    "a,b",
    "a.b",
    "a/b",
    "../../up",
    "..",
    ".",
    "/etc",
    "a\\b",
    "select",
    "x" * 64,
    "größe 日本",
    "%2F",
    "a#1@2+3",
    "*",
    "?",
    "'; DROP TABLE etl_batch; --",
    "~",
    "{partition}",
    "C:",
]


def test_a_partition_of_any_name_is_stored_under_it_and_no_path_leaves_its_folder(tmp_path: Path) -> None:
    pipeline = orders(
        partitions=Static(*KEYS),
        partition_by="item",
        columns=[integer("id"), text("item")],
        landing="o/{partition}/*.csv",
    )
    world = World(tmp_path / "world", pipeline)
    for number, key in enumerate(KEYS):
        world.deliver(landing_segment(key), f"id,item\n{number},{quoted(key)}\n", pipeline="o")
    outcomes = world.load(*KEYS)
    assert [(o.scope, o.status) for o in outcomes] == [(key, "committed") for key in KEYS], [
        o.message for o in outcomes
    ]
    assert world.sql("SELECT id, item FROM orders ORDER BY id") == list(enumerate(KEYS))
    assert [b.scope for b in world.ledger()] == KEYS
    assert len({b.batch for b in world.ledger()}) == len(KEYS)
    assert {s.scope: s.state for s in world.survey().statuses} == dict.fromkeys(KEYS, "committed")
    assert [p.name for p in tmp_path.iterdir()] == ["world"]
    assert {p.name for p in world.root.iterdir()} <= {
        "landing",
        "staged",
        *(f"warehouse.sqlite{s}" for s in ("", "-wal", "-shm", ".lock")),
    }
    folders = list((world.root / "staged" / "orders").iterdir())
    assert len(folders) == len(KEYS)
    for folder in folders:
        (extract,) = folder.iterdir()
        assert extract.name.endswith(".tar.zst")


@pytest.mark.parametrize(
    "name", ["..csv", "a b.csv", "it's.csv", 'q"q.csv', "a#1@2.csv", "é.csv", "%41.csv", "a\nb.csv", "x" * 200 + ".csv"]
)
def test_a_delivery_of_any_name_is_recorded_under_it(world: World, name: str) -> None:
    world.deliver(DAY, HEADER + f"1,{DAY},a,1\n", name)
    found = world.load(DAY)[0]
    if name.startswith("."):
        assert found.error is not None
        assert found.error.kind == "MissingDelivery"
    else:
        assert found.status == "committed", found.message
        assert [b.delivery for b in world.ledger()] == [name]
        assert world.load(DAY)[0].status == "already committed"


# --------------------------------------------------------------------------- exact values


def test_values_arrive_in_the_warehouse_to_the_last_digit(tmp_path: Path) -> None:
    columns = [integer("id"), text("code"), integer("big"), decimal("d", 38, 20), real("r"), timestamp("at")]
    pipeline = orders(columns=columns, partitions=Static("p"), partition_by=None)
    world = World(tmp_path, pipeline)
    world.deliver(
        "p",
        "id,code,big,d,r,at\n"
        "1,007,9007199254740993,0.00000000000000000001,0.1,2024-01-01T00:00:00+08:00\n"
        "2,NA,,-123456789012345678.12345678901234567890,1e300,2024-01-01 00:00:00.5Z\n"
        "3,null,-9223372036854775808,0,,\n",
    )
    (outcome,) = world.load("p")
    assert outcome.status == "committed", outcome.message
    assert world.sql("SELECT id, code, big, d, r, at FROM orders ORDER BY id") == [
        (1, "007", 9007199254740993, "0.00000000000000000001", 0.1, "2023-12-31T16:00:00.000000Z"),
        (2, "NA", None, "-123456789012345678.12345678901234567890", 1e300, "2024-01-01T00:00:00.500000Z"),
        (3, "null", -(2**63), "0.00000000000000000000", None, None),
    ]


@pytest.mark.parametrize("scale", [0, 1, 6, 7, 8, 20, 38])
def test_a_decimal_is_stored_as_plain_text_of_its_scale(tmp_path: Path, scale: int) -> None:
    world = World(
        tmp_path,
        orders(columns=[integer("id"), decimal("d", 38, scale)], partitions=Static("p"), partition_by=None),
    )
    smallest = f"{'0.' + '0' * (scale - 1) if scale else ''}1"
    world.deliver("p", f"id,d\n1,{smallest}\n2,-{smallest}\n3,0\n")
    assert world.load("p")[0].status == "committed"
    zero = "0" + ("." + "0" * scale if scale else "")
    assert world.sql("SELECT d FROM orders ORDER BY id") == [(smallest,), (f"-{smallest}",), (zero,)]


def test_gzip_is_known_by_the_delivery_even_when_an_earlier_revision_is_read_again(tmp_path: Path) -> None:
    world = World(tmp_path, orders(landing="orders/{partition}/*"))
    for item in ("first", "second"):
        world.deliver(DAY, gzip.compress(f"{HEADER}1,{DAY},{item},1\n".encode()), "1.csv.gz")
        assert world.load(DAY)[0].status == "committed"
    newer = orders(landing="orders/{partition}/*", new_columns="add")
    (outcome,) = world.load(DAY, pipeline=newer, delivery="1.csv.gz#1", restate="the first was right")
    assert outcome.status == "committed", outcome.message
    assert world.rows() == [(1, DAY, 1, "first")]


# --------------------------------------------------------------------------- refusals keep the partition


@pytest.mark.parametrize("changes", [{"min_rows": 3}, {"shrink_limit": 0.25}])
def test_a_change_only_extract_is_refused_where_the_contract_can_tell(tmp_path: Path, changes: dict[str, Any]) -> None:
    world = World(tmp_path, orders(**changes))
    world.deliver(DAY, HEADER + "".join(f"{i},{DAY},a,{i}\n" for i in range(4)))
    assert world.load(DAY)[0].status == "committed"
    before, entries = world.rows(), world.ledger()
    world.deliver(DAY, HEADER + f"1,{DAY},a,9\n", "2.csv")
    (outcome,) = world.load(DAY)
    assert outcome.error is not None
    assert (outcome.status, outcome.error.kind) == ("refused", "ShrunkDelivery")
    assert "complete contents of the partition?" in outcome.message
    assert (world.rows(), world.ledger()) == (before, entries)


def test_rows_of_before_have_no_value_in_a_column_that_was_added(tmp_path: Path) -> None:
    world = World(tmp_path, orders(new_columns="add"))
    world.deliver(DAY, HEADER + f"1,{DAY},a,1\n")
    world.deliver(DAYS[1], f"new,id,day,item,amount\n007,2,{DAYS[1]},b,2\n")
    assert [o.status for o in world.load(DAY, DAYS[1])] == ["committed"] * 2
    assert world.sql("SELECT id, new FROM orders ORDER BY id") == [(1, None), (2, "007")]


# --------------------------------------------------------------------------- sizes


@pytest.mark.parametrize(
    "count",
    [
        990,
        1_998,
    ],
)
def test_a_table_of_many_columns_is_loaded_and_corrected(tmp_path: Path, count: int) -> None:
    half = count // 2
    columns = [integer("id"), *(integer(f"c{i}") for i in range(1, half)), *(text(f"t{i}") for i in range(half, count))]
    world = World(tmp_path, orders(columns=columns, partitions=Static("p"), partition_by=None))
    head = ",".join(c.name for c in columns)
    rows = [[i, *range(1, half), *(f"x{n}" for n in range(half, count))] for i in (1, 2)]
    world.deliver("p", "\n".join([head, *(",".join(map(str, r)) for r in rows)]))
    assert world.load("p")[0].status == "committed"
    assert [list(r[:count]) for r in world.sql("SELECT * FROM orders ORDER BY id")] == rows
    rows[1][half - 1] = -5
    world.deliver("p", "\n".join([head, *(",".join(map(str, r)) for r in rows)]), "2.csv")
    (outcome,) = world.load("p")
    assert outcome.status == "committed", outcome.message
    assert (outcome.counts.updated, outcome.counts.unchanged) == (1, 1)
    assert [list(r[:count]) for r in world.sql("SELECT * FROM orders ORDER BY id")] == rows


def test_a_cell_of_a_megabyte_and_more_is_stored_whole(world: World) -> None:
    cells = ["x" * 1_000_000, "line\n" * 1_000_000, "é" * 1_000_000, ""]
    lines = "".join(f'{i},{DAY},"{cell}",{i}\n' for i, cell in enumerate(cells))
    world.deliver(DAY, HEADER + lines)
    (outcome,) = world.load(DAY)
    assert outcome.status == "committed", outcome.message
    found = [r[0] for r in world.sql("SELECT item FROM orders ORDER BY id")]
    assert found == [*cells[:3], None]


MEASURE = """
import json, sys
from pathlib import Path
from etl_assets_tests.staging.test_engine import big_world
world = big_world(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "shuffled")
(outcome,) = world.load("2024-01-01")
# Not getrusage: its peak is inherited from the process that started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([outcome.status, outcome.counts.inserted, int(peak.split()[1]) / 1024]))
"""


def big_world(root: Path, megabytes: int, shuffled: bool) -> World:
    """A world with one delivery of this size, of 100 bytes a row, written a piece at a time."""
    world = World(root, orders())
    path = world.deliver(DAY, HEADER)
    count = megabytes * 10_000
    with path.open("a") as file:
        for start in range(0, count, 10_000):
            numbers = range(start, min(start + 10_000, count))
            # A step that shares no factor with the count gives each number once, far from its neighbours.
            ids = [(n * 7_919_993) % count for n in numbers] if shuffled else numbers
            file.writelines(f"{n:010},{DAY},{'item ' + str(n) * 8:<66.66},{n:>010}\n" for n in ids)
    return world


def peak(root: Path, megabytes: int, order: str) -> tuple[int, float]:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(root), str(megabytes), order], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    status, inserted, size = json.loads(done.stdout)
    assert status == "committed"
    return inserted, size


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_a_file_of_20_megabytes_is_loaded_within_450_of_memory(tmp_path: Path, order: str) -> None:
    inserted, size = peak(tmp_path, 20, order)
    assert inserted == 200_000
    assert size < 450


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_a_file_of_200_megabytes_takes_no_more_memory_than_bounded(tmp_path: Path, order: str) -> None:
    small, large = peak(tmp_path / "40", 40, order), peak(tmp_path / "200", 200, order)
    assert (small[0], large[0]) == (400_000, 2_000_000)
    assert large[1] < 500, (small, large)
    assert large[1] < small[1] + 175, (small, large)  # SQLite's page cache and the sorted runs fill up to their limits


# --------------------------------------------------------------------------- business days


def test_an_instant_is_loaded_into_the_day_that_it_has_in_the_contracts_zone(tmp_path: Path) -> None:
    zone = Daily(start="2013-03-01", end="2013-12-01", timezone="America/New_York")
    pipeline = orders(partitions=zone, columns=[integer("id"), timestamp("at", resolution="s")], partition_by="at")
    world = World(tmp_path, pipeline)
    days = {
        "2013-03-10": ["2013-03-10T05:00:00Z", "2013-03-11T03:59:59Z"],
        "2013-11-03": ["2013-11-03T04:00:00Z", "2013-11-03T05:30:00Z", "2013-11-03T06:30:00Z", "2013-11-04T04:59:59Z"],
        "2013-11-04": ["2013-11-04T05:00:00Z"],
    }
    expected = []
    for day, instants in days.items():
        lines = [(len(expected) + n, at) for n, at in enumerate(instants)]
        expected += lines
        world.deliver(day, "id,at\n" + "".join(f"{n},{at}\n" for n, at in lines))
    assert [o.status for o in world.load(*days)] == ["committed"] * 3
    assert world.sql("SELECT id, at FROM orders ORDER BY id") == expected


def test_the_day_of_a_clock_change_keeps_its_repeated_hour_as_two_rows(tmp_path: Path) -> None:
    world = World(tmp_path, weather)
    (world.landing / "weather").symlink_to(SHOWCASE / "weather")
    scope = "2013-11-03"
    for name in sorted(p.name for p in (SHOWCASE / "weather" / scope).iterdir()):
        (outcome,) = world.load(scope, delivery=name)
        assert outcome.status == "committed", outcome.message
    source = pd.read_csv(SHOWCASE / "weather" / scope / name, dtype=str, keep_default_na=False)
    found = world.sql('SELECT origin, time_hour, hour, "temp" FROM weather ORDER BY origin, time_hour')
    instants = [(r.origin, r.time_hour.replace(" ", "T").removesuffix("Z") + "Z") for r in source.itertuples()]
    assert [(r[0], r[1]) for r in found] == sorted(instants)
    for origin in {r[0] for r in found}:
        repeated = [r[1] for r in found if r[0] == origin and r[2] == 1]
        assert repeated == ["2013-11-03T05:00:00Z", "2013-11-03T06:00:00Z"], origin


def frame(**columns: list[Any]) -> pd.DataFrame:
    made = pd.DataFrame(columns)
    made["time_hour"] = pd.to_datetime(made["time_hour"], utc=True)
    return made


@pytest.mark.parametrize(
    "release, label, stated, settled",
    [
        ("1: labelled in UTC, nothing stated", (2013, 10, 26, 9), None, "2013-10-26T09"),
        ("2: labelled in UTC, stated an hour early in summer", (2013, 10, 26, 9), "2013-10-26T08:00Z", "2013-10-26T09"),
        ("2: labelled in UTC, stated alike in winter", (2013, 11, 26, 9), "2013-11-26T09:00Z", "2013-11-26T09"),
        ("3: labelled in New York in summer", (2013, 10, 26, 5), "2013-10-26T09:00Z", "2013-10-26T09"),
        ("3: labelled in New York in winter", (2013, 11, 26, 4), "2013-11-26T09:00Z", "2013-11-26T09"),
        ("3: the first 1 o'clock of the clock change", (2013, 11, 3, 1), "2013-11-03T05:00Z", "2013-11-03T05"),
        ("3: the second 1 o'clock of the clock change", (2013, 11, 3, 1), "2013-11-03T06:00Z", "2013-11-03T06"),
        ("3: an evening whose UTC date is the next one", (2013, 10, 26, 22), "2013-10-27T02:00Z", "2013-10-27T02"),
    ],
)
def test_an_observation_has_one_hour_however_its_release_labels_it(
    release: str, label: tuple[int, ...], stated: str | None, settled: str
) -> None:
    year, month, day, hour = ([part] for part in label)
    given = frame(year=year, month=month, day=day, hour=hour, time_hour=[stated])
    assert settle_utc_hour(given)["time_hour"].tolist() == [dt.datetime.fromisoformat(settled).replace(tzinfo=dt.UTC)]
