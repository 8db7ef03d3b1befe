"""The same rooms without Dagster, for terminals and scripts.

Imports are made where they are needed: ``--help`` answers without pyarrow, pandas or pydantic.
Exit codes: 0 done (also when there was nothing to do), 1 data refused or missing, 2 usage or I/O.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from etl_assets import __version__
from etl_assets.answers import errors_end_here, named_error, on_terminal, print_document, print_table, say_error
from etl_assets.errors import EtlError, UnknownScope
from etl_assets.naming import shown
from etl_assets.outbox_cli import outbox, relay
from etl_assets.settings import LANDING, STAGED, WAREHOUSE, Settings
from etl_assets.snapshots_cli import build, demo, incremental, verify

if TYPE_CHECKING:
    from etl_assets.contract import Pipeline
    from etl_assets.loading import Outcome, Survey


def _places(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that every command has: where the rooms are, and how to answer."""
    options = [
        click.option("--landing", metavar="PATH", help=f"Where deliveries arrive, a folder or URL.  [env: {LANDING}]"),
        click.option("--staged", metavar="DIR", help=f"Where extracts are frozen.  [env: {STAGED}]"),
        click.option("--warehouse", metavar="PATH", help=f"The SQLite file with rows and ledger.  [env: {WAREHOUSE}]"),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="etl_assets")
def cli() -> None:
    """Incremental, idempotent pipelines: rows, ledger entry and progress change in one transaction, or not at all."""


@cli.command()
@click.argument("pipeline")
@click.option("--partition", metavar="KEY", help="Load one partition.")
@click.option("--from", "first", metavar="KEY", help="Load a range of partitions, from this one …")
@click.option("--to", "last", metavar="KEY", help="… to this one, both included.")
@click.option("--pending", is_flag=True, help="Load every partition whose newest delivery is not committed.")
@click.option(
    "--delivery", metavar="NAME", help="Load this delivery (2.csv, or 2.csv#1 for a revision), not the newest."
)
@click.option("--restate", is_flag=True, help="Publish on purpose what is superseded or already committed.")
@click.option("--skip-gap", is_flag=True, help="Of a log: give up the positions that are missing before this delivery.")
@click.option("--reason", metavar="TEXT", help="Why; kept in the ledger. Goes with --restate and --skip-gap.")
@_places
def run(
    pipeline: str,
    partition: str | None,
    first: str | None,
    last: str | None,
    pending: bool,
    delivery: str | None,
    restate: bool,
    skip_gap: bool,
    reason: str | None,
    landing: str | None,
    staged: str | None,
    warehouse: str | None,
    as_json: bool,
) -> None:
    """Freeze and publish deliveries of PIPELINE, each partition in a transaction of its own."""
    if (partition is not None) + (first is not None or last is not None) + pending != 1:
        raise click.UsageError(
            "say which partitions, in one way: --partition KEY, or --from KEY --to KEY, or --pending"
        )
    if pending and restate:
        raise click.UsageError("--restate is for partitions that are named: --partition KEY, or --from KEY --to KEY")
    if skip_gap and (partition is None or restate):
        raise click.UsageError("--skip-gap goes with --partition, and not with --restate")
    if (first is None) != (last is None):
        raise click.UsageError("--from and --to go together")
    if (restate or skip_gap) != bool(reason and reason.strip()):
        raise click.UsageError("--restate and --skip-gap go with --reason: what is done on purpose has a reason")
    if delivery and partition is None:
        raise click.UsageError("--delivery goes with --partition: a name belongs to one partition")
    settings = Settings.from_environment(landing, staged, warehouse)
    outcomes: list[Outcome] = []
    error = None
    try:
        _load(settings, pipeline, (partition, first, last), delivery, (reason, skip_gap), outcomes, as_json)
    except BrokenPipeError:
        raise
    except (EtlError, OSError) as raised:
        error = named_error(raised)
    if as_json:
        document: dict[str, Any] = {"batches": [_outcome_document(o) for o in outcomes]}
        if error:
            document["error"] = f"{error.kind}: {error}"
        print_document(document)
    elif not outcomes and not error:
        click.echo(f"{pipeline}: nothing is pending")
    if error:
        say_error(error)
        sys.exit(error.exit_code)
    sys.exit(1 if any(o.status == "refused" for o in outcomes) else 0)


