"""Landing in a bucket, against an S3 server of its own on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import LandingUnreachable, StillArriving
from etl_assets.landing import Landing
from etl_assets_tests.world import World, orders

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")

pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.filterwarnings("ignore:.*utcnow.*:DeprecationWarning")]
DAY = "2024-01-01"
CONTENT = "id,day,item,amount\n1,2024-01-01,pear,3\n"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def s3(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A filesystem on the server, which the environment names to everyone else, with an empty bucket ``land``."""
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    fs_class = fsspec.get_filesystem_class("s3")
    fs_class.clear_instance_cache()
    fs = fsspec.filesystem("s3")
    for bucket in fs.ls("", detail=False):
        fs.rm(bucket, recursive=True)
    fs.mkdir("land")
    yield fs
    fs_class.clear_instance_cache()


def put(fs: Any, path: str, content: str) -> None:
    with fs.open(path, "wb") as file:
        file.write(content.encode())


def test_objects_are_listed_in_order_and_fetched(s3: Any, tmp_path: Path) -> None:
    for name in ("10.csv", "9.csv", "11.csv.part", "note.txt"):
        put(s3, f"land/drop/orders/{DAY}/{name}", CONTENT)
    s3.pipe(f"land/drop/orders/{DAY}/", b"")  # what some tools write for a folder
    landing = Landing("s3://land/drop", orders(landing="orders/{partition}/*.csv"))
    arrivals = landing.arrivals()
    assert [(a.scope, a.name, a.size, bool(a.arriving)) for a in arrivals] == [
        (DAY, "9.csv", len(CONTENT), False),
        (DAY, "10.csv", len(CONTENT), False),
        (DAY, "11.csv.part", len(CONTENT), True),
    ]
    assert landing.arrivals(DAY) == arrivals
    fetched = landing.fetch(arrivals[0], tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == CONTENT
    assert fetched.sha256 == landing.sha256(arrivals[0])
    star = Landing("s3://land/drop", orders(landing="orders/{partition}/*"))
    assert [a.name for a in star.arrivals()] == ["9.csv", "10.csv", "11.csv.part", "note.txt"]


def test_an_object_with_other_bytes_of_the_same_size_has_another_stamp(s3: Any, tmp_path: Path) -> None:
    path = f"land/orders/{DAY}/1.csv"
    put(s3, path, CONTENT)
    landing = Landing("s3://land", orders())
    (first,) = landing.arrivals()
    put(s3, path, CONTENT.replace("3", "4"))
    with pytest.raises(StillArriving, match="changed while it was read"):
        landing.fetch(first, tmp_path / "copy")
    (second,) = landing.arrivals()
    assert second.stamp != first.stamp
    put(s3, path, CONTENT)
    assert landing.arrivals()[0].stamp == first.stamp
    s3.rm(path)
    with pytest.raises(StillArriving, match="vanished"):
        landing.fetch(second, tmp_path / "copy")


def test_a_missing_prefix_is_empty_and_a_missing_bucket_is_unreachable(s3: Any) -> None:
    assert Landing("s3://land", orders()).arrivals() == []
    assert Landing("s3://land/no/such/prefix", orders()).arrivals() == []
    put(s3, f"land/orders/{DAY}/1.csv", CONTENT)
    assert Landing("s3://land", orders()).arrivals("2024-01-02") == []
    for root in ("s3://nosuch", "s3://nosuch/prefix"):
        with pytest.raises(LandingUnreachable, match="does not exist or is not a folder"):
            Landing(root, orders()).arrivals()


def test_a_server_that_does_not_answer_is_unreachable(s3: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    put(s3, f"land/orders/{DAY}/1.csv", CONTENT)
    landing = Landing("s3://land", orders())
    (arrival,) = landing.arrivals()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    type(s3).clear_instance_cache()
    gone = Landing("s3://land", orders())
    with pytest.raises(LandingUnreachable, match="cannot be listed"):
        gone.arrivals()
    with pytest.raises(LandingUnreachable, match="cannot be read"):
        gone.fetch(arrival, tmp_path / "copy")
    with pytest.raises(LandingUnreachable, match="cannot be read"):
        Landing("s3://land", orders()).sha256(arrival)


def test_a_delivery_in_a_bucket_is_loaded_and_its_correction_replaces_it(s3: Any, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.settings = type(world.settings)("s3://land", world.settings.staged, world.settings.warehouse)
    put(s3, f"land/orders/{DAY}/1.csv", CONTENT)
    assert [o.status for o in world.load(DAY) + world.load(DAY)] == ["committed", "already committed"]
    put(s3, f"land/orders/{DAY}/1.csv", CONTENT.replace("3\n", "4\n"))
    (outcome,) = world.load(DAY)
    assert outcome.delivery is not None
    assert (outcome.status, outcome.delivery.revision) == ("committed", 2)
    assert world.rows() == [(4, DAY, 1, "pear")]
    assert [(s.name, s.revision, s.state) for s in world.survey().statuses] == [
        ("1.csv", 1, "superseded"),
        ("1.csv", 2, "committed"),
    ]
