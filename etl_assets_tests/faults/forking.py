"""A process that forks children which are to die, and how a test speaks to it: an order and its answer are a JSON line each.

Children are forked before any library has started a thread, so each of them is as good as a process of its own, and
costs milliseconds where a fresh interpreter costs most of a second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable
from typing import Any

DONE, FAILED = 0, 99


def fork_for_each_order(carry_out: Callable[[dict[str, Any]], int]) -> None:
    """Carry out each order of stdin in a child of its own; the answer is how that ended."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = FAILED
            try:
                code = carry_out(json.loads(line))
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        print(json.dumps(os.waitstatus_to_exitcode(status)), flush=True)


class Forks:
    """The process of a module that forks for each order."""

    def __init__(self, module: str, **environment: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def order(self, **order: Any) -> int:
        """How the child ended: its exit code, or the negative number of the signal that ended it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        return int(json.loads(self.process.stdout.readline()))

    def close(self) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
