"""What any destination promises, whatever its engine: claims, deliveries, publish, the ledger and the outbox."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from etl_assets.contract import ChangeLogTable, DerivedTable, Pipeline
from etl_assets.errors import EtlError, WarehouseError
from etl_assets.model import (
    Batch,
    Claim,
    Consumed,
    Delivery,
    Extract,
    LedgerEntry,
    Message,
    Receipt,
    RecordedDelivery,
    Refusal,
    Restatement,
    RunFailure,
    Seen,
)


class Stage(Protocol):
    """What a sink made of an extract before the transaction."""

    def attach(self, connection: Any, name: str = "stage") -> None:
        """Make it readable under a name, before a transaction begins."""


class Sink(Protocol):
    """A transactional destination. Each writing method is one transaction: all of it, or nothing."""

    def claim(self, pipeline: Pipeline, scopes: Sequence[str], run: str) -> Mapping[str, Claim]:
        """Issue a new generation for each scope, or give back the one this run was issued before."""

    def record(self, claim: Claim, delivery: Delivery) -> None:
        """Note that a delivery was read, where nothing else is written about it.

        Raises :class:`~etl_assets.errors.StaleWriter`.
        """

    def refuse(self, pipeline: Pipeline, claim: Claim, delivery: Delivery, error: EtlError) -> Refusal | None:
        """Remember that a delivery was refused, and how often under this contract and logic.

        Where that makes it one that needs attention, and the contract asks for it, a message says so.
        """

    def prepare(self, pipeline: Pipeline, extract: Extract, work: Path) -> Stage:
        """Make what can be made of an extract before the transaction, in the private folder ``work``."""

    def is_related(self, pipeline: Pipeline, prepared: Stage, other: Stage) -> bool:
        """Whether two prepared extracts share a key, or a row where there is no key."""

    def publish(
        self,
        pipeline: Pipeline,
        claim: Claim,
        delivery: Delivery,
        extract: Extract,
        stage: Stage,
        restate: Restatement | None = None,
    ) -> Receipt:
        """Apply an extract and its ledger entry in one transaction; ``stage`` is what was prepared of it.

        ``restate`` publishes on purpose what order would refuse.
        Raises the errors of the publish family, :class:`~etl_assets.errors.SinkBusy` or
        :class:`~etl_assets.errors.WarehouseError`; in each case nothing has changed.
        """

    def ledger(self, pipeline: str | None = None, scopes: Sequence[str] | None = None) -> list[Batch]:
        """The committed batches in commit order; of all scopes, or of some."""

    def entries(self, pipeline: str, scopes: Sequence[str] | None = None) -> list[LedgerEntry]:
        """What tells the states of deliveries of each committed batch, in commit order; of all scopes, or of some."""

    def restated(self, pipeline: str, operation: str) -> list[Batch]:
        """The batches of one decision to restate, in commit order."""

    def current(self, pipeline: str, scopes: Sequence[str] | None = None) -> dict[str, Batch]:
        """The batch that each scope's rows stand for; of all scopes, or of some."""

    def position(self, pipeline: str, shard: str = "") -> int | None:
        """How far a change log's shard or a series of snapshots is consumed; None before the first batch."""

    def begun(self, pipeline: ChangeLogTable) -> Mapping[str, Batch]:
        """For each shard of a log, the batch that it began again with, by a person's decision; none where it never did."""

    def disputed(self, pipeline: ChangeLogTable) -> list[Delivery]:
        """Deliveries of a log that say something else than what is committed at their positions."""

    def given_up(self, pipeline: ChangeLogTable) -> list[tuple[Batch, int]]:
        """Batches before which positions were given up, each with where the log had ended."""

    def consumed(self, pipeline: ChangeLogTable, delivery: Delivery, lower: int) -> Consumed:
        """What the ledger has of a log around a delivery that begins after the position ``lower``."""

    def rows(self, pipeline: str) -> dict[str, int]:
        """How many rows of the table each scope holds, by the ledger."""

    def deliveries(self, pipeline: str, scopes: Sequence[str] | None = None) -> list[RecordedDelivery]:
        """Every delivery that was read, of all scopes or of some, oldest revision first."""

    def marks(self) -> Mapping[str, str]:
        """For each pipeline a text that changes whenever its ledger, or what is recorded of its deliveries, does."""

    def differing(self, pipeline: Pipeline, scopes: Sequence[str]) -> set[str]:
        """Of these scopes, those whose rows are not the ones that the ledger committed, by their number."""

    def upstream(self, pipeline: DerivedTable, scopes: Sequence[str] | None = None) -> Mapping[str, tuple[Seen, ...]]:
        """What each partition of a derived table sees of its upstream now, where there is enough to compute it."""

    def compute(self, pipeline: DerivedTable, scope: str, target: Path) -> tuple[Seen, ...]:
        """Write the rows of a derived partition to ``target``, an Arrow stream of texts; what they were made of.

        Raises :class:`~etl_assets.errors.TransformFailed` where the SQL is at fault.
        """

    def verify(self, pipeline: Pipeline) -> list[str]:
        """Differences between ledger and rows, in words; none when the warehouse tells the truth."""

    # ------------------------------------------------------------------ the outbox

    def tell_failure(self, topic: str, failure: RunFailure) -> None:
        """Write a message about a run that failed; once, however often it is told."""

    def relaying(self) -> AbstractContextManager[bool]:
        """The right to relay messages, which one process has at a time; False where another one has it."""

    def relays(self) -> bool:
        """Return whether that right is still this process': not where the warehouse was replaced by another one."""

    def due(self, held: Sequence[str] = (), limit: int = 100) -> list[Message]:
        """Messages to send now, in their order; none of the topics that are ``held``.

        Of each topic up to the first message that is not to be tried yet: later ones wait for it.
        """

    def waits(self, message: Message) -> bool:
        """Return whether a message that was due still waits, as it was read: nobody decided about it since."""

    def sent(self, message: Message) -> str:
        """Note that a message was sent; returns its status, which another decision may have made since it was read."""

    def unsent(self, message: Message, reason: str, retry_after: float | None) -> str:
        """Note why a message was not taken; returns its status. It is tried again after so many seconds; with None it is parked.

        A decision that was made about the message since it was read holds.
        """

    def release(self, key: str) -> None:
        """Make a parked or waiting message due now. Raises :class:`~etl_assets.errors.UnknownMessage`."""

    def discard(self, key: str) -> None:
        """Give a parked or waiting message up. Raises :class:`~etl_assets.errors.UnknownMessage`."""

    def messages(self, status: str, last: int | None = None) -> list[Message]:
        """Messages of a status in their order: all, or the last ones."""

    def message_counts(self, *statuses: str) -> dict[str, dict[str, int]]:
        """For each topic, how many messages have which of these statuses."""


def open_sink(url: str) -> Sink:
    """The sink for ``ETL_WAREHOUSE``: a path of a SQLite file, or ``sqlite:///path``."""
    from etl_assets.sink.sqlite import SQLiteWarehouse

    path = url.removeprefix("sqlite:///") if url.startswith("sqlite:///") else url
    if "://" in path or path.startswith((":", "sqlite:", "file:")):
        raise WarehouseError(f"no sink for {url!r}: this release writes to SQLite, given as a path or sqlite:///path")
    return SQLiteWarehouse(path)
