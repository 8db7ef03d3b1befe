"""Formats of dates and timestamps: what a text says by ``strptime``'s directives, exactly or not at all. No I/O.

Python's own ``strptime`` takes more than the format says (``1`` for ``%d``, ``PM`` beside ``%H``), fills in what the format
leaves open (1900, midnight), and depends on locale and zone of the machine. Here a text is a value only if the format
writes it again to the character, names of months and days are English, and a format has to name a day.
"""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Callable

_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
           "December")  # fmt: skip
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def _offset(moment: dt.datetime, between: str) -> str:
    minutes = int((moment.utcoffset() or dt.timedelta(0)).total_seconds()) // 60
    return f"{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}{between}{abs(minutes) % 60:02}"


#: What each directive looks like, and how it is written.
_DIRECTIVES: dict[str, tuple[str, Callable[[dt.datetime], str]]] = {
    "Y": ("[0-9]{4}", lambda m: f"{m.year:04}"),
    "y": ("[0-9]{2}", lambda m: f"{m.year % 100:02}"),
    "m": ("[0-9]{2}", lambda m: f"{m.month:02}"),
    "b": ("|".join(name[:3] for name in _MONTHS), lambda m: _MONTHS[m.month - 1][:3]),
    "B": ("|".join(_MONTHS), lambda m: _MONTHS[m.month - 1]),
    "d": ("[0-9]{2}", lambda m: f"{m.day:02}"),
    "j": ("[0-9]{3}", lambda m: f"{m.timetuple().tm_yday:03}"),
    "a": ("|".join(name[:3] for name in _DAYS), lambda m: _DAYS[m.weekday()][:3]),
    "A": ("|".join(_DAYS), lambda m: _DAYS[m.weekday()]),
    "u": ("[1-7]", lambda m: str(m.isoweekday())),
    "w": ("[0-6]", lambda m: str(m.isoweekday() % 7)),
    "G": ("[0-9]{4}", lambda m: f"{m.isocalendar().year:04}"),
    "V": ("[0-9]{2}", lambda m: f"{m.isocalendar().week:02}"),
    "H": ("[0-9]{2}", lambda m: f"{m.hour:02}"),
    "I": ("[0-9]{2}", lambda m: f"{(m.hour - 1) % 12 + 1:02}"),
    "p": ("AM|PM", lambda m: "PM" if m.hour >= 12 else "AM"),
    "M": ("[0-9]{2}", lambda m: f"{m.minute:02}"),
    "S": ("[0-9]{2}", lambda m: f"{m.second:02}"),
    "f": ("[0-9]{6}", lambda m: f"{m.microsecond:06}"),
    "z": ("[+-][0-9]{4}", lambda m: _offset(m, "")),
    ":z": ("[+-][0-9]{2}:[0-9]{2}", lambda m: _offset(m, ":")),
}

#: Directives of Python's that are refused, with the reason.
_REFUSED = {
    "Z": "the name of a zone says no offset, and Python knows only those of the machine: write the name out, as in "
    "'%H:%M UTC', and declare timezone=",
    "c": "it depends on the machine's locale: write the directives out",
    "x": "it depends on the machine's locale: write the directives out",
    "X": "it depends on the machine's locale: write the directives out",
    "U": "weeks are read as %G, %V and %u",
    "W": "weeks are read as %G, %V and %u",
}


def check_format(form: str, timestamp: bool, zone: bool) -> None:
    """Raise ``ValueError`` where no text of a format can name a day, or for a ``timestamp`` an instant.

    ``zone`` tells whether the column declares the zone of values without an offset.
    """
    parts = _parts(form)
    names = [name for name, is_directive in parts if is_directive]
    if not names:
        raise ValueError("it has no directive of strptime, such as %Y-%m-%d")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice:
        raise ValueError(f"%{twice} stands in it twice")
    has = set(names)
    if {"H", "I"} <= has or ("H" in has and "p" in has):
        raise ValueError("%I and %p say nothing beside %H: 24 hours are %H alone, and 12 hours are %I with %p")
    if ("I" in has) != ("p" in has):
        raise ValueError("%I without %p is half an hour of the day, and %p without %I none: write both, or %H")
    if not (has & {"Y", "y"} or {"G", "V"} <= has):
        raise ValueError("it does not say the year: write %Y (or %G and %V with a day of the week)")
    by_month = has & {"m", "b", "B"} and "d" in has
    if not ((has & {"Y", "y"} and (by_month or "j" in has)) or ({"G", "V"} <= has and has & {"u", "w", "a", "A"})):
        raise ValueError("it does not say the day: write %m and %d, or %j, or %G, %V and %u")
    for finer, coarser in (("f", "S"), ("S", "M"), ("M", "H")):
        if finer in has and not (coarser in has or (coarser == "H" and "I" in has)):
            raise ValueError(f"%{finer} says nothing without %{coarser}")
    offsets = has & {"z", ":z"}
    if len(offsets) > 1:
        raise ValueError("%z and %:z say the same")
    if offsets and not timestamp:
        raise ValueError(f"a date has no offset, which is what %{offsets.pop()} says")
    if timestamp and not offsets and not zone:
        raise ValueError("it says no offset, so that no text of it is an instant: declare the column's timezone")


