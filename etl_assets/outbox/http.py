"""Messages by HTTP: each is POSTed to ``<base>/<topic>`` with its key in ``Idempotency-Key``."""

from __future__ import annotations

import datetime as dt
from email.utils import parsedate_to_datetime

import requests
import urllib3

from etl_assets.model import Message
from etl_assets.outbox.masking import mask_of
from etl_assets.outbox.relay import CONTENT_TYPE, KEY_HEADER, Refused, Sent
from etl_assets.outbox.watching import Watch, WatchedAdapter

#: Seconds that an attempt may take: to connect, to send, and to wait for the whole of the answer.
TIMEOUT = 30.0
#: Characters of a refusal's text that are kept.
SHOWN = 300
#: The message itself is at fault: it is too large, or the receiver understood and can't process it. Other refusals are
#: about the address, the credentials or the moment, and end when a person or time mends them.
FINAL = frozenset((413, 414, 422, 431))


class HttpRelay:
    """2xx is sent; anything else, redirects included, and every network error is refused.

    409 is refused like any other: a request with this key is still being processed, and may yet fail.
    """

    def __init__(self, base: str, timeout: float = TIMEOUT) -> None:
        self.base, self.timeout = base.rstrip("/"), timeout
        self._mask, self._watch = mask_of(base), Watch()
        self._session = requests.Session()
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, WatchedAdapter(self._watch))

    def send(self, message: Message) -> Sent | Refused:
        """POST the payload."""
        with self._watch.attempt(self.timeout):
            outcome = self._post(message)
        if isinstance(outcome, Refused):
            self._session.close()  # what else comes on its connection is no answer to the next message
        return outcome

    def _post(self, message: Message) -> Sent | Refused:
        try:
            with self._session.post(
                f"{self.base}/{message.topic}",
                data=message.payload.encode(),
                headers={KEY_HEADER: message.key, "Content-Type": CONTENT_TYPE},
                timeout=self.timeout,
                allow_redirects=False,
                stream=True,  # what is in an answer does not matter once it is sent, however long it is
            ) as response:
                if self._watch.expired:  # headers that are cut off look like headers that end
                    return self._too_late()
                if 200 <= response.status_code < 300:
                    return Sent()
                wait = _retry_after(response)
                return Refused(self._said(response), wait, final=response.status_code in FINAL and wait is None)
        except (requests.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            if self._watch.expired:
                return self._too_late()
            return Refused(self._mask(f"{type(error).__name__}: {error}"))

    def _too_late(self) -> Refused:
        return Refused(f"ReadTimeout: no whole answer within {self.timeout:g} s")

    def close(self) -> None:
        """Close idle connections."""
        self._session.close()

    def _said(self, response: requests.Response) -> str:
        """Status and the beginning of the text, which is what a person needs to see."""
        try:
            # One read, which waits no longer than the timeout: a receiver may never come to the end.
            read = response.raw.read1(SHOWN + 4 * self._mask.longest, decode_content=True)
            text = self._mask(" ".join(read.decode(errors="replace").split()))[:SHOWN]
        except (urllib3.exceptions.HTTPError, OSError, ValueError):
            text = ""
        status = self._mask(f"{response.status_code} {response.reason or ''}".strip())
        return f"{status}: {text}" if text else status


def _retry_after(response: requests.Response) -> float | None:
    """Return the seconds that the receiver asks for, given as such or as a date; None for none, zero and nonsense.

    A date is compared with the answer's own, so that it does not matter whether the two clocks agree.
    """
    value = response.headers.get("Retry-After", "").strip()
    if value.isascii() and value.isdigit():
        return float(value) or None
    until = _moment(value)
    if until is None:
        return None
    now = _moment(response.headers.get("Date", "")) or dt.datetime.now(dt.UTC)
    seconds = (until - now).total_seconds()
    return seconds if seconds > 0 else None


def _moment(value: str) -> dt.datetime | None:
    """Return the moment of an HTTP date, in any of its three forms."""
    try:
        moment = parsedate_to_datetime(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
