"""Header to columns: any order, aliases, new, missing and renamed columns."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from etl_assets.contract import integer, quarantine, text
from etl_assets.contract.columns import MAX_COLUMNS
from etl_assets.errors import BadHeader, InvalidRows
from etl_assets_tests.staging.bench import Bench, records, table

ITEMS = (integer("id"), text("name", aliases=("title", "Name")), text("note", optional=True))


@pytest.mark.parametrize("header", list(itertools.permutations(["id", "name", "note"])), ids=",".join)
def test_any_order_of_the_header_gives_the_same_rows_and_the_same_digest(bench: Bench, header: tuple[str, ...]) -> None:
    contract = table(*ITEMS, key=["id"])
    values = {"id": ("1", "2"), "name": ("x", "y"), "note": ("", "n")}
    lines = [",".join(header), *(",".join(values[name][row] for name in header) for row in (0, 1))]
    extract = bench.freeze(contract, "\n".join(lines))
    assert records(extract) == [{"id": 1, "name": "x", "note": None}, {"id": 2, "name": "y", "note": "n"}]
    reference = bench.freeze(contract, "id,name,note\n1,x,\n2,y,n\n", name="2.csv")
    assert extract.manifest.digest == reference.manifest.digest


@pytest.mark.parametrize("alias", ["name", "title", "Name"])
def test_a_renamed_column_is_found_under_its_alias(bench: Bench, alias: str) -> None:
    extract = bench.freeze(table(*ITEMS), f"{alias},id\nx,1\n")
    assert records(extract) == [{"id": 1, "name": "x", "note": None}]


def test_a_new_column_is_added_as_text(bench: Bench) -> None:
    extract = bench.freeze(table(*ITEMS, new_columns="add"), "z,id,name,a b\n007,1,x,\n")
    assert records(extract) == [{"id": 1, "name": "x", "note": None, "z": "007", "a b": None}]
    assert [(c.name, c.type) for c in extract.manifest.columns if c.added] == [("z", "text"), ("a b", "text")]


def test_a_new_column_is_ignored_where_the_contract_says_so(bench: Bench) -> None:
    extract = bench.freeze(table(*ITEMS, new_columns="ignore"), "_x,id,sqlite_y,name\n?,1,?,x\n")
    assert records(extract) == [{"id": 1, "name": "x", "note": None}]


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "id,name,extra,other", "has 'extra', 'other', which the contract does not know"),
    ({}, "id", "lacks 'name', which the contract requires"),
    ({}, "id,label", "lacks 'name'.*it has 'label' instead. If a column was renamed, give the new name as an alias"),
    ({}, "id,NAME", "lacks 'name'"),
    ({}, "id, name", "lacks 'name'.*' name' instead"),
    ({}, "id,name,title", r"\['name', 'title'\] all name the contract's column 'name'"),
    ({}, "id,name,id", "names 'id' twice, as columns 1 and 3"),
    ({"new_columns": "ignore"}, "id,name,x,x", "names 'x' twice, as columns 3 and 4"),
    ({"new_columns": "add"}, "id,name,_batch", "'_batch' starts with '_'.*cannot be added"),
    ({"new_columns": "add"}, "id,name,ETL_x", "prefix that is kept"),
    ({"new_columns": "add"}, "id,name,ID", "'ID' and 'id' differ only in case"),
    ({"new_columns": "add"}, "id,name,NOTE", "'NOTE' and 'note' differ only in case"),
    ({"new_columns": "add"}, "id,name,TITLE", "'TITLE' and 'title' differ only in case"),
    ({"new_columns": "add"}, "id,name,x,X", "'X' and 'x' differ only in case"),
    ({"new_columns": "add"}, "id,name," + "y" * 201, "at most 200"),
    (
        {"new_columns": "add"},
        "id,name," + ",".join(f"n{i}" for i in range(MAX_COLUMNS - 2)),
        f"more than {MAX_COLUMNS}",
    ),
    ({"new_columns": "refuse"}, "id,name," + ",".join(f"n{i}" for i in range(20)), "'n7' and 12 more"),
]


@pytest.mark.parametrize("changes, header, message", REFUSED)
def test_a_header_that_does_not_fit_is_refused_naming_every_difference(
    bench: Bench, changes: dict[str, Any], header: str, message: str
) -> None:
    with pytest.raises(BadHeader, match=rf"^1.csv: line 1: .*{message}"):
        bench.freeze(table(*ITEMS, **changes), header + "\n")


def test_columns_for_the_transform_only_are_read_and_not_kept(bench: Bench) -> None:
    contract = table(integer("id"), inputs=[integer("raw", missing=("", "-"))])
    assert records(bench.freeze(contract, "raw,id\n-,1\n")) == [{"id": 1}]
    with pytest.raises(BadHeader, match="lacks 'raw'"):
        bench.freeze(contract, "id\n1\n")
    with pytest.raises(InvalidRows, match="line 2: raw: 'x' is not an integer"):
        bench.freeze(contract, "raw,id\nx,1\n")


def test_a_column_that_drifts_from_integer_to_text_is_refused_or_quarantined(bench: Bench) -> None:
    content = "id,name\n1,x\ntwo,y\n3,z\nfour,\n"
    with pytest.raises(InvalidRows) as caught:
        bench.freeze(table(*ITEMS), content)
    assert str(caught.value) == (
        "1.csv: 2 of 4 rows are invalid; none may be set aside (invalid_rows='refuse').\n"
        "  line 3: id: 'two' is not an integer\n"
        "  line 5: id: 'four' is not an integer"
    )
    extract = bench.freeze(table(*ITEMS, invalid_rows=quarantine(0.5)), content)
    assert [r["id"] for r in records(extract)] == [1, 3]
