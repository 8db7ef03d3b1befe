"""What of a relay's URL may be shown: where it leads, and nothing that lets in."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from urllib.parse import quote, unquote, urlsplit

#: Stands for what is not shown.
HIDDEN = "…"
#: A shorter part of a path is no secret, and would be found in the middle of words.
_SHORTEST = 6
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,15}")
_PLACE = re.compile(r"[A-Za-z0-9.,:_\[\]-]+")


def shown(url: str) -> str:
    """Return scheme and host of a URL; without name, password, path and query, any of which may be a secret."""
    scheme, separator, rest = url.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return "what is set"
    place = re.split(r"[/?#]", rest, maxsplit=1)[0].rpartition("@")[2]
    return f"{scheme}://{place if _PLACE.fullmatch(place) and '@' not in rest.partition(place)[2] else HIDDEN}"


class Mask:
    """Hides given texts wherever they turn up: in an exception of a library, in what a receiver answers."""

    def __init__(self, texts: Iterable[str]) -> None:
        spellings = {
            one
            for text in texts
            if text
            for one in (text, unquote(text), quote(text, safe=""), quote(text), text.lower())
        }
        self._hidden = sorted(spellings, key=len, reverse=True)
        #: Characters of the longest of them: a text that is cut may end in the middle of one.
        self.longest = max(map(len, self._hidden), default=0)

    def __call__(self, text: str) -> str:
        for hidden in self._hidden:
            text = text.replace(hidden, HIDDEN)
        return text


def mask_of(url: str) -> Mask:
    """Return the mask of an HTTP URL: its name and password, also as a header would say them, and its path."""
    parts = urlsplit(url)
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    login = [f"{user}:{password}", base64.b64encode(f"{user}:{password}".encode()).decode()] if user or password else []
    given = parts.netloc.rpartition("@")[0]
    path = parts.path.strip("/")
    pieces = [piece for piece in (path, *path.split("/"), user) if len(piece) >= _SHORTEST]
    return Mask([given, *login, password, f"/{path}/" if path else "", *pieces])
