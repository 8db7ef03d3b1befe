"""The landing of one pipeline: what it lists as deliveries, and their bytes, copied out while they hold still."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fsspec.implementations.local import LocalFileSystem
from upath import UPath

from etl_assets.contract import DeliveredTable
from etl_assets.errors import LandingUnreachable, StillArriving
from etl_assets.landing.files import BROKEN, CIRCLE, Copy, entries, info, modified, reading, stamp_of
from etl_assets.landing.names import is_unicode, landing_segment, printable
from etl_assets.landing.patterns import Pattern, Place, folded, is_pattern
from etl_assets.model import Arrival, Delivery, Fetched
from etl_assets.naming import natural_order, shown

#: Names under which tools write before they rename; what stands before the suffix is the delivery to come.
ARRIVING_SUFFIXES = (".part", ".partial", ".tmp", ".filepart", ".crdownload", ".uploading")
CHUNK = 1 << 20
#: Two writes within so long may give a file one and the same time.
TICK_SECONDS = 0.02
#: Files that a message names; the rest are counted.
NAMED = 5

#: A sensor looks every half minute; a landing that was copied or restored has new stamps on old bytes.
REMEMBERED = 100_000
_DIGESTS: dict[tuple[str, str], str] = {}


class Landing:
    """The landing place of one pipeline: a folder or bucket prefix, and the contract's pattern below it."""

    def __init__(self, root: str, pipeline: DeliveredTable) -> None:
        try:
            self.root = UPath(root)
        except Exception as error:  # an unknown protocol, or one whose package is not installed
            raise LandingUnreachable(f"landing {root} cannot be opened: {error}. Set ETL_LANDING") from error
        self.pipeline = pipeline
        self.paths = Pattern(pipeline.landing, pipeline.partitions)
        #: Files that the last listing passed over, and that the pattern fits but for case or Unicode form.
        self.misfits: list[str] = []

    def pattern(self, scope: str | None = None) -> str:
        """The full pattern that is searched, for messages."""
        return f"{self.root}/{self.paths.filled(scope)}"

    def absence(self, scope: str) -> str:
        """Where a delivery was looked for and not found, in words."""
        return (
            f"searched {self.pattern(scope)}, 0 files matched{'; ' if self.misfits else ''}{misfitting(self.misfits)}"
        )

    def arrivals(self, scope: str | None = None) -> list[Arrival]:
        """All files of the pattern, by scope and then in natural order of name, the newest last.

        Files under a partition key that the contract does not have come with ``known=False``. Raises
        :class:`LandingUnreachable` when the root or a folder of all partitions cannot be listed; an absent one is
        empty. A folder of one partition that cannot be listed is that partition's, as something that is still arriving.
        """
        try:
            self._check_root()
            controls: set[str] = set()
            self.misfits = []
            wanted = self.paths.split(scope) if scope is not None else {}
            found = list(self._match(Place(self.root.path), self.paths.text.split("/"), wanted, controls))
            if not found:
                self.misfits += self._literal_misfits()
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
        partitions = self.pipeline.partitions
        # All keys at once cost less than a question for each of many.
        contains = partitions.contains if scope is not None else frozenset(partitions.keys()).__contains__
        found = [a if contains(a.scope) else dataclasses.replace(a, known=False) for a in found]
        return sorted(found, key=lambda a: (a.scope, a.order))

    def fetch(self, arrival: Arrival, target: Path) -> Fetched:
        """Copy the bytes of an arrival to ``target``, hashing them on the way.

        Raises :class:`StillArriving` when the file is, or while it was read became, another one than was listed,
        :class:`UnreadableDelivery` or :class:`LandingUnreachable` when it cannot be read, and :class:`StagingFailed` when the
        copy cannot be written.
        """
        if arrival.arriving:
            raise StillArriving(f"{shown(arrival.path)}: {arrival.arriving}; it is read once it is complete")
        digest, size = hashlib.sha256(), 0
        with reading(arrival.path):
            self._wait_for_clock(arrival.path)
            before = self._stamp(arrival.path)
            with self._open(arrival.path) as source, Copy(target) as copy:
                while chunk := source.read(CHUNK):
                    digest.update(chunk)
                    size += len(chunk)
                    copy.write(chunk)
            after = self._stamp(arrival.path)
        declared = self.declared(arrival)
        if not (before == after == arrival.stamp and size == arrival.size):
            raise StillArriving(
                f"{shown(arrival.path)} changed while it was read ({arrival.size:,} bytes when listed, {size:,} read); "
                "it is read once it holds still"
            )
        return Fetched(str(target), digest.hexdigest(), size, declared)

    def check_unchanged(self, arrival: Arrival) -> None:
        """Raise :class:`StillArriving` when a file that was fetched has been written to since."""
        with reading(arrival.path):
            now = self._stamp(arrival.path)
        if now != arrival.stamp:
            raise StillArriving(
                f"{shown(arrival.path)} was written to after it was read. Nothing was changed; it is read once it holds still"
            )

    def declared(self, arrival: Arrival) -> str | None:
        """Return the text of an arrival's control file; None where the contract has none."""
        if arrival.control is None:
            return None
        with reading(arrival.control), self._open(arrival.control) as source:
            return str(source.read(64).decode("utf-8", "replace")).strip()

    def complete(self, delivery: Delivery, fetched: Fetched, work: Path) -> Fetched:
        """What was fetched is all there is."""
        return fetched

    def sha256(self, arrival: Arrival) -> str:
        """The digest of an arrival's bytes, without keeping them; read once for each stamp of a file."""
        known = _DIGESTS.get((arrival.path, arrival.stamp))
        if known is None:
            digest = hashlib.sha256()
            with reading(arrival.path), self._open(arrival.path) as source:
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

    def _literal_misfits(self) -> list[str]:
        """What lies in the place of a folder that the pattern names, but for case or Unicode form."""
        folder = self.root.path.rstrip("/")
        for segment in self.paths.text.split("/"):
            names = (
                []
                if is_pattern(segment)
                else [e["name"].rstrip("/").rsplit("/", 1)[-1] for e in entries(self.root.fs, folder)]
            )
            if segment not in names:
                return [f"{folder}/{name}" for name in names if folded(name) == folded(segment)]
            folder = f"{folder}/{segment}"
        return []

    def _match(
        self, place: Place, segments: list[str], wanted: dict[str, str], controls: set[str]
    ) -> Iterator[Arrival]:
        """The files below a place that fit the rest of the pattern; ``controls`` collects what control files are for.

        A file has one scope and one name, whether all scopes are listed or its own only, the ``wanted`` one.
        """
        segment, rest = segments[0], segments[1:]
        if rest and not is_pattern(segment):
            yield from self._match(place.literal(segment), rest, wanted, controls)
            return
        own = segment[1:-1] if segment in ("{partition}", "{shard}") else ""
        if rest and own and wanted:
            # One partition's own folder: what lies beside it is none of its business.
            folder = f"{place.folder.rstrip('/')}/{landing_segment(wanted[own])}"
            inner = Place(folder, {**place.keys, own: wanted[own]}, place.name, place.bare)
            yield from self._match(inner, rest, wanted, controls)
            return
        try:
            listed = entries(self.root.fs, place.folder)
        except OSError as error:
            if not place.keys:
                raise
            yield self._blocked(place, segments, CIRCLE if error.errno == errno.ELOOP else error.strerror or str(error))
            return
        for entry in listed:
            path = entry["name"].rstrip("/")
            base = path.rsplit("/", 1)[-1]
            # An object store may list the folder itself, as an object of no bytes.
            if base.startswith(".") or path == place.folder.rstrip("/"):
                continue
            if entry["type"] != BROKEN and (entry["type"] == "directory") == (not rest):
                continue
            if rest:
                step = self.paths.step(place, segment, path, base)
                if step is None:
                    self._note_misfit(place, segment, path, base, wanted)
                    continue
                if own:
                    step = Place(step.folder, step.keys, place.name, place.bare)
                if entry["type"] == BROKEN:
                    if not wanted:
                        yield self._blocked(step, rest, entry["why"])
                elif not wanted or all(wanted.get(name, key) == key for name, key in step.keys.items()):
                    yield from self._match(step, rest, wanted, controls)
                continue
            found = self._leaf(place, segment, path, base, controls)
            if found is None:
                self._note_misfit(place, segment, path, base, wanted)
            elif not wanted or self.paths.split(self.paths.scope(found[0])) == wanted:
                yield self._arrival(entry, *found)

    def _leaf(
        self, place: Place, segment: str, path: str, base: str, controls: set[str]
    ) -> tuple[Place, str | None] | None:
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
            inner = self.paths.step(place, segment, path, base, ending or "")
            if inner:
                return inner, ending
        return None

    @staticmethod
    def _waiting(base: str) -> str | None:
        if not base.endswith(ARRIVING_SUFFIXES):
            return None
        return next(suffix for suffix in ARRIVING_SUFFIXES if base.endswith(suffix))

    def _arrival(self, entry: dict[str, Any], place: Place, waiting: str | None) -> Arrival:
        key = self.paths.scope(place)
        name, order = printable("/".join(place.name)), natural_order(printable("/".join(place.bare)))
        arriving = f"its name says that it is being written ({waiting})" if waiting else None
        if entry["type"] != "file":
            arriving = f"it is not a regular file but {entry.get('why', 'a pipe, a socket or a device')}"
        if not is_unicode(entry["name"]):
            arriving = "its name is not UTF-8, and cannot be recorded; give it another one"
        return Arrival(
            scope=printable(key),
            name=name,
            path=printable(entry["name"]),
            size=int(entry.get("size") or 0),
            stamp=stamp_of(entry),
            order=order,
            modified=modified(entry),
            arriving=arriving,
        )

    def _blocked(self, place: Place, rest: list[str], why: str) -> Arrival:
        """What stands for the deliveries of a folder that cannot be listed."""
        name = printable("/".join((*place.name, *rest)))
        known = "partition" in place.keys or not any(is_pattern(segment) for segment in rest)
        scope = self.paths.scope(place) if known else place.folder.rsplit("/", 1)[-1]
        return Arrival(
            scope=printable(scope),
            name=name,
            path=printable(place.folder),
            size=0,
            stamp="",
            order=natural_order(name),
            known=known and self.pipeline.partitions.contains(scope),
            arriving=f"the folder {shown(printable(place.folder))} cannot be listed: {why}",
        )

    def _note_misfit(self, place: Place, segment: str, path: str, base: str, wanted: dict[str, str]) -> None:
        """Remember what would fit the pattern in another case or Unicode form."""
        control = self.pipeline.row_count_file
        is_none = base.endswith("~") or (control and base.endswith(control))
        if not is_none and self.paths.nearly_fits(place, segment, base, wanted):
            self.misfits.append(printable(path))

    def _with_control(self, arrival: Arrival, suffix: str, controls: set[str]) -> Arrival:
        if arrival.path in controls:
            return dataclasses.replace(arrival, control=arrival.path + suffix)
        return dataclasses.replace(
            arrival, arriving=arrival.arriving or f"its control file {shown(arrival.name)}{suffix} is not there"
        )

    def _open(self, path: str) -> Any:
        return self.root.fs.open(path, "rb")

    def _wait_for_clock(self, path: str) -> None:
        """Wait until a write from now on gives a file another time than it has: clocks of local filesystems go in ticks."""
        if isinstance(self.root.fs, LocalFileSystem):
            facts = info(self.root.fs, path)
            age = time.time() - max(facts["mtime"], facts["created"])
            if 0 <= age < TICK_SECONDS:
                time.sleep(TICK_SECONDS - age)

    def _stamp(self, path: str) -> str:
        self.root.fs.invalidate_cache()
        return stamp_of(info(self.root.fs, path))


def misfitting(paths: Sequence[str]) -> str:
    """Return in words which files lie where deliveries do, under names that the pattern does not fit; empty for none."""
    if not paths:
        return ""
    what = "1 file lies" if len(paths) == 1 else f"{len(paths):,} files lie"
    named = ", ".join(shown(path) for path in paths[:NAMED])
    return (
        f"{what} there that the pattern does not fit: {named}{', …' if len(paths) > NAMED else ''} "
        "(upper and lower case, and Unicode forms of one letter, are told apart)"
    )


def settling(arrival: Arrival, seconds: float, now: float | None = None) -> str | None:
    """Why a sensor should wait with a file: it was written less than ``seconds`` ago, and may still be."""
    age = (now if now is not None else time.time()) - (arrival.modified or 0.0)
    return (
        f"written {age:.0f} s ago; it is asked for once it holds still for {seconds:.0f} s"
        if 0 <= age < seconds
        else None
    )
