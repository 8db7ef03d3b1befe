"""Rows in key order, in memory or through sorted runs on disk."""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etl_assets.contract import boolean, date, decimal, integer, json, quarantine, real, text, timestamp
from etl_assets.errors import DuplicateKey
from etl_assets.staging import reading, sorting
from etl_assets.staging.sorting import SortedRuns
from etl_assets_tests.staging.bench import Bench, rows, table

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string()), ("n", pa.int64())])
PIECES = st.lists(
    st.lists(st.tuples(st.none() | st.integers(-3, 3), st.sampled_from(["", "a", "é", "b"])), max_size=12), max_size=8
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(PIECES, st.sampled_from([1, 60, 200, 1 << 20]), st.integers(1, 7), st.sampled_from([1, 40, 1 << 20]))
def test_runs_merged_from_disk_are_the_rows_sorted_in_memory(
    tmp_path: Path, pieces: list[list[tuple[int | None, str]]], run: int, batch_rows: int, batch_bytes: int
) -> None:
    def collect(scratch: Path) -> tuple[list[dict], int]:
        runs, number = SortedRuns(["a", "b", "n"], scratch), 0
        for piece in pieces:
            numbered = [(a, b, number + i) for i, (a, b) in enumerate(piece)]
            number += len(piece)
            columns = list(zip(*numbered, strict=True)) or [[], [], []]
            runs.add(pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA))
        batches = list(runs.batches())
        assert all(b.schema == SCHEMA and 0 < b.num_rows <= sorting.BATCH_ROWS for b in batches)
        return [row for b in batches for row in b.to_pylist()], len(list(scratch.glob("run-*")))

    with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
        expected, _ = collect(Path(scratch))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "RUN_BYTES", run)
        patch.setattr(sorting, "BATCH_ROWS", batch_rows)
        patch.setattr(sorting, "BATCH_BYTES", batch_bytes)
        with tempfile.TemporaryDirectory(dir=tmp_path) as scratch:
            merged, spilled = collect(Path(scratch))
    assert merged == expected
    if run == 1:
        assert spilled == len([p for p in pieces if p])


@pytest.mark.parametrize("key", [[], ["id"]], ids=["bag", "keyed"])
def test_an_extract_has_the_same_rows_and_digest_through_runs_on_disk(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, key: list[str]
) -> None:
    columns = (
        integer("id"),
        text("t"),
        real("r"),
        decimal("d", 5, 2),
        boolean("b"),
        date("day"),
        timestamp("at", resolution="s"),
        json("j"),
    )
    contract = table(*columns, key=key, invalid_rows=quarantine(0.5))
    lines = [
        f"{i},t{i % 7},{i / 4},{i}.5,{'yn'[i % 2]},2024-01-{i % 28 + 1:02},2024-01-01T00:00:{i % 60:02}Z,[{i}]"
        for i in range(400)
    ]
    content = "\n".join(["id,t,r,d,b,day,at,j", *lines[::-1], "x,,,,,,,"])
    memory = bench.freeze(contract, content, name="memory.csv")
    monkeypatch.setattr(reading, "BLOCK", 2000)
    monkeypatch.setattr(sorting, "RUN_BYTES", 3000)
    monkeypatch.setattr(sorting, "BATCH_BYTES", 500)
    disk = bench.freeze(contract, content, name="disk.csv")
    assert rows(disk) == rows(memory)
    assert sorted(rows(disk))[5][:5] == (5, "t5", 1.25, Decimal("5.50"), False)
    assert sorted(rows(disk))[5][5:] == (dt.date(2024, 1, 6), dt.datetime(2024, 1, 1, 0, 0, 5, tzinfo=dt.UTC), "[5]")
    assert disk.manifest.digest == memory.manifest.digest


def test_a_key_that_repeats_across_runs_and_batches_is_found(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 64)
    monkeypatch.setattr(sorting, "RUN_BYTES", 300)
    monkeypatch.setattr(sorting, "BATCH_ROWS", 1)
    content = "id\n" + "".join(f"{i}\n" for i in [*range(100), 50])
    with pytest.raises(DuplicateKey, match="lines 52 and 102: id=50"):
        bench.freeze(table(integer("id"), key=["id"]), content)
