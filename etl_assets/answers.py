"""How commands answer: tables for people, one JSON document for programs, and errors as a message and an exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

import click

from etl_assets.errors import EtlError, OperationalError
from etl_assets.naming import shown

#: Columns of what another program reads.
PIPE = 1 << 16


def print_document(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=1, ensure_ascii=False, default=str))


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in header:
        table.add_column(name, overflow="fold")  # in a narrow terminal nothing is cut off
    for row in rows:
        table.add_row(*map(on_terminal, row))
    # A pipe has no width: do not fold what another program reads.
    Console(width=None if sys.stdout.isatty() else PIPE, markup=False, highlight=False).print(table)


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
