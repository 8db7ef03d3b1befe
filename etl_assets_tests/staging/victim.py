"""A process that freezes one delivery, and on order dies at a given step of it; orders come as JSON lines on stdin.

A step is a call that changes the disk: making a folder, opening a file for writing, fsync, chmod, rename. Children are
forked before any library has started a thread.
"""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from etl_assets.contract import integer, text
from etl_assets.staging import extract
from etl_assets_tests.staging.bench import Bench, table

CONTRACT = table(integer("id"), text("näme"), name="files", key=["id"], new_columns="add")
CONTENT = "id,näme,é\n" + "".join(f"{i},x{i},“{i}”\n" for i in range(50, 0, -1))


class Steps:
    """Counts the calls that change the disk, and dies before or after one of them."""

    def __init__(self, at: int, after: bool, wait: str | None) -> None:
        self.at, self.after, self.wait, self.count = at, after, wait, 0

    def watch(
        self, call: Callable[..., Any], counts: Callable[..., bool] = lambda *_, **__: True
    ) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            if not counts(*args, **kwargs):
                return call(*args, **kwargs)
            self.count += 1
            if self.count == self.at and not self.after:
                os.kill(os.getpid(), signal.SIGKILL)
            while (
                call is RENAME
                and self.wait
                and Path(args[0]).name in ("extract", "packed")
                and not Path(self.wait).exists()
            ):
                time.sleep(0.002)
            number = self.count
            try:
                return call(*args, **kwargs)
            finally:
                if number == self.at:
                    os.kill(os.getpid(), signal.SIGKILL)

        return stepping


RENAME = os.rename


def writes(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
    return mode[0] in "wax"


def freeze(order: dict[str, Any]) -> int:
    steps = Steps(order.get("at", 0), order.get("after", False), order.get("wait"))
    bench = Bench(Path(order["root"]))
    if not order.get("wait"):
        bench.staged.sweep()
    if order.get("folder"):
        extract.SMALL_INPUT = -1
    for name in ("fsync", "chmod", "rename", "mkdir"):
        setattr(os, name, steps.watch(getattr(os, name)))
    io.open = steps.watch(io.open, writes)  # type: ignore[assignment]  # what pathlib opens files with
    bench.freeze(CONTRACT, CONTENT, name="1é.csv")
    return steps.count


def main() -> None:
    for line in sys.stdin:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.write(writer, str(freeze(json.loads(line))).encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writer)
        with os.fdopen(reader) as answer:
            steps = answer.read()
        _, status = os.waitpid(child, 0)
        print(json.dumps([os.waitstatus_to_exitcode(status), int(steps or 0)]), flush=True)


if __name__ == "__main__":
    main()
