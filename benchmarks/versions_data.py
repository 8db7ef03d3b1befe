"""The change logs and snapshots that are measured: made once, the same bytes on every machine, kept for the next run.

What an event or a snapshot says of a row is a function of its key and version alone, so that a row that is said twice
is said alike. An event is 196 bytes on average, a row of a snapshot 68.

A log has 43 % inserts, 50 % updates, 5 % deletes and 2 % stale events, mixed at random. Its first delivery begins with
nothing, so that most updates are of rows that it inserted itself, and folding takes them together. The second one
changes rows of the first: almost every event is the last of its key, and meets a row in the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pc_csv

Ints = npt.NDArray[np.int64]
SEED = 20_131_026
INSERT, UPDATE, DELETE, STALE = range(4)
SHARES = (0.43, 0.50, 0.05, 0.02)
NAMES = ("id", "store", "item", "customer", "quantity", "price", "discount", "status", "region", "updated")
STATUS, REGION = ("open", "paid", "sent", "back"), ("N", "E", "S", "W")
#: Events are made and written so many at a time.
SLICE = 250_000
FIRST = np.datetime64("2024-01-01", "s")
#: The day on which a snapshot's row changed first, and the one after it.
DAYS = ("2024-01-01", "2024-01-02")


@dataclass(frozen=True, slots=True)
class Log:
    """Events in order of position: what each is, of which key, and with which version."""

    kind: Ints
    key: Ints
    version: Ints


def make_log(events: int, before: Log | None = None) -> Log:
    """Events on an empty table, or on what ``before`` left behind."""
    random = np.random.default_rng([SEED, events, 0 if before is None else 1])
    counts = [round(events * share) for share in SHARES]
    kind = random.permutation(np.repeat(np.arange(4, dtype=np.int64), counts))
    kind[np.argmax(kind == INSERT)], kind[0] = kind[0], INSERT
    known = 0 if before is None else int(before.key.max()) + 1
    inserts = known + np.cumsum(kind == INSERT)
    # An insert is the next key; everything else is of a key that is there by then, or, in a second log, was before it.
    some = (random.random(events) * (known or inserts)).astype(np.int64)
    key = np.where(kind == INSERT, inserts - 1, some)
    # Keys are spread over the table: those that are new do not all lie at its end.
    base = np.zeros(int(inserts[-1]), dtype=np.int64)
    if before is not None:
        np.maximum.at(base, before.key, before.version)
    # Versions that count are even, one more pair with each change of a key; a stale one is the odd one below.
    order = np.lexsort((np.arange(events), key))
    counting = (kind[order] != STALE).astype(np.int64)
    running = np.cumsum(counting)
    first = np.flatnonzero(np.r_[True, np.diff(key[order]) != 0])
    offset = np.repeat(running[first] - counting[first], np.diff(np.r_[first, events]))
    version = np.empty(events, dtype=np.int64)
    version[order] = 2 * (running - offset)
    version += (base[key] + 1) // 2 * 2
    version[kind == STALE] -= 1
    return Log(kind, key, version)


def spread(keys: Ints) -> Ints:
    """Keys as they are written: no two alike, and in no order."""
    return keys * 2_654_435_761 % 4_294_967_296


def columns(keys: Ints, versions: Ints) -> dict[str, Ints]:
    """The numbers of which rows are written, from key and version."""
    mixed = (keys * 1_000_003 + versions * 7_919) * 2_654_435_761 % (1 << 40)
    return {
        "store": mixed % 900,
        "item": mixed // 7 % 90_000,
        "customer": 1_000 + mixed // 11 % 9_000,
        "quantity": 1 + mixed // 13 % 99,
        "price": 100 + mixed // 17 % 99_900,
        "discount": mixed // 19 % 50,
        "status": mixed // 23 % 4,
        "region": mixed // 29 % 4,
        "seconds": mixed // 31 % 86_400,
    }


def write_log(path: Path, log: Log, first: int) -> None:
    """One delivery of native events, the first of them at position ``first``; written aside and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    with aside.open("w", encoding="ascii") as file:
        for start in range(0, len(log.kind), SLICE):
            part = slice(start, start + SLICE)
            numbers = columns(log.key[part], log.version[part])
            moments = np.datetime_as_string(FIRST + numbers["seconds"], "s").tolist()
            rows = zip(
                *(log.kind[part].tolist(), spread(log.key[part]).tolist(), log.version[part].tolist()),
                *(n.tolist() for name, n in numbers.items() if name != "seconds"),
                moments,
                strict=True,
            )
            for pos, (kind, key, version, store, item, customer, quantity, price, off, status, region, at) in enumerate(
                rows, start=first + start
            ):
                if kind == DELETE:
                    file.write(f'{{"pos": {pos}, "op": "delete", "version": {version}, "row": {{"id": {key}}}}}\n')
                    continue
                file.write(
                    f'{{"pos": {pos}, "op": "upsert", "version": {version}, "row": {{"id": {key}, "store": "S{store:03d}", '
                    f'"item": "I{item:05d}", "customer": {customer}, "quantity": {quantity}, "price": {price / 100}, '
                    f'"discount": {off / 100}, "status": "{STATUS[status]}", "region": "{REGION[region]}", '
                    f'"updated": "{at}Z"}}}}\n'
                )
    aside.rename(path)


def make_logs(folder: Path, events: int, second: bool) -> None:
    """``orders/2024-01-01/1.jsonl``, and with ``second`` as many events again on the next day; what is there is kept."""
    first = make_log(events)
    path = folder / "orders" / DAYS[0] / "1.jsonl"
    if not path.exists():
        write_log(path, first, 1)
    after = folder / "orders" / DAYS[1] / "1.jsonl"
    if second and not after.exists():
        write_log(after, make_log(events, first), events + 1)


def make_snapshots(folder: Path, rows: int) -> None:
    """A snapshot of the table, and on the next day one in which a tenth of its rows have changed since."""
    keys = np.random.default_rng([SEED, rows]).permutation(np.arange(rows, dtype=np.int64))
    changed = np.zeros(rows, dtype=np.int64)
    for day in DAYS:
        path = folder / "orders" / day / "1.csv"
        if not path.exists():
            write_snapshot(path, keys, changed)
        changed = (keys % 10 == 3).astype(np.int64)


def write_snapshot(path: Path, keys: Ints, changed: Ints) -> None:
    """Rows that changed on the first day, or (1) on the second."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    numbers = columns(keys, changed)
    moments = np.datetime_as_string(FIRST + numbers["seconds"] + 86_400 * changed, "s")
    table = pa.table(
        {
            "id": spread(keys),
            "store": _codes("S", numbers["store"], 3),
            "item": _codes("I", numbers["item"], 5),
            "customer": numbers["customer"],
            "quantity": numbers["quantity"],
            "price": numbers["price"] / 100,
            "discount": numbers["discount"] / 100,
            "status": np.array(STATUS)[numbers["status"]],
            "region": np.array(REGION)[numbers["region"]],
            "updated": np.char.add(moments, "Z"),
        }
    )
    form = pc_csv.WriteOptions(include_header=False, quoting_style="none", batch_size=1 << 16)
    with aside.open("wb") as file:
        file.write((",".join(table.column_names) + "\n").encode())  # Arrow would quote the names
        pc_csv.write_csv(table, file, form)
    aside.rename(path)


def _codes(letter: str, numbers: Ints, width: int) -> pa.Array:
    distinct = [f"{letter}{n:0{width}d}" for n in range(int(numbers.max()) + 1)]
    return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32()), pa.array(distinct)).cast(pa.string())
