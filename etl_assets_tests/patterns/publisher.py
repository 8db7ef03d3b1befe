"""A process that publishes the deliveries of one pipeline beside others; called with KIND, NAME, ROOT and COUNT."""

from __future__ import annotations

import sys
from pathlib import Path

from etl_assets_tests.patterns.test_side_by_side import busy
from etl_assets_tests.world import World


def main() -> None:
    name, own, root, count = sys.argv[1:]
    kind = busy(name, own)
    world = World(Path(root), kind.pipeline)  # type: ignore[arg-type]
    for number in range(1, int(count) + 1):
        kind.deliver(world, number)
        outcome = world.load(kind.scope(number))[-1]
        assert outcome.status == "committed", outcome.message


if __name__ == "__main__":
    main()
