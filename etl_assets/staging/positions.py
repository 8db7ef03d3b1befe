"""Which positions a log's delivery covers: counted from its events, or stated by its first line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from etl_assets.errors import BadEvent, BadPositions
from etl_assets.staging.lines import whole_number


@dataclass(slots=True)
class Interval:
    """The positions read so far: ``(lower, upper]``.

    ``stated`` is where the delivery says that it ends, ``wanted`` how many events it says that it has.
    """

    lower: int | None = None
    upper: int = 0
    events: int = 0
    stated: int | None = None
    wanted: int | None = None

    @property
    def end(self) -> int:
        """Up to where the whole delivery goes."""
        return self.upper if self.stated is None else self.stated

    def begin(self, fields: dict[str, Any], place: str) -> None:
        """Take the first line of a delivery that states its bounds. Raises :class:`BadEvent` or :class:`BadPositions`."""
        if not {"lower", "upper"} <= fields.keys() <= {"lower", "upper", "events"}:
            raise BadEvent(
                f"{place}: the delivery does not say which positions it covers (bounds='stated'): its first line has to be "
                '{"lower": L, "upper": U}, for all events after L up to U, with or without "events": N'
            )
        lower, upper = (whole_number(fields, name, place, least=0) for name in ("lower", "upper"))
        if lower >= upper:
            raise BadPositions(f"{place}: the delivery covers no position: it begins after {lower} and ends at {upper}")
        self.lower, self.upper, self.stated = lower, lower, upper
        self.wanted = whole_number(fields, "events", place, least=0) if "events" in fields else None

    def advance(self, position: int, place: str) -> None:
        """Take the position of the next event. Raises :class:`BadPositions` when it is not its turn."""
        if self.stated is not None:
            if position > self.stated:
                raise BadPositions(f"{place}: position {position} is beyond {self.stated}, where the delivery ends")
            if position <= self.upper:
                what = "positions grow from event to event" if self.events else "where the delivery begins"
                raise BadPositions(f"{place}: position {position} after {self.upper}: {what}")
        elif self.lower is None:
            self.lower = position - 1
        elif position <= self.upper:
            raise BadPositions(
                f"{place}: position {position} after {self.upper}: positions grow by one from event to event"
            )
        elif position > self.upper + 1:
            raise BadPositions(f"{place}: position {position} after {self.upper}: {self.upper + 1} is missing")
        self.upper = position
        self.events += 1
