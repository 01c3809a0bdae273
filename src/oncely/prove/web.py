"""A request to a web app, delivered in this process through ASGI or WSGI, as a client sends it."""

from __future__ import annotations

import asyncio
import inspect
import io
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote_to_bytes
from wsgiref.util import setup_testing_defaults

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import InvalidInput
from oncely.model.outcome import Nack, Rest
from oncely.store.deliver import settle, settlement
from oncely.surface.app import Oncely

_REQUEST: Final = re.compile(r"([A-Z]+) (/\S*)")
_COME_AGAIN: Final = (408, 425, 429)
_SHOWN: Final = 200


class WebRequest(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: str
    headers: dict[str, str]

    def with_payload(self, payload: Any) -> tuple[dict[str, str], bytes]:
        """The headers in lower case, and the body: JSON, unless a header names another type."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        headers.setdefault("host", "localhost")
        if payload is None:
            return headers, b""
        if "json" not in headers.setdefault("content-type", "application/json"):
            return headers, str(payload).encode()
        return headers, msgspec.json.encode(payload)


def is_request(text: str | None) -> bool:
    return isinstance(text, str) and _REQUEST.fullmatch(text) is not None


def is_web_app(target: Any) -> bool:
    return is_asgi(target) or _parameters(target) == ["environ", "start_response"]


def is_asgi(target: Any) -> bool:
    return _parameters(target) == ["scope", "receive", "send"]


def _parameters(target: Any) -> list[str]:
    try:
        return list(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return []


def web_handler(
    app: Any, text: str, headers: Mapping[str, str], queue: Oncely
) -> Callable[..., Any]:
    """A handler whose payload is the body. A client comes again after a crash, an exception and an
    answer that says so (5xx, 408, 425, 429); any other answer to a repeat is its last one."""
    match = _REQUEST.fullmatch(text)
    if match is None:
        raise InvalidInput(f"the request is {text!r}; expected METHOD /path, such as POST /orders")
    path, _, query = match[2].partition("?")
    request = WebRequest(match[1], path, query, dict(headers))
    if is_asgi(app):

        async def through_asgi(ctx: Context, payload: Any) -> None:
            def answered(status: int) -> None:
                """The client has what it asked for, and does not come again, whatever becomes of
                the work that the app does after that."""
                if status < 400:
                    done = settlement(ctx.claimed, Rest("completed", result="null"))
                    if not queue._engine.run(lambda _: settle([done]), "transaction"):
                        ctx.completion.begun = ctx.completion.confirmed = True

            _judge(ctx, text, *await _ask_asgi(app, request, payload, answered))

        return through_asgi

    def through_wsgi(ctx: Context, payload: Any) -> None:
        _judge(ctx, text, *_ask_wsgi(app, request, payload))

    return through_wsgi


def _judge(ctx: Context, text: str, status: int, body: bytes) -> None:
    if status < 400:
        return
    answer = f"{text} was answered {status}: {body.decode(errors='replace')[:_SHOWN]}"
    if status >= 500 or status in _COME_AGAIN:
        raise Nack(answer)
    if ctx.epoch == 1:  # the first delivery
        raise Nack(answer, retryable=False)


async def _ask_asgi(
    app: Any, request: WebRequest, payload: Any, tell_answered: Callable[[int], None]
) -> tuple[int, bytes]:
    headers, body = request.with_payload(payload)
    status, parts, answered = 0, [], asyncio.Event()
    incoming = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> dict[str, Any]:
        if incoming:
            return incoming.pop()
        await answered.wait()
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        elif message["type"] == "http.response.body":
            parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                answered.set()
                tell_answered(status)

    async with _lifespan(app) as state:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote_to_bytes(request.path).decode(errors="replace"),
            "raw_path": request.path.encode(),
            "query_string": request.query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
            "state": state,
        }
        await app(scope, receive, send)
    return status, b"".join(parts)


@asynccontextmanager
async def _lifespan(app: Any) -> AsyncIterator[dict[str, Any]]:
    """What a server does before the first request and after the last one, if the app takes part."""
    incoming: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    state: dict[str, Any] = {}
    scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": state}

    async def live() -> None:
        try:
            await app(scope, incoming.get, answers.put)
        except Exception as error:
            # Before it has said anything: it knows no lifespan, which the protocol allows.
            await answers.put({"type": "lifespan.over", "message": str(error)})

    running = asyncio.create_task(live())
    incoming.put_nowait({"type": "lifespan.startup"})
    started = await answers.get()
    if started["type"] == "lifespan.startup.failed":
        raise RuntimeError(f"the app did not start: {started.get('message', '')}")
    try:
        yield dict(state)
    finally:
        if started["type"] == "lifespan.startup.complete":
            incoming.put_nowait({"type": "lifespan.shutdown"})
            await answers.get()
        await running


def _ask_wsgi(app: Any, request: WebRequest, payload: Any) -> tuple[int, bytes]:
    headers, body = request.with_payload(payload)
    environ: dict[str, Any] = {
        "REQUEST_METHOD": request.method,
        "PATH_INFO": unquote_to_bytes(request.path).decode("latin-1"),
        "QUERY_STRING": request.query,
        "CONTENT_LENGTH": str(len(body)),
        "CONTENT_TYPE": headers.pop("content-type", ""),
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.input": io.BytesIO(body),
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in headers.items()},
    }
    setup_testing_defaults(environ)
    status = 0
    parts: list[bytes] = []

    def start_response(line: str, _headers: Any, _error: Any = None) -> Callable[[bytes], None]:
        nonlocal status
        status = int(line.partition(" ")[0])
        return parts.append

    result = app(environ, start_response)
    try:
        parts += list(result)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    return status, b"".join(parts)
