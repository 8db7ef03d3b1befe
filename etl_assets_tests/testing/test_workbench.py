"""The workbench, and the pytest plugin in the project of someone who uses both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from etl_assets.errors import InvalidRows
from etl_assets.testing import Workbench
from etl_assets_tests.world import DAYS, orders

ROOT = Path(__file__).parents[2]
HEADER = "id,day,item,amount\n"
A, B, _ = DAYS


def test_a_workbench_loads_what_waits_or_what_is_named_and_shows_rows_and_ledger(tmp_path: Path) -> None:
    bench, contract = Workbench(tmp_path), orders()
    assert bench.load(contract) == []
    bench.put(f"orders/{A}/1.csv", f"{HEADER}2,{A},fig,2\n1,{A},,1\n")
    file = tmp_path / "elsewhere.csv"
    file.write_text(f"{HEADER}3,{B},lime,x\n")
    assert bench.put(f"orders/{B}/1.csv", file).read_bytes() == file.read_bytes()
    one, two = bench.load(contract)
    assert (one.scope, one.status) == (A, "committed")
    assert isinstance(two.error, InvalidRows)
    rows = [{"amount": 1, "day": A, "id": 1, "item": None}, {"amount": 2, "day": A, "id": 2, "item": "fig"}]
    assert bench.rows(contract) == rows
    assert bench.sql("SELECT id FROM orders WHERE item = ?", "fig") == [(2,)]
    bench.put(f"orders/{A}/2.csv", HEADER.encode())
    (older,) = bench.load(contract, A, delivery="1.csv")
    assert older.status == "already committed"
    (newer,) = bench.load(contract, A)
    assert (newer.status, bench.rows(contract)) == ("committed", [])
    assert [b.batch for b in bench.ledger(contract)] == [f"orders/{A}/1.csv#1@1", f"orders/{A}/2.csv#1@1"]
    assert bench.differences(contract) == []


def test_several_pipelines_share_a_workbench(tmp_path: Path) -> None:
    bench, other = Workbench(tmp_path), orders(name="returns", landing="returns/{partition}/*.csv")
    for name in ("orders", "returns"):
        bench.put(f"{name}/{A}/1.csv", f"{HEADER}1,{A},{name},1\n")
    assert [o.status for pipeline in (orders(), other) for o in bench.load(pipeline)] == ["committed"] * 2
    assert [row["item"] for row in bench.rows(other)] == ["returns"]
    assert bench.records("nothing of that name") == []


#: Tests of someone who uses the fixture's instance.
RUNS = f"""
import dagster as dg
from etl_assets.contract import Daily, PartitionedTable, date, integer

visits = PartitionedTable(
    name="visits", partitions=Daily(start="2024-01-01", end="2024-02-01"), landing="visits/{{partition}}/*.csv",
    columns=[integer("id"), date("day")], key=["id"], partition_by="day",
)

def test_a_run_of_one_partition_and_of_a_range(workbench):
    for number, day in enumerate(("{A}", "{B}")):
        workbench.put(f"visits/{{day}}/1.csv", f"id,day\\n{{number}},{{day}}\\n")
    assert workbench.materialize(visits, "{A}").success
    assert workbench.rows(visits) == [{{"day": "{A}", "id": 0}}]
    assert workbench.materialize(visits, "{A}", "{B}").success
    assert len(workbench.rows(visits)) == 2
    assert not workbench.materialize(visits, "2024-01-05").success
    done = workbench.instance.fetch_materializations(dg.AssetKey("visits"), limit=9).records
    assert {{r.partition_key for r in done}} == {{"{A}", "{B}"}}

def test_another_test_sees_nothing_of_it(workbench):
    assert not workbench.instance.get_runs()
    assert workbench.load(visits) == []
    assert workbench.rows(visits) == []
"""


def blocks(page: str, section: str) -> list[str]:
    """The Python in a section of a page of the documentation."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    part = text.split(f"\n## {section}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"```python\n(.*?)```", part, re.DOTALL)


def pytest_in(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("ETL_", "PYTEST_", "DAGSTER_"))}
    environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "-q", *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=240)


def test_the_documentation_runs_as_it_stands_in_a_project_of_its_own_and_each_test_has_its_own_instance(
    tmp_path: Path,
) -> None:
    (contract,) = blocks("add-a-pipeline.md", "1. The contract (three minutes)")
    conftest, proof = blocks("add-a-pipeline.md", "5. Prove it (two minutes)")
    (tmp_path / "my_pipelines").mkdir()
    (tmp_path / "my_pipelines" / "sales.py").write_text(contract)
    (tmp_path / "conftest.py").write_text(conftest)
    (tmp_path / "test_sales.py").write_text(proof)
    (tmp_path / "test_runs.py").write_text(RUNS)
    done = pytest_in(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 passed" in done.stdout


def test_a_mistake_in_a_users_transform_is_told_by_the_row(tmp_path: Path) -> None:
    """No conftest: the assertion needs no plugin, and no Dagster."""
    (contract,) = blocks("add-a-pipeline.md", "1. The contract (three minutes)")
    _, proof = blocks("add-a-pipeline.md", "5. Prove it (two minutes)")
    wrong = contract.replace("    partition_by=", "    transform=running,\n    partition_by=").replace(
        "sales = PartitionedTable(",
        "from etl_assets.contract import transform\n\n"
        "running = transform(lambda f: f.assign(quantity=f['quantity'].cumsum()), version=1, rowwise=True)\n\n"
        "sales = PartitionedTable(",
    )
    (tmp_path / "my_pipelines").mkdir()
    (tmp_path / "my_pipelines" / "sales.py").write_text(wrong)
    without = "\n\nimport sys\nassert not {'dagster'} & set(sys.modules)\n"
    (tmp_path / "test_sales.py").write_text(proof + without)
    done = pytest_in(tmp_path, "-k", "order")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "in order, handed to the rowwise transform in 3 pieces" in done.stdout
    assert "rows, only this way: {" in done.stdout
