"""Fixtures of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets_tests.cli.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)
