"""A client that keeps many connections busy: one request after the other on each of them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from urllib.parse import urlsplit

CONNECTIONS = 64


def request(path: str, body: bytes) -> bytes:
    return (
        b"POST %s HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        b"content-length: %d\r\n\r\n%s" % (path.encode(), len(body), body)
    )


class _Connection(asyncio.Protocol):
    """Sends the next request when the answer to the last one is complete."""

    def __init__(self, next_request: Callable[[], bytes | None], over: asyncio.Future[None]):
        self._next = next_request
        self._over = over
        self._got = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def _send(self) -> None:
        wanted = self._next()
        if wanted is None:
            self._transport.close()
            if not self._over.done():
                self._over.set_result(None)
        else:
            self._transport.write(wanted)

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, body = self._got.partition(b"\r\n\r\n")
        if not found:
            return
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) < length:
            return
        status = lines[0].split()[1]
        if not status.startswith(b"2"):
            self._fail(RuntimeError(f"the server answered {status.decode()}: {body[:300]!r}"))
            return
        self._got = b""
        self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._over.done():
            self._fail(error or RuntimeError("the server closed the connection"))

    def _fail(self, error: Exception) -> None:
        self._transport.close()
        if not self._over.done():
            self._over.set_exception(error)


async def load(url: str, bodies: list[bytes]) -> float:
    """Post each of the bodies once; how many seconds it took."""
    parts = urlsplit(url)
    left = iter([request(parts.path, body) for body in bodies])
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(CONNECTIONS)]
    started = time.perf_counter()
    for over in ends:
        await loop.create_connection(
            lambda over=over: _Connection(lambda: next(left, None), over),
            parts.hostname,
            parts.port,
        )
    await asyncio.gather(*ends)
    return time.perf_counter() - started
