"""Names of deliveries are data: in which order they stand, which of two is the later one, and how they are shown.

Belongs here: what can be read off a name. Does not belong here: where files lie, and what the ledger has of them.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

#: The end of a folder or a stem in an order, and the end of the part that is compared; lower than all that stands before.
_END, _TAIL = "\x01", "\x02"
_PACKED = re.compile(r"\.(?:gz|gzip|bz2|xz|zst|zip)$")
#: ``.csv``, but neither ``.v2`` nor ``.1``.
_EXTENSION = re.compile(r"\.[a-z]{2,8}$")
_TOKEN = re.compile(r"[0-9]+|[^\W\d_]+|.", re.DOTALL)
#: A longer name is later, unless it tells that it is the one from before.
_EARLIER = frozenset({"archive", "archived", "backup", "bak", "before", "old", "orig", "original", "prev", "previous"})

_DAY, _YEAR = "(?:0?[1-9]|[12][0-9]|3[01])", "(?:199|20[0-9])[0-9]"
_MONTH = r"[^\W\d_]{3,9}"
#: Dates whose year comes last: their first number says nothing of which is the later one.
_YEAR_LAST = re.compile(
    rf"(?<![0-9])(?<![0-9]{{4}}[-_. ])(?:{_DAY}([-_. ])(?:{_DAY}|{_MONTH})\1|{_DAY}{_MONTH}"
    rf"|(?:0[1-9]|[12][0-9]|3[01]){{2}})(?={_YEAR}(?![0-9]))"
)
_YEAR_FIRST = re.compile(rf"{_YEAR}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])")
_HALF_OF_A_DAY = re.compile(r"(?:[0-9]{1,2}[-_.: ]?){1,3}[ap]m(?![a-z])")
_RANDOM = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")


class _Token(NamedTuple):
    """A number, a word or a single other character, and where it begins."""

    text: str
    start: int

    @property
    def is_number(self) -> bool:
        return self.text.isascii() and self.text.isdigit()

    @property
    def is_word(self) -> bool:
        return self.text.isalpha()

    @property
    def is_letter(self) -> bool:
        return len(self.text) == 1 and self.text.isascii() and self.text.isalpha()


@functools.lru_cache(maxsize=4096)
def natural_order(name: str) -> str:
    """Return a text that compares as people order names: ``9.csv`` before ``10.csv``, ``a.csv`` before ``a-2.csv``.

    Names are compared folder by folder, the last one without its extension, in one case and one Unicode form. Each run
    of digits is written with the count of its digits in front, so that plain text comparison, in Python and in the
    database, compares numbers by value. The name itself at the end breaks ties such as 01 and 1.
    """
    return "".join(_key(stem) + _END for stem in _stems(name)) + _TAIL + name


def is_later(order: str, other: str) -> bool | None:
    """Return whether the name of the first order is the later one of two; None where they do not tell.

    A name that goes on where the other one's stem ends is later, and so is the larger of two numbers or the next of two
    letters at the first place where they differ. Two words, or a number and a word, say nothing.
    """
    one, two = (_stems(text.split(_TAIL, 1)[1]) for text in (order, other))
    for mine, theirs in zip(one, two, strict=False):
        if _key(mine) != _key(theirs):
            return _stem_is_later(mine, theirs)
    return None


def shown(text: str) -> str:
    """Return a text as it may be shown: characters that a terminal would obey, or not show, are written out."""
    return "".join(c if c.isprintable() else _written_out(c) for c in text)


def _written_out(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


# ------------------------------------------------------------------ order


def _stems(name: str) -> list[str]:
    """The folders of a name and its stem, in one case and one Unicode form."""
    *folders, last = unicodedata.normalize("NFC", name).casefold().split("/")
    stem = _EXTENSION.sub("", _PACKED.sub("", last))
    return [*folders, stem]


def _tokens(stem: str) -> list[_Token]:
    return [_Token(match[0], match.start()) for match in _TOKEN.finditer(stem)]


def _key(stem: str) -> str:
    return "".join(
        _number(token.text) if token.is_number else re.sub("[\x00-\x02]", "\x03", token.text) for token in _tokens(stem)
    )


def _number(digits: str) -> str:
    value = digits.lstrip("0") or "0"
    return f"0{len(value):04d}{value}"


def _stem_is_later(mine: str, theirs: str) -> bool | None:
    """Whether the first of two stems that differ is the later one, by the first place where they do."""
    one, two = _tokens(mine), _tokens(theirs)
    for place, (a, b) in enumerate(zip(one, two, strict=False)):
        if a.text == b.text or (a.is_number and b.is_number and _number(a.text) == _number(b.text)):
            continue
        if _is_within(_RANDOM, mine, a.start) or _is_within(_RANDOM, theirs, b.start):
            return None
        if a.is_number and b.is_number:
            return _number_is_later(mine, theirs, place)
        if a.is_letter and b.is_letter:
            return a.text > b.text
        if a.is_word and b.is_word:
            return _word_goes_on(one[place:], two[place:])
        return None
    return _goes_on(one, two)


def _goes_on(one: list[_Token], two: list[_Token]) -> bool | None:
    """Of two names of which one ends where the other goes on, whether the first is the longer one."""
    rest = one[len(two) :] or two[len(one) :]
    return None if _EARLIER & {token.text for token in rest} else len(one) > len(two)


def _word_goes_on(one: list[_Token], two: list[_Token]) -> bool | None:
    """Of two names that differ in a word, whether one goes on within it where the other one ends."""
    for short, long, verdict in ((one, two, False), (two, one, True)):
        word, longer = short[0].text, long[0].text
        if len(short) == 1 and longer.startswith(word):
            rest = {longer.removeprefix(word), *(token.text for token in long[1:])}
            return None if _EARLIER & rest else verdict
    return None


def _number_is_later(mine: str, theirs: str, place: int) -> bool | None:
    """Of two names that differ first in a number, whether the first has the larger one; None where that is no order."""
    one, two = _tokens(mine), _tokens(theirs)
    a, b = one[place], two[place]
    for stem, token in ((mine, a), (theirs, b)):
        if _is_within(_YEAR_LAST, stem, token.start) or _is_within(_HALF_OF_A_DAY, stem, token.start):
            return None
    # Letters among digits are a checksum more often than an order: 7f3a and 8b2c.
    words = [pair for pair in zip(_glued(one, place), _glued(two, place), strict=False) if pair[0].text != pair[1].text]
    if any(not (x.is_letter and y.is_letter) for x, y in words) or len(words) > 1:
        return None
    if len(a.text) != len(b.text) and _YEAR_FIRST.match(a.text) and _YEAR_FIRST.match(b.text):
        # A date, and a date with a time.
        shorter = min(len(a.text), len(b.text))
        if (a.text[:shorter] > b.text[:shorter]) != (_number(a.text) > _number(b.text)):
            return None if a.text[:shorter] != b.text[:shorter] else len(a.text) > len(b.text)
    return _number(a.text) > _number(b.text)


def _glued(tokens: list[_Token], place: int) -> list[_Token]:
    """The words that follow a number without anything between them."""
    found = []
    for token in tokens[place + 1 :]:
        if not (token.is_word or token.is_number):
            break
        if token.is_word:
            found.append(token)
    return found


def _is_within(pattern: re.Pattern[str], stem: str, start: int) -> bool:
    return any(match.start() <= start < match.end() for match in pattern.finditer(stem))
