"""A client that drives an ASGI app directly, and an app to be driven."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from oncely.surface.asgi.types import ASGIApp, Message, Receive, Scope, Send

Headers = Sequence[tuple[bytes, bytes]]


@dataclass
class Answer:
    status: int = 0
    headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    body: bytes = b""
    whole: bool = False

    def header(self, name: bytes) -> list[bytes]:
        return [value for found, value in self.headers if found == name]

    @property
    def replayed(self) -> bool:
        return self.header(b"idempotent-replayed") == [b"true"]

    @property
    def problem(self) -> dict[str, Any]:
        assert self.header(b"content-type") == [b"application/problem+json"]
        told: dict[str, Any] = json.loads(self.body)
        assert told["status"] == self.status
        assert told["title"]
        assert told["detail"]
        return told

    @property
    def code(self) -> tuple[int, str]:
        return self.status, self.problem["code"]


class Client:
    """`gone` is set when the client hangs up: the app hears it, and what it sends is refused."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.gone = asyncio.Event()

    async def send(
        self,
        body: bytes = b"{}",
        *,
        key: str | None = "k",
        method: str = "POST",
        path: str = "/charge",
        query: bytes = b"",
        headers: Headers = (),
        chunks: Sequence[bytes] | None = None,
        **more: Any,
    ) -> Answer:
        sent = list(headers)
        if key is not None:
            sent.append((b"idempotency-key", key.encode("latin-1")))
        scope: Scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": query,
            "headers": sent,
            **more,
        }
        left = list(chunks) if chunks is not None else [body]
        answer = Answer()

        async def receive() -> Message:
            if left:
                chunk = left.pop(0)
                return {"type": "http.request", "body": chunk, "more_body": bool(left)}
            await self.gone.wait()
            return {"type": "http.disconnect"}

        async def take(message: Message) -> None:
            if self.gone.is_set():
                raise ConnectionResetError("the client is gone")
            if message["type"] == "http.response.start":
                answer.status, answer.headers = message["status"], list(message["headers"])
            else:
                assert answer.status, "a body without a start"
                assert not answer.whole, "a body after the last one"
                answer.body += message.get("body", b"")
                answer.whole = not message.get("more_body", False)

        await self._app(scope, receive, take)
        return answer


async def until(holds: Callable[[], bool]) -> None:
    for _ in count():
        if holds():
            return
        await asyncio.sleep(0.01)


class Till:
    """Counts its runs, and answers as it is told."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.status = 201
        self.headers: list[tuple[bytes, bytes]] = [(b"content-type", b"text/plain")]
        self.chunks: list[bytes] | None = None
        self.before: Callable[[Receive, Send], Awaitable[None]] | None = None
        self.between: Callable[[], Awaitable[None]] | None = None

    @property
    def runs(self) -> int:
        return len(self.bodies)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        body, more = b"", True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        self.bodies.append(body)
        number = self.runs
        if self.before is not None:
            await self.before(receive, send)
        start = {
            "type": "http.response.start",
            "status": self.status,
            "headers": iter(self.headers),
        }
        await send(start)
        chunks = self.chunks if self.chunks is not None else [b"run %d" % number]
        for chunk in chunks[:-1]:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            if self.between is not None:
                await self.between()
        await send({"type": "http.response.body", "body": chunks[-1]})
