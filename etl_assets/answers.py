"""How commands answer: tables for people, one JSON document for programs, and errors as a message and an exit code."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from etl_assets.errors import EtlError, OperationalError
from etl_assets.naming import shown

#: Longer tables are printed without fitting them to the terminal, which would take longer than what they tell of.
FITTED_ROWS = 1_000


def print_document(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=1, ensure_ascii=False, default=str))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns: fitted to a terminal, and never folded where another program reads them."""
    escaped = [[on_terminal(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty() or len(rows) > FITTED_ROWS:
        click.echo("\n".join(_aligned([list(header), *escaped])))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")  # in a narrow terminal nothing is cut off
    for row in escaped:
        table.add_row(*row)
    Console(markup=False, highlight=False).print(table)


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return the lines of a table; a cell of several lines has one below the other."""
    from rich.cells import cell_len

    lines = [line for row in rows for line in itertools.zip_longest(*(c.split("\n") for c in row), fillvalue="")]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        yield "  ".join(t + " " * (w - cell_len(t)) for t, w in zip(line, widths, strict=True)).rstrip()


def on_terminal(text: str) -> str:
    """Return a text of several lines, without what a terminal would obey."""
    return "\n".join(map(shown, text.split("\n")))


def say_error(error: EtlError) -> None:
    click.echo(f"error: {on_terminal(str(error))}", err=True)


class errors_end_here:
    """Turn an error into its message and exit code; with --json also into the document."""

    def __init__(self, as_json: bool, key: str) -> None:
        self.as_json, self.key = as_json, key

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EtlError | OSError) and not isinstance(error, BrokenPipeError):
            named = named_error(error)
            if self.as_json:
                print_document({self.key: [], "error": f"{named.kind}: {named}"})
            say_error(named)
            sys.exit(named.exit_code)


def named_error(error: EtlError | OSError) -> EtlError:
    """What the system reports of a file or folder is an error of operations, as those that have a name are."""
    return error if isinstance(error, EtlError) else OperationalError(f"{error}. Check the path and its permissions")
