"""The contract of a table: one object that says everything the other rooms need to know. No I/O."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from etl_assets.contract.columns import MAX_COLUMNS, MAX_COLUMNS_OF_VERSIONS, Column, Frozen, Identifier
from etl_assets.contract.naming import check_group, check_name, check_owners
from etl_assets.contract.notification import Notification, Topic, check_notifications
from etl_assets.contract.partitions import Partitions, ShardedPartitions, Static, StaticPartitions, TimePartitions
from etl_assets.contract.policies import (
    DateOf,
    FileFormat,
    ForeignRowsPolicy,
    KeyScope,
    NewColumns,
    Quarantine,
    Redelivery,
    Repair,
    Transform,
    TransformFunction,
    ValueOf,
)
from etl_assets.errors import ContractError

#: Types whose values tell no row newer: text compares letter by letter, so that 10 would come before 9.
UNORDERED = ("text", "json", "boolean")
#: Fields that make no other rows: how it runs, how it is shown, and what others are told.
SHOWN = {"attempts", "max_partitions_per_run", "description", "group", "owners", "notifications", "attention_topic"}


class Table(Frozen):
    """What every load pattern promises about its table.

    A contract that does not hold together raises :class:`~etl_assets.errors.ContractError` when it is made, naming
    the field.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,62}$", description="pipeline, asset and (by default) table")
    partitions: Partitions
    columns: tuple[Column, ...] = Field(min_length=1)
    key: tuple[str, ...] = ()
    table: Identifier = ""

    notifications: tuple[Notification, ...] = Field((), description="messages written where the table is published")
    attention_topic: Topic | None = Field(None, description="where a delivery that needs attention is told")

    attempts: int = Field(3, ge=1, description="how often a refused delivery is asked for again by itself")
    max_partitions_per_run: int = Field(30, ge=1)
    description: str | None = None
    group: str = "default"
    owners: tuple[str, ...] = ()
    source_file: str | None = Field(None, exclude=True, description="the module that declares it; set when made")

    #: Whether only the newest delivery of a partition counts; else each is loaded, in order.
    newest_counts: ClassVar[bool] = True
    #: What publishing a delivery does, in the ledger's words.
    operation: ClassVar[Literal["replace", "consume", "merge"]] = "replace"
    #: Whether deliveries may come in shards, each with an order of its own.
    has_shards: ClassVar[bool] = False

    def __init__(self, **fields: Any) -> None:
        fields.setdefault("source_file", _declaring_file())
        super().__init__(**fields)

    @model_validator(mode="before")
    @classmethod
    def _default_table(cls, fields: Any) -> Any:
        if isinstance(fields, dict) and "table" not in fields and "name" in fields:
            return {**fields, "table": fields["name"]}
        return fields

    _name = field_validator("name")(check_name)
    _group = field_validator("group")(check_group)
    _owners = field_validator("owners")(check_owners)

    @model_validator(mode="after")
    def _table_holds_together(self) -> Self:
        self._check_names(self.columns)
        if len(self.columns) > self.most_columns:
            raise ValueError(
                f"columns: {len(self.columns)} are more than the {self.most_columns} that such a table can hold"
            )
        self._check_named("key", self.key)
        if len(set(self.key)) != len(self.key):
            raise ValueError("key: a column stands twice")
        if isinstance(self.partitions, ShardedPartitions) and not self.has_shards:
            raise ValueError("partitions: only a ChangeLogTable has shards; make a partition of each, or a table")
        own = ("_partition", "_batch") if self.operation == "replace" else ("_batch",)
        columns = [*(c.name for c in self.columns), *own]
        check_notifications(self.notifications, self.table, columns, wider=self.takes_new_columns)
        return self

    @property
    def most_columns(self) -> int:
        """How many columns of its own such a table can have in the database."""
        return MAX_COLUMNS if self.operation == "replace" else MAX_COLUMNS_OF_VERSIONS

    def _check_named(self, field: str, names: tuple[str, ...]) -> None:
        known = {c.name for c in self.columns}
        for name in names:
            if name not in known:
                raise ValueError(f"{field}: {name!r} is not one of the columns")

    @staticmethod
    def _check_names(columns: tuple[Column, ...]) -> None:
        """Column names, input names and aliases are distinct; the database folds case, so this does too.

        A column's own name in other case is an alias like any: headers are compared to the letter.
        """
        if len(columns) > MAX_COLUMNS:
            raise ValueError(f"columns: {len(columns)} are more than the {MAX_COLUMNS} that a table can hold")
        seen: dict[str, tuple[str, int]] = {}
        for number, column in enumerate(columns):
            for name in (column.name, *column.aliases):
                known, owner = seen.setdefault(name.casefold(), (name, number))
                if owner != number:
                    raise ValueError(f"columns: {name!r} and {known!r} are the same name")
            repeated = {n for n in column.aliases if column.aliases.count(n) > 1 or n == column.name}
            if repeated:
                raise ValueError(f"columns: {column.name!r} has the alias {min(repeated)!r} twice, or as its own name")

    # ------------------------------------------------------------------ what the other rooms ask

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns whose value no row may lack: the declared ones and the key."""
        return frozenset({c.name for c in self.columns if c.required} | set(self.key))

    @property
    def takes_new_columns(self) -> bool:
        """Whether the table may come to have columns that the contract does not name."""
        return False

    def column(self, name: str) -> Column | None:
        return next((c for c in self.columns if c.name == name), None)


class DeliveredTable(Table):
    """What every pattern promises whose rows arrive as files: where they land, how they are read, what is refused."""

    landing: str = Field(description="path pattern below the landing root; holds {partition}, may hold * and ?")
    inputs: tuple[Column, ...] = Field((), description="columns that only the transform needs; not in the table")
    format: FileFormat = FileFormat()
    transform: Transform | None = None

    new_columns: NewColumns = "refuse"
    invalid_rows: Quarantine | Literal["refuse"] = "refuse"
    redelivery: Redelivery = "revision"
    min_rows: int = Field(0, ge=0)
    row_count_file: str | None = Field(None, description="suffix of a control file that holds the row count")

    @field_validator("transform", mode="before")
    @classmethod
    def _function(cls, value: object) -> object:
        if callable(value) and not isinstance(value, Transform):
            return Transform(function=value)
        return value

    @field_validator("landing")
    @classmethod
    def _pattern(cls, pattern: str) -> str:
        parts = pattern.split("/")
        if pattern.startswith("/") or "" in parts or ".." in parts or "." in parts or "**" in pattern:
            raise ValueError(f"{pattern!r} must be a path below the landing root, without '', '.', '..' or '**'")
        if re.search(r"[{}]", pattern.replace("{partition}", "").replace("{shard}", "")):
            raise ValueError(f"{pattern!r} holds another {{placeholder}} than {{partition}} and {{shard}}")
        return pattern

    @field_validator("row_count_file")
    @classmethod
    def _suffix(cls, suffix: str | None) -> str | None:
        if suffix is not None and (len(suffix) < 2 or not suffix.startswith(".") or "/" in suffix):
            raise ValueError(f"{suffix!r} must be a suffix such as '.count'")
        return suffix

    @model_validator(mode="after")
    def _delivery_holds_together(self) -> Self:
        self._check_names((*self.columns, *self.inputs))
        if self.row_count_file and self.landing.endswith(self.row_count_file):
            raise ValueError(f"row_count_file: {self.row_count_file!r} ends the names of the deliveries themselves")
        only = isinstance(self.partitions, StaticPartitions) and len(self.partitions.names) == 1
        if "{partition}" not in self.landing and not only:
            raise ValueError(f"landing: {self.landing!r} does not say where {{partition}} stands")
        if isinstance(self.partitions, ShardedPartitions) != ("{shard}" in self.landing):
            raise ValueError("landing: {shard} stands in it where the partitions are Sharded(…), and only there")
        return self

    # ------------------------------------------------------------------ what the other rooms ask

    @property
    def takes_new_columns(self) -> bool:
        return self.new_columns == "add"

    @property
    def transform_version(self) -> int:
        return self.transform.version if self.transform else 1

    @property
    def invalid_share(self) -> float:
        return self.invalid_rows.up_to if isinstance(self.invalid_rows, Quarantine) else 0.0

    @functools.cached_property
    def code(self) -> str:
        """Fingerprint of contract and logic: when it is unchanged, the same input gives the same extract.

        The bytes of the declaring module stand for the transform and what it calls there. A change elsewhere is
        found by the content digest when the extract is made again, under a new label or an old one.
        """
        # Into how many batches a log's delivery is cut changes none of its events, nor the batches that are committed.
        digest = hashlib.sha256(self.model_dump_json(exclude=SHOWN | {"transform", "batch_events"}).encode())
        digest.update(str(self.transform_version).encode())
        if self.transform and self.source_file and Path(self.source_file).is_file():
            digest.update(Path(self.source_file).read_bytes())
        return digest.hexdigest()


class PartitionedTable(DeliveredTable):
    """Deliveries that each hold the complete rows of one partition; the newest delivery of a partition wins.

    Without a key a partition is a bag of rows, repeats and all. Of rows of one delivery that share a key, the one that
    is newest by ``newest_by`` stands; without that order they are refused.
    """

    newest_by: tuple[str, ...] = Field((), exclude_if=lambda names: not names)  # no other fingerprint where unused
    key_unique_in: KeyScope = "table"
    partition_by: DateOf | ValueOf | None = None
    foreign_rows: ForeignRowsPolicy = "refuse"
    moved_keys: Repair | Literal["refuse"] = "refuse"
    shrink_limit: float | None = Field(None, ge=0, lt=1, description="largest share of rows a delivery may lose")
    allow_empty: bool = Field(True, description="a delivery without rows empties a partition that has some")

    @field_validator("partition_by", mode="before")
    @classmethod
    def _column_name(cls, value: object) -> object:
        return ValueOf(column=value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        self._check_named("newest_by", self.newest_by)
        if self.newest_by and not self.key:
            raise ValueError("newest_by: rows without a key have no repeats to resolve; give the table a key")
        for name in self.newest_by:
            column = self.column(name)
            if name in self.key or self.newest_by.count(name) > 1:
                raise ValueError(f"newest_by: {name!r} tells nothing apart: it is part of the key, or stands twice")
            if column is not None and column.type in UNORDERED:
                raise ValueError(f"newest_by: {name!r} is {column.type}, by which no row is newer than another")
        return self

    @model_validator(mode="after")
    def _partitioned(self) -> Self:
        self._check_named("partition_by", self.partition_by_columns)
        by_name = {c.name: c for c in self.columns}
        if isinstance(self.partition_by, DateOf):
            for name in self.partition_by.columns:
                if by_name[name].type != "integer":
                    raise ValueError(f"partition_by: date_of needs integer columns, {name!r} is {by_name[name].type}")
        if isinstance(self.partition_by, DateOf) and isinstance(self.partitions, StaticPartitions):
            raise ValueError("partition_by: date_of goes with time partitions, not with static ones")
        hourly = isinstance(self.partitions, TimePartitions) and self.partitions.cadence == "hourly"
        if isinstance(self.partition_by, DateOf) and hourly:
            raise ValueError("partition_by: date_of tells the day, not the hour of hourly partitions")
        if isinstance(self.partition_by, ValueOf):
            kind = by_name[self.partition_by.column].type
            allowed = ("text",) if isinstance(self.partitions, StaticPartitions) else ("date", "timestamp")
            if hourly:
                allowed = ("timestamp",)
            if kind not in allowed:
                raise ValueError(
                    f"partition_by: a {kind} column gives no partition here; wanted {' or '.join(allowed)}"
                )
        if self.foreign_rows == "quarantine" and not self.invalid_share:
            raise ValueError(
                "foreign_rows: quarantine needs a share of rows that may be, as invalid_rows=quarantine(0.01)"
            )
        if self.foreign_rows == "quarantine" and self.partition_by is None:
            raise ValueError("foreign_rows: without partition_by no row is known to be another partition's")
        if isinstance(self.moved_keys, Repair):
            if not self.keys_can_move:
                raise ValueError("moved_keys: repair is for keys that are unique in the table and can change partition")
            order = self.moved_keys.order
            if order != "delivery" and (order not in by_name or by_name[order].type in UNORDERED):
                raise ValueError(f"moved_keys: {order!r} is neither 'delivery' nor a column that orders rows")
        return self

    @property
    def partition_by_columns(self) -> tuple[str, ...]:
        return self.partition_by.columns if self.partition_by else ()

    @property
    def keys_can_move(self) -> bool:
        """Whether one key can be claimed by two partitions.

        It cannot where the key is unique in its partition only, where there is none, or where the partition is a
        function of the key.
        """
        if not self.key or self.key_unique_in == "partition":
            return False
        return not self.partition_by_columns or not set(self.partition_by_columns) <= set(self.key)

    @property
    def required_columns(self) -> frozenset[str]:
        """Columns whose value no row may lack: the declared ones, the key, and what gives order and partition."""
        declared = {c.name for c in self.columns if c.required}
        order = {self.moved_keys.order} if isinstance(self.moved_keys, Repair) else set()
        given = {*self.key, *self.newest_by, *self.partition_by_columns}
        return frozenset(declared | given | (order - {"delivery"}))


def is_remade(pipeline: Table) -> bool:
    """Return whether a changed contract alone makes other rows of committed deliveries.

    Where a transform makes the rows, its version tells one logic from another.
    """
    return isinstance(pipeline, PartitionedTable) and pipeline.transform is None


def ReferenceTable(**fields: Any) -> PartitionedTable:
    """A small table that is delivered whole each time: one partition, replaced by the newest delivery.

    Takes the fields of a :class:`PartitionedTable` but ``partitions``. ``landing`` holds no ``{partition}``; deliveries
    are ordered by what stands below its first wildcard. A delivery without rows is refused unless ``allow_empty=True``:
    for a whole table it is more often an accident of the publisher's than the truth.
    """
    if "{partition}" in str(fields.get("landing", "")) and "partitions" not in fields:
        raise ContractError(
            f"ReferenceTable {fields.get('name')!r}: landing holds {{partition}}, and a reference table has one partition, the "
            "whole. Write * where the path differs from delivery to delivery"
        )
    return PartitionedTable(**{"partitions": Static("all"), "allow_empty": False} | fields)


def _declaring_file() -> str | None:
    """The file of the module that is making a contract: the nearest frame outside of this package's vocabulary."""
    frame = inspect.currentframe()
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("etl_assets.contract", "pydantic")):
            return frame.f_globals.get("__file__")
        frame = frame.f_back
    return None


def transform(function: TransformFunction, *, version: int, rowwise: bool = False) -> Transform:
    """Label a transform. Raise ``version`` whenever its meaning changes."""
    return Transform(function=function, version=version, rowwise=rowwise)
