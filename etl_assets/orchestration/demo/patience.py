"""Waiting where a person can see it: something is printed at least every few seconds, and only a standstill ends it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from etl_assets.orchestration.demo.dev import DagsterFailed

#: The longest silence of a log file, in seconds.
SILENCE = 4.0
#: After so many seconds in which nothing moved the demo gives up.
STANDSTILL = 180.0


@contextlib.contextmanager
def busy(console: Console, what: str) -> Iterator[None]:
    """Show that ``what`` goes on: a spinner on a terminal, and a line every few seconds in a log file."""
    if console.is_terminal:
        with console.status(f"{what} …"):
            yield
        return
    console.print(f"{what} …")
    ended = threading.Event()
    began = time.monotonic()

    def tell() -> None:
        while not ended.wait(SILENCE):
            console.print(f"  {what}: {time.monotonic() - began:.0f} s", style="dim")

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()


def wait_until(
    done: Callable[[], bool], movement: Callable[[], object], what: str, standstill: float = STANDSTILL
) -> None:
    """Wait until ``done``. Raise :class:`DagsterFailed` when ``movement`` gives one value for ``standstill`` s."""
    last, since = movement(), time.monotonic()
    while not done():
        now = movement()
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() - since > standstill:
            raise DagsterFailed(f"{what}: nothing has moved for {standstill:.0f} s")
        time.sleep(0.3)


class Board:
    """How many batches of each pipeline are committed: bars on a terminal, lines in a log file."""

    def __init__(self, console: Console, wanted: dict[str, int]) -> None:
        self.console, self.wanted = console, wanted
        self.committed = dict.fromkeys(wanted, 0)
        self.began = self.told = time.monotonic()
        self.shown: dict[str, int] = {}
        self.progress: Progress | None = None

    def __enter__(self) -> "Board":
        if self.console.is_terminal:
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self.progress = Progress(*columns, TextColumn("[dim]{task.fields[doing]}"), console=self.console)
            self.tasks = {
                name: self.progress.add_task(f"{name:17} committed", total=total, doing="")
                for name, total in self.wanted.items()
            }
            self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.progress:
            self.progress.stop()

    def show(self, committed: dict[str, int], doing: str) -> None:
        """Show how far each pipeline is, and what goes on."""
        self.committed = committed
        if self.progress:
            for name, task in self.tasks.items():
                ended = committed[name] >= self.wanted[name]
                self.progress.update(task, completed=committed[name], doing="" if ended else doing)
            return
        now = time.monotonic()
        if committed != self.shown or now - self.told >= SILENCE:
            counts = ", ".join(f"{name} {committed[name]}/{total}" for name, total in self.wanted.items())
            self.console.print(f"  {now - self.began:3.0f} s  {counts}; {doing}", style="dim", soft_wrap=True)
            self.shown, self.told = dict(committed), now
