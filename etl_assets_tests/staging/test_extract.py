"""Extracts on disk: immutable, the same everywhere, and whole or not there."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from etl_assets.contract import integer, quarantine, text
from etl_assets.errors import ExtractDamaged, StagingFailed
from etl_assets.model import Delivery, Extract
from etl_assets.staging import extract as extracts
from etl_assets.staging.extract import (
    INCOMING,
    INPUT,
    MANIFEST,
    candidate_file,
    check_files,
    read_extract,
    safe_name,
)
from etl_assets.staging.packed import pack
from etl_assets_tests.staging import victim
from etl_assets_tests.staging.bench import FILES, Bench, contents, rejects, rows, table

CONTRACT = table(integer("id"), text("t"), key=["id"])
CONTENT = "id,t\n2,y\n1,x\n"


def delivery(extract: Extract) -> Delivery:
    m = extract.manifest
    return Delivery(m.pipeline, m.scope, m.delivery, m.revision, m.order, m.input_sha256, m.input_size, "stamp")


def visible(bench: Bench) -> list[Path]:
    """The extracts that another process would find."""
    return [p for p in bench.staged.root.glob("*/*/*") if INCOMING not in p.parts]


# --------------------------------------------------------------------------- what an extract is


@pytest.fixture(params=["packed", "folder"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Small extracts are one file, larger ones a folder; here the same content becomes either."""
    if request.param == "folder":
        monkeypatch.setattr(extracts, "SMALL_INPUT", -1)
    return str(request.param)


def files_of(form: str) -> set[str]:
    return FILES if form == "packed" else {INPUT, "candidate.parquet", MANIFEST}


def rewrite(extract: Extract, changed: dict[str, bytes | None]) -> None:
    """Give an extract other files, as somebody would who knows how they are kept; None takes one away."""
    place = Path(extract.folder)
    files = {name: data for name, data in (contents(extract) | changed).items() if data is not None}
    if place.is_file():
        place.chmod(0o644)
        place.write_bytes(pack(files))
        return
    for path in place.iterdir():
        path.unlink()
    for name, data in files.items():
        (place / name).write_bytes(data)


def test_an_extract_keeps_the_exact_bytes_and_describes_them(bench: Bench, form: str) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    files = contents(extract)
    assert set(files) == files_of(form)
    assert Path(extract.folder).is_file() == (form == "packed")
    assert files[INPUT] == CONTENT.encode()
    assert rows(extract) == [(1, "x"), (2, "y")]
    assert rejects(extract) == []
    manifest = json.loads(files[MANIFEST])
    assert [(c["name"], c["type"], c["added"]) for c in manifest["columns"]] == [
        ("id", "integer", False),
        ("t", "text", False),
    ]
    assert (manifest["source_rows"], manifest["rejected_rows"], manifest["rows"]) == (2, 0, 2)
    assert read_extract(Path(extract.folder)) == extract
    assert manifest["sha256"] == extract.sha256


def test_a_packed_extract_is_an_archive_that_tar_unpacks(bench: Bench, tmp_path: Path) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    frame = pa.CompressedInputStream(pa.OSFile(extract.folder), "zstd").read()
    with tarfile.open(fileobj=io.BytesIO(frame)) as archive:
        found = {m.name: archive.extractfile(m).read() for m in archive}  # type: ignore[union-attr]
    assert found == contents(extract)


def test_rejected_rows_have_a_file_and_no_rejected_rows_have_none(bench: Bench, form: str) -> None:
    contract = CONTRACT.model_copy(update={"invalid_rows": quarantine(up_to=0.5)})
    extract = bench.freeze(contract, "id,t\n1,x\n?,y\n2,z\n")
    assert set(contents(extract)) == {*files_of(form), "rejects.jsonl"}
    assert [(r["line"], r["row"]) for r in rejects(extract)] == [(3, {"id": "?", "t": "y"})]


def test_a_delivery_of_few_rows_takes_one_block_of_the_disk(bench: Bench) -> None:
    content = "id,t\n" + "".join(f"{i},some text of {i}\n" for i in range(5))
    assert Path(bench.freeze(CONTRACT, content).folder).stat().st_size <= 4096


def test_small_inputs_with_large_contents_are_a_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extracts, "PACKED_BYTES", 100)
    extract = bench.freeze(CONTRACT, CONTENT)
    assert set(contents(extract)) == FILES
    assert Path(extract.folder).is_dir()
    assert rows(extract) == [(1, "x"), (2, "y")]
    check_files(extract)
    assert bench.staged.find(delivery(extract), CONTRACT.code, 1) == extract


def test_the_files_of_an_extract_are_read_only(bench: Bench, form: str) -> None:
    place = Path(bench.freeze(CONTRACT, CONTENT).folder)
    for path in place.iterdir() if form == "folder" else [place]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o444, path.name


