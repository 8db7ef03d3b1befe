"""Deliver what is due: one message at a time, each sent outside of any transaction and marked in one of its own.

A process that dies between sending and marking leaves the message waiting; it is sent again under the same key, which a
receiver that honours keys answers without taking it twice. Within a topic nothing overtakes: what is to be tried again
holds up what comes after it, until it is sent or parked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from etl_assets.errors import RelayAtWork
from etl_assets.model import Message
from etl_assets.outbox.relay import Refused, Relay, Sent
from etl_assets.sink import Sink


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a message is tried before it is parked, and how long to wait in between, in seconds.

    The pause doubles from ``first`` to ``longest``. A receiver that asks for a longer one is obeyed, up to a day. One that
    asks for a shorter one is obeyed after each of the first ``hurried`` attempts, so that it doesn't use all of them up.
    With the defaults a message is parked after almost a day of trying.
    """

    attempts: int = 30
    first: float = 15.0
    longest: float = 3_600.0
    hurried: int = 5

    def pause(self, attempt: int, asked: float | None) -> float | None:
        """Return the seconds until the next attempt after this one (from 1 on); None where it was the last."""
        if attempt >= self.attempts:
            return None
        own = min(self.first * 2.0 ** min(attempt - 1, 32), self.longest)
        if asked is None or (asked < own and attempt > self.hurried):
            return own
        return min(asked, 86_400.0)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One message that was tried. ``status`` is the ledger's afterwards; ``retry_after`` are seconds, where it is tried again.

    A message that someone discards while it is on its way stays discarded, also where the receiver took it.
    """

    message: Message
    outcome: Sent | Refused
    status: str
    retry_after: float | None = None

    @property
    def reason(self) -> str | None:
        """Why it was not taken."""
        return self.outcome.reason if isinstance(self.outcome, Refused) else None

    @property
    def said(self) -> str:
        """One line for a person."""
        if self.reason is None:
            return (
                "sent" if self.status == "sent" else f"sent, though someone decided meanwhile that it is {self.status}"
            )
        then = "parked" if self.retry_after is None else f"tried again in {self.retry_after:,.0f} s"
        if self.status != ("parked" if self.retry_after is None else "waiting"):
            then = f"{'released' if self.status == 'waiting' else self.status} meanwhile"
        return f"not taken, attempt {self.message.attempts + 1}, {then}: {self.reason}"


def deliver(sink: Sink, relay: Relay, patience: Patience | None = None) -> Iterator[Attempt]:
    """Send every message whose turn it is; yields each once that is marked.

    Raises :class:`RelayAtWork` where another process does the same, or where the warehouse is replaced meanwhile.
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
                if not sink.relays():
                    raise RelayAtWork(
                        "the warehouse was replaced while its messages were relayed. Nothing more was sent by this process; "
                        "relay again"
                    )
                if not sink.waits(message):
                    continue
                attempt = _attempt(sink, relay, patience, message)
                if attempt.status == "waiting":
                    held.add(message.topic)
                yield attempt


def _attempt(sink: Sink, relay: Relay, patience: Patience, message: Message) -> Attempt:
    outcome = relay.send(message)
    if isinstance(outcome, Sent):
        return Attempt(message, outcome, sink.sent(message))
    pause = None if outcome.final else patience.pause(message.attempts + 1, outcome.retry_after)
    return Attempt(message, outcome, sink.unsent(message, outcome.reason, pause), pause)
