"""A process that forks children to die at a given statement of publish; its orders come as JSON lines on stdin.

Children are forked before any library has started a thread, so each of them is as good as a process of its own, and
costs milliseconds where a fresh interpreter costs most of a second.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sqlite3
import sys
import time
import traceback
from pathlib import Path

from etl_assets_tests.faults.scenarios import connecting, faulty

STRUCK, DONE, FAILED = 77, 0, 99


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


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = FAILED
            try:
                code = publish(json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


if __name__ == "__main__":
    main()