def test_an_extract_is_found_by_bytes_contract_and_version_only(bench: Bench, form: str) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    known = delivery(extract)
    assert bench.staged.find(known, CONTRACT.code, 1) == extract
    assert bench.staged.find(known, CONTRACT.code, 2) is None
    assert bench.staged.find(known, "0" * 64, 1) is None
    for change in ({"revision": 2}, {"name": "2.csv"}, {"sha256": "0" * 64}, {"scope": "q"}):
        other = dataclasses.replace(known, **change)
        assert bench.staged.find(other, CONTRACT.code, 1) is None, change


def test_an_extract_in_the_place_of_another_is_noticed(bench: Bench, form: str) -> None:
    one, two = (bench.freeze(CONTRACT, CONTENT, name=name) for name in ("1.csv", "2.csv"))
    place = Path(two.folder)
    Path(one.folder).rename(place.with_name("aside"))
    place.rename(one.folder)
    with pytest.raises(ExtractDamaged, match=r"holds the extract of files/p/2.csv#1@1. .* Remove .*1.csv"):
        bench.staged.find(delivery(one), CONTRACT.code, 1)


def test_the_kept_input_of_any_extract_serves_other_logic_if_it_is_undamaged(
    bench: Bench, form: str, tmp_path: Path
) -> None:
    extract, target = bench.freeze(CONTRACT, CONTENT), tmp_path / "restored"
    assert bench.staged.restore_input(delivery(extract), target)
    assert target.read_text() == CONTENT
    rewrite(extract, {INPUT: CONTENT.replace("x", "z").encode()})
    with pytest.raises(ExtractDamaged, match=r"input is not the file that its manifest names.*Remove "):
        bench.staged.restore_input(delivery(extract), target)
    again = bench.freeze(table(integer("id"), text("t"), key=["id"], min_rows=1), CONTENT)
    assert again.folder != extract.folder
    assert bench.staged.restore_input(delivery(extract), target)
    assert target.read_text() == CONTENT


def test_extracts_of_an_earlier_format_are_frozen_again_and_their_inputs_kept(bench: Bench, tmp_path: Path) -> None:
    old = bench.staged.root / "files" / "p" / "1.csv#1@1-0123456789abcdef"
    old.mkdir(parents=True)
    digest = hashlib.sha256(CONTENT.encode()).hexdigest()
    (old / INPUT).write_text(CONTENT)
    (old / MANIFEST).write_text(json.dumps({"format": 1, "pipeline": "files", "input_sha256": digest}))
    extract = bench.freeze(CONTRACT, CONTENT)
    assert [path for path, _ in bench.staged.described()] == [old, Path(extract.folder)]
    Path(extract.folder).unlink()
    assert bench.staged.find(delivery(extract), CONTRACT.code, 1) is None
    assert bench.staged.restore_input(delivery(extract), tmp_path / "restored")
    assert (tmp_path / "restored").read_text() == CONTENT


# --------------------------------------------------------------------------- damage


@pytest.mark.parametrize("damage", ["edit", "truncate", "append", "remove"])
@pytest.mark.parametrize("name", [INPUT, "candidate", "rejects.jsonl"])
def test_a_damaged_file_of_an_extract_is_noticed(bench: Bench, form: str, name: str, damage: str) -> None:
    contract = CONTRACT.model_copy(update={"invalid_rows": quarantine(up_to=0.5)})
    extract = bench.freeze(contract, "id,t\n1,x\n?,y\n2,z\n")
    check_files(extract)
    (name,) = (n for n in contents(extract) if n.startswith(name))
    data = contents(extract)[name]
    half = len(data) // 2
    changed = {
        "edit": data[:half] + bytes([data[half] ^ 1]) + data[half + 1 :],
        "truncate": data[:-1],
        "append": data + b"\n",
        "remove": None,
    }
    rewrite(extract, {name: changed[damage]})
    advice = rf"{name}.*Nothing was changed. Remove {re.escape(extract.folder)}; the next run freezes it again"
    with pytest.raises(ExtractDamaged, match=advice):
        check_files(extract)
    if name.startswith("candidate"):
        with pytest.raises(ExtractDamaged, match=advice):
            candidate_file(extract)


def test_any_bit_of_a_packed_extract_that_flips_is_noticed(bench: Bench) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    place = Path(extract.folder)
    place.chmod(0o644)
    whole = place.read_bytes()
    for at in range(len(whole)):
        place.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << at % 8)]) + whole[at + 1 :])
        with pytest.raises(ExtractDamaged, match="is not as it was sealed"):
            bench.staged.find(delivery(extract), CONTRACT.code, 1)
    for other in (b"", whole[:-1], whole + b"\0", whole * 2):
        place.write_bytes(other)
        with pytest.raises(ExtractDamaged, match="is not as it was sealed"):
            bench.staged.find(delivery(extract), CONTRACT.code, 1)


