"""The deliveries that are measured: made once, the same bytes on every machine, kept for the next run.

An order line of 11 columns, 76 bytes on average, 10,000 a day; the lines stand in each file in random order. The same
rows come as one file and as a file a day. Numbers are never missing, since the shell's ``.import`` into a STRICT table
would refuse an empty text where an integer is wanted.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pc_csv

DAY_ROWS = 10_000
FIRST_DAY = dt.date(2020, 1, 1)
SEED = 20_131_026


def day_key(number: int) -> str:
    """The partition key of day ``number``, counted from 0."""
    return (FIRST_DAY + dt.timedelta(days=number)).isoformat()


def rows_of_day(number: int, days: int = 1, correction: int = 0) -> pa.Table:
    """The rows of some days in random order; ``correction`` n changes 1 % of them, other ones for each n."""
    count = days * DAY_ROWS
    random = np.random.default_rng([SEED, number, days])
    ids = np.arange(number * DAY_ROWS, number * DAY_ROWS + count, dtype=np.int64)
    at = np.datetime64(FIRST_DAY) + ids // DAY_ROWS
    seconds = random.integers(0, 86_400, count)
    quantity = random.integers(1, 100, count)
    if correction:
        changed = np.random.default_rng([SEED, number, correction]).choice(count, count // 100, replace=False)
        quantity[changed] += 100 * correction
    table = pa.table(
        {
            "day": pa.array(at.astype("datetime64[D]")),
            "id": pa.array(ids),
            "store": _codes("S", random.integers(0, 900, count), 4),
            "item": _codes("I", random.integers(0, 90_000, count), 6),
            "customer": pa.array(random.integers(1_000, 10_000, count)),
            "quantity": pa.array(quantity),
            "price": pa.array(random.integers(100, 99_999, count) / 100),
            "discount": pa.array(random.integers(0, 50, count) / 100),
            "status": pa.array(np.array(["open", "paid", "sent", "back"])[random.integers(0, 4, count)]),
            "region": pa.array(np.array(["N", "E", "S", "W"])[random.integers(0, 4, count)]),
            "updated": pa.array((at.astype("datetime64[s]") + seconds), pa.timestamp("s")).cast(pa.string()),
        }
    )
    stamped = pc.binary_join_element_wise(pc.replace_substring(table["updated"], " ", "T"), "Z", "")
    table = table.set_column(table.column_names.index("updated"), "updated", stamped)
    return table.take(pa.array(np.random.default_rng([SEED, number]).permutation(count)))


def _codes(letter: str, numbers: np.ndarray, width: int) -> pa.Array:
    distinct = [f"{letter}{n:0{width - 1}d}" for n in range(int(numbers.max()) + 1)]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(distinct)).cast(pa.string())


def write_day(path: Path, number: int, days: int = 1, correction: int = 0) -> None:
    """One delivery, written aside and renamed, so that one that is there is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    table = rows_of_day(number, days, correction)
    form = pc_csv.WriteOptions(include_header=False, quoting_style="none", batch_size=1 << 16)
    with aside.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())  # Arrow would quote the names
        pc_csv.write_csv(table, file, form)
    aside.rename(path)


def make_landing(folder: Path, rows: int, daily: bool) -> None:
    """``orders/<day>/1.csv`` for each day, or all rows in ``orders/all/1.csv``; what is there is kept."""
    days = rows // DAY_ROWS
    if daily:
        for number in range(days):
            path = folder / "orders" / day_key(number) / "1.csv"
            if not path.exists():
                write_day(path, number)
        return
    path = folder / "orders" / "all" / "1.csv"
    if not path.exists():
        write_day(path, 0, days)
