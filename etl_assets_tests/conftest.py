"""Fixtures for all rooms."""

from __future__ import annotations

from pathlib import Path

import pytest

from etl_assets_tests.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world around the small ``orders`` pipeline."""
    return World(tmp_path)
