"""Landing: find deliveries, order them, and tell missing from arriving from unreachable.

Belongs here: path patterns, listing, the natural order of names, copying bytes out while they hold still. Does not
belong here: what is in a file. Paths are ``universal-pathlib`` paths, so a folder and a bucket are read alike.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import functools
import hashlib
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from upath import UPath

from etl_assets.contract import DeliveredTable, ShardedPartitions, StaticPartitions
from etl_assets.contract.partitions import Partitions
from etl_assets.errors import EtlError, LandingUnreachable, StagingFailed, StillArriving
from etl_assets.model import Arrival, Delivery, Fetched

#: Names under which tools write before they rename; what stands before the suffix is the delivery to come.
ARRIVING_SUFFIXES = (".part", ".partial", ".tmp", ".filepart", ".crdownload", ".uploading")
CHUNK = 1 << 20

#: A sensor looks every half minute; a landing that was copied or restored has new stamps on old bytes.
REMEMBERED = 100_000
_DIGESTS: dict[tuple[str, str], str] = {}


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


class Landing:
    """The landing place of one pipeline: a folder or bucket prefix, and the contract's pattern below it."""

    def __init__(self, root: str, pipeline: DeliveredTable) -> None:
        try:
            self.root = UPath(root)
        except Exception as error:  # an unknown protocol, or one whose package is not installed
            raise LandingUnreachable(f"landing {root} cannot be opened: {error}. Set ETL_LANDING") from error
        self.pipeline = pipeline
        partitions = pipeline.partitions
        names = partitions.names if isinstance(partitions, StaticPartitions) else ()
        shards = partitions.shards if isinstance(partitions, ShardedPartitions) else ()
        self._keys = {landing_segment(name): name for name in (*names, *shards)}
        #: The scope of files under a pattern that names none: that of the only partition.
        self._only = names[0] if names else ""
        #: What the keys of the contract look like; a name that fits it is not read in any other way.
        self._forms = {"partition": _key_form(partitions), "shard": _one_of(shards)}

    def pattern(self, scope: str | None = None) -> str:
        """The full pattern that is searched, for messages."""
        below = self.pipeline.landing
        for name, value in self._split(scope).items() if scope is not None else ():
            below = below.replace(f"{{{name}}}", landing_segment(value))
        return f"{self.root}/{below}"

    def absence(self, scope: str) -> str:
        """Where a delivery was looked for and not found, in words."""
        return f"searched {self.pattern(scope)}, 0 files matched"

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """All files of the pattern, by scope and then in natural order of name, the newest last.

        Files under a partition key that the contract does not have come with ``known=False``. Raises
        :class:`LandingUnreachable` when the root or a folder below it cannot be listed; an absent subfolder is
        merely empty.
        """
        try:
            self._check_root()
            controls: set[str] = set()
            wanted = self._split(scope) if scope is not None else {}
            found = list(self._match(_Place(self.root.path), self.pipeline.landing.split("/"), wanted, controls))
        except LandingUnreachable:
            raise
        except Exception as error:  # each filesystem has its own: botocore, aiohttp, OSError
            raise LandingUnreachable(
                f"landing {self.root} cannot be listed: {type(error).__name__}: {error}. Nothing was changed; "
                "check the path, its permissions and the network"
            ) from error
        suffix = self.pipeline.row_count_file
        if suffix:
            found = [self._with_control(a, suffix, controls) for a in found]
        return sorted(found, key=lambda a: (a.scope, a.order))

    def fetch(self, arrival: Arrival, target: Path) -> Fetched:
        """Copy the bytes of an arrival to ``target``, hashing them on the way.

        Raises :class:`StillArriving` when the file is, or while it was read became, another one than was listed,
        :class:`LandingUnreachable` when it cannot be read, and :class:`StagingFailed` when the copy cannot be written.
        """
        if arrival.arriving:
            raise StillArriving(f"{arrival.path}: {arrival.arriving}; it is read once it is complete")
        digest, size = hashlib.sha256(), 0
        with _reading(arrival.path):
            before = self._stamp(arrival.path)
            with self._open(arrival.path) as source, _Copy(target) as copy:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    copy.write(chunk)
            after = self._stamp(arrival.path)
            declared = self._declared_rows(arrival)
        if not (before == after == arrival.stamp and size == arrival.size):
            raise StillArriving(
                f"{arrival.path} changed while it was read ({arrival.size:,} bytes when listed, {size:,} read); "
                "it is read once it holds still"
            )
        return Fetched(str(target), digest.hexdigest(), size, declared)

    def complete(self, delivery: Delivery, fetched: Fetched, work: Path) -> Fetched:
        """What was fetched is all there is."""
        return fetched

    def sha256(self, arrival: Arrival) -> str:
        """The digest of an arrival's bytes, without keeping them; read once for each stamp of a file."""
        known = _DIGESTS.get((arrival.path, arrival.stamp))
        if known is None:
            digest = hashlib.sha256()
            with _reading(arrival.path), self._open(arrival.path) as source:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
            known = digest.hexdigest()
            if len(_DIGESTS) >= REMEMBERED:
                _DIGESTS.clear()
            _DIGESTS[arrival.path, arrival.stamp] = known
        return known

    # ------------------------------------------------------------------ the filesystem

    def _check_root(self) -> None:
        fs = self.root.fs
        fs.invalidate_cache()
        if fs.isdir(self.root.path):
            return
        # An object store has no folders: a prefix without objects is an empty landing as long as its bucket is there.
        bucket = self.root.path.split("/")[0]
        if self.root.protocol not in ("", "file", "local") and bucket and fs.exists(bucket):
            return
        raise LandingUnreachable(
            f"landing {self.root} does not exist or is not a folder. Nothing was changed; create it, or set ETL_LANDING"
        )

    def _list(self, folder: str) -> list[dict[str, Any]]:
        try:
            return self.root.fs.ls(folder, detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def _split(self, scope: str) -> dict[str, str]:
        """What of a scope stands for each placeholder of the pattern."""
        if isinstance(self.pipeline.partitions, ShardedPartitions):
            return dict(zip(("partition", "shard"), self.pipeline.partitions.split(scope), strict=True))
        return {"partition": scope}

    def _match(
        self, place: _Place, segments: list[str], wanted: dict[str, str], controls: set[str]
    ) -> Iterator[Arrival]:
        """The files below a place that fit the rest of the pattern; ``controls`` collects what control files are for.

        A file has one scope and one name, whether all scopes are listed or its own only, the ``wanted`` one.
        """
        segment, rest = segments[0], segments[1:]
        if rest and not _is_pattern(segment):
            yield from self._match(place.literal(segment), rest, wanted, controls)
            return
        own = segment[1:-1] if segment in ("{partition}", "{shard}") else ""
        if rest and own and wanted:
            # One partition's own folder: what lies beside it is none of its business.
            folder = f"{place.folder.rstrip('/')}/{landing_segment(wanted[own])}"
            inner = dataclasses.replace(place, folder=folder, keys={**place.keys, own: wanted[own]})
            yield from self._match(inner, rest, wanted, controls)
            return
        for entry in self._list(place.folder):
            path = entry["name"].rstrip("/")
            base = path.rsplit("/", 1)[-1]
            # An object store may list the folder itself, as an object of no bytes.
            if base.startswith(".") or path == place.folder.rstrip("/") or (entry["type"] == "directory") == (not rest):
                continue
            if rest:
                step = self._step(place, segment, path, base)
                if step and all(step.keys[name] == wanted.get(name, step.keys[name]) for name in step.keys):
                    if own:
                        step = dataclasses.replace(step, name=place.name, bare=place.bare)
                    yield from self._match(step, rest, wanted, controls)
                continue
            found = self._leaf(place, segment, path, base, controls)
            if found and (not wanted or self._split(self._scope(found[0])) == wanted):
                yield self._arrival(entry, *found)

    def _leaf(
        self, place: _Place, segment: str, path: str, base: str, controls: set[str]
    ) -> tuple[_Place, str | None] | None:
        """The delivery that a file is, and the suffix that says it is being written; None when it is none."""
        suffix = self.pipeline.row_count_file
        waiting = self._waiting(base)
        if suffix and base.removesuffix(waiting or "").endswith(suffix):
            if not waiting:
                controls.add(path.removesuffix(suffix))
            return None
        if base.endswith("~"):
            return None
        for ending in (waiting, None) if waiting else (None,):
            inner = self._step(place, segment, path, base, ending or "")
            if inner:
                return inner, ending
        return None

    def _step(self, place: _Place, segment: str, path: str, base: str, ending: str = "") -> _Place | None:
        """The place one folder or file further on, or None when its name does not fit the segment."""
        text = base.removesuffix(ending)
        known = {name: re.escape(landing_segment(key)) for name, key in place.keys.items()}
        for regex in _regexes(segment, tuple((self._forms | known).items()), tuple(known.items())):
            if match := regex.fullmatch(text):
                break
        else:
            return None
        keys = place.keys | {name: self._keys.get(match[name], match[name]) for name in match.re.groupindex}
        spans = sorted(match.span(group) for group in range(1, match.re.groups + 1))
        # Names are compared across partitions too (as releases), so the partition's key is taken out of them.
        bare = _without(base, spans)
        return _Place(path, keys, (*place.name, base), (*place.bare, bare))

    def _scope(self, place: _Place) -> str:
        if isinstance(self.pipeline.partitions, ShardedPartitions):
            return self.pipeline.partitions.join(place.keys["partition"], place.keys["shard"])
        return place.keys.get("partition", self._only)

    @staticmethod
    def _waiting(base: str) -> str | None:
        return next((suffix for suffix in ARRIVING_SUFFIXES if base.endswith(suffix)), None)

    def _arrival(self, entry: dict[str, Any], place: _Place, waiting: str | None) -> Arrival:
        key = self._scope(place)
        arriving = f"its name says that it is being written ({waiting})" if waiting else None
        if entry["type"] != "file":
            arriving = "it is not a regular file (a pipe, a device, or a link that leads nowhere)"
        if not _is_unicode(entry["name"]):
            arriving = "its name is not UTF-8, and cannot be recorded; give it another one"
        return Arrival(
            scope=_printable(key),
            name=_printable("/".join(place.name)),
            path=_printable(entry["name"]),
            size=int(entry.get("size") or 0),
            stamp=_stamp_of(entry),
            order=natural_order(_printable("/".join(place.bare))),
            modified=_modified(entry),
            known=self.pipeline.partitions.contains(key),
            arriving=arriving,
        )

    def _with_control(self, arrival: Arrival, suffix: str, controls: set[str]) -> Arrival:
        if arrival.path in controls:
            return dataclasses.replace(arrival, control=arrival.path + suffix)
        return dataclasses.replace(
            arrival, arriving=arrival.arriving or f"its control file {arrival.name}{suffix} is not there"
        )

    def _declared_rows(self, arrival: Arrival) -> str | None:
        if arrival.control is None:
            return None
        with self._open(arrival.control) as source:
            return str(source.read(64).decode("utf-8", "replace")).strip()

    def _open(self, path: str) -> Any:
        return self.root.fs.open(path, "rb")

    def _stamp(self, path: str) -> str:
        self.root.fs.invalidate_cache()
        return _stamp_of(self.root.fs.info(path))


@dataclasses.dataclass(frozen=True, slots=True)
class _Place:
    """How far a path has been matched: its partition key (and shard) if that is known, and the name that is left of it.

    A name is what stands below the pattern's first wildcard, without the folders of the partition and the shard;
    ``bare`` is the same without their keys.
    """

    folder: str
    keys: dict[str, str] = dataclasses.field(default_factory=dict)
    name: tuple[str, ...] = ()
    bare: tuple[str, ...] = ()

    def literal(self, segment: str) -> _Place:
        folder = f"{self.folder.rstrip('/')}/{segment}"
        if not self.keys and not self.name:
            return dataclasses.replace(self, folder=folder)
        return dataclasses.replace(self, folder=folder, name=(*self.name, segment), bare=(*self.bare, segment))


def _is_pattern(segment: str) -> bool:
    return any(mark in segment for mark in ("{partition}", "{shard}", "*", "?"))


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
    placeholders = {name for name, _ in forms if f"{{{name}}}" in segment}
    if placeholders <= {name for name, _ in known}:
        return (_regex(segment, dict(forms)),)
    return (_regex(segment, dict(forms)), _regex(segment, {name: ".+?" for name, _ in forms} | dict(known)))


def _regex(segment: str, forms: dict[str, str]) -> re.Pattern[str]:
    parts, seen = [], set()
    for piece in re.split(r"(\{partition\}|\{shard\}|\*|\?)", segment):
        match piece:
            case "{partition}" | "{shard}":
                name = piece[1:-1]
                parts.append(f"((?P={name}))" if name in seen else f"(?P<{name}>{forms[name]})")
                seen.add(name)
            case "*":
                parts.append(".*?")
            case "?":
                parts.append(".")
            case _:
                parts.append(re.escape(piece))
    return re.compile("".join(parts), re.DOTALL)


def _without(text: str, spans: list[tuple[int, int]]) -> str:
    for start, end in reversed(spans):
        text = text[:start] + text[end:]
    return text


def _is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def _printable(text: str) -> str:
    """A name with the bytes that are not UTF-8 written out, so that it can be shown and stored."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


class _Copy:
    """A file being written, whose errors are the staged folder's and not the landing's."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __enter__(self) -> _Copy:
        with self._errors():
            self.file = self.target.open("wb")
        return self

    def write(self, chunk: bytes) -> None:
        with self._errors():
            self.file.write(chunk)

    def __exit__(self, *_: object) -> None:
        with self._errors():
            self.file.close()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StagingFailed(f"cannot write {self.target}: {error}; free some space and run again") from error


@contextlib.contextmanager
def _reading(path: str) -> Iterator[None]:
    try:
        yield
    except EtlError:
        raise
    except FileNotFoundError as error:
        raise StillArriving(f"{path} vanished between listing and reading; the next run looks again") from error
    except Exception as error:  # each filesystem has its own: botocore, aiohttp, OSError
        raise LandingUnreachable(
            f"{path} cannot be read: {type(error).__name__}: {error}. Nothing was changed"
        ) from error


def _stamp_of(info: dict[str, Any]) -> str:
    """Everything that changes when a file is written: a replaced file is noticed though size and mtime are kept.

    An object store says it with an ETag; its times differ, by rounding, between listing and asking for one object.
    """
    tags = [k for k in ("ETag", "etag", "md5", "generation") if info.get(k)]
    facts = ("size", *(tags or ("mtime", "created", "ino", "LastModified")))
    return " ".join(f"{k}={info[k]}" for k in facts if k in info)


def _modified(info: dict[str, Any]) -> float | None:
    value = info.get("mtime", info.get("LastModified"))
    return value.timestamp() if isinstance(value, dt.datetime) else value


def settling(arrival: Arrival, seconds: float, now: float | None = None) -> str | None:
    """Why a sensor should wait with a file: it was written less than ``seconds`` ago, and may still be."""
    age = (now if now is not None else time.time()) - (arrival.modified or 0.0)
    return (
        f"written {age:.0f} s ago; it is asked for once it holds still for {seconds:.0f} s"
        if 0 <= age < seconds
        else None
    )
