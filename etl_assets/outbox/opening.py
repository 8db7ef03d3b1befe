"""Which way out a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from etl_assets.errors import RelayUnavailable
from etl_assets.outbox.relay import Relay
from etl_assets.settings import RELAY


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
