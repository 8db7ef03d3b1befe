"""What any way out promises, and which one a URL names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit

from etl_assets.errors import RelayUnavailable
from etl_assets.model import Message
from etl_assets.settings import RELAY

#: The header of a request or record that holds a message's key.
KEY_HEADER = "Idempotency-Key"
CONTENT_TYPE = "application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Sent:
    """The receiver has the message; ``already`` where it says that it had it before."""

    already: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The receiver did not take the message, or could not be reached; ``retry_after`` are seconds that it asks for."""

    reason: str
    retry_after: float | None = None


class Relay(Protocol):
    """A way out. What it does not report as sent may have been received all the same, and is sent again."""

    def send(self, message: Message) -> Sent | Refused:
        """Send one message and wait for the answer. Does not raise for what the receiver or the network does."""

    def close(self) -> None:
        """Let go of connections; nothing is under way then."""


def open_relay(url: str | None) -> Relay:
    """The relay for ``ETL_RELAY``: ``http://…``, ``https://…`` or ``kafka://host:port,host:port``.

    Raises :class:`RelayUnavailable`.
    """
    if not url:
        raise RelayUnavailable(
            f"no relay is set, so messages wait. Set {RELAY}, as https://host/path or kafka://host:port,host:port"
        )
    scheme, separator, rest = url.partition("://")
    if separator and scheme in ("http", "https") and _host(url) and not {"?", "#"} & set(url):
        from etl_assets.outbox.http import HttpRelay

        return HttpRelay(url)
    if separator and scheme == "kafka" and rest.strip("/,"):
        from etl_assets.outbox.kafka import KafkaRelay

        return KafkaRelay(rest.strip("/"))
    shown = f"{scheme}://…" if separator else repr(url)  # it may hold a password
    raise RelayUnavailable(
        f"no relay for {shown} ({RELAY}): wanted https://host/path without a query, or kafka://host:port,host:port"
    )


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.port != 0 else None
    except ValueError:
        return None
