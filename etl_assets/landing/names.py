"""Names of deliveries: how they are ordered, and how keys and odd bytes stand in them."""

from __future__ import annotations

import re


def natural_order(name: str) -> str:
    """A text that compares as people order names: ``9.csv`` before ``10.csv``.

    Each run of digits is written with the count of its digits in front, so that plain text comparison, in Python
    and in the database, compares numbers by value. The name itself at the end breaks ties such as 01 and 1.
    """
    parts = []
    for digits, other in re.findall(r"(\d+)|(\D+)", name, flags=re.ASCII):
        number = digits.lstrip("0") or "0"
        parts.append(f"0{len(number):04d}{number}" if digits else other)
    return "".join(parts) + "\x01" + name


def landing_segment(key: str) -> str:
    """How a partition key stands in a path: percent-encoded only where it could leave its folder or hide."""
    encoded = key.replace("%", "%25").replace("/", "%2F").replace("\\", "%5C")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


def is_unicode(text: str) -> bool:
    """Whether a name is text, rather than bytes that are not UTF-8."""
    return not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def printable(text: str) -> str:
    """A name with the bytes that are not UTF-8 written out, so that it can be shown and stored."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
