"""What a command imports: a run that finds nothing answers at once, since it brings along no library that moves rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from etl_assets_tests.world import SHOWCASE, World

#: What is large, and of no use to somebody who only asks.
HEAVY = ("pyarrow", "pandas", "numpy", "adbc_driver_sqlite", "dagster")
COMMAND = f"""
import json, sys
from etl_assets.cli import main
try:
    main()
except SystemExit as ended:
    print(json.dumps([ended.code, [name for name in {HEAVY} if name in sys.modules]]))
"""


@pytest.mark.parametrize(
    "command", [["run", "flights", "--pending"], ["deliveries"], ["deliveries", "flights"], ["ledger", "flights"]]
)
def test_a_command_that_finds_nothing_to_do_imports_nothing_that_moves_rows(world: World, command: list[str]) -> None:
    from etl_assets.pipelines.flights import flights

    world.deliver("2013-10-26", (SHOWCASE / "flights" / "2013-10-26" / "1.csv").read_bytes(), pipeline="flights")
    assert [o.status for o in world.load("2013-10-26", pipeline=flights)] == ["committed"]
    settings = world.settings
    places = ["--landing", settings.landing, "--staged", settings.staged, "--warehouse", settings.warehouse]
    found = subprocess.run(
        [sys.executable, "-c", COMMAND, *command, *places],
        cwd=Path(settings.warehouse).parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(found.stdout.splitlines()[-1]) == [0, []], found.stdout
