"""Messages to Kafka (the extra ``[kafka]``): a record each, under its subject, with the key in a header."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from etl_assets.errors import RelayUnavailable
from etl_assets.model import Message
from etl_assets.outbox.kafka_options import secrets_of
from etl_assets.outbox.masking import Mask
from etl_assets.outbox.relay import CONTENT_TYPE, KEY_HEADER, Refused, Sent
from etl_assets.settings import RELAY

#: Seconds until a record that no broker has taken is given up.
TIMEOUT = 30.0
NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
#: The record itself is at fault, so that it can't succeed until someone changes a limit.
_FINAL = ("MSG_SIZE_TOO_LARGE", "INVALID_MSG_SIZE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD")


class KafkaRelay:
    """An idempotent producer that waits for each record's delivery report: all in-sync replicas have it then.

    The record's key is the message's subject, so what is said about one subject stays in one partition and in order.
    """

    def __init__(self, servers: str, timeout: float = TIMEOUT, options: Mapping[str, str] = NO_OPTIONS) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise RelayUnavailable(
                "a relay to Kafka needs the extra [kafka]: pip install 'etl_assets[kafka]'"
            ) from error
        self._kafka = confluent_kafka
        self._trouble = ""
        self._mask = Mask(secrets_of(options))
        self._final = {getattr(confluent_kafka.KafkaError, name) for name in _FINAL}
        self._settings = {
            "client.id": "etl_assets",
            **options,
            "bootstrap.servers": servers,
            "enable.idempotence": True,
            "message.timeout.ms": int(timeout * 1000),
            "error_cb": self._note,
            "log_level": 0,  # what goes wrong is in the outcome, not on stderr
        }
        self._producer: Any = None
        try:
            self._producer = confluent_kafka.Producer(self._settings)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise RelayUnavailable(
                f"kafka://{servers}: {self._mask(_text(error))}. Mend the options in {RELAY}, or in the file that it names"
            ) from None

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
        except self._kafka.KafkaException as error:
            self.close()
            return self._refused(error.args[0], str(error))
        except BufferError as error:
            self.close()
            return Refused(self._mask(f"Kafka: {error}"))
        (failed,) = reports
        if failed is None:
            return Sent()
        if failed.fatal():
            self.close()  # an idempotent producer that lost its sequence does not recover; the next send makes another
        return self._refused(failed, f"{failed.str()}{f' ({self._trouble})' if self._trouble else ''}")

    def _refused(self, error: Any, said: str) -> Refused:
        return Refused(self._mask(f"Kafka: {said}"), final=error.code() in self._final)

    def close(self) -> None:
        """Nothing is under way: each record was waited for."""
        self._producer = None


def _text(error: Exception) -> str:
    """What a client says of its settings, without its own way of writing an error."""
    first = error.args[0] if error.args else error
    return str(first.str()) if hasattr(first, "str") else str(first)
