"""A process that forks relays which die at a given step: at a statement, or before or after sending.

Its orders come as JSON lines on stdin, like those of ``faults.victim``.
"""

from __future__ import annotations

import os
import signal
import sqlite3
from contextlib import closing
from typing import Any

from etl_assets.model import Message
from etl_assets.outbox import Patience, Refused, Sent, deliver
from etl_assets.outbox.http import HttpRelay
from etl_assets.sink import SQLiteWarehouse
from etl_assets_tests.faults.forking import DONE, fork_for_each_order
from etl_assets_tests.faults.scenarios import connecting


class Steps:
    """Counts the steps of this process, and kills it at one of them."""

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    def take(self) -> None:
        if self.seen == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


class StruckRelay(HttpRelay):
    """Sends for real; a step before and one after."""

    steps: Steps

    def send(self, message: Message) -> Sent | Refused:
        self.steps.take()
        outcome = super().send(message)
        self.steps.take()
        return outcome


def relay(order: dict[str, Any]) -> int:
    steps = Steps(order["at"])

    class Struck(sqlite3.Connection):
        def execute(self, sql: str, *rest: Any) -> sqlite3.Cursor:  # type: ignore[override]
            steps.take()
            return super().execute(sql, *rest)

    sqlite3.connect = connecting(Struck)  # type: ignore[assignment, arg-type]
    with closing(StruckRelay(order["url"], 5.0)) as out:
        out.steps = steps
        list(deliver(SQLiteWarehouse(order["warehouse"]), out, Patience(attempts=9, first=0.0, longest=0.0)))
    return DONE


if __name__ == "__main__":
    fork_for_each_order(relay)
