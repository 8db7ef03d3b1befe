"""Fixtures of the staging tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets_tests.staging.bench import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """An empty staged folder."""
    return Bench(tmp_path)
