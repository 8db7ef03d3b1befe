"""Deliveries of a log that came before their turn: set aside within a run, and taken up once the events before them are there.

Names need not be in the order of positions. Only what waits at the end of its partition is refused as a gap.
"""

from __future__ import annotations

from etl_assets.contract import ChangeLogTable, Pipeline
from etl_assets.contract.partitions import shard_of
from etl_assets.errors import UnexpectedCursor
from etl_assets.loading.outcome import Outcome
from etl_assets.loading.preparing import Turn
from etl_assets.sink import Sink


class Early:
    """The deliveries of one scope before whose events there is a gap, by where they begin."""

    def __init__(self, pipeline: Pipeline, sink: Sink, scope: str) -> None:
        self.pipeline, self.sink = pipeline, sink
        self.first = pipeline.events.first_position - 1 if isinstance(pipeline, ChangeLogTable) else 0
        self.shard = shard_of(pipeline.partitions, scope)
        self._waiting: list[tuple[int, Turn, Outcome]] = []

    def takes(self, turn: Turn, outcome: Outcome) -> bool:
        """Set a delivery aside if it does not begin where the log ends; return whether it is.

        It may also have been prepared before a delivery that it overlaps was committed: then it is its turn at once.
        """
        lower = outcome.extract.manifest.lower if outcome.extract else None
        if not isinstance(outcome.error, UnexpectedCursor) or lower is None or lower == self._position():
            return False
        self._waiting.append((lower, turn, outcome))
        self._waiting.sort(key=lambda waits: waits[0])
        return True

    def next(self) -> Turn | None:
        """Return the turn whose events follow what is committed by now, and no longer hold it back."""
        if not self._waiting or self._waiting[0][0] > self._position():
            return None
        return self._waiting.pop(0)[1]

    def _position(self) -> int:
        position = self.sink.position(self.pipeline.name, self.shard)
        return self.first if position is None else position

    def left(self) -> list[Outcome]:
        """Return the refusals of those that still wait."""
        return [outcome for _, _, outcome in self._waiting]
