"""Delivering to Kafka, against the mock cluster that librdkafka brings: real brokers' protocol on loopback."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from etl_assets.errors import RelayUnavailable
from etl_assets.outbox import Patience, deliver, open_relay
from etl_assets_tests.outbox.shop import A, B, csv, shop, statuses
from etl_assets_tests.world import World

kafka = pytest.importorskip("confluent_kafka")
from confluent_kafka import admin  # noqa: E402

from etl_assets.outbox.kafka import KafkaRelay  # noqa: E402


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """Three mock brokers; they live as long as the client that makes them."""
    client = admin.AdminClient({"bootstrap.servers": "unused", "test.mock.num.brokers": 3, "log_level": 0})
    brokers = client.list_topics(timeout=10).brokers.values()
    yield ",".join(f"{b.host}:{b.port}" for b in brokers)
    del client


def waiting(root: Path, topic: str) -> World:
    """Three large orders wait, on a topic of the test's own, and two busy days."""
    large, busy = shop().notifications
    world = World(root, shop(large.model_copy(update={"topic": topic}), busy))
    world.deliver(A, csv(f"1,{A},pêche,10", f"2,{A},fig,5"))
    world.deliver(B, csv(f"3,{B},oak,20"))
    world.load(A, B)
    return world


def relay(world: World, out: Any, patience: Patience | None = None) -> list[tuple[str, str]]:
    with closing(out):
        return [(a.message.subject, a.status) for a in deliver(world.warehouse, out, patience)]


def consume(cluster: str, topic: str, number: int) -> list[tuple[str, str, dict[str, str], Any]]:
    """The records of a topic: partition's order, key, headers and document."""
    consumer = kafka.Consumer(
        {"bootstrap.servers": cluster, "group.id": topic, "auto.offset.reset": "earliest", "log_level": 0}
    )
    try:
        partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
        consumer.assign([kafka.TopicPartition(topic, p, kafka.OFFSET_BEGINNING) for p in partitions])
        found = []
        while len(found) < number:
            record = consumer.poll(10.0)
            assert record is not None, f"{len(found)} of {number} records"
            assert record.error() is None
            found.append(record)
        extra = consumer.poll(0.5)
        assert extra is None
    finally:
        consumer.close()
    return [
        (r.key().decode(), {k: v.decode() for k, v in r.headers()}, json.loads(r.value()), (r.partition(), r.offset()))
        for r in found
    ]


def test_records_have_the_subject_as_key_the_idempotency_key_in_a_header_and_the_document_as_value(
    tmp_path: Path, cluster: str
) -> None:
    world = waiting(tmp_path, "records")
    assert relay(world, open_relay(f"kafka://{cluster}")) == [(s, "sent") for s in ("1", "2", A, "3", B)]
    rows = world.sql("SELECT subject, key, payload FROM etl_outbox WHERE topic = 'records' ORDER BY id")
    records = sorted(consume(cluster, "records", 3), key=lambda r: r[0])
    assert [(key, headers, document) for key, headers, document, _ in records] == [
        (subject, {"Idempotency-Key": key, "content-type": "application/cloudevents+json"}, json.loads(payload))
        for subject, key, payload in rows
    ]
    assert statuses(world) == [(s, "sent", 1) for s in ("1", "2", A, "3", B)]


def test_what_is_said_of_one_subject_stays_in_one_partition_and_in_order(tmp_path: Path, cluster: str) -> None:
    (large, _) = shop().notifications
    world = World(tmp_path, shop(large.model_copy(update={"topic": "in-order"})))
    for number in range(1, 7):
        world.deliver(A, csv(*(f"{n},{A},pear,{10 * number + n}" for n in range(1, 6))), f"{number}.csv")
        world.load(A)
    relay(world, KafkaRelay(cluster))
    places: dict[str, list[tuple[int, int]]] = {}
    amounts: dict[str, list[tuple[int, int]]] = {}
    for key, _, document, place in consume(cluster, "in-order", 30):
        places.setdefault(key, []).append(place)
        amounts.setdefault(key, []).append((place[1], document["data"]["amount"]))
    assert all(len({partition for partition, _ in of}) == 1 for of in places.values())
    assert {key: [amount for _, amount in sorted(of)] for key, of in amounts.items()} == {
        str(n): [10 * number + n for number in range(1, 7)] for n in range(1, 6)
    }


def test_while_no_broker_is_there_messages_wait_with_the_reason_and_go_out_once_one_is(
    tmp_path: Path, cluster: str
) -> None:
    world = waiting(tmp_path, "later")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        hasty = Patience(attempts=3, first=0.0, longest=0.0)
        assert relay(world, KafkaRelay(nobody, timeout=1.0), hasty) == [("1", "waiting"), (A, "waiting")]
    (reason,) = world.sql("SELECT last_error FROM etl_outbox WHERE id = 1")[0]
    assert reason.startswith("Kafka: Local: Message timed out (")
    assert "Connection refused" in reason or "brokers are down" in reason
    assert [status for _, status in relay(world, KafkaRelay(cluster))] == ["sent"] * 5


