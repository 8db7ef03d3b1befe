"""How partition keys and odd bytes stand in paths."""

from __future__ import annotations


def landing_segment(key: str) -> str:
    """How a partition key stands in a path: percent-encoded only where it could leave its folder or hide."""
    encoded = key.replace("%", "%25").replace("/", "%2F").replace("\\", "%5C")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def is_unicode(text: str) -> bool:
    """Whether a name is text, rather than bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """A name with the bytes that are not UTF-8 written out, so that it can be shown and stored."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
