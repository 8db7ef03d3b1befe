"""The transform: typed rows in, rows of the table out, checked against the contract."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from etl_assets.contract import boolean, date, decimal, integer, json, quarantine, real, text, timestamp, transform
from etl_assets.errors import DuplicateKey, InvalidRows, TransformFailed
from etl_assets.staging import reading
from etl_assets_tests.staging.bench import Bench, contents, records, rejects, rows, table

TYPED = (
    integer("id"),
    text("t"),
    real("r"),
    decimal("d", 7, 3),
    boolean("b"),
    date("day"),
    timestamp("at", resolution="s"),
    json("j"),
)
LINES = (
    'id,t,r,d,b,day,at,j\n1,007,0.5,1.250,yes,2024-02-29,2024-01-01T00:00:00Z,"{""a"": 1}"\n9007199254740993,,,,,,,\n'
)
VALUES = [
    (1, "007", 0.5, Decimal("1.250"), True, dt.date(2024, 2, 29), dt.datetime(2024, 1, 1, tzinfo=dt.UTC), '{"a": 1}'),
    (9007199254740993, None, None, None, None, None, None, None),
]


def made(function: Any, *columns: Any, rowwise: bool = False, **changes: Any):
    return table(*(columns or TYPED), key=["id"], transform=transform(function, version=1, rowwise=rowwise), **changes)


def test_values_of_every_type_pass_through_a_frame_unchanged(bench: Bench) -> None:
    assert bench.read(made(lambda frame: frame), LINES) == VALUES


def test_the_frame_has_the_contracts_columns_in_order_and_its_index_numbers_the_records(bench: Bench) -> None:
    seen: list[pd.DataFrame] = []

    def look(frame: pd.DataFrame) -> pd.DataFrame:
        seen.append(frame)
        return frame

    contract = made(
        look, integer("id"), text("t"), inputs=[integer("raw")], new_columns="add", invalid_rows=quarantine(0.5)
    )
    bench.freeze(contract, "new,t,raw,id\nn,x,5,1\nn,x,y,2\n\nm,z,6,3\n")
    (frame,) = seen
    assert list(frame.columns) == ["id", "t", "raw", "new"]
    assert (frame.index.name, list(frame.index)) == ("record", [1, 3])
    assert [str(kind) for kind in frame.dtypes] == [
        "int64[pyarrow]",
        "string[pyarrow]",
        "int64[pyarrow]",
        "string[pyarrow]",
    ]


def test_rows_that_keep_their_index_keep_their_line_and_others_say_that_it_is_lost(bench: Bench) -> None:
    content = 'id,t\n3,"a\nb"\n2,c\n1,d\n'
    columns = (integer("id", maximum=1), text("t"))
    kept = made(lambda f: f.sort_values("id").iloc[::-1], *columns)
    with pytest.raises(InvalidRows, match=r"line 2: id is 3, more than 1\n  line 4: id is 2, more than 1"):
        bench.freeze(kept, content)
    for lose in (lambda f: f.reset_index(drop=True), lambda f: pd.concat([f, f]).assign(id=range(6))):
        with pytest.raises(InvalidRows, match=r"line unknown \(changed by the transform\): id is "):
            bench.freeze(made(lose, *columns), content)
    with pytest.raises(InvalidRows, match="line unknown"):
        bench.freeze(made(lambda f: f.set_index(pd.Index([0.5, 1.5, 2.5], name="record")), *columns), content)
    doubled = made(lambda f: pd.concat([f, f]), *columns, invalid_rows=quarantine(1.0))
    with pytest.raises(DuplicateKey, match="lines unknown and unknown: id=1"):
        bench.freeze(doubled, "id,t\n1,x\n")


def test_a_rejected_row_that_lost_its_line_is_kept_without_one(bench: Bench) -> None:
    contract = made(
        lambda f: f.reset_index(drop=True), integer("id", maximum=1), text("t"), invalid_rows=quarantine(0.5)
    )
    extract = bench.freeze(contract, "id,t\n1,a\n2,b\n")
    assert rejects(extract) == [{"line": None, "reasons": ["id is 2, more than 1"], "row": {"id": 2, "t": "b"}}]


def boom(frame: pd.DataFrame) -> pd.DataFrame:
    raise KeyError("prcie")


WRONG: list[tuple[Any, str]] = [
    (boom, r"1.csv: the transform boom of files raised KeyError: 'prcie'. The delivery is kept"),
    (lambda f: None, "returned NoneType, not a DataFrame"),
    (lambda f: f["id"], "returned Series, not a DataFrame"),
    (lambda f: f.to_dict("records"), "returned list, not a DataFrame"),
    (lambda f: f.assign(extra=1), r"returned columns that the contract does not have: \['extra'\]"),
    (lambda f: pd.concat([f, f], axis=1), r"returned a column twice: \['at', 'b', 'd', 'day', 'id', 'j', 'r', 't'\]"),
    (lambda f: f.drop(columns="id"), "did not return the column 'id', which the contract has"),
    (lambda f: f.assign(id="1"), "'id' as something that is not integer"),
    (lambda f: f.assign(id=1.5), "'id' as something that is not integer"),
    (lambda f: f.assign(id=[2**70, 2]), "'id' as something that is not integer"),
    (lambda f: f.assign(id=[1, "2"]), "'id' as something that is not integer"),
    (lambda f: f.assign(id=np.array([2**63, 1], "uint64")), "'id' as something that is not integer"),
    (lambda f: f.assign(t=7), "'t' as something that is not text"),
    (lambda f: f.assign(t=[b"x", b"\xff"]), "'t' as something that is not text"),
    (
        lambda f: f.assign(t=pd.Series(["x", "\ud800"], index=f.index, dtype=object)),
        "'t' as something that is not text",
    ),
    (lambda f: f.assign(r="0.5"), "'r' as something that is not real"),
    (lambda f: f.assign(d=0.1), "'d' as something that is not decimal"),
    (lambda f: f.assign(d=Decimal("0.0001")), "'d' as something that is not decimal"),
    (lambda f: f.assign(d=Decimal(10**6)), "'d' as something that is not decimal"),
    (lambda f: f.assign(b=1), "'b' as something that is not boolean"),
    (lambda f: f.assign(day="2024-01-01"), "'day' as something that is not date"),
    (lambda f: f.assign(day=pd.Timestamp("2024-01-01T10:00")), "'day' as .* not date: its dates have a time of day"),
    (lambda f: f.assign(day=pd.Timestamp("2024-01-01", tz="UTC")), "'day' as .* not date: an instant is no date"),
    (lambda f: f.assign(at=pd.Timestamp("2024-01-01")), "'at' as .* not timestamp: its timestamps have no time zone"),
    (lambda f: f.assign(at=pd.Timestamp("2024-01-01T00:00:00.5", tz="UTC")), "'at' as something that is not timestamp"),
    (lambda f: f.assign(at=1704067200), "'at' as something that is not timestamp"),
    (lambda f: f.assign(at=f["at"] + pd.Timedelta(days=3_000_000)), "'at' as .*its years are not 1 to 9999"),
    (lambda f: f.assign(j=[{"a": 1}, None]), "'j' as something that is not json"),
]


@pytest.mark.parametrize("function, message", WRONG)
def test_what_the_contract_does_not_allow_is_refused_naming_the_column(
    bench: Bench, function: Any, message: str
) -> None:
    with pytest.raises(TransformFailed, match=message):
        bench.freeze(made(function), LINES.replace("9007199254740993,,,,,,,", "2,,,,,,2024-01-01T00:00:00Z,"))


RIGHT: list[tuple[str, Any, Any]] = [
    ("id", [1.0, 2.0], [1, 2]),
    ("id", np.array([1, 2], "int8"), [1, 2]),
    ("r", [1, 2], [1.0, 2.0]),
    ("r", [0.5, np.nan], [0.5, None]),
    ("d", [Decimal("1.2"), None], [Decimal("1.200"), None]),
    ("d", [1, 2], [Decimal("1.000"), Decimal("2.000")]),
    ("t", pd.Categorical(["x", "y"]), ["x", "y"]),
    ("b", [True, None], [True, None]),
    ("day", [pd.Timestamp("2024-02-29"), pd.NaT], [dt.date(2024, 2, 29), None]),
    ("day", [dt.date(2024, 2, 29), None], [dt.date(2024, 2, 29), None]),
    ("at", pd.to_datetime(["2024-01-01T02:00+02:00", None], utc=True), [dt.datetime(2024, 1, 1, tzinfo=dt.UTC), None]),
    (
        "at",
        pd.to_datetime(["2024-07-01", "2024-01-01"]).tz_localize("America/New_York"),
        [dt.datetime(2024, 7, 1, 4, tzinfo=dt.UTC), dt.datetime(2024, 1, 1, 5, tzinfo=dt.UTC)],
    ),
    ("j", ["[]", None], ["[]", None]),
    ("t", [None, None], [None, None]),
]


@pytest.mark.parametrize("column, given, wanted", RIGHT)
def test_other_forms_of_the_same_value_are_taken(bench: Bench, column: str, given: Any, wanted: list[Any]) -> None:
    contract = made(lambda f: f.assign(**{column: given}))
    found = records(bench.freeze(contract, LINES.replace("9007199254740993", "2")))
    assert [r[column] for r in found] == wanted


def test_an_infinite_number_makes_an_invalid_row_and_pandas_nan_is_no_value(bench: Bench) -> None:
    contract = made(lambda f: f.assign(r=f["r"] / f["id"]), integer("id"), real("r"), invalid_rows=quarantine(0.5))
    extract = bench.freeze(contract, "id,r\n1,4\n0,2\n")
    assert (rows(extract), [r["reasons"] for r in rejects(extract)]) == ([(1, 4.0)], [["r is not finite"]])
    assert bench.read(contract, "id,r\n1,4\n0,0\n", name="2.csv") == [(0, None), (1, 4.0)]


def test_optional_columns_that_a_transform_leaves_out_have_no_value_and_others_are_missed(bench: Bench) -> None:
    contract = made(lambda f: f[["t", "id"]], integer("id"), text("t"), integer("n", optional=True))
    assert bench.read(contract, "id,t,n\n1,x,5\n") == [(1, "x", None)]
    with pytest.raises(
        TransformFailed, match="did not return the column 'n', which the contract has and does not call"
    ):
        bench.read(made(lambda f: f[["t", "id"]], integer("id"), text("t"), integer("n")), "id,t,n\n1,x,5\n")


def test_a_transform_may_drop_and_make_rows(bench: Bench) -> None:
    def spread(frame: pd.DataFrame) -> pd.DataFrame:
        chosen = frame[frame["id"] > 1]
        return pd.concat([chosen, chosen.assign(id=chosen["id"] * 10)])

    extract = bench.freeze(made(spread, integer("id"), text("t")), "id,t\n1,x\n2,y\n3,z\n")
    assert rows(extract) == [(2, "y"), (3, "z"), (20, "y"), (30, "z")]
    assert (extract.manifest.source_rows, extract.manifest.rows) == (3, 4)


def test_a_rowwise_transform_in_pieces_gives_what_it_gives_for_the_whole(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def double(frame: pd.DataFrame) -> pd.DataFrame:
        sizes.append(len(frame))
        return frame.assign(r=frame["r"] * 2)

    content = "id,r\n" + "".join(f"{i},{i / 8}\n" for i in range(500, 0, -1))
    columns = (integer("id"), real("r"))
    monkeypatch.setattr(reading, "BLOCK", 512)
    pieces = bench.freeze(made(double, *columns, rowwise=True), content, name="pieces.csv")
    assert len(sizes) > 5
    sizes.clear()
    whole = bench.freeze(made(double, *columns), content, name="whole.csv")
    assert sizes == [500]
    assert rows(pieces) == rows(whole) == [(i, i / 4) for i in range(1, 501)]
    assert pieces.manifest.digest == whole.manifest.digest
    assert contents(pieces)["candidate.arrow"] == contents(whole)["candidate.arrow"]


def test_a_rowwise_transform_names_lines_of_later_pieces(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "BLOCK", 64)
    contract = made(lambda f: f, integer("id", maximum=99), rowwise=True)
    with pytest.raises(InvalidRows, match="line 101: id is 100, more than 99"):
        bench.freeze(contract, "id\n" + "".join(f"{i}\n" for i in range(1, 101)))


def test_an_empty_delivery_needs_no_transform(bench: Bench) -> None:
    assert bench.read(made(boom), "id,t,r,d,b,day,at,j\n") == []
