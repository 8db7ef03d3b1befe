"""A running Dagster: webserver, daemon and code server as child processes, spoken to by its GraphQL."""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from etl_assets.orchestration.inflight import PARTITION_TAG, RANGE_END_TAG, RANGE_START_TAG

#: The code location of workspace.yaml.
LOCATION, REPOSITORY = "etl_assets", "__repository__"
STARTS_WITHIN = 90.0
STOPS_WITHIN = 15.0


class DagsterFailed(Exception):
    """Dagster did not start, or answered with an error."""


class DagsterDev:
    """``dagster dev`` of the project on a home folder; used as a context, at whose end no process of it is left."""

    def __init__(self, project: Path, home: Path, environment: Mapping[str, str]) -> None:
        self.project, self.home = project, home
        self.environment = {**os.environ, **environment, "DAGSTER_HOME": str(home), "DAGSTER_DISABLE_TELEMETRY": "yes"}
        self.port = _free_port()
        self.log = home / "dagster-dev.log"
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> "DagsterDev":
        command = [
            "dagster",
            "dev",
            "-h",
            "127.0.0.1",
            "-p",
            str(self.port),
            "-w",
            str(self.project / "workspace.yaml"),
        ]
        settings = self.home / "dagster.yaml"
        if not settings.exists():
            shutil.copyfile(self.project / "dagster.yaml", settings)
        with self.log.open("wb") as log:
            # A session of its own: Ctrl-C reaches us alone, and we end the whole group.
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", "-m", *command],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_until_loaded()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()

    def _wait_until_loaded(self) -> None:
        deadline = time.monotonic() + STARTS_WITHIN
        query = (
            "{ repositoriesOrError { ... on RepositoryConnection { nodes { name } } ... on PythonError { message } } }"
        )
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise DagsterFailed(f"dagster dev ended with code {self.process.returncode}; see {self.log}")
            try:
                found = self.ask(query)["repositoriesOrError"]
            except OSError:
                time.sleep(0.3)
                continue
            if found.get("nodes"):
                return
            time.sleep(0.3)
        raise DagsterFailed(f"dagster dev did not load the definitions within {STARTS_WITHIN:.0f} s; see {self.log}")

    def _stop(self) -> None:
        """End the process and whatever it started."""
        process = self.process
        if process is None:
            return
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                process.send_signal(number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOPS_WITHIN)
                    return
        finally:  # also on a second Ctrl-C
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    # ------------------------------------------------------------------ what a person does in the UI

    def ask(self, query: str, **variables: Any) -> dict[str, Any]:
        """One GraphQL request; raises :class:`DagsterFailed` when it is answered with an error."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as response:
            answer = json.load(response)
        if answer.get("errors"):
            raise DagsterFailed(f"Dagster answered: {answer['errors'][0]['message']}")
        found: dict[str, Any] = answer["data"]
        return found

    def start_sensor(self, name: str) -> None:
        selector = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "sensorName": name}
        started = self.ask(
            "mutation S($s: SensorSelector!) { startSensor(sensorSelector: $s) { __typename "
            "... on PythonError { message } } }",
            s=selector,
        )["startSensor"]
        if started["__typename"] != "Sensor":
            raise DagsterFailed(f"the sensor {name} was not started: {started}")

    def launch(self, job: str, first: str = "", last: str = "") -> str:
        """Launch a job that needs no config, for its partitions from the first to the last one; returns the run's id."""
        selector = {"repositoryLocationName": LOCATION, "repositoryName": REPOSITORY, "pipelineName": job}
        tags = {PARTITION_TAG: first} if first == last else {RANGE_START_TAG: first, RANGE_END_TAG: last}
        launched = self.ask(
            "mutation L($p: ExecutionParams!) { launchRun(executionParams: $p) { __typename "
            "... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }",
            p={
                "selector": selector,
                "runConfigData": {},
                "executionMetadata": {"tags": [{"key": k, "value": v} for k, v in tags.items() if v]},
            },
        )["launchRun"]
        if launched["__typename"] != "LaunchRunSuccess":
            raise DagsterFailed(f"the job {job} was not launched: {launched}")
        return str(launched["run"]["runId"])

    def all_runs(self) -> list[tuple[str, str]]:
        """All runs with their states: what changes as long as anything moves."""
        return sorted((run["runId"], run["status"]) for run in self.runs())

    def runs(self, *statuses: str) -> list[dict[str, Any]]:
        """Runs in these states, or all of them."""
        answer = self.ask(
            "query R($f: RunsFilter) { runsOrError(filter: $f) { ... on Runs { results { runId jobName status } } } }",
            f={"statuses": list(statuses)} if statuses else {},
        )
        found: list[dict[str, Any]] = answer["runsOrError"]["results"]
        return found


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
