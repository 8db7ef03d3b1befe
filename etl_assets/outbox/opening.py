"""Which way out a URL names."""

from __future__ import annotations

from urllib.parse import urlsplit

from etl_assets.errors import RelayUnavailable
from etl_assets.outbox.masking import shown
from etl_assets.outbox.relay import Relay
from etl_assets.settings import RELAY


def open_relay(url: str | None) -> Relay:
    """Return the relay for ``ETL_RELAY``: ``http://…``, ``https://…`` or ``kafka://host:port,host:port?option=value``.

    Raises :class:`RelayUnavailable`.
    """
    if not url:
        raise RelayUnavailable(
            f"no relay is set, so messages wait. Set {RELAY}, as https://host/path or kafka://host:port,host:port"
        )
    scheme = url.partition("://")[0]
    if scheme in ("http", "https") and _host(url) and not {"?", "#"} & set(url):
        from etl_assets.outbox.http import HttpRelay

        return HttpRelay(url)
    if scheme == "kafka":
        from etl_assets.outbox.kafka import KafkaRelay
        from etl_assets.outbox.kafka_options import servers_and_options

        servers, options = servers_and_options(url)
        return KafkaRelay(servers, options=options)
    raise RelayUnavailable(
        f"no relay for {shown(url)} ({RELAY}): wanted https://host/path without a query, or kafka://host:port,host:port"
    )


def _host(url: str) -> str | None:
    try:
        parts = urlsplit(url)
        return parts.hostname if parts.port != 0 else None
    except ValueError:
        return None
