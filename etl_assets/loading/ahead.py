"""One step ahead: prepare the next item in a thread while the caller is busy with the present one.

Freezing a delivery is work of the processor and of Arrow, publishing one waits for the disk; side by side they take
little more than the longer of the two. What is prepared and not wanted any more is closed.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar


class Closeable(Protocol):
    """What a preparation makes."""

    def close(self) -> None:
        """Let go of what it holds."""


Item = TypeVar("Item")
Made = TypeVar("Made", bound=Closeable)


def prepared(
    items: Sequence[Item], prepare: Callable[[Item], Made], may_run_ahead: Callable[[Item], bool]
) -> Generator[tuple[Item, Made]]:
    """Each item with what ``prepare`` made of it, in order; an error of ``prepare`` is raised when its turn comes.

    The next item is prepared while the present one is used, if both ``may_run_ahead``. What was handed out is closed
    when the next is asked for.
    """
    coming: Future[Made] | None = None
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="ahead") as pool:
        try:
            for number, item in enumerate(items):
                made = coming.result() if coming is not None else prepare(item)
                coming = None
                following = items[number + 1 : number + 2]
                if following and may_run_ahead(item) and may_run_ahead(following[0]):
                    coming = pool.submit(prepare, following[0])
                try:
                    yield item, made
                finally:
                    made.close()
        finally:
            # Left early, by an error or because no more was wanted.
            if coming is not None and not coming.cancel() and coming.exception() is None:
                coming.result().close()
