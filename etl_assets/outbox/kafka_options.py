"""The settings of a producer, from a relay's URL and the properties file that it names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote

from etl_assets.errors import RelayUnavailable
from etl_assets.outbox.masking import shown
from etl_assets.settings import RELAY

PROPERTIES = "properties"
#: What may be set: how brokers are reached, and how bytes travel. The rest decides what "sent" means, and is ours.
_GROUPS = ("sasl.", "ssl.", "socket.", "reconnect.", "compression.", "broker.", "metadata.", "topic.metadata.")
_SINGLE = frozenset(
    (
        *("security.protocol", "enable.ssl.certificate.verification", "client.id", "client.rack", "client.dns.lookup"),
        *("message.max.bytes", "request.timeout.ms", "connections.max.idle.ms", "retry.backoff.ms"),
        *("retry.backoff.max.ms", "api.version.request", "api.version.request.timeout.ms", "api.version.fallback.ms"),
        *("https.ca.location", "https.ca.pem", "allow.auto.create.topics"),
    )
)
_SECRET = re.compile(r"password|secret|\.key|pem|token|jaas|oauthbearer\.config|username|cmd")
_SERVER = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")


def servers_and_options(url: str) -> tuple[str, dict[str, str]]:
    """Return the servers and the producer's settings of ``kafka://host:port,host:port?option=value&properties=/path/of/a/file``.

    Raises :class:`RelayUnavailable` naming the option, and never its value.
    """
    rest = url.partition("://")[2]
    place, _, query = rest.partition("?")
    servers = place.rstrip("/")
    if "@" in servers:
        raise RelayUnavailable(
            f"{shown(url)}: a name and a password in front of the servers are not read ({RELAY}). Give them as sasl.username and "
            f"sasl.password, best in a file that {PROPERTIES}=/path names"
        )
    if "#" in rest or not all(_SERVER.fullmatch(server) for server in servers.split(",")):
        raise RelayUnavailable(
            f"no relay for {shown(url)} ({RELAY}): wanted kafka://host:port,host:port?option=value&option=value, "
            "with %23 for a # and %26 for an & in a value"
        )
    found: dict[str, str] = {}
    for name, value in _of_query(url, query):
        if name in found:
            raise RelayUnavailable(f"{shown(url)}: the option {_named(name)} is set twice ({RELAY})")
        found[name] = value
    file = found.pop(PROPERTIES, None)
    if file is not None:
        for name, value in _of_file(Path(file)):
            if name in found:
                raise RelayUnavailable(f"{file}: the option {_named(name)} is set twice, there or in {RELAY}")
            found[name] = value
    for name in found:
        if not (name in _SINGLE or name.startswith(_GROUPS)):
            raise RelayUnavailable(
                f"{shown(url)}: the option {_named(name)} is not one that the relay takes ({RELAY}). It takes librdkafka's "
                f"{', '.join(f'{g}*' for g in _GROUPS)}, {', '.join(sorted(_SINGLE))}; and {PROPERTIES}=/path of a file with them"
            )
    _check_protocol(url, found)
    return servers, found


def _check_protocol(url: str, options: Mapping[str, str]) -> None:
    """Refuse options that the protocol ignores: who sets a password or a certificate doesn't mean to speak in the clear."""
    protocol = options.get("security.protocol", "PLAINTEXT").upper()
    for name in options:
        wanted = "SASL" if name.startswith("sasl.") else "SSL" if name.startswith(("ssl.", "enable.ssl.")) else ""
        if wanted not in protocol.split("_") and wanted:
            raise RelayUnavailable(
                f"{shown(url)}: the option {name!r} has no effect with security.protocol={protocol}, so nothing is sent. "
                f"Set security.protocol=SASL_SSL, or another that is right ({RELAY})"
            )


def secrets_of(options: Mapping[str, str]) -> list[str]:
    """Return the values that must not be shown."""
    return [
        value for name, value in options.items() if _SECRET.search(name) and not name.endswith((".location", ".type"))
    ]


def _named(name: str) -> str:
    """A name as it may be shown: what isn't one may be a value in the wrong place."""
    return repr(name) if re.fullmatch(r"[A-Za-z][A-Za-z._-]{0,60}", name) else "with an unreadable name"


def _of_query(url: str, query: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, query.split("&")):
        name, equals, value = part.partition("=")
        if not equals or not value:
            raise RelayUnavailable(f"{shown(url)}: the option {_named(name)} has no value ({RELAY})")
        yield unquote(name), unquote(value)


def _of_file(file: Path) -> Iterator[tuple[str, str]]:
    """The lines ``name=value``; blank ones and comments are passed over. Values are taken as they are."""
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except (OSError, ValueError) as error:
        kind = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RelayUnavailable(f"{file}: {kind}. {RELAY} names it as the file of the relay's options") from error
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not value.strip():
            raise RelayUnavailable(f"{file}, line {number}: wanted name=value")
        yield name.strip(), value.lstrip()
