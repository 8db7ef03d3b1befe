"""A pytest fixture for the tests of your own pipelines; needs pytest, which the rest of the package does not.

In your ``conftest.py``::

    pytest_plugins = ["etl_assets.orchestration.pytest_plugin"]
"""

import contextlib
import functools
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.contract import Pipeline
from etl_assets.orchestration.build import build_defs
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets.orchestration.names import job_name
from etl_assets.testing import Workbench


class DagsterWorkbench(Workbench):
    """A workbench with a Dagster instance, which runs what the workbench holds as the UI would."""

    def __init__(self, root: Path, held: contextlib.ExitStack) -> None:
        super().__init__(root)
        self._held = held

    @functools.cached_property
    def instance(self) -> dg.DagsterInstance:
        """An instance that lies on disk; made when it is asked for, which takes a second."""
        home = self.root / "dagster"
        home.mkdir()
        return self._held.enter_context(dg.DagsterInstance.local_temp(str(home)))

    def definitions(self, pipeline: Pipeline) -> dg.Definitions:
        """Assets, job, sensor, schedule and checks of a pipeline, on this workbench's places."""
        return build_defs([pipeline], self.settings)

    def materialize(self, pipeline: Pipeline, first: str, last: str | None = None) -> dg.ExecuteInProcessResult:
        """Run the pipeline's job for one partition, or for all from ``first`` to ``last``.

        A run that fails is no exception: ask its ``success``.
        """
        job = self.definitions(pipeline).resolve_job_def(job_name(pipeline))
        span = {RANGE_START_TAG: first, RANGE_END_TAG: last} if last else None
        key = None if last else first
        return job.execute_in_process(instance=self.instance, partition_key=key, tags=span, raise_on_error=False)


@pytest.fixture
def workbench(tmp_path: Path) -> Iterator[DagsterWorkbench]:
    """A temporary landing, staged folder and warehouse, and a Dagster instance."""
    with contextlib.ExitStack() as held:
        yield DagsterWorkbench(tmp_path / "workbench", held)
