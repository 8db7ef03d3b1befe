"""The contract of a derived table: SQL over tables of the same warehouse, a partition at a time. No I/O."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from etl_assets.contract.columns import Frozen, Identifier
from etl_assets.contract.partitions import Partitions, StaticPartitions, TimePartitions, utc
from etl_assets.contract.queries import asks_the_clock
from etl_assets.contract.table import SHOWN, Table
from etl_assets.errors import ContractError

#: The scope that stands for a table as a whole.
WHOLE = ""
#: What options of a column say about delivered texts; a query's values come typed.
OF_TEXTS = ("missing", "aliases", "optional", "format", "true", "false")


class Upstream(Frozen):
    """A table that a derived one reads, and what of it a derived partition sees.

    ``partitions`` None stands for the whole table. Otherwise it is the partitions whose windows overlap the derived
    partition's own, ``before`` and ``after`` windows further; of static partitions the one of the same name.
    """

    pipeline: str
    table: Identifier
    columns: tuple[str, ...]
    partitions: Partitions | None = None
    before: int = Field(0, ge=0)
    after: int = Field(0, ge=0)
    optional: bool = False


def same_partition(pipeline: Table, optional: bool = False) -> Upstream:
    """The rows of the partition of the same window or name; of a finer cadence, of all that lie in the window."""
    return _upstream(pipeline, getattr(pipeline, "partitions", None), optional=optional)


def partitions_around(pipeline: Table, before: int = 0, after: int = 0, optional: bool = False) -> Upstream:
    """And those of this many of the derived table's windows before and after."""
    return _upstream(pipeline, getattr(pipeline, "partitions", None), before=before, after=after, optional=optional)


def whole(pipeline: Table, optional: bool = False) -> Upstream:
    """All rows: a batch of any partition makes every derived partition stale. Good for small tables, logs, snapshots."""
    return _upstream(pipeline, partitions=None, optional=optional)


def _upstream(pipeline: Table, partitions: Partitions | None, **options: int | bool) -> Upstream:
    if not isinstance(pipeline, Table):
        raise ContractError(f"upstream: {pipeline!r} is not a pipeline: import it from its module and name it itself")
    if partitions is not None and pipeline.operation != "replace":
        raise ContractError(
            f"{pipeline.name}: the partitions of a log or of snapshots are when they arrived, and hold no rows of their own: "
            "read it as a whole(…)"
        )
    names = tuple(c.name for c in pipeline.columns)
    return Upstream(pipeline=pipeline.name, table=pipeline.table, columns=names, partitions=partitions, **options)


class DerivedTable(Table):
    """Rows that SQL makes of other tables of the warehouse, a partition at a time, replaced like any partition.

    In ``sql``, one SELECT, the name of an upstream table stands for what the partition sees of it; no other table can
    be read. ``:partition`` is the key, ``:start`` and ``:end`` bound the window of a time partition in UTC
    (``2013-10-26T04:00:00Z``, the end excluded). Its columns are the contract's, by name. A partition is computed once
    each upstream table that is not ``optional`` has something for it, and again when what it saw has a successor. Raise
    ``version`` whenever the meaning of the SQL changes.
    """

    upstream: tuple[Upstream, ...] = Field(min_length=1)
    sql: str = Field(min_length=1)
    version: int = Field(1, ge=1)

    # Replaced like the partitions of a `PartitionedTable`, where a partition keeps its keys to itself.
    newest_counts: ClassVar[bool] = True
    operation: ClassVar[Literal["replace", "consume", "merge"]] = "replace"
    keys_can_move: ClassVar[bool] = False
    moved_keys: ClassVar[Literal["refuse"]] = "refuse"
    allow_empty: ClassVar[bool] = True
    shrink_limit: ClassVar[None] = None
    redelivery: ClassVar[Literal["revision"]] = "revision"

    @model_validator(mode="after")
    def _derived(self) -> Self:
        if asks_the_clock(self.sql):
            raise ValueError(
                "sql: 'now' (or date() without a time) is no function of the tables: rows would differ at each run"
            )
        names = [one.pipeline for one in self.upstream]
        if len(set(names)) < len(names):
            raise ValueError("upstream: a table stands twice")
        if self.name in names:
            raise ValueError("upstream: a table cannot be derived from itself")
        if all(one.optional for one in self.upstream):
            raise ValueError("upstream: all of it is optional, so nothing says when a partition can be computed")
        for one in self.upstream:
            if one.partitions is not None and isinstance(one.partitions, TimePartitions) != isinstance(
                self.partitions, TimePartitions
            ):
                raise ValueError(
                    f"upstream: {one.pipeline} has {one.partitions.describe()}, and this table has "
                    f"{self.partitions.describe()}: they do not correspond; read it as a whole(…)"
                )
            if isinstance(one.partitions, StaticPartitions) and (one.before or one.after):
                raise ValueError(
                    f"upstream: {one.pipeline} has static partitions, which have none before or after them"
                )
        for column in self.columns:
            said = sorted(column.model_fields_set & set(OF_TEXTS))
            if said:
                raise ValueError(f"columns: {column.name!r}: {said[0]} is for delivered texts; say it in the SQL")
        return self

    @property
    def transform_version(self) -> int:
        return self.version

    @functools.cached_property
    def code(self) -> str:
        """Fingerprint of contract and SQL: when it is unchanged, the same upstream batches give the same rows."""
        return hashlib.sha256(self.model_dump_json(exclude=SHOWN).encode()).hexdigest()

    def window(self, key: str) -> tuple[dt.datetime, dt.datetime] | None:
        """Start and end of a partition, aware; None for a static one."""
        if not isinstance(self.partitions, TimePartitions):
            return None
        start = self.partitions.parse(key)
        assert start is not None
        return start, self.partitions.next(start)

    def sees(self, upstream: Upstream, key: str) -> list[str]:
        """The keys of the upstream partitions that a partition may see, in order; the empty key for a whole table."""
        theirs, own = upstream.partitions, self.partitions
        if theirs is None:
            return [WHOLE]
        if not isinstance(theirs, TimePartitions) or not isinstance(own, TimePartitions):
            return [key]
        if (theirs.cadence, theirs.timezone) == (own.cadence, own.timezone) and not (upstream.before or upstream.after):
            return [key]
        start, end = self._span(own, upstream, key)
        keys, window = [], theirs.floor(start.astimezone(theirs.zone))
        while utc(window) < utc(end):
            keys.append(theirs.key(window))
            window = theirs.next(window)
        return keys

    def _span(self, own: TimePartitions, upstream: Upstream, key: str) -> tuple[dt.datetime, dt.datetime]:
        window = self.window(key)
        assert window is not None
        start, end = window
        for _ in range(upstream.before):
            start = own.floor((utc(start) - dt.timedelta(microseconds=1)).astimezone(own.zone))
        for _ in range(upstream.after):
            end = own.next(end)
        return start, end
