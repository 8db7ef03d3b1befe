"""The contract's pattern of paths: which partition, shard and name a path stands for."""

from __future__ import annotations

import dataclasses
import functools
import re
import unicodedata
from collections.abc import Sequence

from etl_assets.contract import ShardedPartitions, StaticPartitions
from etl_assets.contract.partitions import Partitions
from etl_assets.landing.names import landing_segment

#: What a placeholder takes where it is no key of the contract.
_ANY = ".+?"


@dataclasses.dataclass(frozen=True, slots=True)
class Place:
    """How far a path has been matched: its partition key (and shard) if that is known, and the name that is left of it.

    A name is what stands below the pattern's first wildcard, without the folders of the partition and the shard;
    ``bare`` is the same without their keys.
    """

    folder: str
    keys: dict[str, str] = dataclasses.field(default_factory=dict)
    name: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()

    def literal(self, segment: str) -> Place:
        """The folder of this very name, one further on."""
        folder = f"{self.folder.rstrip('/')}/{segment}"
        if not self.keys and not self.name:
            return Place(folder, self.keys)
        return Place(folder, self.keys, (*self.name, segment), (*self.bare, segment))


class Pattern:
    """A contract's pattern below the root of the landing, for the keys of its partitions."""

    def __init__(self, text: str, partitions: Partitions) -> None:
        self.text, self.partitions = text, partitions
        names = partitions.names if isinstance(partitions, StaticPartitions) else ()
        shards = partitions.shards if isinstance(partitions, ShardedPartitions) else ()
        self._keys = {landing_segment(name): name for name in (*names, *shards)}
        #: The scope of files under a pattern that names none: that of the only partition.
        self._only = names[0] if names else ""
        #: What the keys of the contract look like; a name that fits it is not read in any other way.
        self._forms = {"partition": _key_form(partitions), "shard": _one_of(shards)}

    def filled(self, scope: str | None) -> str:
        """The pattern with the keys of a scope in it, if it is one scope's."""
        below = self.text
        for name, value in self.split(scope).items() if scope is not None else ():
            below = below.replace(f"{{{name}}}", landing_segment(value))
        return below

    def split(self, scope: str) -> dict[str, str]:
        """What of a scope stands for each placeholder of the pattern."""
        if isinstance(self.partitions, ShardedPartitions):
            return dict(zip(("partition", "shard"), self.partitions.split(scope), strict=True))
        return {"partition": scope}

    def scope(self, place: Place) -> str:
        """The scope of a file that is matched."""
        if isinstance(self.partitions, ShardedPartitions):
            return self.partitions.join(place.keys["partition"], place.keys["shard"])
        return place.keys.get("partition", self._only)

    def step(self, place: Place, segment: str, path: str, base: str, ending: str = "") -> Place | None:
        """The place one folder or file further on, or None when its name does not fit the segment."""
        text = base.removesuffix(ending)
        for regex in self._expressions(place, segment):
            if match := regex.fullmatch(text):
                break
        else:
            return None
        found = match.groupdict()
        keys = place.keys | {name: self._keys.get(key, key) for name, key in found.items()} if found else place.keys
        spans = sorted(match.span(group) for group in range(1, regex.groups + 1)) if regex.groups else ()
        # Names are compared across partitions too (as releases), so the partition's key is taken out of them.
        bare = _without(base, spans) if spans else base
        return Place(path, keys, (*place.name, base), (*place.bare, bare))

    def nearly_fits(self, place: Place, segment: str, base: str, wanted: dict[str, str]) -> bool:
        """Return whether a name that does not fit a segment does so in another case or Unicode form."""
        known = {name: re.escape(folded(landing_segment(key))) for name, key in (place.keys | wanted).items()}
        form = tuple(({"partition": _ANY, "shard": _ANY} | known).items())
        return _loose(folded(segment), form).fullmatch(folded(base)) is not None

    def _expressions(self, place: Place, segment: str) -> tuple[re.Pattern[str], ...]:
        """What a name must match, in order; of what stands in the segment only, so that partitions share an expression."""
        here = _placeholders(segment)
        if not here:
            return _regexes(segment, (), ())
        known = tuple((name, re.escape(landing_segment(place.keys[name]))) for name in here if name in place.keys)
        return _regexes(segment, tuple((name, self._forms[name]) for name in here), known)


@functools.lru_cache(maxsize=4096)
def _loose(segment: str, forms: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    return _regex(segment, dict(forms))


def is_pattern(segment: str) -> bool:
    """Whether a segment has a placeholder or a wildcard, and may fit names other than itself."""
    return any(mark in segment for mark in ("{partition}", "{shard}", "*", "?"))


@functools.lru_cache(maxsize=256)
def _placeholders(segment: str) -> tuple[str, ...]:
    return tuple(name for name in ("partition", "shard") if f"{{{name}}}" in segment)


def _key_form(partitions: Partitions) -> str:
    """A regular expression for the keys of the contract, as they stand in paths."""
    if isinstance(partitions, StaticPartitions):
        return _one_of(partitions.names)
    if isinstance(partitions, ShardedPartitions):
        return _key_form(partitions.arrival)
    day = "[0-9]{4}-[0-9]{2}-[0-9]{2}"
    return rf"{day}-[0-9]{{2}}:[0-9]{{2}}(?:[+-][0-9]{{4}})?" if partitions.cadence == "hourly" else day


def _one_of(names: Sequence[str]) -> str:
    return "|".join(re.escape(landing_segment(name)) for name in sorted(names, key=len, reverse=True))


@functools.lru_cache(maxsize=4096)
def _regexes(
    segment: str, forms: tuple[tuple[str, str], ...], known: tuple[tuple[str, str], ...]
) -> tuple[re.Pattern[str], ...]:
    """What a name must match: with the keys that are known and keys of the contract (``forms``), else with any."""
    keys = dict(forms) | dict(known)
    if len(known) == len(keys):
        return (_regex(segment, keys),)
    return (_regex(segment, keys), _regex(segment, dict.fromkeys(keys, _ANY) | dict(known)))


def _regex(segment: str, forms: dict[str, str]) -> re.Pattern[str]:
    """A segment as a regular expression that takes no more than a few walks through a name, however hostile that is.

    What stands between two wildcards is looked for once, from left to right. Only a key that may be read in several ways,
    or that stands in the segment again, is tried in other places.
    """
    seen: set[str] = set()
    units = segment.split("*")
    parts = [_unit(unit, forms, seen) for unit in units]
    for number, unit in enumerate(units):
        wild = ".*?" if number else ""
        names = re.findall(r"\{(partition|shard)\}", unit)
        again = any(f"{{{name}}}" in "*".join(units[number + 1 :]) for name in names)
        once = number < len(units) - 1 and not again and all(forms[name] == _ANY for name in names)
        parts[number] = f"(?>{wild}{parts[number]})" if once else wild + parts[number]
    return re.compile("".join(parts), re.DOTALL)


def _unit(unit: str, forms: dict[str, str], seen: set[str]) -> str:
    parts = []
    for piece in re.split(r"(\{partition\}|\{shard\}|\?)", unit):
        match piece:
            case "{partition}" | "{shard}":
                name = piece[1:-1]
                parts.append(f"((?P={name}))" if name in seen else f"(?P<{name}>{forms[name]})")
                seen.add(name)
            case "?":
                parts.append(".")
            case _:
                parts.append(re.escape(piece))
    return "".join(parts)


def folded(text: str) -> str:
    """Return a name in one case and one Unicode form."""
    return unicodedata.normalize("NFC", text).casefold()


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text
