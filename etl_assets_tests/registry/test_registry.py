"""Pipelines are found in the project's own package and in what ETL_PIPELINES names."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from etl_assets.contract import Table
from etl_assets.errors import ContractError, EtlError, UnknownPipeline
from etl_assets.registry import find_pipeline, load_pipelines

MODULE = """
from etl_assets.contract import PartitionedTable, Static, text

{name} = PartitionedTable(name="{name}", partitions=Static("a"), landing="{{partition}}", columns=[text("t")])
"""


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that ETL_PIPELINES names; what is imported from it is forgotten afterwards."""
    known = set(sys.modules)
    folder = tmp_path / "mine"
    folder.mkdir()
    monkeypatch.setenv("ETL_PIPELINES", str(folder))
    yield folder
    for name in set(sys.modules) - known:
        del sys.modules[name]


def write(path: Path, name: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MODULE.format(name=name))
    return path


def test_the_projects_own_pipelines_are_always_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ETL_PIPELINES", raising=False)
    found = load_pipelines()
    assert list(found) == sorted(found)
    assert {"flights", "weather"} <= set(found)
    assert all(isinstance(p, Table) and p.name == n for n, p in found.items())
    assert find_pipeline("weather") is found["weather"]


def test_a_folder_a_file_and_a_module_are_looked_into(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(places / "one.py", "one")
    (places / "_helper.py").write_text("raise RuntimeError('not a pipeline module')")
    write(places.parent / "elsewhere" / "two.py", "two")
    write(places.parent / "site" / "our_package" / "three.py", "three")
    (places.parent / "site" / "our_package" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(places.parent / "site"))
    named = [places, places.parent / "elsewhere" / "two.py", "our_package"]
    monkeypatch.setenv("ETL_PIPELINES", os.pathsep.join(map(str, named)))
    assert {"one", "two", "three", "flights"} <= set(load_pipelines())
    assert [find_pipeline(n).name for n in ("one", "two", "three")] == ["one", "two", "three"]
    monkeypatch.setenv("ETL_PIPELINES", "our_package.three")
    assert find_pipeline("three").name == "three"


def test_two_files_of_one_name_in_two_folders_are_two_modules(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(places / "same.py", "one")
    other = write(places.parent / "other" / "same.py", "two").parent
    monkeypatch.setenv("ETL_PIPELINES", f"{places}{os.pathsep}{other}")
    assert {"one", "two"} <= set(load_pipelines())
    assert (find_pipeline("one").name, find_pipeline("two").name) == ("one", "two")


@pytest.mark.parametrize("how", ["from shop_a.orders import orders", "from .orders import orders"])
def test_modules_of_a_folder_import_each_other_by_its_name_and_each_pipeline_is_one(
    how: str, places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = places.parent / how.partition(" ")[2][:5].strip(". ") / "shop_a"
    write(folder / "orders.py", "orders")
    (folder / "totals.py").write_text(
        f"from etl_assets.contract import DerivedTable, integer, same_partition\n{how}\n\n"
        "totals = DerivedTable(name='totals', partitions=orders.partitions, upstream=[same_partition(orders)], "
        "sql='SELECT count(*) AS n FROM orders', columns=[integer('n')])\n"
    )
    monkeypatch.setenv("ETL_PIPELINES", str(folder))
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = load_pipelines()
    assert {"orders", "totals"} <= set(found)
    assert find_pipeline("totals") is found["totals"]
    assert found["totals"].upstream[0].pipeline == "orders"  # type: ignore[union-attr]


def test_a_pipeline_that_two_modules_declare_is_refused_naming_both(places: Path) -> None:
    write(places / "a.py", "orders")
    write(places / "b.py", "orders")
    with pytest.raises(ContractError, match=r"two pipelines are named 'orders': in .*a\.py and in .*b\.py"):
        load_pipelines()


def test_a_pipeline_that_is_imported_by_another_module_is_one(places: Path) -> None:
    write(places / "a.py", "orders")
    (places / "b.py").write_text("from etl_assets.pipelines.flights import flights\n")
    assert "flights" in load_pipelines()


def test_a_pipeline_of_another_name_than_its_module_is_found(places: Path) -> None:
    write(places / "shops.py", "orders")
    write(places / "orders.py", "customers")
    assert find_pipeline("orders").name == "orders"


def test_an_unknown_pipeline_is_told_which_there_are(places: Path) -> None:
    write(places / "a.py", "orders")
    with pytest.raises(UnknownPipeline, match=r"no pipeline is named 'ordres'; there are .*orders"):
        find_pipeline("ordres")


@pytest.mark.parametrize(
    "source, message",
    [
        ("import no_such_module_at_all", "ModuleNotFoundError: No module named 'no_such_module_at_all'"),
        ("def broken(:", "SyntaxError"),
        ("1 / 0", "ZeroDivisionError"),
        ("from etl_assets.contract import text; text('_x')", "Column '_x' does not hold together"),
    ],
)
def test_a_module_that_cannot_be_loaded_is_named_with_its_error(places: Path, source: str, message: str) -> None:
    write(places / "orders.py", "orders")
    (places / "bad.py").write_text(source)
    for _ in range(2):  # a half-loaded module is not remembered
        with pytest.raises(ContractError, match=rf"bad\.py.*{message}"):
            load_pipelines()
    assert find_pipeline("orders").name == "orders"


@pytest.mark.parametrize(
    "place, message",
    [
        ("no_such_package", "'no_such_package', which is neither a folder, a file nor a module"),
        ("no_such_package.deeper", "neither a folder, a file nor a module"),
        ("./no/such/folder", "'./no/such/folder', where there is neither a folder nor a file"),
        ("nosuch.py", "'nosuch.py', where there is neither"),
    ],
)
def test_a_place_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, place: str, message: str) -> None:
    monkeypatch.setenv("ETL_PIPELINES", place)
    with pytest.raises(UnknownPipeline, match=message):
        load_pipelines()


def test_a_package_that_fails_when_it_is_searched_is_named(places: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = places / "falls_over"
    package.mkdir()
    (package / "__init__.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(places))
    monkeypatch.setenv("ETL_PIPELINES", "falls_over.inner")
    with pytest.raises(EtlError, match=r"falls_over.inner cannot be loaded: ZeroDivisionError"):
        load_pipelines()


def test_blank_places_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ETL_PIPELINES", f" {os.pathsep}{os.pathsep}")
    assert "flights" in load_pipelines()


@pytest.mark.parametrize("made", ["one_extract", "one_landing"])
def test_a_pipeline_named_like_an_asset_of_another_is_refused(places: Path, made: str) -> None:
    write(places / "one.py", "one")
    write(places / "other.py", made)
    with pytest.raises(
        ContractError, match=f"'{made}' is the name of a pipeline, and that of an asset of the pipeline 'one'"
    ):
        load_pipelines()
