"""``etl-assets build``, ``incremental``, ``verify`` and ``demo``, as a script runs them: by exit code and JSON."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from etl_assets.sink import SQLiteWarehouse
from etl_assets.staging import StagedFolder
from etl_assets_tests.snapshots.conftest import FIRST, Snapshots

KEYS = ["source", "applied", "ignored", "errors", "max_watermark", "changed", "ties"]
#: What a reader sees of ``FIRST``.
ROWS = [("u1", "2026-01-01T00:00:00.000000Z", "a"), ("u2", "2026-01-02T00:00:00.000000Z", "b")]


def rows(snapshots: Snapshots, source: str = "customers") -> list[tuple[Any, ...]]:
    """The rows without the batch that last changed them."""
    return sorted(row[:-1] for row in snapshots.sql(f'SELECT * FROM "{source}"'))


def figures(document: dict[str, Any]) -> tuple[int, int, int, int, int]:
    """Rows applied, ignored, in error, changed, and at the watermark."""
    return tuple(document[k] for k in ("applied", "ignored", "errors", "changed", "ties"))  # type: ignore[return-value]


# --------------------------------------------------------------------------- applying


@pytest.mark.parametrize("command", ["build", "incremental"])
def test_a_first_snapshot_is_applied_whole_and_again_it_is_ignored_whole(snapshots: Snapshots, command: str) -> None:
    first = snapshots.take(command, FIRST)
    assert (first.code, list(first.document)) == (0, KEYS)
    assert first.document["source"] == "customers"
    assert first.document["max_watermark"] == "2026-01-02T00:00:00.000000Z"
    assert figures(first.document) == (2, 0, 0, 2, 0)
    assert rows(snapshots) == ROWS
    for _ in range(2):
        again = snapshots.take("incremental", FIRST)
        assert again.code == 0
        assert figures(again.document)[:4] == (0, 2, 0, 0)
        assert again.document["max_watermark"] == "2026-01-02T00:00:00.000000Z"
        assert rows(snapshots) == ROWS


def test_newer_rows_are_applied_and_older_ones_ignored_by_their_names_wherever_the_columns_stand(
    built: Snapshots,
) -> None:
    content = (
        "name,src_updated,id\nnew,2026-01-03T00:00:00Z,u1\nold,2025-01-01T00:00:00Z,u2\nc,2026-01-03T00:00:00Z,u3\n"
    )
    found = built.take("incremental", content)
    assert (found.code, figures(found.document)) == (0, (2, 1, 0, 2, 0))
    assert [(r[0], r[2]) for r in rows(built)] == [("u1", "new"), ("u2", "b"), ("u3", "c")]


def test_an_older_row_further_down_in_a_file_does_not_win(snapshots: Snapshots) -> None:
    content = "id,src_updated,name\nu1,2026-01-09T00:00:00Z,new\nu1,2026-01-01T00:00:00Z,old\nu1,2026-01-10T00:00:00Z,newest\n"
    found = snapshots.take("incremental", content + "u1,2026-01-02T00:00:00Z,old\n")
    assert (found.code, figures(found.document)) == (0, (1, 3, 0, 1, 0))
    assert [r[2] for r in rows(snapshots)] == ["newest"]


def test_rows_at_the_watermark_are_taken_and_reported_as_ties(built: Snapshots) -> None:
    found = built.take("incremental", FIRST + "u3,2026-01-02T00:00:00Z,tie\nu4,2026-01-02T00:00:00Z,tie\n")
    assert (found.code, figures(found.document)) == (0, (2, 2, 0, 2, 3))
    assert [r[0] for r in rows(built)] == ["u1", "u2", "u3", "u4"]


def test_rows_that_are_late_are_not_lost_and_do_not_take_the_watermark_back(built: Snapshots) -> None:
    found = built.take("incremental", "id,src_updated,name\nu9,2020-01-01T00:00:00Z,late\n")
    assert (found.code, figures(found.document)) == (0, (1, 0, 0, 1, 0))
    assert found.document["max_watermark"] == "2026-01-02T00:00:00.000000Z"
    assert [r[0] for r in rows(built)] == ["u1", "u2", "u9"]
    assert built.verify().code == 0


def test_watermarks_are_instants_and_not_texts(snapshots: Snapshots) -> None:
    snapshots.take("build", "id,src_updated,name\nu1,2026-01-01T10:00:00+02:00,a\nu2,2026-01-01 10:00,b\n")
    content = "id,src_updated,name\nu1,2026-01-01T08:30:00Z,half past\nu2,2026-01-01T11:00:00+02:00,earlier\n"
    found = snapshots.take("incremental", content)
    assert figures(found.document)[:2] == (1, 1)
    assert [r[1:] for r in rows(snapshots)] == [
        ("2026-01-01T08:30:00.000000Z", "half past"), ("2026-01-01T10:00:00.000000Z", "b"),
    ]  # fmt: skip


def test_values_are_kept_to_the_character_and_empty_ones_are_null(snapshots: Snapshots) -> None:
    content = 'id,src_updated,name,code\n007,2026-01-01,"a, ""b""\nc",NA\n08,2026-01-01,,1.50\n'
    assert snapshots.take("build", content).code == 0
    at = "2026-01-01T00:00:00.000000Z"
    assert rows(snapshots) == [("007", at, 'a, "b"\nc', "NA"), ("08", at, None, "1.50")]


def test_a_key_with_other_values_under_its_watermark_is_a_failure_that_changes_nothing(built: Snapshots) -> None:
    before = built.kept()
    found = built.take("incremental", FIRST.replace(",b\n", ",other\n") + "u3,2026-01-09T00:00:00Z,c\n")
    assert (found.code, figures(found.document)) == (1, (0, 0, 1, 0, 0))
    assert found.document["error"].startswith("VersionConflict: ")
    assert built.kept() == before


# --------------------------------------------------------------------------- columns


def test_the_key_and_the_watermark_may_have_other_names(snapshots: Snapshots) -> None:
    options = ("--key", "Customer No.", "--watermark", "changed at")
    content = "name,changed at,Customer No.\na,2026-01-01T00:00:00Z,7\n"
    assert figures(snapshots.take("build", content, *options).document) == (1, 0, 0, 1, 0)
    found = snapshots.take("incremental", content.replace("a,2026-01-01", "b,2026-01-02"), *options)
    assert figures(found.document) == (1, 0, 0, 1, 0)
    assert snapshots.sql('SELECT "Customer No.", name FROM customers') == [("7", "b")]
    assert snapshots.verify().document["status"] == "OK"


def test_new_columns_are_added_and_are_null_for_older_rows(built: Snapshots) -> None:
    content = "id,country,src_updated,name\nu1,DE,2026-01-01T00:00:00Z,a\nu3,ID,2026-01-05T00:00:00Z,c\n"
    found = built.take("incremental", content)
    assert (found.code, figures(found.document)[:4]) == (0, (1, 1, 0, 1))
    assert built.sql("SELECT id, name, country FROM customers ORDER BY id") == [
        ("u1", "a", None), ("u2", "b", None), ("u3", "c", "ID"),
    ]  # fmt: skip
    narrow = built.take("incremental", "id,src_updated,name\nu3,2026-01-06T00:00:00Z,d\nu2,2026-01-02T00:00:00Z,b\n")
    assert (narrow.code, figures(narrow.document)[:4]) == (0, (1, 1, 0, 1))
    assert built.sql("SELECT name, country FROM customers WHERE id = 'u3'") == [("d", None)]
    assert built.verify().code == 0


# --------------------------------------------------------------------------- errors


def test_rows_that_are_invalid_go_to_errors_and_the_others_land(built: Snapshots) -> None:
    bad = ",2026-01-04T00:00:00Z,no key\nu2,,no watermark\nu2,yesterday,no instant\n"
    content = f"id,src_updated,name\n{bad}u1,2026-01-03T00:00:00Z,a2\n"
    for applied in (1, 0):
        found = built.take("incremental", content)
        assert (found.code, figures(found.document)[:4]) == (1, (applied, 1 - applied, 3, applied))
        assert [(r[0], r[2]) for r in rows(built)] == [("u1", "a2"), ("u2", "b")]
    assert built.verify().document["null_watermarks"] == 0


def test_a_snapshot_of_nothing_but_invalid_rows_leaves_existing_rows_untouched(built: Snapshots) -> None:
    found = built.take("incremental", "id,src_updated,name\n,2026-01-04T00:00:00Z,x\n,2026-01-04T00:00:00Z,y\n")
    assert (found.code, figures(found.document)) == (1, (0, 0, 2, 0, 0))
    assert rows(built) == ROWS


CORRUPT = (
    b"",
    b"id,src_updated,name\nu3,2026-01-04T00:00:00Z\n",
    b"id,src_updated,name\nu3,2026-01-04T00:00:00Z,x,y\n",
    b'id,src_updated,name\nu3,2026-01-04T00:00:00Z,"x\n',
    b"id,src_updated,name\nu3,2026-01-04T00:00:00Z,\xff\n",
    b"id,src_updated,na\xffme\nu3,2026-01-04T00:00:00Z,x\n",
    b"id,src_updated,name\nu3,2026-01-04T00:00:00Z,\0\n",
    b"id,src_updated,name,name\nu3,2026-01-04T00:00:00Z,x,y\n",
    b"id,src_updated,name,\nu3,2026-01-04T00:00:00Z,x,y\n",
    b"id,src_updated,_batch\nu3,2026-01-04T00:00:00Z,x\n",
    b"id,src_updated,NAME\nu3,2026-01-04T00:00:00Z,x\n",
    b"key,src_updated,name\nu3,2026-01-04T00:00:00Z,x\n",
    b"id;src_updated;name\nu3;2026-01-04T00:00:00Z;x\n",
    b"\x1f\x8b\x08\x00garbage",
)


def test_a_corrupt_snapshot_is_an_error_of_input_and_changes_nothing(built: Snapshots) -> None:
    before = built.kept()
    for number, content in enumerate(CORRUPT):
        found = built.take(("build", "incremental")[number % 2], content)
        assert found.code == 2, (content, found)
        assert found.err.startswith("error: ")
        assert built.kept() == before
    assert built.verify().code == 0


@pytest.mark.parametrize("command, path", [("build", "absent.csv"), ("incremental", "folder")])
def test_an_absent_snapshot_is_an_error_of_input_and_changes_nothing(built: Snapshots, command: str, path: str) -> None:
    (built.root / "folder").mkdir()
    before = built.kept()
    found = built(command, "--source", "customers", "--snapshot", path)
    assert (found.code, found.out) == (2, "")
    assert "is not there, or is not a file. Nothing was changed" in found.err
    assert built.kept() == before
    built.db.unlink()
    assert built(command, "--source", "customers", "--snapshot", path).code == 2
    assert not built.db.exists()


@pytest.mark.parametrize("db", ["text", "folder", "in/no/folder"])
def test_a_database_that_is_none_is_an_error_of_output(snapshots: Snapshots, db: str) -> None:
    (snapshots.root / "folder").mkdir()
    (snapshots.root / "text").write_text("not a database, and longer than the header of one would be: " * 9)
    (snapshots.root / "in").write_text("a file, not a folder")
    snapshots.db = snapshots.root / db
    for found in (snapshots.take("build", FIRST), *((snapshots.verify(), snapshots("demo")) if db == "text" else ())):
        assert (found.code, found.out) == (2, "")
        assert found.err.startswith("error: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ("build",),
        ("build", "--source", "x"),
        ("incremental", "--snapshot", "x.csv"),
        ("verify",),
        ("build", "--source", "x", "--snapshot", "x.csv", "--nonsense"),
    ],
    ids=range(5),
)
def test_a_wrong_use_is_told_with_exit_code_2(snapshots: Snapshots, arguments: tuple[str, ...]) -> None:
    found = snapshots(*arguments)
    assert (found.code, found.out) == (2, "")
    assert "Usage: " in found.err


def test_a_source_name_that_cannot_be_a_table_is_refused_and_nothing_is_made(snapshots: Snapshots) -> None:
    for source in ("two words", "../up", "x;DROP TABLE t", 'q"z', "", "größe", "etl_batch"):
        found = snapshots.take("build", FIRST, source=source)
        assert (found.code, found.out) == (2, "")
        assert "does not hold together" in found.err
        assert sorted(p.name for p in snapshots.root.iterdir()) == ["snapshot.csv"]


def test_sources_share_a_database_and_do_not_share_a_table_that_differs_in_case(snapshots: Snapshots) -> None:
    for source in ("select", "customers"):
        assert snapshots.take("build", FIRST, source=source).code == 0
        assert rows(snapshots, source) == ROWS
        assert snapshots.verify(source).document["source"] == source
    before = snapshots.kept()
    assert snapshots.take("build", FIRST, source="Customers").code == 2
    assert snapshots.kept() == before


def test_another_key_under_rows_that_are_there_is_refused(built: Snapshots) -> None:
    before = built.kept()
    found = built.take("incremental", FIRST + "u3,2026-01-07,c\n", "--key", "name")
    assert found.code == 2
    assert "told apart by" in found.err
    assert built.kept() == before


# --------------------------------------------------------------------------- build


def test_build_makes_the_table_that_snapshot_whatever_was_there(built: Snapshots) -> None:
    built.take("incremental", "id,src_updated,name\nu3,2026-02-01T00:00:00Z,c\n")
    older = "id,src_updated,name\nu1,2025-01-01T00:00:00Z,older\n"
    found = built.take("build", older)
    assert (found.code, found.document["applied"], found.document["changed"]) == (0, 1, 3)
    assert found.document["max_watermark"] == "2025-01-01T00:00:00.000000Z"
    assert [(r[0], r[2]) for r in rows(built)] == [("u1", "older")]
    again = built.take("incremental", older)
    assert figures(again.document)[:4] == (0, 1, 0, 0)
    # u1 is newer in the first file; u2 is not there any more, and the file says nothing new of it.
    assert figures(built.take("incremental", FIRST).document)[:4] == (1, 1, 0, 1)
    assert rows(built) == ROWS[:1]
    assert built.verify().document["status"] == "OK"
    assert figures(built.take("incremental", "id,src_updated,name\nu2,2026-01-03T00:00:00Z,c\n").document)[0] == 1
    assert [(r[0], r[2]) for r in rows(built)] == [("u1", "a"), ("u2", "c")]


def test_a_key_that_a_build_left_out_is_not_brought_back_by_an_older_file(built: Snapshots) -> None:
    built.take("build", "id,src_updated,name\nu1,2026-01-03T00:00:00Z,a2\n")
    found = built.take("incremental", FIRST)
    assert (found.code, figures(found.document)[:4]) == (0, (0, 2, 0, 0))
    assert [(r[0], r[2]) for r in rows(built)] == [("u1", "a2")]
    found = built.take("incremental", FIRST + "u3,2026-01-01T00:00:00Z,c\n")
    assert (found.code, figures(found.document)[:4]) == (0, (1, 2, 0, 1))
    assert built.verify().document["status"] == "OK"
    assert figures(built.take("build", FIRST).document)[:4] == (2, 0, 0, 3)
    assert rows(built) == ROWS
    assert built.verify().document["status"] == "OK"


def test_a_build_of_what_is_there_changes_nothing(built: Snapshots) -> None:
    for _ in range(2):
        assert figures(built.take("build", FIRST).document) == (2, 0, 0, 0, 0)
        assert rows(built) == ROWS
    again = FIRST.replace(",b\n", ",b2\n")
    assert figures(built.take("build", again).document) == (2, 0, 0, 1, 0)
    assert built.verify().document["status"] == "OK"


@pytest.mark.parametrize(
    "content, words",
    [
        ("id,src_updated,name\n", "has a header and no rows"),
        ("id,src_updated,name\n,2026-01-04T00:00:00Z,x\n,2026-01-05T00:00:00Z,y\n", "all of its 2 are rejected"),
        ("id,src_updated,name\nu1,,x\n", "all of its 1 are rejected"),
    ],
)
def test_a_build_that_would_leave_the_table_empty_is_refused(built: Snapshots, content: str, words: str) -> None:
    before = built.kept()
    found = built.take("build", content)
    assert (found.code, figures(found.document)[0], found.document["changed"]) == (1, 0, 0)
    assert found.document["error"].startswith("EmptyDelivery: ")
    assert words in found.err
    assert built.kept() == before


def test_a_snapshot_without_a_row_increments_nothing_and_an_empty_table_is_not_ok(snapshots: Snapshots) -> None:
    empty = "id,src_updated,name\n"
    assert snapshots.take("build", empty).code == 0
    found = snapshots.verify()
    assert (found.code, found.document["status"], found.document["total_rows"]) == (1, "DEGRADED", 0)
    assert found.document["control"]["differences"] == [
        "customers: the table has no rows: load a snapshot that has some"
    ]
    assert figures(snapshots.take("incremental", FIRST).document) == (2, 0, 0, 2, 0)
    found = snapshots.take("incremental", empty)
    assert (found.code, figures(found.document), rows(snapshots)) == (0, (0, 0, 0, 0, 0), ROWS)
    assert snapshots.verify().code == 0


def test_rejected_rows_and_inputs_are_kept_and_shown_with_line_and_reason(snapshots: Snapshots) -> None:
    content = FIRST + ",2026-01-03T00:00:00Z,no key\nu4,9999-12-31T00:00:00Z,from the future\n"
    for command in ("build", "incremental"):
        found = snapshots.take(command, content)
        assert (found.code, found.document["errors"]) == (1, 2)
        assert [(r["line"], r["row"]["name"]) for r in found.document["rejects"]] == [
            (4, "no key"),
            (5, "from the future"),
        ]
        assert f"{snapshots.root / 'snapshot.csv'}: line 4: id is part of the key and" in found.err
        assert "line 5: src_updated is 9999-12-31T00:00:00Z, which is after the delivery was first read" in found.err
    staged = StagedFolder(f"{snapshots.db}.staged")
    (recorded,) = SQLiteWarehouse(snapshots.db).deliveries("customers")
    assert staged.restore_input(recorded.delivery, snapshots.root / "input")
    assert (snapshots.root / "input").read_text() == content


def test_messages_name_the_file_as_it_was_given(built: Snapshots) -> None:
    built.write("bad.csv", "id,src_updated,name\nu3,2026-01-04T00:00:00Z\n")
    found = built("incremental", "--source", "customers", "--snapshot", "bad.csv")
    assert found.code == 2
    assert "error: bad.csv: line 2" in found.err or "bad.csv" in found.err.split(":")[1]
    assert "/landing/" not in found.err + found.out


def many(count: int, day: int) -> str:
    lines = (f"k{n},2026-01-{day:02d}T00:00:00Z,row {n} of day {day} {n * 7919 % 10007}" for n in range(count))
    return "id,src_updated,name\n" + "\n".join(lines) + "\n"


def killed_builds(built: Snapshots, delays: list[float]) -> set[str]:
    """Kill a build after each of these seconds; which tables were there afterwards."""
    old = built.write("old.csv", many(20_000, 1))
    new = built.write("new.csv", many(20_000, 2))
    assert built("build", "--source", "customers", "--snapshot", str(old)).code == 0
    found = set()
    for delay in delays:
        process = subprocess.Popen(
            built.command("build", "--source", "customers", "--snapshot", str(new)),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=built.root, env=built.environment,
        )  # fmt: skip
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        days = built.sql("SELECT substr(src_updated, 1, 10), count(*) FROM customers GROUP BY 1")
        assert days in ([("2026-01-01", 20_000)], [("2026-01-02", 20_000)])
        found.add(days[0][0])
        assert built.verify().code == 0
        if days[0][0] == "2026-01-02":
            assert built("build", "--source", "customers", "--snapshot", str(old)).code == 0
    assert built("build", "--source", "customers", "--snapshot", str(new)).code == 0
    assert built.sql("SELECT DISTINCT substr(src_updated, 1, 10) FROM customers") == [("2026-01-02",)]
    return found


def test_a_build_that_is_killed_leaves_the_old_table_whole(snapshots: Snapshots) -> None:
    assert "2026-01-01" in killed_builds(snapshots, [0.4, 1.0])


@pytest.mark.long
def test_a_build_that_is_killed_at_any_time_leaves_the_old_table_or_the_new_one(snapshots: Snapshots) -> None:
    assert killed_builds(snapshots, [n / 40 for n in range(80)]) == {"2026-01-01", "2026-01-02"}


def test_a_reader_never_sees_a_table_that_is_being_built(snapshots: Snapshots) -> None:
    one, two = snapshots.write("1.csv", many(5_000, 1)), snapshots.write("2.csv", many(5_000, 2))
    assert snapshots("build", "--source", "customers", "--snapshot", str(one)).code == 0
    process = subprocess.Popen(
        snapshots.command("build", "--source", "customers", "--snapshot", str(two)),
        stdout=subprocess.DEVNULL, cwd=snapshots.root, env=snapshots.environment,
    )  # fmt: skip
    reader, seen = sqlite3.connect(snapshots.db), []
    while process.poll() is None:
        seen.append(
            tuple(
                reader.execute(
                    "SELECT min(substr(src_updated, 1, 10)), max(substr(src_updated, 1, 10)), count(*) FROM customers"
                ).fetchone()
            )
        )
    reader.close()
    assert process.returncode == 0
    assert set(seen) <= {("2026-01-01", "2026-01-01", 5_000), ("2026-01-02", "2026-01-02", 5_000)}
    assert seen[0][0] == "2026-01-01"


# --------------------------------------------------------------------------- verify and demo


def test_verify_tells_figures_and_that_all_is_well(built: Snapshots) -> None:
    built.take("incremental", FIRST + "u3,2026-01-05T00:00:00Z,c\n")
    found = built.verify()
    document = found.document
    assert found.code == 0
    assert list(document) == [
        *("source", "control", "total_rows", "null_watermarks", "duplicate_natural_keys", "top_batches", "status")
    ]
    assert (document["total_rows"], document["null_watermarks"], document["duplicate_natural_keys"]) == (3, 0, 0)
    assert document["control"]["batches"] == 2
    assert document["control"]["differences"] == []
    assert [b["rows"] for b in document["top_batches"]] == [2, 1]
    assert document["status"] == "OK"


@pytest.mark.parametrize(
    "statement, total",
    [
        ("DELETE FROM _versions_customers WHERE id = 'u1'", 1),
        ("UPDATE _versions_customers SET _deleted = 1 WHERE id = 'u1'", 1),
        ("UPDATE _versions_customers SET _version = NULL WHERE id = 'u1'", 2),
        ("UPDATE etl_progress SET position = 1", 2),
        ("DROP VIEW customers", 0),
    ],
)
def test_verify_finds_what_was_changed_around_the_ledger(built: Snapshots, statement: str, total: int) -> None:
    connection = sqlite3.connect(built.db)
    with connection:
        connection.execute(statement)
    connection.close()
    found = built.verify()
    assert (found.code, found.document["status"], found.document["total_rows"]) == (1, "DEGRADED", total)
    assert found.document["control"]["differences"] or found.document["null_watermarks"] == 1


def test_verify_of_what_is_not_there_is_an_error_of_input(built: Snapshots) -> None:
    found = built.verify("orders")
    assert (found.code, found.out) == (2, "")
    assert "there is no source 'orders'" in found.err
    built.db.unlink()
    found = built.verify()
    assert (found.code, found.out) == (2, "")
    assert not built.db.exists()


def test_the_demo_loads_twenty_rows_twice_and_verifies_as_often_as_it_is_run(snapshots: Snapshots) -> None:
    for _ in range(2):
        found = snapshots("demo")
        assert found.code == 0
        assert figures(found.document["first_load"])[:3] == (20, 0, 0)
        assert figures(found.document["replay"])[:4] == (0, 20, 0, 0)
        assert (found.document["verify"]["status"], found.document["verify"]["total_rows"]) == ("OK", 20)


def test_batch_ids_hold_no_time_of_a_clock(snapshots: Snapshots, tmp_path: Path) -> None:
    names = []
    for number in range(2):
        other = Snapshots(tmp_path / str(number))
        other.root.mkdir()
        other.take("build", FIRST)
        other.take("incremental", FIRST + "u3,2026-01-05T00:00:00Z,c\n")
        names.append(other.sql("SELECT batch, digest FROM etl_batch ORDER BY id"))
    assert names[0] == names[1]
    assert [batch for batch, _ in names[0]] == ["customers/all/snapshot.csv#1@1+1", "customers/all/snapshot.csv#2@1"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any file")
def test_a_snapshot_that_may_not_be_read_is_an_error_of_input(snapshots: Snapshots) -> None:
    path = snapshots.write("snapshot.csv", FIRST)
    path.chmod(0)
    found = snapshots("build", "--source", "customers", "--snapshot", str(path))
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith("error: ")
