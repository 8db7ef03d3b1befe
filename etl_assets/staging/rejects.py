"""Rejected rows: set aside with line and reasons, within the share that the contract allows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from etl_assets.contract import DeliveredTable
from etl_assets.errors import DeliveryRefused, ForeignRows, InvalidRows
from etl_assets.staging.reading import Text

#: How many rejected rows an error message shows.
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Rejected:
    """One rejected record: its number in the delivery (None if the transform lost it), why, and its texts."""

    record: int | None
    reasons: tuple[str, ...]
    values: dict[str, Any]


@dataclass(slots=True)
class Rejects:
    """Collects rejected rows and decides when there are too many."""

    contract: DeliveredTable
    text: Text
    scope: str
    rows: list[Rejected] = field(default_factory=list)

    def add(self, rows: Iterable[Rejected]) -> None:
        """Set rows aside; raises as soon as no number of further good rows could make their share small enough."""
        self.rows.extend(rows)
        if len(self.rows) > self.contract.invalid_share * self.text.lines + 1_000:
            self.refuse_beyond(self.text.lines, at_least=True)

    def refuse_beyond(self, source_rows: int, at_least: bool = False) -> None:
        """Raise :class:`InvalidRows` when the rejected share of ``source_rows`` is larger than allowed."""
        if not self.rows or len(self.rows) <= self.contract.invalid_share * source_rows:
            return
        share = self.contract.invalid_share
        allowed = f"at most {share:.2%} may be set aside" if share else "none may be set aside (invalid_rows='refuse')"
        count = f"{'at least ' if at_least else ''}{len(self.rows):,} of {source_rows:,} rows are invalid; {allowed}"
        raise InvalidRows(f"{self.text.shown}: {count}.\n{self.describe(SHOWN)}")

    def refuse_foreign(self, rows: list[Rejected], pattern: str) -> DeliveryRefused:
        """The error for rows that belong to another partition."""
        shown = Rejects(self.contract, self.text, self.scope, rows).describe(SHOWN)
        return ForeignRows(
            f"{self.text.shown}: {len(rows):,} rows do not belong to partition {self.scope} (by {pattern}); "
            f"foreign_rows='refuse'.\n{shown}"
        )

    def describe(self, limit: int) -> str:
        """The first rejected rows, a line each, with the line of the file they stand on."""
        lines = self.lines(self.rows[:limit])
        parts = [f"  {line}: {'; '.join(row.reasons)}" for line, row in zip(lines, self.rows, strict=False)]
        if len(self.rows) > limit:
            parts.append(f"  … and {len(self.rows) - limit:,} more")
        return "\n".join(parts)

    def lines(self, rows: list[Rejected]) -> list[str]:
        found = self.text.lines_of([r.record for r in rows if r.record is not None])
        return [
            f"line {found[r.record]}" if r.record in found else "line unknown (changed by the transform)" for r in rows
        ]

    def write(self, path: Path) -> None:
        """Write one JSON object a row with line, reasons, and the row's values by column; no file where there are none."""
        if not self.rows:
            return
        found = self.text.lines_of([r.record for r in self.rows if r.record is not None])
        with path.open("w", encoding="utf-8") as file:
            for row in sorted(self.rows, key=lambda r: (r.record is None, r.record or 0)):
                line = found.get(row.record) if row.record is not None else None
                entry = {"line": line, "reasons": row.reasons, "row": row.values}
                file.write(json.dumps(entry, ensure_ascii=False, default=str) + "\n")
