"""One request and its response, as the app has them while a record is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from oncely.model.request import Headers, Response, kept_headers
from oncely.surface.asgi.types import Message, Receive, Scope, Send

Settle = Callable[[Response | None], Awaitable[None]]
_DISCONNECT: Final = "http.disconnect"
ARRIVAL: Final = "oncely.arrival"
"""Where an app finds the `Arrival` of a connection, in the state of its scope."""


class TooLarge(Exception):
    """The body is larger than allowed."""


class Disconnected(Exception):
    """The client went away before its request was whole."""


class Arrival:
    """How far the requests of one connection have arrived."""

    is_whole = True
    """Whether each request that began to arrive has arrived to its end."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> bytes:
    announced = header(scope, b"content-length")
    if announced and announced[0].isdigit() and int(announced[0][:18]) > limit:
        raise TooLarge
    return await take_body(receive, limit)


async def take_body(receive: Receive, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == _DISCONNECT:
            raise Disconnected
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit:
            raise TooLarge
        if not message.get("more_body", False):
            return b"".join([*chunks, chunk]) if chunks else chunk
        chunks.append(chunk)


def has_arrived(scope: Scope) -> bool:
    """Whether the server knows that the whole request is there: `receive` will not wait."""
    arrival: Arrival | None = scope.get("state", {}).get(ARRIVAL)
    return arrival is not None and arrival.is_whole


def header(scope: Scope, name: bytes) -> list[bytes]:
    return [value for found, value in scope["headers"] if found.lower() == name]


def without_shortcuts(scope: Scope) -> Scope:
    """For the app: without the extensions by which a response can pass us by, as a path say."""
    extensions = scope.get("extensions") or {}
    left = {name: on for name, on in extensions.items() if not name.startswith("http.response.")}
    return scope if len(left) == len(extensions) else {**scope, "extensions": left}


async def replay(response: Response, send: Send) -> None:
    kept: list[tuple[str, str]] = msgspec.json.decode(response.headers or "[]")
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in kept]
    headers.append((b"idempotent-replayed", b"true"))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": response.body or b""})


class Exchange:
    """The app's `receive` and `send`. `settle` is told the response before the client has heard
    the end of it, so that what a client was told is on record.

    That the client went away is kept from the app until then: it is the reason for which there will
    be a repeat, and the repeat wants the response.
    """

    def __init__(
        self, body: bytes, receive: Receive, send: Send, limit: int, settle: Settle
    ) -> None:
        self._body: bytes | None = body
        self._receive = receive
        self._send = send
        self._limit = limit
        self._settle = settle
        self._client_gone = False
        self._status: int | None = None
        self._headers: Headers = ()
        self._chunks: list[bytes] = []
        self._size = 0
        self._settled = asyncio.Event()

    async def receive(self) -> Message:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        message: Message = {"type": _DISCONNECT}
        if not self._client_gone:
            message = await self._receive()
        if message["type"] == _DISCONNECT:
            self._client_gone = True
            await self._settled.wait()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = int(message["status"])  # which may be an HTTPStatus
            self._headers = list(message.get("headers", ()))
            message = {**message, "headers": self._headers}  # which may be a generator
            self._size = sum(len(name) + len(value) for name, value in self._headers)
        elif message["type"] == "http.response.body" and not self._settled.is_set():
            await self._take(message)
        try:
            await self._send(message)
        except OSError:
            if self._settled.is_set():
                raise

    async def _take(self, message: Message) -> None:
        if self._status is None:
            return  # The server refuses it.
        chunk: Any = message.get("body", b"")
        self._size += len(chunk)
        if self._size > self._limit:
            self._chunks.clear()
            await self._end(Response(self._status, None, None))
            return
        self._chunks.append(bytes(chunk))
        if not message.get("more_body", False):
            headers = msgspec.json.encode(kept_headers(self._headers)).decode()
            await self._end(Response(self._status, headers, b"".join(self._chunks)))

    async def give_up(self) -> None:
        """The app has ended; if its response is not whole, there is none."""
        if not self._settled.is_set():
            await self._end(None)

    async def _end(self, response: Response | None) -> None:
        self._settled.set()
        await self._settle(response)
