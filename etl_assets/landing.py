"""Landing: find deliveries, order them, and tell missing from arriving from unreachable.

Belongs here: path patterns, listing, the natural order of names, copying bytes out while they hold still. Does not
belong here: what is in a file. Paths are ``universal-pathlib`` paths, so a folder and a bucket are read alike.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from upath import UPath

from etl_assets.contract import Pipeline, StaticPartitions
from etl_assets.errors import LandingUnreachable, StagingFailed, StillArriving
from etl_assets.model import Arrival, Fetched

#: Names under which tools write before they rename; what stands before the suffix is the delivery to come.
ARRIVING_SUFFIXES = (".part", ".partial", ".tmp", ".filepart", ".crdownload", ".uploading")
CHUNK = 1 << 20


def natural_order(name: str) -> str:
    """A text that compares as people order names: ``9.csv`` before ``10.csv``.

    Each run of digits is written with the count of its digits in front, so that plain text comparison, in Python
    and in the database, compares numbers by value. The name itself at the end breaks ties such as 01 and 1.
    """
    parts = []
    for digits, other in re.findall(r"(\d+)|(\D+)", name, flags=re.ASCII):
        number = digits.lstrip("0") or "0"
        parts.append(f"0{len(number):03d}{number}" if digits else other)
    return "".join(parts) + "\x01" + name


def landing_segment(key: str) -> str:
    """How a partition key stands in a path: percent-encoded only where it could leave its folder or hide."""
    encoded = key.replace("%", "%25").replace("/", "%2F").replace("\\", "%5C")
    return "%2E" + encoded[1:] if encoded.startswith(".") else encoded


class Landing:
    """The landing place of one pipeline: a folder or bucket prefix, and the contract's pattern below it."""

    def __init__(self, root: str, pipeline: Pipeline) -> None:
        self.root = UPath(root)
        self.pipeline = pipeline
        partitions = pipeline.partitions
        names = partitions.names if isinstance(partitions, StaticPartitions) else ()
        self._keys = {landing_segment(name): name for name in names}

    def pattern(self, scope: str | None = None) -> str:
        """The full pattern that is searched, for messages."""
        below = self.pipeline.landing
        return f"{self.root}/{below.replace('{partition}', landing_segment(scope)) if scope is not None else below}"

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """All files of the pattern, by scope and then in natural order of name, the newest last.

        Files under a partition key that the contract does not have come with ``known=False``. Raises
        :class:`LandingUnreachable` when the root or a folder below it cannot be listed; an absent subfolder is
        merely empty.
        """
        try:
            self._check_root()
            found = list(self._match(self.root.path, self.pipeline.landing.split("/"), scope, ""))
        except LandingUnreachable:
            raise
        except Exception as error:  # each filesystem has its own: botocore, aiohttp, OSError
            raise LandingUnreachable(
                f"landing {self.root} cannot be listed: {type(error).__name__}: {error}. Nothing was changed; "
                "check the path, its permissions and the network"
            ) from error
        suffix = self.pipeline.row_count_file
        if suffix:
            controls = {a.path for a in found if a.name.endswith(suffix)}
            found = [self._with_control(a, suffix, controls) for a in found if not a.name.endswith(suffix)]
        return sorted(found, key=lambda a: (a.scope, a.order))

    def fetch(self, arrival: Arrival, target: Path) -> Fetched:
        """Copy the bytes of an arrival to ``target``, hashing them on the way, and sync them to disk.

        Raises :class:`StillArriving` when the file is, or while it was read became, another one than was listed.
        """
        if arrival.arriving:
            raise StillArriving(f"{arrival.path}: {arrival.arriving}; it is read once it is complete")
        digest, size = hashlib.sha256(), 0
        try:
            before = self._stamp(arrival.path)
            with self._open(arrival.path) as source, target.open("wb") as copy:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    try:
                        copy.write(chunk)
                    except OSError as error:
                        raise StagingFailed(f"cannot write {target}: {error}; free some space and run again") from error
            after = self._stamp(arrival.path)
            declared = self._declared_rows(arrival)
        except FileNotFoundError as error:
            raise StillArriving(
                f"{arrival.path} vanished between listing and reading; the next run looks again"
            ) from error
        except OSError as error:
            raise LandingUnreachable(f"{arrival.path} cannot be read: {error}. Nothing was changed") from error
        if not (before == after == arrival.stamp and size == arrival.size):
            raise StillArriving(
                f"{arrival.path} changed while it was read ({arrival.size:,} bytes when listed, {size:,} read); "
                "it is read once it holds still"
            )
        return Fetched(str(target), digest.hexdigest(), size, declared)

    def sha256(self, arrival: Arrival) -> str:
        """The digest of an arrival's bytes as they are now, without keeping them."""
        digest = hashlib.sha256()
        with self._open(arrival.path) as source:
            while chunk := source.read(CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

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

    def _match(
        self, folder: str, segments: list[str], scope: str | None, key: str, tail: str = ""
    ) -> Iterator[Arrival]:
        segment, rest = segments[0], segments[1:]
        if scope is not None:
            key = scope
        if not rest or "{partition}" in segment or re.search(r"[*?]", segment):
            regex = self._regex(segment, key)
            for entry in self._list(folder):
                base = entry["name"].rstrip("/").rsplit("/", 1)[-1]
                if (entry["type"] == "directory") == (not rest):
                    continue
                waiting = self._waiting(base) if not rest else None
                match = regex.fullmatch(base.removesuffix(waiting) if waiting else base)
                if not match or base.startswith(".") or base.endswith("~"):
                    continue
                found = match.groupdict().get("partition")
                inner = key or (self._keys.get(found, found) if found else "")
                # A name is what stands after the partition's own folder; a partition inside of it is part of it.
                name = "" if segment == "{partition}" else f"{tail}{base}"
                if rest:
                    yield from self._match(entry["name"], rest, scope, inner, f"{name}/" if name and inner else "")
                else:
                    yield self._arrival(entry, inner, f"{tail}{base}", waiting)
        else:
            yield from self._match(
                f"{folder.rstrip('/')}/{segment}", rest, scope, key, f"{tail}{segment}/" if key else ""
            )

    def _regex(self, segment: str, key: str) -> re.Pattern[str]:
        parts = []
        for piece in re.split(r"(\{partition\}|\*|\?)", segment):
            match piece:
                case "{partition}" if key:
                    parts.append(re.escape(landing_segment(key)))
                case "{partition}":
                    seen = any("(?P<partition>" in p for p in parts)
                    parts.append("(?P=partition)" if seen else "(?P<partition>.+?)")
                case "*":
                    parts.append(".*")
                case "?":
                    parts.append(".")
                case _:
                    parts.append(re.escape(piece))
        return re.compile("".join(parts), re.DOTALL)

    @staticmethod
    def _waiting(base: str) -> str | None:
        return next((suffix for suffix in ARRIVING_SUFFIXES if base.endswith(suffix)), None)

    def _arrival(self, entry: dict[str, Any], key: str, name: str, waiting: str | None) -> Arrival:
        # Names are compared across partitions too (as releases), so the partition's key is taken out of them.
        order = natural_order(name.replace(landing_segment(key), ""))
        return Arrival(
            scope=key,
            name=name,
            path=entry["name"],
            size=int(entry.get("size") or 0),
            stamp=_stamp_of(entry),
            order=order,
            modified=_modified(entry),
            known=self.pipeline.partitions.contains(key),
            arriving=f"its name says that it is being written ({waiting})" if waiting else None,
        )

    def _with_control(self, arrival: Arrival, suffix: str, controls: set[str]) -> Arrival:
        control = arrival.path + suffix
        if control in controls:
            return dataclasses.replace(arrival, control=control)
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


def _stamp_of(info: dict[str, Any]) -> str:
    """Everything that changes when a file is written: a replaced file is noticed though size and mtime are kept."""
    facts = [
        f"{k}={info[k]}"
        for k in ("size", "mtime", "created", "ino", "ETag", "LastModified", "etag", "md5")
        if k in info
    ]
    return " ".join(facts)


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
