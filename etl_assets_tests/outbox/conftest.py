"""Fixtures of the outbox: a receiver, and no proxy between it and the relay."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from etl_assets_tests.outbox.receiver import Receiver, receiving


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running
