"""What a person sees: the pages of Dagster's webserver in a real browser, on the state that a real run left."""

import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from etl_assets.orchestration import Rooms, build_defs
from etl_assets.orchestration.inflight import RANGE_END_TAG, RANGE_START_TAG
from etl_assets.pipelines.flights import flights
from etl_assets_tests.world import SHOWCASE, World

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser")
PROJECT = Path(__file__).parent.parent.parent

pytestmark = [
    pytest.mark.browser,
    pytest.mark.xdist_group("ui"),
    pytest.mark.skipif(
        BROWSER is None, reason="there is no Chromium on this machine (Debian: apt-get install chromium)"
    ),
]


class Pages:
    """A webserver, and the text of its pages as a browser shows it."""

    def __init__(self, base: str, profile: Path) -> None:
        self.base, self.profile = base, profile

    def text(self, path: str, wanted: str) -> str:
        """The page's text, once ``wanted`` is in it: pages fetch their contents after they have loaded."""
        for seconds in (10, 20, 40):
            shown = self._dump(path, seconds)
            if wanted in shown:
                return shown
        return shown

    def _dump(self, path: str, seconds: int) -> str:
        assert BROWSER is not None
        quiet = ("--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update")
        found = subprocess.run(
            [
                *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-sync", *quiet),
                *(f"--user-data-dir={self.profile}", "--window-size=1500,1400"),
                *(f"--virtual-time-budget={seconds * 1000}", "--dump-dom", f"{self.base}{path}"),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        body = re.sub(r"<(script|style).*?</\1>", " ", found.stdout, flags=re.DOTALL)
        return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", body))


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    """Five days of flights in one range run, one of them with an interrupted transfer on top; then its correction."""
    root = tmp_path_factory.mktemp("ui")
    world = World(root, flights)
    for day in range(25, 30):
        name = f"2013-10-{day}"
        world.deliver(name, (SHOWCASE / "flights" / name / "1.csv").read_bytes())
    broken = world.deliver("2013-10-27", b"", "2.csv")
    home = root / "home"
    home.mkdir()
    shutil.copy(PROJECT / "dagster.yaml", home / "dagster.yaml")
    places = world.settings
    rooms = Rooms(landing=places.landing, staged=places.staged, warehouse=places.warehouse)
    job = build_defs([flights], rooms).resolve_job_def("flights_job")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        span = {RANGE_START_TAG: "2013-10-25", RANGE_END_TAG: "2013-10-29"}
        assert not job.execute_in_process(instance=instance, tags=span, raise_on_error=False).success
        world.deliver("2013-10-26", (SHOWCASE / "flights" / "2013-10-26" / "2.csv").read_bytes(), "2.csv")
        assert job.execute_in_process(instance=instance, partition_key="2013-10-26").success
    broken.unlink()
    yield from _serve(root, home, world)


def _serve(root: Path, home: Path, world: World) -> Iterator[Pages]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = world.settings
    environment = os.environ | {
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "yes",
        "ETL_LANDING": places.landing,
        "ETL_STAGED": places.staged,
        "ETL_WAREHOUSE": places.warehouse,
    }
    command = [
        sys.executable,
        "-m",
        "dagster_webserver",
        "-h",
        "127.0.0.1",
        "-p",
        str(port),
        "-m",
        "etl_assets.definitions",
    ]
    with (
        (root / "web.log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=log) as server,
    ):
        try:
            base = f"http://127.0.0.1:{port}"
            _wait_for(f"{base}/server_info", server)
            yield Pages(base, root / "browser")
        finally:
            server.terminate()
            server.wait(30)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        assert server.poll() is None, "the webserver has stopped"
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.25)
    raise AssertionError("the webserver does not answer")


def test_the_lineage_leads_from_the_landing_through_the_extract_to_the_table(pages: Pages) -> None:
    shown = pages.text("/locations/__repository__@etl_assets.definitions/asset-groups/nyc/lineage", "flights_landing")
    for asset in ("flights_landing", "flights_extract", "weather_landing", "weather_extract"):
        assert asset in shown


def test_after_a_range_run_with_one_corrupt_day_that_day_alone_is_failed(pages: Pages) -> None:
    shown = pages.text("/assets/flights?view=partitions", "Failed (1)")
    assert "Failed (1) Materialized (4) Materializing (0) Missing (360)" in shown
    failed = pages.text("/assets/flights?view=partitions&partition=2013-10-27", "did not materialize")
    assert re.search(r"Run \w+ failed, and did not materialize this asset", failed)


def test_a_corrections_metadata_tells_the_counts_and_the_batch(pages: Pages) -> None:
    shown = pages.text("/assets/flights?view=partitions&partition=2013-10-26", "flights/2013-10-26/2.csv#1@1")
    assert "flights/2013-10-26/2.csv#1@1" in shown
    assert re.search(r"updated\s+685", shown)
    assert re.search(r"inserted\s+0", shown)
