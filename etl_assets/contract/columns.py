"""Columns: name, type, and what counts as missing, valid and required. No I/O."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Context, Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from etl_assets.contract.formats import check_format
from etl_assets.errors import ContractError

ColumnType = Literal["text", "integer", "real", "decimal", "boolean", "date", "timestamp", "json"]
Bound = int | float | Decimal | str | dt.date | dt.datetime | None

#: SQLite's own limit is 2,000 columns a table; two are ours.
MAX_COLUMNS = 1_998
#: Tables of versions have more of their own, and so has what is compared with them.
MAX_COLUMNS_OF_VERSIONS = 1_990

#: Quoted or not, a view or a copy of a column of these names has another name, and reading it gives the literal; a table of
#: these names hides functions that the ledger and contracts call.
TAKEN = frozenset(("true", "false", "json_each", "json_tree"))

#: Options that mean something to some types only: elsewhere they would be ignored in silence.
OPTIONS_OF: dict[str, tuple[ColumnType, ...]] = {
    "precision": ("decimal",),
    "scale": ("decimal",),
    "timezone": ("timestamp",),
    "resolution": ("timestamp",),
    "format": ("date", "timestamp"),
    "true": ("boolean",),
    "false": ("boolean",),
}


class Frozen(BaseModel):
    """Base of all contract parts: immutable, and a misspelt field is an error that names it."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ContractError(_explain(type(self).__name__, fields.get("name"), error)) from error


def _explain(kind: str, name: object, error: ValidationError) -> str:
    lines = [f"{kind}{f' {name!r}' if name else ''} does not hold together:"]
    for problem in error.errors():
        place = ".".join(str(part) for part in problem["loc"])
        lines.append(f"  {place + ': ' if place else ''}{problem['msg'].removeprefix('Value error, ')}")
    return "\n".join(lines)


def check_identifier(name: str) -> str:
    """A table or column name that is stored as it is, quoted. Raises ``ValueError`` for what cannot be.

    Quoting makes spaces, quotes, dots and reserved words harmless; what remains refused is what collides with our
    own columns and tables, or what SQLite cannot hold.
    """
    if not name.strip():
        raise ValueError("a name is blank")
    if "\0" in name or any(0xD800 <= ord(c) <= 0xDFFF for c in name):
        raise ValueError(f"the name {name!r} holds a NUL or a lone surrogate, which no database stores")
    if len(name) > 200:
        raise ValueError(f"the name {name[:40]!r}… has {len(name)} characters; at most 200")
    if name.startswith("_"):
        raise ValueError(f"the name {name!r} starts with '_', which is kept for the warehouse's own columns")
    if name.lower().startswith(("sqlite_", "etl_")):
        raise ValueError(f"the name {name!r} starts with a prefix that is kept for the database or the ledger")
    if name.lower() in TAKEN:
        raise ValueError(
            f"the name {name!r} is one that SQLite takes for something else, though it is quoted; give it another one"
        )
    return name


Identifier = Annotated[str, AfterValidator(check_identifier)]


def check_timezone(name: str | None) -> str | None:
    """An IANA time zone name, or None."""
    if name is not None:
        try:
            ZoneInfo(name)
        except Exception as error:
            raise ValueError(f"{name!r} is not a time zone of the IANA database") from error
    return name


TimeZone = Annotated[str, AfterValidator(check_timezone)]


