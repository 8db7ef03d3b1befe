"""Deliver what is due: one message at a time, each sent outside of any transaction and marked in one of its own.

A process that dies between sending and marking leaves the message waiting; it is sent again under the same key, which a
receiver that honours keys answers without taking it twice. Within a topic nothing overtakes: what is to be tried again
holds up what comes after it, until it is sent or parked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from etl_assets.errors import RelayAtWork
from etl_assets.model import Message
from etl_assets.outbox.relay import Refused, Relay, Sent
from etl_assets.sink import Sink


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a message is tried before it is parked, and how long to wait in between, in seconds.

    The pause doubles from ``first`` to ``longest``. A receiver that says how long to wait is obeyed, up to a day.
    With the defaults a message is parked after almost a day of trying.
    """

    attempts: int = 30
    first: float = 15.0
    longest: float = 3_600.0

    def pause(self, attempt: int, asked: float | None) -> float | None:
        """Seconds until the next attempt after this one (from 1 on); None where it was the last."""
        if attempt >= self.attempts:
            return None
        if asked is not None:
            return min(asked, 86_400.0)
        return min(self.first * 2.0 ** min(attempt - 1, 32), self.longest)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One message that was tried. ``retry_after`` are seconds; None for one that was sent, or is parked."""

    message: Message
    outcome: Sent | Refused
    retry_after: float | None = None

    @property
    def status(self) -> Literal["sent", "already there", "waiting", "parked"]:
        """What became of the message."""
        if isinstance(self.outcome, Sent):
            return "already there" if self.outcome.already else "sent"
        return "parked" if self.retry_after is None else "waiting"

    @property
    def reason(self) -> str | None:
        """Why it was not taken."""
        return self.outcome.reason if isinstance(self.outcome, Refused) else None

    @property
    def said(self) -> str:
        """One line for a person."""
        if self.reason is None:
            return self.status
        then = "parked" if self.retry_after is None else f"tried again in {self.retry_after:,.0f} s"
        return f"not taken, attempt {self.message.attempts + 1}, {then}: {self.reason}"


def deliver(sink: Sink, relay: Relay, patience: Patience | None = None) -> Iterator[Attempt]:
    """Send every message whose turn it is; yields each once that is marked.

    Raises :class:`RelayAtWork`, having done nothing, where another process does the same.
    """
    patience = patience or Patience()
    with sink.relaying() as alone:
        if not alone:
            raise RelayAtWork("another process relays the messages of this warehouse. Nothing was sent by this one")
        held: set[str] = set()
        while messages := sink.due(sorted(held)):
            for message in messages:
                if message.topic in held:
                    continue
                attempt = _attempt(sink, relay, patience, message)
                if attempt.retry_after is not None:
                    held.add(message.topic)
                yield attempt


def _attempt(sink: Sink, relay: Relay, patience: Patience, message: Message) -> Attempt:
    outcome = relay.send(message)
    if isinstance(outcome, Sent):
        sink.sent(message)
        return Attempt(message, outcome)
    pause = patience.pause(message.attempts + 1, outcome.retry_after)
    sink.unsent(message, outcome.reason, pause)
    return Attempt(message, outcome, pause)