def _load(
    settings: Settings,
    name: str,
    which: tuple[str | None, str | None, str | None],
    delivery: str | None,
    decision: tuple[str | None, bool],
    outcomes: list[Outcome],
    as_json: bool,
) -> None:
    import uuid

    from etl_assets.loading import Engine, survey
    from etl_assets.model import Restatement
    from etl_assets.registry import find_pipeline

    pipeline = find_pipeline(name)
    engine = Engine(settings, pipeline)
    partition, first, last = which
    if partition is not None:
        scopes: Sequence[str] = [partition]
    elif first is not None and last is not None:
        engine.check_scopes([first, last])
        scopes = pipeline.partitions.between(first, last)
        if not scopes:
            raise click.UsageError(f"--from {first} is after --to {last}")
    else:
        found = survey(settings, pipeline)
        _tell_misfits(found)
        scopes = list(dict.fromkeys(status.scope for status in found.waiting()))
        for status in found.statuses:
            if status.state == "unknown partition":
                place = status.arrival.path if status.arrival else status.name
                click.echo(f"passed over: {shown(place)}: {status.reason}", err=True)
    if not scopes:
        return
    run = f"cli-{uuid.uuid4().hex}"
    reason, skip_gap = decision
    restatement = Restatement(reason, operation=run, skip_gap=skip_gap) if reason else None
    with _progress(name, len(scopes), as_json) as tell:
        for outcome in engine.load(scopes, run, restatement, delivery):
            outcomes.append(outcome)
            tell(outcome)


def _tell_misfits(found: Survey) -> None:
    from etl_assets.landing import misfitting

    if found.misfits:
        click.echo(f"{found.pipeline}: {misfitting(found.misfits)}", err=True)


class _progress:
    """A line for each partition as it is done; on a terminal also a bar for how many are left."""

    def __init__(self, pipeline: str, total: int, quiet: bool) -> None:
        self.pipeline, self.total, self.quiet = pipeline, total, quiet
        self.bar: Any = None

    def __enter__(self) -> Callable[[Outcome], None]:
        if self.quiet or not sys.stderr.isatty() or self.total < 2:
            return self._tell
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self.bar.start()
        self.task = self.bar.add_task(self.pipeline, total=self.total)
        return self._tell

    def _tell(self, outcome: Outcome) -> None:
        if self.bar:
            self.bar.advance(self.task)
        if self.quiet:
            return
        if outcome.error is not None:
            where = f"{outcome.pipeline}/{outcome.scope}: refused ({outcome.error.kind})"
            click.echo(on_terminal(f"{where}: {outcome.error}"), err=True)
        else:
            shown = " ".join(f"{k}={v:,}" for k, v in outcome.counts.as_dict().items() if v)
            click.echo(f"{outcome.batch}: {outcome.message}{f' ({shown})' if shown else ''}")

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    document: dict[str, Any] = {
        "batch": outcome.batch,
        "pipeline": outcome.pipeline,
        "scope": outcome.scope,
        "status": outcome.status,
        "counts": outcome.counts.as_dict(),
        "error": f"{outcome.error.kind}: {outcome.error}" if outcome.error else None,
    }
    if outcome.receipt:
        document["superseded_by"] = outcome.receipt.superseded_by
        document["digest"] = outcome.receipt.batch.digest
    return document


