"""Messages by HTTP: each is POSTed to ``<base>/<topic>`` with its key in ``Idempotency-Key``."""

from __future__ import annotations

import requests
import urllib3

from etl_assets.model import Message
from etl_assets.outbox.relay import CONTENT_TYPE, KEY_HEADER, Refused, Sent

#: Seconds to connect, and to wait for each part of an answer.
TIMEOUT = 30.0
#: Characters of a refusal's text that are kept.
SHOWN = 300


class HttpRelay:
    """2xx is sent, 409 was sent before; anything else, redirects included, and every network error is refused."""

    def __init__(self, base: str, timeout: float = TIMEOUT) -> None:
        self.base, self.timeout = base.rstrip("/"), timeout
        self.session = requests.Session()

    def send(self, message: Message) -> Sent | Refused:
        """POST the payload."""
        try:
            with self.session.post(
                f"{self.base}/{message.topic}",
                data=message.payload.encode(),
                headers={KEY_HEADER: message.key, "Content-Type": CONTENT_TYPE},
                timeout=self.timeout,
                allow_redirects=False,
                stream=True,  # what is in an answer does not matter once it is sent, however long it is
            ) as response:
                if 200 <= response.status_code < 300:
                    return Sent()
                if response.status_code == 409:
                    return Sent(already=True)
                return Refused(_said(response), _retry_after(response))
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError) as error:
            return Refused(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        """Close idle connections."""
        self.session.close()


def _said(response: requests.Response) -> str:
    """Status and the beginning of the text, which is what a person needs to see."""
    try:
        # One read, which waits no longer than the timeout: a receiver may never come to the end.
        text = response.raw.read1(SHOWN, decode_content=True).decode(errors="replace")
    except (urllib3.exceptions.HTTPError, OSError):
        text = ""
    status = f"{response.status_code} {response.reason or ''}".strip()
    return f"{status}: {' '.join(text.split())}" if text.strip() else status


def _retry_after(response: requests.Response) -> float | None:
    """Seconds that the receiver asks for; a date is not looked at, since clocks differ."""
    value = response.headers.get("Retry-After", "").strip()
    return float(value) if value.isascii() and value.isdigit() else None
