"""Messages to Kafka (the extra ``[kafka]``): a record each, under its subject, with the key in a header."""

from __future__ import annotations

from typing import Any

from etl_assets.errors import RelayUnavailable
from etl_assets.model import Message
from etl_assets.outbox.relay import CONTENT_TYPE, KEY_HEADER, Refused, Sent

#: Seconds until a record that no broker has taken is given up.
TIMEOUT = 30.0


class KafkaRelay:
    """An idempotent producer that waits for each record's delivery report: all in-sync replicas have it then.

    The record's key is the message's subject, so what is said about one subject stays in one partition and in order.
    """

    def __init__(self, servers: str, timeout: float = TIMEOUT) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise RelayUnavailable(
                "a relay to Kafka needs the extra [kafka]: pip install 'etl_assets[kafka]'"
            ) from error
        self._kafka = confluent_kafka
        self._trouble = ""
        self._settings = {
            "bootstrap.servers": servers,
            "client.id": "etl_assets",
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout * 1000),
            "error_cb": self._note,
            "log_level": 0,  # what goes wrong is in the outcome, not on stderr
        }
        self._producer: Any = None

    def _note(self, error: Any) -> None:
        """What the client says of its brokers: the reason behind a record that timed out."""
        self._trouble = error.str()

    def send(self, message: Message) -> Sent | Refused:
        """Produce one record and wait for its report, which comes within the timeout whatever happens."""
        reports: list[Any] = []
        self._trouble = ""
        try:
            if self._producer is None:
                self._producer = self._kafka.Producer(self._settings)
            self._producer.produce(
                message.topic,
                value=message.payload.encode(),
                key=message.subject.encode(),
                headers=[(KEY_HEADER, message.key.encode()), ("content-type", CONTENT_TYPE.encode())],
                on_delivery=lambda error, _: reports.append(error),
            )
            while not reports:
                self._producer.poll(1.0)
        except (self._kafka.KafkaException, BufferError) as error:
            self.close()
            return Refused(f"Kafka: {error}")
        (failed,) = reports
        if failed is None:
            return Sent()
        if failed.fatal():
            self.close()  # an idempotent producer that lost its sequence does not recover; the next send makes another
        return Refused(f"Kafka: {failed.str()}{f' ({self._trouble})' if self._trouble else ''}")

    def close(self) -> None:
        """Nothing is under way: each record was waited for."""
        self._producer = None
