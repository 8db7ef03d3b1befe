"""Extracts on disk: immutable, the same everywhere, and whole or not there."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contract import integer, text
from etl_assets.errors import ExtractDamaged, StagingFailed
from etl_assets.model import Delivery, Extract
from etl_assets.staging.extract import CANDIDATE, INCOMING, INPUT, MANIFEST, candidate_path, read_manifest, safe_name
from etl_assets_tests.staging import victim
from etl_assets_tests.staging.bench import FILES, Bench, contents, rows, table

CONTRACT = table(integer("id"), text("t"), key=["id"])
CONTENT = "id,t\n2,y\n1,x\n"


def delivery(extract: Extract) -> Delivery:
    m = extract.manifest
    return Delivery(m.pipeline, m.scope, m.delivery, m.revision, m.order, m.input_sha256, m.input_size, "stamp")


def visible(bench: Bench) -> list[Path]:
    """The folders of extracts that another process would find."""
    return [p for p in bench.staged.root.glob("*/*/*") if INCOMING not in p.parts]


# --------------------------------------------------------------------------- what an extract is


def test_an_extract_keeps_the_exact_bytes_and_describes_them(bench: Bench) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    files = contents(extract)
    assert set(files) == FILES
    assert files[INPUT] == CONTENT.encode()
    assert rows(extract) == [(1, "x"), (2, "y")]
    manifest = json.loads(files[MANIFEST])
    assert [(c["name"], c["type"], c["added"]) for c in manifest["columns"]] == [
        ("id", "integer", False),
        ("t", "text", False),
    ]
    assert (manifest["source_rows"], manifest["rejected_rows"], manifest["rows"]) == (2, 0, 2)
    assert read_manifest(Path(extract.folder) / MANIFEST) == extract.manifest


def test_the_files_of_an_extract_are_read_only(bench: Bench) -> None:
    for path in Path(bench.freeze(CONTRACT, CONTENT).folder).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o444, path.name


def test_an_extract_is_found_by_bytes_contract_and_version_only(bench: Bench) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    known = delivery(extract)
    assert bench.staged.find(known, CONTRACT.code, 1) == extract
    assert bench.staged.find(known, CONTRACT.code, 2) is None
    assert bench.staged.find(known, "0" * 64, 1) is None
    for change in ({"revision": 2}, {"name": "2.csv"}, {"sha256": "0" * 64}, {"scope": "q"}):
        other = Delivery(**{f: getattr(known, f) for f in Delivery.__slots__} | change)
        assert bench.staged.find(other, CONTRACT.code, 1) is None, change


def test_the_kept_input_of_any_extract_serves_other_logic_if_it_is_undamaged(bench: Bench) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    kept = bench.staged.kept_input(delivery(extract))
    assert kept is not None
    assert kept.read_bytes() == CONTENT.encode()
    kept.chmod(0o644)
    kept.write_text(CONTENT.replace("x", "z"))
    with pytest.raises(ExtractDamaged, match=r"input is not the file that its manifest names.*Remove the folder"):
        bench.staged.kept_input(delivery(extract))


@pytest.mark.parametrize("damage", ["edit", "truncate", "remove"])
def test_damaged_candidate_rows_are_noticed(bench: Bench, damage: str) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    path = candidate_path(extract)
    path.chmod(0o644)
    match damage:
        case "edit":
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        case "truncate":
            path.write_bytes(path.read_bytes()[:-1])
        case "remove":
            path.unlink()
    with pytest.raises(ExtractDamaged, match=f"{CANDIDATE}.*the next run freezes it anew from the delivery"):
        candidate_path(extract)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"{}", b"\xff\xfe", b'{"columns": [{"nome": 1}]}'])
def test_a_damaged_manifest_is_named_and_is_no_missing_one(bench: Bench, content: bytes) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    path = Path(extract.folder) / MANIFEST
    path.chmod(0o644)
    path.write_bytes(content)
    with pytest.raises(ExtractDamaged, match=r"is not a manifest.*Remove the folder"):
        bench.staged.find(delivery(extract), CONTRACT.code, 1)


def test_an_extract_without_its_manifest_is_not_taken_for_a_whole_one(bench: Bench) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    (Path(extract.folder) / MANIFEST).unlink()
    assert bench.staged.find(delivery(extract), CONTRACT.code, 1) is None
    with pytest.raises(ExtractDamaged, match=r"has no manifest. Remove the folder"):
        bench.freeze(CONTRACT, CONTENT)


def test_a_staged_folder_that_cannot_be_written_is_said_to_be(bench: Bench) -> None:
    (bench.root / "staged").write_text("a file")
    with pytest.raises(StagingFailed, match=r"cannot write .*staged"):
        bench.freeze(CONTRACT, CONTENT)


@given(st.text(min_size=1).filter(lambda t: t.isprintable() or "\ud800" not in t), st.text(min_size=1))
def test_a_safe_name_is_one_visible_file_name_and_never_that_of_another_text(one: str, two: str) -> None:
    for text_ in (one, two):
        if any(0xD800 <= ord(c) <= 0xDFFF for c in text_):
            return
    name = safe_name(one)
    assert 0 < len(name.encode()) <= 120
    assert not name.startswith(".")
    assert not set(name) & set("/\\\0\n%") - {"%"}
    assert (safe_name(one) == safe_name(two)) == (one == two)


@pytest.mark.parametrize(
    "name", [".", "..", "../x", "/etc/passwd", "a/b", "~", "x" * 300, "é" * 200, "a\nb", "%2E", ".x"]
)
def test_no_name_leaves_its_folder(bench: Bench, name: str) -> None:
    extract = bench.freeze(table(integer("id")), "id\n1\n", name=name)
    assert Path(extract.folder).parent == bench.staged.root / "files" / "p"
    assert visible(bench) == [Path(extract.folder)]


# --------------------------------------------------------------------------- the digest of the contents


def test_the_digest_does_not_depend_on_the_order_of_rows_columns_or_optional_columns(bench: Bench) -> None:
    def digest(contract: Any, content: str) -> str:
        return bench.freeze(
            contract, content, name=f"{len(list(bench.staged.root.rglob(MANIFEST)))}.csv"
        ).manifest.digest

    for key in (["id"], []):
        plain = table(integer("id"), text("t"), key=key)
        first = digest(plain, "id,t\n1,x\n2,\n3,z\n")
        assert digest(plain, "t,id\nz,3\n,2\nx,1\n") == first
        assert digest(table(text("t"), integer("id"), key=key), "id,t\n3,z\n1,x\n2,\n") == first
        wider = table(text("a", optional=True), integer("id"), text("t"), integer("z", optional=True), key=key)
        assert digest(wider, "id,t\n2,\n1,x\n3,z\n") == first
        assert digest(wider, "id,t,a\n2,,\n1,x,\n3,z,\n") == first
        added = table(integer("id"), text("t"), key=key, new_columns="add")
        assert digest(added, "id,n,t,m\n1,,x,\n2,,,\n3,,z,\n") == first
        assert digest(added, "n,id,t,m\n1,1,x,8\n2,2,,7\n3,3,z,6\n") == digest(
            added, "m,t,id,n\n6,z,3,3\n8,x,1,1\n7,,2,2\n"
        )
        others = [
            digest(plain, "id,t\n1,x\n2,\n"),
            digest(plain, "id,t\n1,x\n2,\n3,Z\n"),
            digest(table(integer("id"), text("t", missing=()), key=key), "id,t\n1,x\n2,\n3,z\n"),
            digest(table(text("id"), text("t"), key=key), "id,t\n1,x\n2,\n3,z\n"),
            digest(table(integer("id"), text("u"), key=key), "id,u\n1,x\n2,\n3,z\n"),
            digest(wider, "id,t,z\n2,,\n1,x,1\n3,z,\n"),
            digest(plain, "id,t\n"),
        ]
        assert len({first, *others}) == 8


def test_rows_without_any_value_are_counted_by_the_digest(bench: Bench) -> None:
    contract = table(integer("a"), integer("b"))
    digests = [bench.freeze(contract, "a,b\n" + ",\n" * n, name=f"{n}.csv").manifest.digest for n in range(4)]
    assert len(set(digests)) == 4


def test_minus_zero_is_zero_to_the_digest(bench: Bench) -> None:
    from etl_assets.contract import decimal, real

    contract = table(real("r"), decimal("d", 5, 2))
    digests = {
        bench.freeze(contract, f"r,d\n{z},{z}\n0,1\n", name=f"{z}.csv").manifest.digest
        for z in ("0", "-0", "-0.0", "+0")
    }
    assert len(digests) == 1


# --------------------------------------------------------------------------- other processes


class Victims:
    """The process that forks victims; see :mod:`etl_assets_tests.staging.victim`."""

    def __init__(self, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", victim.__name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def send(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[int, int]:
        assert self.process.stdout is not None
        code, steps = json.loads(self.process.stdout.readline())
        return code, steps

    def freeze(self, root: Path, **order: Any) -> tuple[int, int]:
        self.send(root=str(root), **order)
        return self.answer()

    def close(self) -> None:
        self.process.communicate(timeout=30)


@pytest.fixture
def victims() -> Iterator[Victims]:
    made = Victims()
    yield made
    made.close()


def only(root: Path) -> Extract:
    """The one extract below a root, compared with its manifest."""
    bench = Bench(root)
    (folder,) = visible(bench)
    extract = Extract(str(folder), read_manifest(folder / MANIFEST))
    assert set(contents(extract)) == FILES
    assert candidate_path(extract).is_file()
    assert bench.staged.kept_input(delivery(extract)) is not None
    return extract


def test_an_extract_is_the_same_to_the_byte_in_every_process_and_place(tmp_path: Path) -> None:
    found = []
    for number, environment in enumerate(
        (
            {"PYTHONHASHSEED": "1", "TZ": "UTC"},
            {"PYTHONHASHSEED": "2", "TZ": "Asia/Kolkata", "OMP_NUM_THREADS": "1"},
            {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "POSIX"},
        )
    ):
        process = Victims(**environment)
        root = tmp_path / f"root {number}"
        assert process.freeze(root)[0] == 0
        process.close()
        extract = only(root)
        found.append((str(Path(extract.folder).relative_to(root)), contents(extract)))
    assert found[1] == found[0]
    assert found[2] == found[0]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_step_leaves_no_half_extract_and_the_next_one_completes(
    tmp_path: Path, victims: Victims, after: bool
) -> None:
    code, steps = victims.freeze(tmp_path / "whole")
    assert code == 0
    assert steps >= 15
    whole = contents(only(tmp_path / "whole"))
    for at in range(1, steps + 1):
        root = tmp_path / f"{at}"
        assert victims.freeze(root, at=at, after=after) == (-signal.SIGKILL, 0), at
        if visible(Bench(root)):
            assert contents(only(root)) == whole, at
        assert victims.freeze(root)[0] == 0, at
        assert contents(only(root)) == whole, at
        assert list((root / "staged" / INCOMING).iterdir()) == [], at


def test_processes_that_freeze_the_same_extract_at_once_end_with_one(tmp_path: Path) -> None:
    root, go = tmp_path / "root", tmp_path / "go"
    processes = [Victims() for _ in range(3)]
    for process in processes:
        process.send(root=str(root), wait=str(go))
    waiting = root / "staged" / INCOMING
    deadline = time.monotonic() + 60
    while len([p for p in waiting.glob("*/extract/*") if p.name == MANIFEST]) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    go.touch()
    assert [process.answer()[0] for process in processes] == [0, 0, 0]
    for process in processes:
        process.close()
    assert rows(only(root))[0] == (1, "x1", "“1”")
    assert list(waiting.iterdir()) == []


# --------------------------------------------------------------------------- sweeping


def test_a_sweep_removes_what_the_dead_left_and_nothing_of_the_living(bench: Bench) -> None:
    dead = bench.staged.root / INCOMING / "1-dead"
    with bench.staged.workspace() as living:
        (living / "input").write_text("x")
        (dead / "extract").mkdir(parents=True)
        (dead / "extract" / "input").write_text("y")
        (dead / "extract" / "input").chmod(0o444)
        bench.staged.sweep()
        assert [p.name for p in (bench.staged.root / INCOMING).iterdir()] == [living.name]
        assert (living / "input").read_text() == "x"
    assert list((bench.staged.root / INCOMING).iterdir()) == []


def test_a_sweep_never_takes_a_workspace_that_is_being_made(bench: Bench) -> None:
    stop = threading.Event()

    def sweeping() -> None:
        while not stop.is_set():
            bench.staged.sweep()

    sweeper = threading.Thread(target=sweeping)
    sweeper.start()
    try:
        for _ in range(300):
            with bench.staged.workspace() as work:
                (work / "input").write_text("x")
    finally:
        stop.set()
        sweeper.join()
