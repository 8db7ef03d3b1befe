"""The proof that a pipeline ends alike however its deliveries are loaded."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from etl_assets.contract import DerivedTable, Pipeline
from etl_assets.errors import Superseded
from etl_assets.loading import Outcome
from etl_assets.testing.contents import Contents, contents
from etl_assets.testing.deliveries import Delivered, Deliveries, placed
from etl_assets.testing.derivation import assert_derived_alike
from etl_assets.testing.ways import Way, other_ways, plain_way
from etl_assets.testing.workbench import Workbench


def assert_idempotent(
    pipeline: Pipeline,
    deliveries: Deliveries,
    *,
    upstream: Sequence[Delivered] = (),
    ways: int = 12,
    seed: int = 0,
) -> None:
    """Load the deliveries in order, and then in other ways that the load pattern allows: all must end alike.

    ``deliveries`` are paths below the landing with their bytes, text or file; or a folder that is laid out as the landing
    is. Each of at most ``ways`` other ways has a warehouse of its own; another ``seed`` draws others. What is loaded is
    loaded again, from files that were touched, and what was loaded in order is read and transformed anew: that must change
    nothing.
    A derived table is loaded by way of its ``upstream``, the pipelines that the deliveries are of.
    Raises ``AssertionError`` with the way that ended otherwise and the rows that differ, and ``ValueError`` for paths
    that are no deliveries of the pipeline.
    """
    if isinstance(pipeline, DerivedTable):
        if not upstream:
            names = ", ".join(one.pipeline for one in pipeline.upstream)
            raise ValueError(f"{pipeline.name} is computed: give the pipelines of its deliveries, upstream=[{names}]")
        assert_derived_alike(pipeline, upstream, deliveries, ways, seed)
        return
    arrived = placed(pipeline, deliveries)
    with tempfile.TemporaryDirectory(prefix="etl-idempotent-") as root:
        plain = _Trial(Path(root) / "plain", plain_way(pipeline, arrived))
        plain.run()
        plain.check_anew()
        for number, way in enumerate(other_ways(pipeline, arrived, ways, seed)):
            trial = _Trial(Path(root) / str(number), way)
            trial.run()
            differs = plain.differences(trial)
            if differs:
                raise AssertionError(
                    f"{pipeline.name} ends otherwise than when each delivery is loaded as it arrives, in order.\n"
                    f"{way}\n{differs}{_told(trial.refused)}"
                )
            shutil.rmtree(trial.bench.root)


class _Trial:
    """One way, with a warehouse of its own."""

    def __init__(self, root: Path, way: Way) -> None:
        self.way, self.pipeline = way, way.pipeline
        self.bench = Workbench(root)
        self.files: dict[str, Path] = {}
        self.scopes: list[str] = []
        #: Refusals on the way: some are as they should be, and they tell why an end differs.
        self.refused: list[Outcome] = []
        #: What the warehouse holds after each round that is followed, and at the end.
        self.held: list[tuple[str, Contents]] = []

    def differences(self, other: _Trial) -> str:
        """Where another way holds other contents than this one, first of all; empty where it never does."""
        mine, theirs = (self.held, other.held) if other.way.followed else (self.held[-1:], other.held[-1:])
        for (when, wanted), (_, found) in zip(mine, theirs, strict=True):
            differs = wanted.differences(found, other.way.compared, mine="in order", theirs="this way")
            if differs:
                return f"{when}{differs}"
        return ""

    def run(self) -> None:
        """Load this way, and everything again. Raises ``AssertionError``."""
        for group in self.way.rounds:
            for delivery in group:
                self.files[delivery.path] = delivery.put(self.bench)
            self.scopes = sorted({*self.scopes, *(d.scope for d in group)})
            if self.way.apart:
                for delivery in group:
                    # Of a partition that was delivered more than once, a run takes the newest: name the older one.
                    self._load(delivery.scope, delivery=delivery.name if self.pipeline.newest_counts else None)
            else:
                self._load(*dict.fromkeys(d.scope for d in group))
            if self.way.followed:
                self.held.append((f"after {group[-1].path}:\n", contents(self.bench, self.pipeline)))
        self._settle()
        settled = contents(self.bench, self.pipeline)
        self.held.append(("", settled))
        self._check_again(settled)
        differences = self.bench.differences(self.pipeline)
        if differences:
            raise self._failure("the ledger does not say what the table holds:", *differences)

    def _load(self, *scopes: str, delivery: str | None = None) -> list[Outcome]:
        outcomes = self.bench.load(self.pipeline, *scopes, delivery=delivery)
        self.refused += [o for o in outcomes if o.error]
        return outcomes

    def _settle(self) -> None:
        """Load what still waits, until there is nothing left to do: a delivery may have had to wait for another."""
        for _ in range(len(self.files) + 1):
            outcomes = self._load(*self.scopes)
            if not any(o.status == "committed" for o in outcomes):
                break
        self._check_settled("when nothing is left to load", outcomes)

    def _check_again(self, settled: Contents) -> None:
        """The same bytes under new times: all of it is committed already."""
        for file in self.files.values():
            times = file.stat()
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000_000))
        outcomes = self.bench.load(self.pipeline, *self.scopes)
        self._check_unchanged("when everything is loaded again", outcomes, settled)

    def check_anew(self) -> None:
        """Every delivery by its name and with no extract left, so that it is read and transformed anew."""
        settled = contents(self.bench, self.pipeline)
        shutil.rmtree(self.bench.settings.staged)
        each = [delivery for group in self.way.rounds for delivery in group]
        outcomes = [o for d in each for o in self.bench.load(self.pipeline, d.scope, delivery=d.name)]
        self._check_unchanged("when everything is read and loaded again", outcomes, settled)

    def _check_unchanged(self, when: str, outcomes: Sequence[Outcome], settled: Contents) -> None:
        self._check_settled(when, outcomes)
        committed = [f"{o.batch}: {o.message}" for o in outcomes if o.status == "committed"]
        if committed:
            raise self._failure("loading the same deliveries again commits new batches:", *committed)
        differs = settled.differences(contents(self.bench, self.pipeline), settled.parts, "before", "afterwards")
        if differs:
            raise self._failure("loading the same deliveries again changes the table:", differs)

    def _check_settled(self, when: str, outcomes: Sequence[Outcome]) -> None:
        """Nothing is refused but what a later snapshot has superseded."""
        wrong = [o for o in outcomes if o.error and not isinstance(o.error, Superseded)]
        if wrong:
            raise self._failure(f"{when}, some deliveries are refused:", *(f"{o.batch}: {o.message}" for o in wrong))

    def _failure(self, what: str, *details: str) -> AssertionError:
        lines = "\n".join(f"  {line}" for detail in details for line in detail.splitlines())
        return AssertionError(f"{self.pipeline.name}: {what}\n{lines}\n{self.way}")


def _told(refused: Sequence[Outcome]) -> str:
    """Refusals on the way, each once."""
    told = dict.fromkeys(f"  refused on the way: {o.batch}: {o.message}" for o in refused)
    return "".join(f"\n{line}" for line in told)
