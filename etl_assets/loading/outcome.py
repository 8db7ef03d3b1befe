"""What a run says of each scope: committed now or before, frozen, or refused and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from etl_assets.errors import EtlError
from etl_assets.model import Counts, Delivery, Extract, Receipt

Verdict = Literal["committed", "already committed", "staged", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one scope in a run, or of one batch of it. ``final`` says that it is the last one of its delivery."""

    pipeline: str
    scope: str
    status: Verdict
    batch: str | None = None
    delivery: Delivery | None = None
    extract: Extract | None = None
    receipt: Receipt | None = None
    error: EtlError | None = None
    attempts: int = 0
    final: bool = True

    @classmethod
    def received(cls, delivery: Delivery, extract: Extract | None, receipt: Receipt) -> Outcome:
        """The outcome of a batch that is in the ledger, committed now or before."""
        batch = receipt.batch
        return cls(
            *(delivery.pipeline, delivery.scope, receipt.status, batch.batch, delivery, extract, receipt),
            final=not batch.continues,
        )

    @property
    def counts(self) -> Counts:
        return self.receipt.batch.counts if self.receipt else Counts()

    @property
    def message(self) -> str:
        """One line for a person."""
        if self.error is not None:
            return str(self.error)
        if self.receipt is None:
            return "frozen, not published"
        newer, missed, length = self.receipt.superseded_by, self.counts.missed, self.receipt.long_log
        left_out = f"; the bounds left out {missed:,} rows that the table lacks" if missed else ""
        log = f"; the write-ahead log has grown to {length / 1e6:,.1f} MB: a reader keeps it from being reset"
        return f"{self.status}{f'; superseded by {newer}' if newer else ''}{left_out}{log if length else ''}"
