"""Partitions: which scopes a table has, under which keys. No I/O, no Dagster.

The keys are the ones that Dagster's own partition definitions give for the same cadence, start and zone (a test
holds the two together), so that a scope has one name in the ledger, the landing folder and the UI.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Literal
from zoneinfo import ZoneInfo

from pydantic import Field, field_validator, model_validator

from etl_assets.contract.columns import Frozen, TimeZone
from etl_assets.contract.naming import unfit_for_key

Cadence = Literal["hourly", "daily", "weekly", "monthly"]

HOUR_FORMAT = "%Y-%m-%d-%H:%M"
DAY_FORMAT = "%Y-%m-%d"


def is_repeated_hour(moment: dt.datetime) -> bool:
    """Whether this local time is the second of two with the same clock reading (clocks set back)."""
    return bool(moment.fold) and moment.utcoffset() != moment.replace(fold=0).utcoffset()


def utc(moment: dt.datetime) -> dt.datetime:
    """Compare instants in UTC: two times of one zone compare by their clock reading, which repeats."""
    return moment.astimezone(dt.UTC)


class TimePartitions(Frozen):
    """One partition an hour, day, week (from Sunday, as cron counts) or month of a time zone.

    ``start`` is the first partition; ``end`` (exclusive) closes the range, without it partitions appear as time passes:
    a partition exists once its window is over.
    """

    cadence: Cadence
    start: dt.datetime
    end: dt.datetime | None = None
    timezone: TimeZone = "UTC"

    @field_validator("start", "end", mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if isinstance(value, str):
            for form in (DAY_FORMAT, HOUR_FORMAT):
                try:
                    return dt.datetime.strptime(value, form)
                except ValueError:
                    continue
            raise ValueError(f"{value!r} is not a date (2013-10-25) or hour (2013-10-25-06:00)")
        if isinstance(value, dt.date) and not isinstance(value, dt.datetime):
            return dt.datetime(value.year, value.month, value.day)
        return value

    @model_validator(mode="after")
    def _ordered(self) -> TimePartitions:
        for bound in (self.start, self.end):
            if bound is not None and bound.tzinfo is not None:
                raise ValueError("start and end are local times of the contract's timezone: give them without offset")
        if self.end is not None and self.end <= self.start:
            raise ValueError(f"end {self.end} is not after start {self.start}")
        winter, summer = (self.start.replace(month=m, day=1, tzinfo=self.zone).utcoffset() for m in (1, 7))
        if self.cadence == "hourly" and winter and summer and (winter - summer) % dt.timedelta(hours=1):
            raise ValueError(
                f"the clocks of {self.timezone} change by a part of an hour, so that hours repeat: give hourly partitions in UTC"
            )
        return self

    @functools.cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.timezone)

    def floor(self, moment: dt.datetime) -> dt.datetime:
        """The start of the window that holds this local time."""
        if self.cadence == "hourly":
            return moment.replace(minute=0, second=0, microsecond=0)
        day = moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
        if self.cadence == "weekly":
            return day - dt.timedelta(days=(day.weekday() + 1) % 7)
        return day.replace(day=1) if self.cadence == "monthly" else day

    def next(self, moment: dt.datetime) -> dt.datetime:
        """The start of the following window; days are local, so one may have 23 or 25 hours."""
        match self.cadence:
            case "hourly":
                return (moment.astimezone(dt.UTC) + dt.timedelta(hours=1)).astimezone(self.zone)
            case "daily":
                return moment + dt.timedelta(days=1)
            case "weekly":
                return moment + dt.timedelta(days=7)
            case _:
                return (moment.replace(day=1) + dt.timedelta(days=32)).replace(day=1)

    def key(self, moment: dt.datetime) -> str:
        """The key of the window that holds this instant (aware) in the contract's zone."""
        return self._key_of(self.floor(moment.astimezone(self.zone)))

    def _key_of(self, window: dt.datetime) -> str:
        """The key of the window that starts at this local time."""
        text = window.isoformat()
        if self.cadence != "hourly":
            return text[:10]
        hour = f"{text[:10]}-{text[11:16]}"
        return f"{hour}{window:%z}" if window.fold and is_repeated_hour(window) else hour

    def parse(self, key: str) -> dt.datetime | None:
        """The start of a window, aware, or None when ``key`` is not the key of a window."""
        text = f"{key[:10]}T{key[11:]}" if self.cadence == "hourly" else key
        try:
            moment = dt.datetime.fromisoformat(text)
        except ValueError:
            return None
        zone = self.zone
        aware = moment.astimezone(zone) if moment.tzinfo else moment.replace(tzinfo=zone)
        # By way of UTC: an hour that the clocks skip is then found to be another one. Compared to the letter, since ISO 8601
        # has other ways to write a moment.
        return aware if self.key(utc(aware)) == key else None

    def contains(self, key: str, now: dt.datetime | None = None) -> bool:
        moment = self.parse(key)
        return moment is not None and utc(moment) >= utc(self._first) and utc(self.next(moment)) <= self._until(now)

    @functools.cached_property
    def _first(self) -> dt.datetime:
        """The first window that starts at or after ``start``."""
        start = utc(self.start.replace(tzinfo=self.zone)).astimezone(self.zone)
        floor = self.floor(start)
        return floor if utc(floor) == utc(start) else self.next(floor)

    def _until(self, now: dt.datetime | None) -> dt.datetime:
        """Where the last window has to be over: at ``end``, or now."""
        now = utc(now or dt.datetime.now(dt.UTC))
        return now if self.end is None else min(now, utc(self.end.replace(tzinfo=self.zone)))

    def keys(self, now: dt.datetime | None = None) -> Sequence[str]:
        """All keys in order, up to the last window that is over at ``end`` or ``now``."""
        until = self._until(now)
        return _time_keys(self, utc(self.floor(until.astimezone(self.zone))))

    def between(self, first: str, last: str, now: dt.datetime | None = None) -> Sequence[str]:
        """The keys from ``first`` to ``last``, both included; both must be keys."""
        keys = self.keys(now)
        return keys[keys.index(first) : keys.index(last) + 1]

    def describe(self) -> str:
        until = f" up to {self.end:%Y-%m-%d}" if self.end else ", each once its window is over"
        return f"{self.cadence} partitions from {self.key(self._first)}{until} ({self.timezone})"


