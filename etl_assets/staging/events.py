"""What an event of a change log says: which key and row, from when on, or that the key ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

from etl_assets.contract import ChangeLogTable, Column
from etl_assets.errors import BadEvent
from etl_assets.staging.casting import cast
from etl_assets.staging.lines import text_of, whole_number

_NATIVE = {"upsert": False, "delete": True}
_DEBEZIUM = {"c": False, "r": False, "u": False, "d": True}


# An event is in no cycle: collecting garbage need not look at the thousands that are held.
class Event(msgspec.Struct, frozen=True, gc=False):
    """A state of a key, which ends it if ``deleted``, with the line of the delivery that says so."""

    line: int
    position: int
    version: int
    deleted: bool
    row: dict[str, Any]


class Names:
    """Under which names events carry the columns, and which of them a row may lack."""

    def __init__(self, contract: ChangeLogTable) -> None:
        self.of = {c.name: (c.name, *c.aliases) for c in contract.columns}
        self.read = [_as_json(c) for c in contract.columns]
        self.columns = frozenset(self.of)
        self.key = contract.key
        self.wanted = [c.name for c in contract.columns if not c.optional]
        self.known = {name for names in self.of.values() for name in names}
        self.ignore = contract.new_columns == "ignore"

    def value(self, row: dict[str, Any], column: str) -> Any:
        return next((row[name] for name in self.of[column] if name in row), None)

    def values(self, rows: list[dict[str, Any]], column: str) -> list[Any]:
        """Of all these rows: the value, or None."""
        return [row.get(column) for row in rows] if len(self.of[column]) == 1 else [self.value(r, column) for r in rows]

    def has(self, row: dict[str, Any], column: str) -> bool:
        return any(name in row for name in self.of[column])

    def check(self, row: dict[str, Any], place: str) -> dict[str, Any]:
        """A row that becomes the state of its key has every column, and no other."""
        if row.keys() == self.columns:
            return row
        missing = [c for c in self.wanted if not self.has(row, c)]
        if missing:
            raise BadEvent(
                f"{place}: the row lacks {', '.join(map(repr, missing))}: an event holds the whole row. If a column may be "
                "absent, make it optional"
            )
        unknown = [] if self.ignore else [name for name in row if name not in self.known]
        if unknown:
            raise BadEvent(
                f"{place}: the row has {', '.join(map(repr, unknown))}, which the contract does not know "
                "(new_columns='refuse'). Add the column to the contract, or let new ones be ignored"
            )
        twice = [c for c, names in self.of.items() if sum(name in row for name in names) > 1]
        if twice:
            raise BadEvent(f"{place}: the row has the column {twice[0]!r} under more than one of its names")
        return row


def _as_json(column: Column) -> Column:
    """The column as a log is read: an empty text is a value there, unless the contract itself says that it is none."""
    if column.type in ("text", "json") and "missing" not in column.model_fields_set:
        return column.model_copy(update={"missing": ()})
    return column


def parse(contract: ChangeLogTable, names: Names, fields: dict[str, Any], place: str, line: int) -> list[Event]:
    """The states that an event says: one, or two where it changes the key."""
    form = contract.events
    position = whole_number(fields, form.position, place, least=1)
    version = whole_number(fields, form.version, place, least=1) if form.version else position
    if form.envelope == "native":
        deleted = _choice(fields, _NATIVE, place)
        row = _row(fields, "row", place)
        return [Event(line, position, version, deleted, row if deleted else names.check(row, place))]
    deleted = _choice(fields, _DEBEZIUM, place)
    if deleted:
        return [Event(line, position, version, True, _row(fields, "before", place))]
    after = names.check(_row(fields, "after", place), place)
    events = [Event(line, position, version, False, after)]
    before = fields.get("before")
    if isinstance(before, dict) and _changes_key(contract, names, before, after):
        events.insert(0, Event(line, position, version, True, before))
    return events


def _changes_key(contract: ChangeLogTable, names: Names, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether an update ends one key and starts another. A ``before`` without the key says nothing of it."""
    if not all(names.has(before, key) for key in contract.key):
        return False
    for name in contract.key:
        one, two = text_of(names.value(before, name), name), text_of(names.value(after, name), name)
        if one == two:
            continue
        column = contract.column(name)
        assert column is not None
        if column.type == "text":
            return True
        try:  # "01" and "1" are two texts and one integer
            values = cast(column, pa.array([one, two], pa.string())).values
        except UnicodeEncodeError:
            return True
        if values[0] != values[1] or not values[0].is_valid:
            return True
    return False


def _choice(fields: dict[str, Any], choices: dict[str, bool], place: str) -> bool:
    op = fields.get("op")
    if not isinstance(op, str) or op not in choices:
        raise BadEvent(f"{place}: 'op' is {op!r}; wanted one of {', '.join(choices)}")
    return choices[op]


def _row(fields: dict[str, Any], name: str, place: str) -> dict[str, Any]:
    row = fields.get(name)
    if not isinstance(row, dict):
        raise BadEvent(f"{place}: the event has no {name!r}, which holds the row")
    return row
