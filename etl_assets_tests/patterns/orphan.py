"""A process that loads a scope and stops (SIGSTOP) at one point of its publish, to be woken after others have gone on.

Called as ``python -m … orphan KIND ROOT NUMBER POINT``: the engine of a real process, paused where a machine that swaps, or a
debugger, could pause it. What became of it is printed as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from etl_assets.sink import SQLiteWarehouse
from etl_assets.sink.sqlite import publish as publishing
from etl_assets_tests.patterns.kinds import KINDS

RUN = "orphan"


def stop_once() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def pause(point: str) -> None:
    """``before`` its transaction begins; or ``within`` it: the rows are written, and COMMIT is still to come."""
    if point == "before":
        publish = SQLiteWarehouse.publish

        def later(self: SQLiteWarehouse, *rest: Any) -> Any:
            stop_once()
            return publish(self, *rest)

        SQLiteWarehouse.publish = later  # type: ignore[method-assign]
    else:
        applied = publishing.publish

        def applying(*rest: Any) -> Any:
            receipt = applied(*rest)
            stop_once()
            return receipt

        publishing.publish = applying


def main() -> None:
    name, root, number, point = sys.argv[1:]
    kind = KINDS[name]
    pause(point)
    outcomes = kind.world(Path(root)).load(kind.scope(int(number)), run=RUN)
    print(json.dumps([[o.status, type(o.error).__name__, o.message] for o in outcomes]))


if __name__ == "__main__":
    main()
