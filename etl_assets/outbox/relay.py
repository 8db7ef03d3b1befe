"""What any way out promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from etl_assets.model import Message

#: The header of a request or record that holds a message's key.
KEY_HEADER = "Idempotency-Key"
CONTENT_TYPE = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Sent:
    """The receiver has the message."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver did not take the message, or could not be reached; ``retry_after`` are seconds that it asks for.

    ``final`` where the same message can't succeed however often it is sent.
    """

    reason: str
    retry_after: float | None = None
    final: bool = False


class Relay(Protocol):
    """A way out. What it does not report as sent may have been received all the same, and is sent again."""

    def send(self, message: Message) -> Sent | Refused:
        """Send one message and wait for the answer. Does not raise for what the receiver or the network does."""

    def close(self) -> None:
        """Let go of connections; nothing is under way then."""