def read(form: str, text: str, thousandths: bool = False) -> dt.datetime:
    """The time that a text says by a format, aware where it says an offset. Raises ``ValueError`` where it says none.

    With ``thousandths``, ``%f`` may be three digits, too.
    """
    pattern, names = _compiled(form, thousandths)
    found = pattern.fullmatch(text)
    if not found:
        raise ValueError
    said = dict(zip(names, found.groups(), strict=True))
    moment = _moment(said)
    for name, part in said.items():
        again = _DIRECTIVES[name][1](moment)
        if again != part and not (name == "f" and again == part + "000"):
            raise ValueError(f"%{name} would be {again}")
    return moment


def _moment(said: dict[str, str]) -> dt.datetime:
    """The time of what the directives say; where two say the same in other words, that of one of them."""
    if "G" in said and "V" in said and not ({"Y", "y"} & said.keys()):
        day = dt.date.fromisocalendar(int(said["G"]), int(said["V"]), _weekday(said))
    else:
        year = int(said["Y"]) if "Y" in said else _century(int(said["y"]))
        if "d" in said and {"m", "b", "B"} & said.keys():
            day = dt.date(year, _month(said), int(said["d"]))
        else:
            number = int(said["j"])
            day = dt.date(year, 1, 1) + dt.timedelta(days=number - 1)
    hour = int(said.get("H", "0"))
    if "I" in said:
        hour = int(said["I"]) % 12 + (12 if said["p"] == "PM" else 0)
    minute, second, fraction = (int(said.get(name, "0").ljust(6 if name == "f" else 1, "0")) for name in "MSf")
    offset = said.get("z", said.get(":z"))
    return dt.datetime(day.year, day.month, day.day, hour, minute, second, fraction, _zone(offset) if offset else None)


def _century(year: int) -> int:
    """Two digits are 1969 to 2068, as POSIX has it."""
    return year + (1900 if year >= 69 else 2000)


def _month(said: dict[str, str]) -> int:
    if "m" in said:
        return int(said["m"])
    return next(n for n, name in enumerate(_MONTHS, start=1) if said.get("B", said.get("b")) in (name, name[:3]))


def _weekday(said: dict[str, str]) -> int:
    if "u" in said:
        return int(said["u"])
    if "w" in said:
        return int(said["w"]) or 7
    return next(n for n, name in enumerate(_DAYS, start=1) if said.get("A", said.get("a")) in (name, name[:3]))


def _zone(offset: str) -> dt.timezone:
    hours, minutes = int(offset[1:3]), int(offset[-2:])
    if minutes > 59:
        raise ValueError("an offset has at most 59 minutes")
    return dt.timezone((-1 if offset[0] == "-" else 1) * dt.timedelta(hours=hours, minutes=minutes))


@functools.lru_cache(maxsize=256)
def _compiled(form: str, thousandths: bool) -> tuple[re.Pattern[str], tuple[str, ...]]:
    parts = _parts(form)
    texts = []
    for text, is_directive in parts:
        looks = _DIRECTIVES[text][0] if is_directive else ""
        if text == "f" and is_directive and thousandths:
            looks = "[0-9]{6}|[0-9]{3}"
        texts.append(f"({looks})" if is_directive else re.escape(text))
    return re.compile("".join(texts)), tuple(text for text, is_directive in parts if is_directive)


def _parts(form: str) -> list[tuple[str, bool]]:
    """Texts that stand as they are, and directives (True) by their letters."""
    parts: list[tuple[str, bool]] = []
    at = 0
    while at < len(form):
        if form[at] != "%":
            parts.append((form[at], False))
            at += 1
            continue
        name = form[at + 1 : at + 3] if form.startswith(":", at + 1) else form[at + 1 : at + 2]
        if not name:
            raise ValueError("stray %")
        if name in _REFUSED:
            raise ValueError(f"%{name}: {_REFUSED[name]}")
        if name != "%" and name not in _DIRECTIVES:
            raise ValueError(f"{name!r} is a bad directive")
        parts.append((name, name != "%"))
        at += 1 + len(name)
    return parts
