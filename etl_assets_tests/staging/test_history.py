"""Which events of a delivery came after a newer version of their key, and which versions stood for a time."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etl_assets.staging.history import History

Event = tuple[int, int]


def plain(events: list[Event]) -> tuple[int, list[list[int]]]:
    """Stale events, and of each key in order the versions that stood before the last."""
    stale, stood = 0, defaultdict(list)
    for key, version in events:
        if stood[key] and version < stood[key][-1]:
            stale += 1
        else:
            stood[key].append(version)
    return stale, [stood[key][:-1] for key in sorted(stood)]


def found(events: list[Event], batch: int) -> tuple[int, list[list[int]]]:
    """The same by way of rows in order of key, version and line, some at a time, the last of them given again."""
    rows = sorted((key, version, line) for line, (key, version) in enumerate(events, 1))
    history, told = History(), []
    start = 0
    for end in [*range(batch, len(rows), batch), len(rows)]:
        keys, versions, lines = (
            np.array(column, np.int64) for column in zip(*rows[max(0, start - 1) : end], strict=True)
        )
        told += history.closed(versions, lines, keys[1:] == keys[:-1], {})[0].to_pylist()
        start = end
    told += history.last(*rows[-1][1:])[0].to_pylist()
    return history.stale, told


@settings(max_examples=300, deadline=None, database=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=40), st.integers(1, 12))
def test_history_is_that_of_a_plain_fold_however_the_rows_come(events: list[Event], batch: int) -> None:
    assert found(events, batch) == plain(events)


@pytest.mark.parametrize("versions", [range(1, 5_001), range(5_000, 0, -1), [7] * 5_000])
def test_one_key_of_many_events_goes_through_many_batches(versions: list[int]) -> None:
    events = [(1, version) for version in versions]
    assert found(events, 64) == plain(events)
