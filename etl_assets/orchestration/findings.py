"""What a sensor has to know of a pipeline: what waits, and what a person is to look at. Looked up only when it has changed."""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.landing import misfitting
from etl_assets.loading import Status, open_source, survey
from etl_assets.orchestration.wording import missing
from etl_assets.settings import Settings
from etl_assets.sink import open_sink

#: What was found is looked up again after this long, even where nothing seems to have changed.
KEPT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Findings:
    """What a survey says beyond what is committed: small, however long the past of a pipeline is."""

    waiting: tuple[Status, ...]
    attention: tuple[Status, ...]
    arriving: tuple[Status, ...]
    unknown: tuple[Status, ...]
    committed: int
    missing: str
    misfits: str


def find(settings: Settings, pipeline: Pipeline) -> Findings:
    """Survey a pipeline. Raises :class:`~etl_assets.errors.LandingUnreachable`."""
    found = survey(settings, pipeline)

    def of(state: str) -> tuple[Status, ...]:
        return tuple(s for s in found.statuses if s.state == state)

    return Findings(
        waiting=tuple(found.waiting(attempts=pipeline.attempts)),
        attention=tuple(s for s in of("needs attention") if s.newest),
        arriving=of("still arriving"),
        unknown=of("unknown partition"),
        committed=len(of("committed")),
        missing=missing(pipeline, found),
        misfits=misfitting(found.misfits),
    )


class Finder:
    """Surveys pipelines of one place, each again only when its landing, its ledger or its partitions have changed.

    What is kept lives in this process alone: where it is lost, everything is surveyed once more.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._sink = open_sink(settings.warehouse)
        self._kept: dict[str, tuple[int, float, Findings]] = {}

    def marks(self) -> Mapping[str, str]:
        """For each pipeline, what changes with its ledger; to be asked for once a round."""
        return self._sink.marks()

    def find(self, pipeline: Pipeline, marks: Mapping[str, str]) -> Findings:
        """What a survey finds, or has found when everything was as it is now."""
        print_now, now = self._fingerprint(pipeline, marks), time.monotonic()
        kept = self._kept.get(pipeline.name)
        if kept and kept[0] == print_now and now - kept[1] < KEPT_SECONDS:
            return kept[2]
        findings = find(self.settings, pipeline)
        # Listed before the survey: what arrives in between makes the next fingerprint another one. A control file may be
        # mended, which no listing shows.
        self._kept.pop(pipeline.name, None)
        if not any(s.arrival and s.arrival.control for s in (*findings.waiting, *findings.attention)):
            self._kept[pipeline.name] = (print_now, now, findings)
        return findings

    def _fingerprint(self, pipeline: Pipeline, marks: Mapping[str, str]) -> int:
        """A number for all that a survey depends on; of a derived table, what has arrived follows from the ledger."""
        upstream = [one.pipeline for one in pipeline.upstream] if isinstance(pipeline, DerivedTable) else []
        names = [pipeline.name, *upstream]
        source = open_source(self.settings, pipeline, self._sink)
        arrivals = () if upstream else tuple(source.arrivals())
        keys = pipeline.partitions.keys()
        seen = (arrivals, tuple(source.misfits))
        return hash((pipeline.code, len(keys), *keys[-1:], *(marks.get(name) for name in names), seen))
