"""Header to columns: which delivered field fills which column of the contract."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

from etl_assets.contract import Column, DeliveredTable
from etl_assets.contract.columns import MAX_COLUMNS, check_identifier
from etl_assets.errors import BadHeader
from etl_assets.staging.reading import Text


@dataclass(frozen=True, slots=True)
class Layout:
    """``fields[i]`` is the position in the delivery of ``columns[i]``; None where the delivery lacks it."""

    columns: tuple[Column, ...]
    fields: tuple[int | None, ...]
    added: tuple[str, ...]


def match_header(contract: DeliveredTable, text: Text) -> Layout:
    """Match names to columns, in whatever order they stand. Raises :class:`BadHeader`, naming every difference."""
    header = text.header
    place = f"{text.shown}: line {text.header_line}"
    blank = [i + 1 for i, name in enumerate(header) if not name.strip()]
    if blank:
        raise BadHeader(f"{place}: the header's column {_listed(blank)} is blank. A trailing delimiter adds one")
    positions: dict[str, int] = {}
    for position, delivered in enumerate(header):
        name = _known_form(contract, delivered)
        if name in positions:
            raise BadHeader(
                f"{place}: the header names {name!r} twice, as columns {positions[name] + 1} and {position + 1}; "
                "which one counts cannot be told"
            )
        positions[name] = position
    wanted = (*contract.columns, *contract.inputs)
    fields, missing = [], []
    for column in wanted:
        found = [n for n in (column.name, *column.aliases) if n in positions]
        if len(found) > 1:
            raise BadHeader(f"{place}: {found} all name the contract's column {column.name!r}; deliver one of them")
        if not found and not column.optional:
            missing.append(column.name)
        fields.append(positions.pop(found[0]) if found else None)
    if missing:
        raise BadHeader(_missing(place, text, missing, list(positions)))
    added = _added(contract, place, list(positions), len(wanted))
    columns = (*wanted, *(Column(name=name, type="text") for name in added))
    return Layout(columns, (*fields, *(positions[name] for name in added)), added)


def _known_form(contract: DeliveredTable, delivered: str) -> str:
    """The contract's spelling of a name that differs from it in Unicode form only, as names from macOS do."""
    if delivered.isascii():
        return delivered
    known = (name for c in (*contract.columns, *contract.inputs) for name in (c.name, *c.aliases))
    composed = unicodedata.normalize("NFC", delivered)
    return next((name for name in known if unicodedata.normalize("NFC", name) == composed), delivered)


def _missing(place: str, text: Text, missing: list[str], others: list[str]) -> str:
    message = f"{place}: the header lacks {_listed(missing)}, which the contract requires"
    if len(text.header) == 1:
        other = next((d for d in ";\t|," if d != text.format.delimiter and d in text.header[0]), None)
        if other:
            return f"{message}; it looks separated by {other!r} where the contract says {text.format.delimiter!r}"
    if len(others) == len(text.header):
        return (
            f"{message}; it has {_listed(others)} instead, of which the contract knows none. Is the line of the header missing, "
            "and this the first row? Then deliver the file with its header"
        )
    if others:
        return f"{message}; it has {_listed(others)} instead. If a column was renamed, give the new name as an alias"
    return f"{message}. If it may be absent, make it optional"


def _added(contract: DeliveredTable, place: str, names: list[str], known: int) -> tuple[str, ...]:
    """The delivered names that the contract does not know, by its policy."""
    if not names or contract.new_columns == "ignore":
        return ()
    if contract.new_columns == "refuse":
        raise BadHeader(
            f"{place}: the header has {_listed(names)}, which the contract does not know (new_columns='refuse'). "
            "Add the column to the contract, or let new ones be added or ignored"
        )
    taken = {n.casefold(): n for c in (*contract.columns, *contract.inputs) for n in (c.name, *c.aliases)}
    for name in names:
        try:
            check_identifier(name)
        except ValueError as error:
            raise BadHeader(f"{place}: {error}; it cannot be added as a column") from error
        if name.casefold() in taken:
            raise BadHeader(
                f"{place}: {name!r} and {taken[name.casefold()]!r} differ only in case, which the table cannot hold"
            )
        taken[name.casefold()] = name
    if known + len(names) > MAX_COLUMNS:
        raise BadHeader(f"{place}: with {len(names)} new columns the table would have more than {MAX_COLUMNS}")
    return tuple(names)


def _listed(names: list[str] | list[int]) -> str:
    shown = ", ".join(str(n) if isinstance(n, int) else repr(n) for n in names[:8])
    return shown + (f" and {len(names) - 8} more" if len(names) > 8 else "")
