"""One deadline for a whole attempt by HTTP: a receiver that sends a byte now and then never exceeds a socket's timeout."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

from requests.adapters import HTTPAdapter


class Watch:
    """The open lines of a session, and the deadline after which all of them are shut down.

    A line is a duplicate of a connection's socket. TLS wraps the socket itself, and a handshake may last for ever, too.
    """

    def __init__(self) -> None:
        self._lines: set[socket.socket] = set()
        self._ended: list[socket.socket] = []
        self._lock = threading.Lock()
        self._running = False
        #: Whether the last attempt was ended by its deadline.
        self.expired = False

    def add(self, line: socket.socket) -> None:
        """Watch the line of a new connection."""
        with self._lock:
            self._lines.add(line)
            if self.expired:
                _shut(line)

    def end(self, line: socket.socket) -> None:
        """Let go of a closed connection's line, once nothing may still be read from it: an answer outlives its connection."""
        with self._lock:
            if self._running:
                self._ended.append(line)
            else:
                self._drop(line)

    def _drop(self, line: socket.socket) -> None:
        self._lines.discard(line)
        line.close()

    @contextlib.contextmanager
    def attempt(self, seconds: float) -> Iterator[None]:
        """Shut down what is open when the block lasts longer than so many seconds."""
        self.expired, self._running = False, True
        timer = threading.Timer(seconds, self._expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            with self._lock:
                self._running = False
                while self._ended:
                    self._drop(self._ended.pop())

    def _expire(self) -> None:
        with self._lock:
            if not self._running:
                return
            self.expired = True
            for line in self._lines:
                _shut(line)


def _shut(line: socket.socket) -> None:
    """Wake who waits for it: reads end, writes fail."""
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


class WatchedAdapter(HTTPAdapter):
    """Connections of requests, direct or by a proxy, whose lines a watch knows."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        super().__init__()

    def get_connection_with_tls_context(self, *arguments: Any, **named: Any) -> Any:
        pool = super().get_connection_with_tls_context(*arguments, **named)
        if not issubclass(pool.ConnectionCls, _Watched):
            pool.ConnectionCls = type("Watched", (_Watched, pool.ConnectionCls), {"watch": self.watch})
        return pool


class _Watched:
    """What a watched connection does beside what its class does."""

    watch: Watch
    _line: socket.socket | None = None

    def _new_conn(self) -> socket.socket:
        made: socket.socket = super()._new_conn()  # type: ignore[misc]
        self._line = made.dup()
        self.watch.add(self._line)
        return made

    def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self.watch.end(line)
        super().close()  # type: ignore[misc]
