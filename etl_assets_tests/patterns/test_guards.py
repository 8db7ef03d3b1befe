"""Guards of tables of versions that only show where two rare things meet."""

from __future__ import annotations

from pathlib import Path

from etl_assets.contract import quarantine
from etl_assets_tests.patterns.logs import A, B, done, position, readings, snapshot, versions
from etl_assets_tests.world import World


def test_a_whole_snapshot_of_nothing_but_quarantined_rows_is_no_empty_one_and_withdraws_nothing(tmp_path: Path) -> None:
    world = World(tmp_path, readings(complete="whole", invalid_rows=quarantine(up_to=1.0)))
    world.deliver(A, snapshot("a,01,1"))
    world.load(A)
    at = position(world)
    world.deliver(B, snapshot("a,02,x", "b,,2"))
    assert done(world.load(B)) == [("committed", {"rejected": 2})]
    assert [(v[0], v[2]) for v in versions(world)] == [("a", 0)]
    assert position(world) == at
    assert world.warehouse.verify(world.pipeline) == []