@cli.command()
@click.argument("pipeline", required=False)
@_places
def deliveries(
    pipeline: str | None, landing: str | None, staged: str | None, warehouse: str | None, as_json: bool
) -> None:
    """List what has arrived and the state of each delivery; and the partitions in between that have none."""
    from etl_assets.loading import survey

    settings = Settings.from_environment(landing, staged, warehouse)
    with errors_end_here(as_json, "deliveries"):
        surveys = [survey(settings, p) for p in _chosen(pipeline)]
        if as_json:
            keys = ("pipeline", "scope", "name", "revision", "state", "reason", "attempts")
            listed = [{k: getattr(s, k) for k in keys} for found in surveys for s in found.statuses]
            misfits = {s.pipeline: list(s.misfits) for s in surveys if s.misfits}
            missing = {s.pipeline: list(s.missing) for s in surveys if s.missing}
            print_document({"deliveries": listed, "missing": missing} | ({"misfits": misfits} if misfits else {}))
            return
        rows = [
            (s.pipeline, shown(s.scope), f"{shown(s.name)}#{s.revision}", s.state, s.reason)
            for f in surveys
            for s in f.statuses
        ]
        print_table(("pipeline", "partition", "delivery", "state", "reason"), rows)
        for found in surveys:
            _tell_misfits(found)
            if found.missing:
                click.echo(
                    f"{found.pipeline}: {len(found.missing)} partitions in between have no delivery: {_ranges(found.missing)}"
                )


@cli.command()
@click.argument("pipeline", required=False)
@click.option("--partition", metavar="KEY", help="Only this partition.")
@_places
def ledger(
    pipeline: str | None,
    partition: str | None,
    landing: str | None,
    staged: str | None,
    warehouse: str | None,
    as_json: bool,
) -> None:
    """List the committed batches in commit order: what is not in the ledger did not happen."""
    if partition is not None and pipeline is None:
        raise click.UsageError("--partition goes with a PIPELINE")
    from etl_assets.sink import open_sink

    settings = Settings.from_environment(landing, staged, warehouse)
    with errors_end_here(as_json, "batches"):
        if pipeline is not None:
            (chosen,) = _chosen(pipeline)
            if partition is not None and not chosen.partitions.contains(partition):
                raise UnknownScope(f"{pipeline} has no partition {partition!r}; it has {chosen.partitions.describe()}")
        batches = open_sink(settings.warehouse).ledger(pipeline, [partition] if partition is not None else None)
        if as_json:
            print_document({"batches": [_batch_document(b) for b in batches]})
            return
        names = ("inserted", "updated", "deleted", "unchanged", "moved", "rejected")
        # One column for all counts, of what is not 0: the names of batches are to have room in a narrow terminal.
        counts = (" ".join(f"{n}={c:,}" for n in names if (c := getattr(b.counts, n))) for b in batches)
        rows = [(b.batch, rows, b.committed_at, b.reason or "") for b, rows in zip(batches, counts, strict=True)]
        print_table(("batch", "rows", "committed", "reason"), rows)


def _batch_document(batch: Any) -> dict[str, Any]:
    import dataclasses

    document = dataclasses.asdict(batch)
    document.pop("id")
    document.pop("order")
    return document


def _chosen(name: str | None) -> list[Pipeline]:
    from etl_assets.registry import find_pipeline, load_pipelines

    return [find_pipeline(name)] if name else list(load_pipelines().values())


def _ranges(scopes: Sequence[str]) -> str:
    shown = ", ".join(scopes[:6])
    return shown + (f", … {scopes[-1]}" if len(scopes) > 6 else "")


for command in (build, incremental, verify, demo, outbox, relay):
    cli.add_command(command)


def main() -> None:
    """The console script: errors of ours never end in a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # file names need not be text
    try:
        sys.exit(cli(standalone_mode=False) or 0)
    except BrokenPipeError:
        sys.exit(0)
    except EtlError as error:
        say_error(error)
        sys.exit(error.exit_code)
    except click.ClickException as error:  # wrong usage
        if "--json" in sys.argv:
            print_document({"error": error.format_message()})
        error.show()
        sys.exit(error.exit_code)
    except (KeyboardInterrupt, click.Abort):
        click.echo("interrupted: what is committed stays, and the next run goes on from there", err=True)
        sys.exit(130)