class Column(Frozen):
    """One column of the table, and how its text in a delivery becomes a value.

    ``missing`` lists the texts that mean "no value" in this column: ``NA`` is missing in a weather file and is
    Namibia in a list of countries, so it is a property of the column, never of the file.
    """

    name: Identifier
    type: ColumnType
    optional: bool = Field(False, description="a delivery may lack the column; its rows then have no value")
    required: bool = Field(False, description="a row without a value is invalid")
    missing: tuple[str, ...] = ("",)
    aliases: tuple[str, ...] = Field((), description="other header names under which deliveries carry it")
    minimum: Bound = None
    maximum: Bound = None
    precision: int = Field(38, ge=1, le=38, description="decimal: digits in all")
    scale: int = Field(0, ge=0, le=38, description="decimal: digits after the point")
    timezone: TimeZone | None = Field(None, description="timestamp: the zone of values that state none")
    resolution: Literal["s", "ms", "us"] = Field("us", description="timestamp: stored and accepted fraction")
    format: str | None = Field(None, description="date, timestamp: directives of strptime; ISO 8601 without")
    true: tuple[str, ...] = ("true", "t", "yes", "y", "1")
    false: tuple[str, ...] = ("false", "f", "no", "n", "0")
    unit: str | None = None
    description: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Column:
        for option in sorted(self.model_fields_set & OPTIONS_OF.keys()):
            if self.type not in OPTIONS_OF[option]:
                raise ValueError(
                    f"column {self.name!r}: {option} is for {' and '.join(OPTIONS_OF[option])} columns, not for {self.type}"
                )
        if self.type == "decimal" and self.scale > self.precision:
            raise ValueError(f"column {self.name!r}: scale {self.scale} is larger than precision {self.precision}")
        if self.type in ("text", "boolean", "json") and (self.minimum is not None or self.maximum is not None):
            raise ValueError(f"column {self.name!r}: bounds are for numbers, dates and timestamps")
        low, high = self.bounds
        if low is not None and high is not None and low > high:
            raise ValueError(f"column {self.name!r}: minimum {self.minimum} is larger than maximum {self.maximum}")
        if self.format is not None:
            self._check_format(self.format)
        both = {t.lower() for t in self.true} & {f.lower() for f in self.false}
        if both:
            raise ValueError(f"column {self.name!r}: {sorted(both)} mean both true and false")
        return self

    def _check_format(self, form: str) -> None:
        try:
            check_format(form, timestamp=self.type == "timestamp", zone=self.timezone is not None)
        except ValueError as error:
            raise ValueError(f"column {self.name!r}: format {form!r}: {error}") from error

    def _typed(self, bound: str) -> Any:
        """The bound as this column's own type, exactly. Raises ``ValueError`` where it is not a value of it."""
        value = getattr(self, bound)
        if value is None:
            return None
        try:
            match self.type:
                case "integer":
                    if int(value) != value or not -(2**63) <= value < 2**63:
                        raise ValueError
                    return int(value)
                case "real":
                    if not math.isfinite(value):
                        raise ValueError
                    return float(value)
                case "decimal":
                    exact = Decimal(str(value)).quantize(
                        Decimal(1).scaleb(-self.scale), context=Context(self.precision)
                    )
                    if exact != Decimal(str(value)):
                        raise ValueError
                    return exact
                case "date":
                    if isinstance(value, dt.datetime):
                        raise ValueError
                    return value if isinstance(value, dt.date) else dt.date.fromisoformat(str(value))
                case _:
                    moment = value if isinstance(value, dt.datetime) else dt.datetime.fromisoformat(str(value))
                    unit = {"s": 1_000_000, "ms": 1_000, "us": 1}[self.resolution]
                    if moment.tzinfo is None or moment.microsecond % unit:
                        raise ValueError
                    return moment.astimezone(dt.UTC)
        except (ValueError, TypeError, ArithmeticError) as error:
            hint = {
                "integer": " of 64 bits",
                "real": " that is finite",
                "decimal": f"({self.precision},{self.scale})",
                "timestamp": f" with an offset, no finer than {self.resolution}",
            }.get(self.type, "")
            raise ValueError(f"column {self.name!r}: {bound} {value!r} is not a {self.type}{hint}") from error

    @property
    def bounds(self) -> tuple[Any, Any]:
        """``(minimum, maximum)`` as values of the column's type, or None."""
        return self._typed("minimum"), self._typed("maximum")


def text(name: str, **options: Any) -> Column:
    """Unicode text, kept to the character: ``007`` stays ``007``."""
    return Column(name=name, type="text", **options)


def integer(name: str, **options: Any) -> Column:
    """A 64-bit integer. What does not fit, or has a fraction, is an invalid row and never rounded."""
    return Column(name=name, type="integer", **options)


def real(name: str, **options: Any) -> Column:
    """A finite IEEE double; ``nan`` and ``inf`` are invalid."""
    return Column(name=name, type="real", **options)


def decimal(name: str, precision: int, scale: int, **options: Any) -> Column:
    """An exact decimal, stored as text with ``scale`` digits after the point; never rounded."""
    return Column(name=name, type="decimal", precision=precision, scale=scale, **options)


def boolean(name: str, **options: Any) -> Column:
    """True or false by the column's ``true`` and ``false`` texts (case is ignored); stored as 1 and 0."""
    return Column(name=name, type="boolean", **options)


def date(name: str, **options: Any) -> Column:
    """A calendar date, stored as ``YYYY-MM-DD``."""
    return Column(name=name, type="date", **options)


def timestamp(name: str, **options: Any) -> Column:
    """An instant, stored in UTC at fixed width. A value without offset needs ``timezone=``, or is invalid."""
    return Column(name=name, type="timestamp", **options)


def json(name: str, **options: Any) -> Column:
    """A JSON document, checked and stored as it was delivered."""
    return Column(name=name, type="json", **options)