@functools.lru_cache(maxsize=64)
def _time_keys(partitions: TimePartitions, until: dt.datetime) -> tuple[str, ...]:
    keys = []
    moment = partitions._first
    if partitions.cadence == "hourly":  # by way of UTC, where every hour is one step
        instant, hour, zone = utc(moment), dt.timedelta(hours=1), partitions.zone
        while instant + hour <= until:
            keys.append(partitions._key_of(instant.astimezone(zone)))
            instant += hour
        return tuple(keys)
    while utc(after := partitions.next(moment)) <= until:
        keys.append(partitions._key_of(moment))
        moment = after
    return tuple(keys)


class StaticPartitions(Frozen):
    """A fixed list of partitions: regions, shops, sources."""

    names: tuple[str, ...] = Field(min_length=1)

    @field_validator("names")
    @classmethod
    def _distinct(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            unstorable = any(0xD800 <= ord(c) <= 0xDFFF for c in name)
            if not name or unstorable or unfit_for_key(name) or name != name.strip():
                raise ValueError(
                    f"{name!r} cannot be a partition key (blank, padded, holding a control character such as a tab or a line "
                    "end, a lone surrogate or '...')"
                )
        repeated = {name for name, times in Counter(names).items() if times > 1}
        if repeated:
            raise ValueError(f"partition keys repeat: {sorted(repeated)}")
        return names

    def contains(self, key: str, now: dt.datetime | None = None) -> bool:
        return key in self._known

    @functools.cached_property
    def _known(self) -> frozenset[str]:
        """Return the names as a set: each delivery of a listing is looked up in it."""
        return frozenset(self.names)

    def keys(self, now: dt.datetime | None = None) -> Sequence[str]:
        return self.names

    def between(self, first: str, last: str, now: dt.datetime | None = None) -> Sequence[str]:
        low, high = self.names.index(first), self.names.index(last)
        return self.names[low : high + 1]

    def describe(self) -> str:
        return f"static partitions {', '.join(self.names[:8])}{', …' if len(self.names) > 8 else ''}"


#: What stands between arrival and shard in a key, as in Dagster's keys of two dimensions.
BETWEEN = "|"


class ShardedPartitions(Frozen):
    """One partition for each shard of a log in each window of arrival, keys like ``2013-10-25|eu``.

    A range of them is one of windows times one of shards: from ``2013-10-25|eu`` to ``2013-10-27|eu`` there are three.
    """

    arrival: TimePartitions
    shards: tuple[str, ...] = Field(min_length=1)

    @field_validator("shards")
    @classmethod
    def _distinct(cls, shards: tuple[str, ...]) -> tuple[str, ...]:
        StaticPartitions(names=shards)
        for shard in shards:
            held = next((c for c in "|,[]" if c in shard), None)
            if held:
                raise ValueError(f"{shard!r} cannot be a shard (it holds {held!r})")
        return shards

    @property
    def timezone(self) -> str:
        return self.arrival.timezone

    @staticmethod
    def split(key: str) -> tuple[str, str]:
        """Arrival and shard."""
        arrival, _, shard = key.rpartition(BETWEEN)
        return arrival, shard

    @staticmethod
    def join(arrival: str, shard: str) -> str:
        return f"{arrival}{BETWEEN}{shard}"

    def contains(self, key: str, now: dt.datetime | None = None) -> bool:
        arrival, shard = self.split(key)
        return shard in self.shards and self.arrival.contains(arrival, now)

    def keys(self, now: dt.datetime | None = None) -> Sequence[str]:
        """All keys, by arrival and then by shard."""
        return [self.join(*pair) for pair in itertools.product(self.arrival.keys(now), self.shards)]

    def between(self, first: str, last: str, now: dt.datetime | None = None) -> Sequence[str]:
        (first_arrival, first_shard), (last_arrival, last_shard) = self.split(first), self.split(last)
        arrivals = self.arrival.between(first_arrival, last_arrival, now)
        shards = self.shards[self.shards.index(first_shard) : self.shards.index(last_shard) + 1]
        return [self.join(*pair) for pair in itertools.product(arrivals, shards)]

    def describe(self) -> str:
        return (
            f"{self.arrival.describe()}, each by shard {', '.join(self.shards)} (2013-10-25{BETWEEN}{self.shards[0]})"
        )


Partitions = TimePartitions | StaticPartitions | ShardedPartitions


def shard_of(partitions: Partitions, key: str) -> str:
    """The shard of a partition; ``""`` where there is only one."""
    return partitions.split(key)[1] if isinstance(partitions, ShardedPartitions) else ""


def shards_of(partitions: Partitions) -> tuple[str, ...]:
    return partitions.shards if isinstance(partitions, ShardedPartitions) else ("",)


def Hourly(start: str, end: str | None = None, timezone: str = "UTC") -> TimePartitions:
    """One partition an hour, keys like ``2013-10-25-06:00``."""
    return TimePartitions(cadence="hourly", start=start, end=end, timezone=timezone)


def Daily(start: str, end: str | None = None, timezone: str = "UTC") -> TimePartitions:
    """One partition a day, keys like ``2013-10-25``."""
    return TimePartitions(cadence="daily", start=start, end=end, timezone=timezone)


def Weekly(start: str, end: str | None = None, timezone: str = "UTC") -> TimePartitions:
    """One partition a week, keys are its Sunday, like ``2013-10-27``."""
    return TimePartitions(cadence="weekly", start=start, end=end, timezone=timezone)


def Monthly(start: str, end: str | None = None, timezone: str = "UTC") -> TimePartitions:
    """One partition a month, keys are its first day, like ``2013-10-01``."""
    return TimePartitions(cadence="monthly", start=start, end=end, timezone=timezone)


def Sharded(arrival: TimePartitions, *shards: str) -> ShardedPartitions:
    """The shards of a log, each with positions of its own, as they arrive: ``Sharded(Daily(start="2024-01-01"), "eu", "us")``."""
    return ShardedPartitions(arrival=arrival, shards=shards)


def Static(*names: str) -> StaticPartitions:
    """A fixed list of partitions."""
    return StaticPartitions(names=names)
