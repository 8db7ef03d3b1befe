"""The installed command line, run as a person or a script runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).with_name("etl-assets")
#: Two pipelines: ``orders`` as the tests of other rooms have it, and ``prices``, which is partitioned by shop.
PIPELINES = """
from etl_assets.contract import Daily, PartitionedTable, Static, date, integer, text, timestamp

orders = PartitionedTable(
    name="orders",
    partitions=Daily(start="2024-01-01", end="2024-02-01"),
    landing="orders/{partition}/*",
    columns=[
        integer("id"), date("day"), text("item"), integer("amount", missing=("", "NA")), timestamp("at", optional=True)
    ],
    key=["id", "item"],
    partition_by="day",
)
prices = PartitionedTable(
    name="prices",
    partitions=Static("north", "it's south/west", "Zürich"),
    landing="prices/{partition}/*.csv",
    columns=[text("shop"), integer("price")],
    key=["shop"],
    partition_by="shop",
)
"""


@dataclass
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        return json.loads(self.out)


class Shell:
    """A folder with landing, staged, warehouse and pipelines, and the environment that names them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.landing = root / "landing"
        self.landing.mkdir(parents=True, exist_ok=True)
        self.warehouse = root / "warehouse.sqlite"
        self.pipelines = root / "shop_pipelines"
        self.pipelines.mkdir()
        (self.pipelines / "shop.py").write_text(PIPELINES)
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith(("ETL_", "COLUMNS"))} | {
            "ETL_LANDING": str(self.landing),
            "ETL_STAGED": str(root / "staged"),
            "ETL_WAREHOUSE": str(self.warehouse),
            "ETL_PIPELINES": str(self.pipelines),
        }

    def __call__(self, *arguments: str | bytes, **environment: str) -> Answer:
        done = subprocess.run(
            [os.fsencode(COMMAND), *(os.fsencode(a) for a in arguments)],
            env=self.environment | environment,
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        assert "Traceback" not in done.stdout + done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    def deliver(self, scope: str, content: str | bytes, name: str | bytes = "1.csv", pipeline: str = "orders") -> Path:
        folder = self.landing / pipeline / scope
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / os.fsdecode(name)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path
