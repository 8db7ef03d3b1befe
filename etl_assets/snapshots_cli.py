"""The commands for snapshots of any CSV: ``build``, ``incremental``, ``verify`` and ``demo``. JSON on stdout."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from etl_assets.errors import BadHeader, BrokenDelivery, EtlError, OperationalError
from etl_assets.settings import WAREHOUSE, Settings

DB = Settings().warehouse
DB_HELP = f"The SQLite file.  [env: {WAREHOUSE}]"


def _snapshot_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--source", required=True, metavar="NAME", help="The table's name."),
        click.option("--snapshot", required=True, type=click.Path(path_type=Path), help="A CSV file with a header."),
        click.option(
            "--db", type=click.Path(path_type=Path), envvar=WAREHOUSE, default=DB, show_default=True, help=DB_HELP
        ),
        click.option("--key", default="id", show_default=True, help="The column that tells rows apart."),
        click.option("--watermark", default="src_updated", show_default=True, help="When a row last changed."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@_snapshot_options
def build(source: str, snapshot: Path, db: Path, key: str, watermark: str) -> None:
    """Make a source's table out of a snapshot alone, atomically."""
    _apply(db, source, snapshot, key, watermark, rebuild=True)


@click.command()
@_snapshot_options
def incremental(source: str, snapshot: Path, db: Path, key: str, watermark: str) -> None:
    """Merge a snapshot: rows that are newer than the table's are applied, the others ignored."""
    _apply(db, source, snapshot, key, watermark, rebuild=False)


def _apply(db: Path, source: str, snapshot: Path, key: str, watermark: str, rebuild: bool) -> None:
    from etl_assets.snapshots import apply_snapshot, document

    with _Errors():
        applied = apply_snapshot(db, source, snapshot, key, watermark, rebuild)
        _print(document(applied))
        for row in applied.rejects:
            place = f"line {row['line']}" if row["line"] else "line unknown"
            click.echo(f"{snapshot}: {place}: {'; '.join(row['reasons'])}", err=True)
        if applied.errors > len(applied.rejects) > 0:
            click.echo(f"… and {applied.errors - len(applied.rejects):,} more, in {db}.staged", err=True)
        if applied.error:
            click.echo(f"error: {applied.error}", err=True)
        # A file that is no such snapshot at all is an I/O error; a row of it that is invalid is not.
        unreadable = isinstance(applied.error, BrokenDelivery | BadHeader)
        sys.exit(2 if unreadable else 1 if applied.errors else 0)


@click.command()
@click.option("--source", required=True, metavar="NAME", help="The table's name.")
@click.option("--db", type=click.Path(path_type=Path), envvar=WAREHOUSE, default=DB, show_default=True, help=DB_HELP)
def verify(source: str, db: Path) -> None:
    """Compare a source's table with its ledger."""
    from etl_assets.snapshots import profile

    with _Errors():
        facts = profile(db, source)
        _print(facts)
        sys.exit(0 if facts["status"] == "OK" else 1)


@click.command()
@click.option(
    "--db", type=click.Path(path_type=Path), default="demo.sqlite", show_default=True, help="The SQLite file."
)
def demo(db: Path) -> None:
    """Load twenty made-up rows twice and verify: the second time changes nothing."""
    from etl_assets.snapshots import demonstrate

    with _Errors():
        _print(demonstrate(db))


class _Errors:
    """An error of ours becomes its message and exit code."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, EtlError):
            click.echo(f"error: {error}", err=True)
            sys.exit(error.exit_code)
        if isinstance(error, OSError) and not isinstance(error, BrokenPipeError):
            click.echo(f"error: {error}. Check the path and its permissions", err=True)
            sys.exit(OperationalError.exit_code)


def _print(document: dict[str, Any]) -> None:
    click.echo(json.dumps(document, indent=1, ensure_ascii=False))
