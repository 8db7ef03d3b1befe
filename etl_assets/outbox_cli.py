"""The commands for messages: ``outbox`` shows them and decides about those that are not sent, ``relay`` delivers what is due."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from etl_assets.answers import errors_end_here, named_error, print_document, print_table, say_error
from etl_assets.errors import EtlError, RelayAtWork
from etl_assets.settings import RELAY, WAREHOUSE, Settings

if TYPE_CHECKING:
    from etl_assets.model import Message
    from etl_assets.outbox import Attempt

#: Sent and discarded messages that are listed: the last ones.
LISTED = 20
STATUSES = ("waiting", "parked", "sent", "discarded")


def _warehouse(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--warehouse", metavar="PATH", help=f"The SQLite file with the outbox.  [env: {WAREHOUSE}]"),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document on stdout."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.option(
    "--release",
    metavar="KEY",
    help="Make a parked or waiting message due now.",
)
@click.option("--discard", metavar="KEY", help="Give a parked or waiting message up.")
@_warehouse
def outbox(release: str | None, discard: str | None, warehouse: str | None, as_json: bool) -> None:
    """Show messages: how many wait, are parked or were sent, by topic; or decide about one that is not sent."""
    if release and discard:
        raise click.UsageError("--release and --discard are two decisions about a message: take one")
    from etl_assets.sink import open_sink

    with errors_end_here(as_json, "messages"):
        sink = open_sink(Settings.from_environment(warehouse=warehouse).warehouse)
        if release:
            sink.release(release)
        elif discard:
            sink.discard(discard)
        if release or discard:
            said = "is due now" if release else "is discarded"
            if as_json:
                print_document({"key": release or discard, "status": "waiting" if release else "discarded"})
            else:
                click.echo(f"{release or discard} {said}")
            return
        counts = sink.message_counts(*STATUSES)
        # What is open is listed whole; what is done with grows for ever.
        shown = [m for s in STATUSES for m in sink.messages(s, None if s in ("waiting", "parked") else LISTED)]
        if as_json:
            print_document({"topics": counts, "messages": [_document(m) for m in sorted(shown, key=lambda m: m.id)]})
            return
        print_table(
            ("topic", *STATUSES), [(topic, *(f"{of.get(s, 0):,}" for s in STATUSES)) for topic, of in counts.items()]
        )
        if shown:
            click.echo()
            print_table(
                ("message", "topic", "status", "attempts", "next attempt", "last error"), [_row(m) for m in shown]
            )


def _row(message: Message) -> tuple[str, ...]:
    return (
        *(message.key, message.topic, message.status, f"{message.attempts}"),
        *(message.next_attempt_at or "", (message.last_error or "")[:200]),
    )


def _document(message: Message) -> dict[str, Any]:
    import dataclasses

    return dataclasses.asdict(message) | {"payload": json.loads(message.payload)}


@click.command()
@click.option(
    "--relay", "url", metavar="URL", help=f"Where to: https://host/path or kafka://host:port.  [env: {RELAY}]"
)
@_warehouse
def relay(url: str | None, warehouse: str | None, as_json: bool) -> None:
    """Deliver the messages whose turn it is, each topic in its order."""
    from etl_assets.outbox import deliver, open_relay
    from etl_assets.sink import open_sink

    settings = Settings.from_environment(warehouse=warehouse, relay=url)
    attempts: list[Attempt] = []
    error: EtlError | None = None
    try:
        sink = open_sink(settings.warehouse)
        with closing(open_relay(settings.relay)) as out:
            for attempt in deliver(sink, out):
                attempts.append(attempt)
                if not as_json:
                    click.echo(f"{attempt.message.topic}: {attempt.message.key}: {attempt.said}")
    except (EtlError, OSError) as raised:
        if isinstance(raised, BrokenPipeError):
            raise
        error = named_error(raised)
    if as_json:
        document: dict[str, Any] = {"attempts": [_attempt_document(a) for a in attempts]}
        if error:
            document["error"] = f"{error.kind}: {error}"
        print_document(document)
    elif not attempts and not error:
        click.echo(_nothing_due(sink.messages("waiting", None)))
    if error:
        say_error(error)
        # Two relays that overlap are no fault: the other one does the work.
        sys.exit(0 if isinstance(error, RelayAtWork) else error.exit_code)
    sys.exit(1 if any(a.reason is not None for a in attempts) else 0)


def _nothing_due(waiting: Sequence[Message]) -> str:
    """What there is to do all the same: messages that are tried again later."""
    following = min((m.next_attempt_at for m in waiting if m.next_attempt_at), default=None)
    later = f": {len(waiting):,} wait, the next is tried at {following}" if following else ""
    return f"nothing is due{later}"


def _attempt_document(attempt: Attempt) -> dict[str, Any]:
    return {
        "key": attempt.message.key,
        "topic": attempt.message.topic,
        "subject": attempt.message.subject,
        "status": attempt.status,
        "attempt": attempt.message.attempts + 1,
        "retry_after": attempt.retry_after,
        "reason": attempt.reason,
    }
