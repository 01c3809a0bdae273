"""One connection to a receiver: its bytes as they come, never more than a bound of them."""

from __future__ import annotations

import asyncio
import time
from typing import Final, cast

LIMIT: Final = 16 * 1024


class Line(asyncio.Protocol):
    """Reading pauses when more has come than was asked for, so a flood stays with its sender."""

    def __init__(self) -> None:
        self.born = self.used = time.monotonic()
        self._buffer = bytearray()
        self._waiter: asyncio.Future[None] | None = None
        self._ended = False
        self._paused = False
        self._error: Exception | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not asserted: the transports of other event loops do not derive from it.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > LIMIT and self._transport is not None:
            self._transport.pause_reading()
            self._paused = True
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._error = exc
        self._wake()

    @property
    def is_quiet(self) -> bool:
        """Nothing came that was not asked for. What did would be taken for the next answer."""
        return not self._buffer and not self._ended

    def send(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def until(self, end: bytes) -> bytes:
        """The bytes up to and with `end`, which must come within the bound."""
        searched = 0
        while True:
            found = self._buffer.find(end, searched, LIMIT)
            if found >= 0:
                return self._cut(found + len(end))
            if len(self._buffer) >= LIMIT:
                raise ValueError(f"no end within {LIMIT:,} bytes")
            searched = max(0, len(self._buffer) - len(end) + 1)
            await self._more()

    async def skip(self, count: int) -> None:
        while count > len(self._buffer):
            count -= len(self._buffer)
            self._buffer.clear()
            await self._more()
        del self._buffer[:count]

    def _cut(self, count: int) -> bytes:
        part = bytes(self._buffer[:count])
        del self._buffer[:count]
        return part

    async def _more(self) -> None:
        if self._ended:
            raise self._error or EOFError("the connection was closed")
        if self._paused and self._transport is not None:
            self._paused = False
            self._transport.resume_reading()
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
