"""A real receiver of messages on loopback, which remembers keys; and one that is told what to answer."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    """What came in: the topic (the path), the key, the content type and the document."""

    topic: str
    key: str
    content_type: str
    document: dict[str, Any]


@dataclass
class Receiver:
    """``taken`` are messages in the order in which they were taken, each key once; ``requests`` all that came in.

    ``script`` says how the next requests are answered, a status each or a function of the handler; then it is 201, also
    for a key that was taken before, which is not taken again. A status beyond 299 takes nothing.
    """

    url: str
    requests: list[Request] = field(default_factory=list)
    taken: list[Request] = field(default_factory=list)
    script: list[Any] = field(default_factory=list)
    honours_keys: bool = True

    def told(self, topic: str) -> list[Any]:
        """The data of the messages that were taken on a topic, in order."""
        return [r.document["data"] for r in self.taken if r.topic == topic]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        topic = handler.path.removeprefix("/hooks/")
        request = Request(
            topic, handler.headers["Idempotency-Key"], handler.headers["Content-Type"], json.loads(body.decode())
        )
        self.requests.append(request)
        known = self.honours_keys and any(r.key == request.key for r in self.taken)
        scripted = self.script.pop(0) if self.script else None
        if callable(scripted):
            scripted(handler)
            return
        status = scripted or 201
        if status < 300 and not known:
            self.taken.append(request)
        respond(handler, status)


def respond(handler: BaseHTTPRequestHandler, status: int, text: str = "", **headers: str) -> None:
    body = text.encode()
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """The receiver dies before it answers."""
    handler.close_connection = True
    handler.connection.close()


def dawdle(handler: BaseHTTPRequestHandler) -> None:
    """No answer within the relay's timeout."""
    time.sleep(1.0)
    handler.close_connection = True


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # they are waited for

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed, or hung up: that is what the tests do."""


@contextmanager
def receiving() -> Iterator[Receiver]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            with lock:
                receiver.answer(self)

        def log_message(self, *_: Any) -> None:
            """Quietly."""

    lock = threading.Lock()
    server = _Server(("127.0.0.1", 0), Handler)
    receiver = Receiver(f"http://127.0.0.1:{server.server_address[1]}/hooks")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
