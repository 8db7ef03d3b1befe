"""Someone outside who wants to hear of late days: a small HTTP server that takes each message once, by its key."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Receiver:
    """``taken`` are the documents by their key, in the order in which they came; ``again`` counts those that came again."""

    url: str = ""
    taken: dict[str, dict[str, Any]] = field(default_factory=dict)
    again: int = 0

    def take(self, key: str, document: dict[str, Any]) -> int:
        """Take a message; returns the status to answer with, which is the first one for a key that came before."""
        if key in self.taken:
            self.again += 1
            return 201
        self.taken[key] = document
        return 201


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver on a free port of this machine, as long as the context lasts."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(receiver.take(self.headers["Idempotency-Key"], document))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Not on the terminal of the demo."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_port}/messages"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()
