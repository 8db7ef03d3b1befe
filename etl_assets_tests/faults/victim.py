"""A process that forks children to die at a given statement of publish; its orders come as JSON lines on stdin."""

from __future__ import annotations

import importlib
import os
import signal
import sqlite3
import time
from pathlib import Path

from etl_assets_tests.faults.forking import DONE, FAILED, fork_for_each_order
from etl_assets_tests.faults.scenarios import connecting, faulty

STRUCK = 77


def die(how: str) -> None:
    if how == "exit":
        os._exit(STRUCK)
    os.kill(os.getpid(), getattr(signal, how))
    time.sleep(0.001)  # where the signal has a handler, this is where it is called


def publish(order: dict) -> int:
    scenario = importlib.import_module(order["module"]).ALL[order["scenario"]]
    world = scenario.world(Path(order["root"]))
    striking = faulty(order["at"], lambda sql: die(order["how"]), order["after"])
    sqlite3.connect = connecting(striking)  # type: ignore[assignment]
    try:
        outcomes = scenario.publish(world)
    except KeyboardInterrupt:
        return STRUCK
    return DONE if {o.status for o in outcomes} == {"committed"} and len(striking.seen) == order["at"] else FAILED


if __name__ == "__main__":
    fork_for_each_order(publish)