def test_every_change_of_a_single_value_of_a_manifest_is_noticed(bench: Bench, form: str) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    text = contents(extract)[MANIFEST]
    fields = json.loads(text)
    changes = list(single_changes(fields))
    assert len(changes) > 100
    for changed in changes:
        rewrite(extract, {MANIFEST: (json.dumps(changed, ensure_ascii=False) + "\n").encode()})
        with pytest.raises(ExtractDamaged, match=r"manifest.json is not as it was sealed.*Remove "):
            bench.staged.find(delivery(extract), CONTRACT.code, 1)
    rewrite(extract, {MANIFEST: text})
    assert bench.staged.find(delivery(extract), CONTRACT.code, 1) == extract


def single_changes(value: Any) -> Iterator[Any]:
    """A document with one value changed, taken away or added, in each of the ways that its type has."""
    match value:
        case dict():
            for key, inner in value.items():
                yield {k: v for k, v in value.items() if k != key}
                yield from ({**value, key: changed} for changed in single_changes(inner))
            yield {**value, "other": 1}
        case list():
            for at, inner in enumerate(value):
                yield value[:at] + value[at + 1 :]
                yield from ([*value[:at], changed, *value[at + 1 :]] for changed in single_changes(inner))
            yield [*value, 1]
        case bool():
            yield not value
        case int():
            yield from (value + 1, value - 1, -value - 1, str(value), None)
        case str():
            yield from (value + "0", value[:-1] + "?", "", None)
        case None:
            yield from (0, 1, "")


def test_blank_space_and_repeated_fields_of_a_manifest_are_noticed(bench: Bench, form: str) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    text = contents(extract)[MANIFEST].decode()
    seal = text[text.rindex(",") :]
    for changed in (
        text.replace(":", " :", 1),
        text + " ",
        text.replace('"rows": 2', '"rows": 9, "rows": 2'),
        text.replace(seal, seal.replace('"}', '", "rows": 9}')),
        text.replace(seal, ', "rows": 9' + seal),
        text.replace(seal, "}\n"),
    ):
        assert changed != text
        rewrite(extract, {MANIFEST: changed.encode()})
        with pytest.raises(ExtractDamaged, match="is not as it was sealed"):
            bench.staged.find(delivery(extract), CONTRACT.code, 1)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b"{}", b"\xff\xfe", b'{"columns": [{"nome": 1}]}'])
def test_a_damaged_manifest_is_named_and_is_no_missing_one(bench: Bench, form: str, content: bytes) -> None:
    extract = bench.freeze(CONTRACT, CONTENT)
    rewrite(extract, {MANIFEST: content})
    with pytest.raises(ExtractDamaged, match=r"is not as it was sealed.*Remove "):
        bench.staged.find(delivery(extract), CONTRACT.code, 1)


def test_an_extract_without_its_manifest_is_not_taken_for_a_whole_one(bench: Bench, monkeypatch: Any) -> None:
    monkeypatch.setattr(extracts, "SMALL_INPUT", -1)
    extract = bench.freeze(CONTRACT, CONTENT)
    (Path(extract.folder) / MANIFEST).unlink()
    assert bench.staged.find(delivery(extract), CONTRACT.code, 1) is None
    with pytest.raises(ExtractDamaged, match=r"has no manifest. .*Remove "):
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
        return bench.freeze(contract, content, name=f"{len(visible(bench))}.csv").manifest.digest

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
    (place,) = visible(bench)
    extract = read_extract(place)
    assert extract is not None
    assert set(contents(extract)) == files_of("packed" if place.is_file() else "folder")
    check_files(extract)
    assert rows(extract)[0] == (1, "x1", "“1”")
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


@pytest.mark.parametrize("folder", [False, True], ids=["packed", "folder"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_process_killed_at_any_step_leaves_no_half_extract_and_the_next_one_completes(
    tmp_path: Path, victims: Victims, after: bool, folder: bool
) -> None:
    code, steps = victims.freeze(tmp_path / "whole", folder=folder)
    assert code == 0
    assert steps >= 12
    whole = contents(only(tmp_path / "whole"))
    for at in range(1, steps + 1):
        root = tmp_path / f"{at}"
        assert victims.freeze(root, at=at, after=after, folder=folder) == (-signal.SIGKILL, 0), at
        if visible(Bench(root)):
            assert contents(only(root)) == whole, at
        assert victims.freeze(root, folder=folder)[0] == 0, at
        assert contents(only(root)) == whole, at
        assert list((root / "staged" / INCOMING).iterdir()) == [], at


@pytest.mark.parametrize("folder", [False, True], ids=["packed", "folder"])
def test_processes_that_freeze_the_same_extract_at_once_end_with_one(tmp_path: Path, folder: bool) -> None:
    root, go = tmp_path / "root", tmp_path / "go"
    processes = [Victims() for _ in range(3)]
    for process in processes:
        process.send(root=str(root), wait=str(go), folder=folder)
    waiting = root / "staged" / INCOMING
    deadline = time.monotonic() + 60
    while len(list(waiting.glob(f"*/extract/{MANIFEST}" if folder else "*/packed"))) < 3:
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