def test_a_record_that_is_too_large_is_parked_at_once(tmp_path: Path, cluster: str) -> None:
    world = World(tmp_path, shop())
    world.deliver(A, csv(f"1,{A},{'x' * 1_100_000},7", f"2,{A},fig,8"))
    world.load(A)
    assert relay(world, KafkaRelay(cluster)) == [("1", "parked"), ("2", "sent"), (A, "sent")]
    (reason,) = world.sql("SELECT last_error FROM etl_outbox WHERE id = 1")[0]
    assert "MSG_SIZE_TOO_LARGE" in reason


def test_without_the_extra_it_is_said_which_one_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(RelayUnavailable, match=r"needs the extra \[kafka\]"):
        open_relay("kafka://127.0.0.1:9092")


# --------------------------------------------------------------------------- options


def first_bytes(url: str) -> bytes:
    """What a relay says first to a broker that only listens."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(10.0)
        port = server.getsockname()[1]
        with closing(open_relay(url.replace("PORT", str(port)))):
            line, _ = server.accept()
            with closing(line):
                line.settimeout(10.0)
                return line.recv(3)


HANDSHAKE = b"\x16\x03"


@pytest.mark.parametrize(
    "query, encrypted",
    [
        ("", False),
        ("?security.protocol=SSL", True),
        ("?security.protocol=SASL_SSL&sasl.mechanisms=PLAIN&sasl.username=me&sasl.password=s%26cret", True),
        ("?properties=FILE", True),
        ("?client.id=mine&properties=FILE", True),
    ],
)
def test_the_protocol_of_the_options_is_the_one_that_is_spoken(tmp_path: Path, query: str, encrypted: bool) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "# ours\nsecurity.protocol = SASL_SSL\nsasl.mechanism=PLAIN\n\nsasl.username=me\nsasl.password=a=b#c%41\n"
    )
    said = first_bytes(f"kafka://127.0.0.1:PORT/{query.replace('FILE', str(file))}")
    assert (said[:2] == HANDSHAKE) is encrypted


SASL = "security.protocol=SASL_SSL&sasl.mechanisms=PLAIN&sasl.username=me"


@pytest.mark.parametrize(
    "rest, named",
    [
        ("b:9092?security.protocl=SSL", "'security.protocl'"),
        ("b:9092?Security.Protocol=SSL", "'Security.Protocol'"),
        ("b:9092?security.protocol=SECRET", "security.protocol"),
        ("b:9092?security.protocol=SSL&security.protocol=PLAINTEXT", "set twice"),
        ("b:9092?security.protocol", "'security.protocol' has no value"),
        ("b:9092?security.protocol=", "'security.protocol' has no value"),
        (f"b:9092?{SASL}", "sasl.password must be set"),
        ("b:9092?sasl.username=me&sasl.password=SECRET", "'sasl.username' has no effect"),
        ("b:9092?security.protocol=SASL_PLAINTEXT&ssl.ca.location=/x", "'ssl.ca.location' has no effect"),
        ("b:9092?security.protocol=SSL&ssl.ca.location=/nowhere", "ssl.ca.location"),
        ("b:9092?security.protocol=SSL&ssl.key.pem=SECRET", "ssl.key.pem"),
        ("b:9092?sasl.none=SECRET&security.protocol=SASL_SSL", "sasl.none"),
        ("b:9092?acks=0", "'acks'"),
        ("b:9092?enable.idempotence=false", "'enable.idempotence'"),
        ("b:9092?message.timeout.ms=1", "'message.timeout.ms'"),
        ("b:9092?delivery.report.only.error=true", "'delivery.report.only.error'"),
        ("b:9092?bootstrap.servers=c:1", "'bootstrap.servers'"),
        ("b:9092?SECRET!=1", "with an unreadable name"),
        ("me:SECRET@b:9092", "a name and a password in front of the servers"),
        ("b:9092#SECRET", "wanted kafka://"),
        ("b:9092/SECRET", "wanted kafka://"),
        ("b:9092;security.protocol=SSL", "wanted kafka://"),
        ("b:9092?properties=/nowhere/x", "/nowhere/x: No such file"),
    ],
)
def test_an_option_that_is_not_understood_is_refused_by_name(rest: str, named: str) -> None:
    with pytest.raises(RelayUnavailable) as raised:
        open_relay(f"kafka://{rest}")
    assert named in str(raised.value)
    assert "SECRET" not in str(raised.value).replace('Invalid value "SECRET" for configuration property "security', "")
    assert "ETL_RELAY" in str(raised.value)


@pytest.mark.parametrize(
    "text, named",
    [
        (b"sasl.password=SECRET\nsasl.password=SECRET\n", "'sasl.password' is set twice"),
        (b"SECRET\n", "line 1: wanted name=value"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"acks=0\n", "'acks'"),
    ],
)
def test_a_fault_of_the_properties_file_is_named(tmp_path: Path, text: bytes, named: str) -> None:
    file = tmp_path / "p"
    file.write_bytes(text)
    with pytest.raises(RelayUnavailable) as raised:
        open_relay(f"kafka://b:9092?properties={file}")
    assert named in str(raised.value)
    assert "SECRET" not in str(raised.value)
