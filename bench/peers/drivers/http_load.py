"""A client that keeps many connections busy: one request after the other on each of them.

It shares the machine with the server, so it does as little as can be: no event loop, and of an
answer it looks only at the status and the length.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

CONNECTIONS = 64
SILENCE_SECONDS = 30.0


def request(path: str, body: bytes) -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
    )


class _Connection:
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, address: tuple[str, int], requests: Iterator[bytes]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._requests = requests
        self._got = b""

    def send(self) -> bool:
        """Whether there was one more."""
        wanted = next(self._requests, None)
        if wanted is None:
            return False
        self.socket.sendall(wanted)
        return True

    def is_answered(self) -> bool:
        data = self.socket.recv(65_536)
        if not data:
            raise RuntimeError("the server closed the connection")
        got = self._got + data
        end = got.find(b"\r\n\r\n")
        if end < 0 or len(got) < end + 4 + _length(got[:end].lower()):
            self._got = got
            return False
        if not got.startswith(b"HTTP/1.1 2"):
            said = got[end + 4 :][:300]
            raise RuntimeError(f"the server answered {got[9:12].decode()}: {said!r}")
        self._got = b""
        return True


def _length(head: bytes) -> int:
    start = head.index(b"content-length:") + 15
    end = head.find(b"\r\n", start)
    return int(head[start:] if end < 0 else head[start:end])


def load(url: str, bodies: list[bytes]) -> float:
    """Post each of the bodies once; how many seconds it took."""
    parts = urlsplit(url)
    requests = iter([request(parts.path, body) for body in bodies])
    poll = selectors.DefaultSelector()
    started = time.perf_counter()
    for _ in range(CONNECTIONS):
        connection = _Connection((str(parts.hostname), int(parts.port or 80)), requests)
        if connection.send():
            poll.register(connection.socket, selectors.EVENT_READ, connection)
    while poll.get_map():
        found = poll.select(SILENCE_SECONDS)
        if not found:
            raise RuntimeError(f"the server was silent for {SILENCE_SECONDS:g} seconds")
        for key, _ in found:
            if key.data.is_answered() and not key.data.send():
                poll.unregister(key.fileobj)
                key.data.socket.close()
    return time.perf_counter() - started
