"""Policies: what a contract promises about files, rows, keys and order. No I/O."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from etl_assets.contract.columns import Frozen


def _encoding(name: str) -> str:
    try:
        "a".encode(name)  # refuses codecs that are no encoding of text, such as base64
    except (LookupError, ValueError) as error:
        raise ValueError(f"{name!r} is not a text encoding that Python knows") from error
    return name


class FileFormat(Frozen):
    """How a delivered text file is cut into records and fields (RFC 4180 where nothing is said)."""

    delimiter: str = ","
    quote: str | None = '"'
    encoding: Annotated[str, AfterValidator(_encoding)] = "utf-8"
    skip_lines: int = Field(0, ge=0, description="lines before the header")
    gzip: bool = Field(False, description="the file is compressed; names that end in .gz are without saying")

    @field_validator("delimiter", "quote")
    @classmethod
    def _one_byte(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or not value.isascii() or value in "\r\n\0"):
            raise ValueError(f"{value!r} must be one ASCII character other than a line end")
        return value

    @model_validator(mode="after")
    def _distinct(self) -> FileFormat:
        if self.delimiter == self.quote:
            raise ValueError("delimiter and quote are the same character")
        return self


class Quarantine(Frozen):
    """Invalid rows are set aside with line and reason, as long as they are at most this share of the delivery."""

    up_to: float = Field(gt=0, le=1)


def quarantine(up_to: float) -> Quarantine:
    """Allow this share of invalid rows (0.01 is one in a hundred)."""
    return Quarantine(up_to=up_to)


class Repair(Frozen):
    """A key that two partitions claim stands in one of them: the one that is later in this order.

    ``order`` is ``"delivery"`` where deliveries are releases (a later release of one partition beats an earlier
    release of another), or the name of a version column.
    """

    order: str = "delivery"


def repair(order: str = "delivery") -> Repair:
    """Repair moved keys in both partitions by this order."""
    return Repair(order=order)


class DateOf(Frozen):
    """The partition of a row is the date that three integer columns spell."""

    year: str
    month: str
    day: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.year, self.month, self.day)


def date_of(year: str, month: str, day: str) -> DateOf:
    """Partition by a date that is spread over three columns."""
    return DateOf(year=year, month=month, day=day)


class ValueOf(Frozen):
    """The partition of a row follows from one column: its date, its instant in the contract's zone, or its text."""

    column: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.column,)


TransformFunction = Callable[..., Any]


class Transform(Frozen):
    """The pipeline's business logic: a function from frame to frame, and the label of its version.

    ``function(frame)`` gets a pandas frame (Arrow-backed) of typed rows whose index, named ``record``, numbers the
    records of the delivery, and returns the rows of the table. ``rowwise`` promises that each row is settled by
    itself, so that the delivery may be handed over in pieces of bounded size.
    """

    function: TransformFunction
    version: int = Field(1, ge=1)
    rowwise: bool = False

    @field_validator("function")
    @classmethod
    def _one_argument(cls, function: TransformFunction) -> TransformFunction:
        try:
            inspect.signature(function).bind("frame")
        except TypeError as error:
            raise ValueError(f"{function!r} must take one argument, the frame") from error
        return function


NewColumns = Literal["add", "ignore", "refuse"]
ForeignRowsPolicy = Literal["refuse", "quarantine"]
Redelivery = Literal["revision", "strict"]
KeyScope = Literal["table", "partition"]
