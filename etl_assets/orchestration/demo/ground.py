"""The demo's ground: the folders that it plays in, cleared of an earlier demo and of nothing else."""

import dataclasses
import fnmatch
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etl_assets.orchestration.demo.plan import DERIVED
from etl_assets.settings import Settings
from etl_assets.sink import open_sink
from etl_assets.staging import StagedFolder

#: Lists what a demo delivered, with digests. It lies in the landing, where hidden files are no deliveries.
MARKER = ".demo.json"
SHOWCASE = Path("data/showcase/landing")
HOME = Path("data/dagster_home")


class ForeignData(Exception):
    """The folders hold something that no demo put there: it is not cleared away."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Where the demo plays, and the project whose showcase its deliveries come from."""

    settings: Settings
    home: Path
    project: Path

    @classmethod
    def from_environment(cls) -> "Ground":
        """``ETL_LANDING``, ``ETL_STAGED``, ``ETL_WAREHOUSE`` and ``DAGSTER_HOME``, or the folders below ``data/``."""
        settings = Settings.from_environment()
        for place in (settings.landing, settings.warehouse):
            if "://" in place.removeprefix("sqlite:///"):
                raise ForeignData(f"the demo plays in local folders, and {place} is not one")
        absolute = Settings(
            str(Path(settings.landing).absolute()),
            str(Path(settings.staged).absolute()),
            str(Path(settings.warehouse.removeprefix("sqlite:///")).absolute()),
        )
        project = Path.cwd()
        if not (project / SHOWCASE).is_dir():
            raise ForeignData(f"there is no {project / SHOWCASE}: run the demo in the project's folder")
        return cls(absolute, Path(os.environ.get("DAGSTER_HOME") or HOME).absolute(), project)

    @property
    def landing(self) -> Path:
        return Path(self.settings.landing)

    @property
    def places(self) -> tuple[Path, ...]:
        return (self.landing, Path(self.settings.staged), Path(self.settings.warehouse), self.home)

    def clear(self) -> list[Path]:
        """Remove what an earlier demo left; returns what was removed. Raises :class:`ForeignData`, having changed nothing."""
        known = self._delivered()
        if known is None:
            self._refuse_anything()
            return []
        # What a person has copied from the showcase since can be had from there again.
        showcase = self.project / SHOWCASE
        known |= {str(file.relative_to(showcase)): _sha256(file) for file in _files(showcase)}
        self._refuse_foreign(known)
        for relative in known:
            (self.landing / relative).unlink(missing_ok=True)
        for folder in sorted((p for p in self.landing.rglob("*") if p.is_dir()), reverse=True):
            folder.rmdir()
        shutil.rmtree(self.settings.staged, ignore_errors=True)
        for file in _database(Path(self.settings.warehouse)):
            file.unlink()
        shutil.rmtree(self.home, ignore_errors=True)
        (self.landing / MARKER).unlink()
        return list(self.places)

    def prepare(self) -> None:
        """Make the folders, and mark them as the demo's."""
        self.landing.mkdir(parents=True, exist_ok=True)
        self.home.mkdir(parents=True, exist_ok=True)
        self._mark({})

    def deliver(self, folder: str, *patterns: str) -> list[str]:
        """Copy deliveries of a showcase folder to the landing, by patterns of ``date/name``; returns their dates, in order."""
        dates = []
        delivered = self._delivered() or {}
        showcase = self.project / SHOWCASE
        for source in sorted((showcase / folder).glob("*/*")):
            if any(fnmatch.fnmatch(f"{source.parent.name}/{source.name}", pattern) for pattern in patterns):
                target = self.landing / source.relative_to(showcase)
                target.parent.mkdir(parents=True, exist_ok=True)
                delivered[str(target.relative_to(self.landing))] = _sha256(source)
                self._mark(delivered)
                # Renamed into place, as a careful sender does: a delivery is there as a whole or not at all.
                arriving = target.with_name(f"{target.name}.part")
                shutil.copyfile(source, arriving)
                arriving.rename(target)
                dates.append(source.parent.name)
        return dates

    # ------------------------------------------------------------------ whose is it

    def _mark(self, delivered: dict[str, str]) -> None:
        text = json.dumps({"delivered by `make demo`; sha256": delivered}, indent=1)
        (self.landing / MARKER).write_text(text)

    def _delivered(self) -> dict[str, str] | None:
        """What an earlier demo delivered, by path; None where there was none."""
        try:
            (delivered,) = json.loads((self.landing / MARKER).read_text()).values()
        except FileNotFoundError:
            return None
        return {str(path): str(digest) for path, digest in delivered.items()}

    def _refuse_anything(self) -> None:
        """Without an earlier demo, everything here is somebody's; an unused Dagster home is nothing."""
        for place in (self.landing, Path(self.settings.staged), Path(self.settings.warehouse)):
            if place.is_file() or any(_files(place)):
                raise ForeignData(_say(place))
        if any((self.home / "history" / "runs").glob("*-*-*")):
            raise ForeignData(_say(self.home))

    def _refuse_foreign(self, known: dict[str, str]) -> None:
        for file in _files(self.landing):
            relative = str(file.relative_to(self.landing))
            if relative != MARKER and known.get(relative.removesuffix(".part")) != _sha256(file):
                raise ForeignData(_say(file))
        digests = set(known.values())
        for place, described in StagedFolder(self.settings.staged).described():
            if described and not _ours(described, digests):
                raise ForeignData(_say(place))
        for batch in open_sink(self.settings.warehouse).ledger():
            if not _ours(dataclasses.asdict(batch), digests):
                raise ForeignData(f"{_say(Path(self.settings.warehouse))} (batch {batch.batch})")


def _ours(described: dict[str, Any], digests: set[str]) -> bool:
    """Whether an extract or a batch is of what a demo delivered, or computed of that."""
    return described["pipeline"] == DERIVED.name or described["input_sha256"] in digests


def _say(place: Path) -> str:
    return (
        f"{place} was not put there by a demo, so it is not cleared away. Move it, or let the demo play elsewhere: set "
        "ETL_LANDING, ETL_STAGED, ETL_WAREHOUSE and DAGSTER_HOME"
    )


def _files(folder: Path) -> Iterator[Path]:
    return (p for p in folder.rglob("*") if p.is_file())


def _database(path: Path) -> list[Path]:
    return [p for p in (path, Path(f"{path}-wal"), Path(f"{path}-shm")) if p.exists()]


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
