"""The contract of a change log: ordered events, each of them the new state of one row, or its end. No I/O."""

from __future__ import annotations

import functools
import hashlib
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from etl_assets.contract.columns import Frozen
from etl_assets.contract.partitions import ShardedPartitions
from etl_assets.contract.policies import FileFormat
from etl_assets.contract.table import DeliveredTable

PLAIN = FileFormat()

#: How the positions of a log follow each other.
Bounds = Literal["contiguous", "stated"]


class Events(Frozen):
    """How an event is written: one JSON object a line.

    ``native``: ``{"pos": 7, "op": "upsert" | "delete", "version": 2, "row": {…}}``. ``debezium``: ``op`` is ``c``, ``r``,
    ``u`` or ``d``, with ``before`` and ``after``; an update that changes the key ends the old row and starts the new one.
    Versions grow with each change of an entity; without a version field the position is one.

    Positions grow by one from event to event. Where they leave gaps, as log sequence numbers do, ``bounds="stated"``: the
    first line of each delivery is ``{"lower": L, "upper": U}``, and it holds all events after position L up to U, be there
    none. ``"events": N`` beside them says how many: a file that is cut off between two lines is noticed by it alone. The
    first delivery begins where the log does, at ``first_position - 1``.
    """

    envelope: Literal["native", "debezium"] = "native"
    position: str = "pos"
    version: str | None = "version"
    first_position: int = Field(1, ge=1, description="the position of the log's first event")
    bounds: Bounds = "contiguous"


def native(
    position: str = "pos", version: str | None = "version", first_position: int = 1, bounds: Bounds = "contiguous"
) -> Events:
    """Events with ``op`` upsert or delete, and the row under ``row``."""
    return Events(envelope="native", position=position, version=version, first_position=first_position, bounds=bounds)


def debezium(
    position: str = "pos", version: str | None = "version", first_position: int = 1, bounds: Bounds = "contiguous"
) -> Events:
    """Events in Debezium's envelope; position and version are fields beside ``op``."""
    return Events(envelope="debezium", position=position, version=version, first_position=first_position, bounds=bounds)


class ChangeLogTable(DeliveredTable):
    """Deliveries that each hold the next events of a log; the table is what the events so far add up to.

    ``partitions`` are the days (or hours …) of arrival. Every delivery is consumed, in order of position: a gap or an
    overlap is refused by name. A row that is deleted is remembered, so that a stale event does not bring it back.

    Where the log comes in shards, each with positions of its own, ``partitions`` are ``Sharded(Daily(…), "eu", "us")``, and
    ``landing`` says where ``{shard}`` stands. One key's events may be in several shards: its version orders them.
    """

    events: Events = Events()
    batch_events: int = Field(1_000_000, ge=1, description="events published in one transaction; more become several")

    newest_counts: ClassVar[bool] = False
    has_shards: ClassVar[bool] = True
    operation: ClassVar[Literal["replace", "consume", "merge"]] = "consume"

    @functools.cached_property
    def code(self) -> str:
        """Fingerprint of the contract.

        An empty text of a log is a value unless the contract says otherwise, and that it says so is not in its fields.
        """
        said = [c.name for c in self.columns if c.type in ("text", "json") and "missing" in c.model_fields_set]
        plain = super().code
        return hashlib.sha256(f"{plain} {said}".encode()).hexdigest() if said else plain

    @model_validator(mode="after")
    def _log(self) -> Self:
        if not self.key:
            raise ValueError("key: the rows of a change log are told apart by a key")
        if self.transform is not None or self.inputs:
            raise ValueError("transform: events are applied as they are; derive another table for what is computed")
        if isinstance(self.partitions, ShardedPartitions) and self.events.version is None:
            raise ValueError("events: positions of two shards do not compare, so events of shards need a version")
        if self.new_columns == "add":
            raise ValueError(
                "new_columns: the rows of a log have the contract's columns; others are refused or ignored"
            )
        ignored = [
            f for f in ("delimiter", "quote", "encoding", "skip_lines") if getattr(self.format, f) != getattr(PLAIN, f)
        ]
        if ignored:
            raise ValueError(f"format: {ignored[0]} is for delimited files; a log is JSON in UTF-8, an object a line")
        if self.invalid_rows != "refuse":
            raise ValueError("invalid_rows: a log is consumed whole; an event set aside would leave a row behind")
        return self
