"""`IdempotencyMiddleware`: a request that comes twice is run once, and answered twice."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Final, assert_never, get_args

from oncely.model.errors import InvalidInput, StoreError
from oncely.model.keys import check_key, shown
from oncely.model.request import OnUnknown, Response, Seen, fingerprint, judge, parse_key
from oncely.store.requests import Mark
from oncely.surface.app import Oncely
from oncely.surface.asgi import problem
from oncely.surface.asgi.exchange import (
    Disconnected,
    Exchange,
    TooLarge,
    header,
    read_body,
    replay,
    without_shortcuts,
)
from oncely.surface.asgi.record import Record, tell
from oncely.surface.asgi.types import ASGIApp, Message, Receive, Scope, Send

_MEBIBYTE: Final = 1024 * 1024
_LONGEST_SECONDS: Final = 366 * 86_400
_LARGEST_BYTES: Final = 256 * _MEBIBYTE


class IdempotencyMiddleware:
    """Gives an ASGI app the `Idempotency-Key` header.

    The first request with a key runs, and its response is the answer to every repeat, with
    `Idempotent-Replayed: true`. While it runs, a repeat gets 409; another request with the same
    key gets 422. The options:

    - `store`: an `Oncely`, or its URL; without it as `Oncely()`.
    - `scope`: whose key it is: a function of the ASGI scope that names the caller. Keys of
      different callers are different. Without it, the caller is known by the headers
      `Authorization` and `Cookie`, and a key that another caller has used gets 409.
    - `required`: whether a request without a key gets 400: a bool, or a function of the ASGI
      scope.
    - `methods`: others pass through, key or not.
    - `on_unknown`: what becomes of a repeat if nobody knows what the first request did, because
      its server died or it ended in an exception: `"refuse"` (409), or `"run"`. With `"run"` a
      5xx is not kept either.
    - `retention_seconds`: so long a key is remembered after the response.
    - `in_flight_seconds`: so long after its server died a request is taken to be in flight.
    - `max_body_bytes`: a larger request gets 413.
    - `max_response_bytes`: a larger response is sent, and not kept; a repeat gets 409.
    """

    def __init__(
        self,
        app: ASGIApp,
        store: Oncely | str | None = None,
        *,
        scope: Callable[[Scope], str | None] | None = None,
        required: bool | Callable[[Scope], bool] = False,
        methods: Iterable[str] = ("POST", "PATCH"),
        on_unknown: OnUnknown = "refuse",
        retention_seconds: float = 86_400,
        in_flight_seconds: float = 60,
        max_body_bytes: int = _MEBIBYTE,
        max_response_bytes: int = _MEBIBYTE,
    ) -> None:
        self._methods = _check_methods(methods)
        if on_unknown not in get_args(OnUnknown):
            raise InvalidInput(f"on_unknown is {shown(on_unknown)}; expected 'refuse' or 'run'")
        _check_seconds("retention_seconds", retention_seconds, _LONGEST_SECONDS)
        _check_seconds("in_flight_seconds", in_flight_seconds, retention_seconds)
        _check_bytes("max_body_bytes", max_body_bytes)
        _check_bytes("max_response_bytes", max_response_bytes)
        self._app = app
        self._owns_store = not isinstance(store, Oncely)
        self._store = store if isinstance(store, Oncely) else Oncely(store)
        self._scope = scope
        self._required = required
        self._keep_us = round(retention_seconds * 1_000_000)
        self._hold_us = round(in_flight_seconds * 1_000_000)
        self._max_body_bytes = max_body_bytes
        self._max_response_bytes = max_response_bytes
        self._record = Record(
            self._store, on_unknown=on_unknown, renew_seconds=in_flight_seconds / 3
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, partial(self._lifespan, send))
        elif scope["type"] == "http" and scope["method"] in self._methods:
            await self._request(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _lifespan(self, send: Send, message: Message) -> None:
        if message["type"] == "lifespan.shutdown.complete":
            await self._record.finish()
            if self._owns_store:
                await self._store.aclose()
        await send(message)

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        values = header(scope, b"idempotency-key")
        if not values:
            required = self._required(scope) if callable(self._required) else self._required
            if required:
                await problem.MISSING.send(send)
            else:
                await self._app(scope, receive, send)
            return
        try:
            key = parse_key(values)
        except InvalidInput as error:
            await problem.invalid(str(error)).send(send)
            return
        caller = self._name_caller(scope)
        try:
            body = await read_body(scope, receive, self._max_body_bytes)
        except Disconnected:
            return
        except TooLarge:
            await problem.too_large(self._max_body_bytes).send(send)
            return
        mark = Mark(caller, key, secrets.randbits(62), self._hold_us, self._keep_us)
        try:
            found = await self._record.begin(mark, partial(self._fingerprint, scope, body))
        except StoreError as error:
            tell(logging.ERROR, "a request was not run: it cannot be recorded", error=error)
            await problem.STORE_UNAVAILABLE.send(send)
            return
        if found is None:
            settle = partial(self._record.settle, mark)
            exchange = Exchange(body, receive, send, self._max_response_bytes, settle)
            await self._run(mark, scope, exchange)
        else:
            await self._answer(key, *found, send)
        self._record.prune_now_and_then()

    def _name_caller(self, scope: Scope) -> str:
        named = None if self._scope is None else self._scope(scope)
        return "" if named is None else check_key(named, "what the function scope= returned")

    def _fingerprint(self, scope: Scope, body: bytes) -> str:
        path = scope.get("raw_path") or scope["path"].encode("utf-8", "surrogatepass")
        credentials = _credentials(scope) if self._scope is None else None
        return fingerprint(scope["method"], path, scope.get("query_string", b""), body, credentials)

    async def _run(self, mark: Mark, scope: Scope, exchange: Exchange) -> None:
        alive = self._record.keep_alive(mark)
        try:
            await self._app(without_shortcuts(scope), exchange.receive, exchange.send)
        except (Exception, asyncio.CancelledError):
            await exchange.give_up()
            raise
        else:
            await exchange.give_up()
        finally:
            alive.cancel()

    async def _answer(self, key: str, seen: Seen, asked: str, send: Send) -> None:
        verdict = judge(seen, asked)
        outcome = "deduplicated" if verdict == "replay" else verdict
        tell(logging.INFO, "a key came again", key=key, outcome=outcome)
        match verdict:
            case "other_caller":
                await problem.OTHER_CALLER.send(send)
            case "mismatch":
                await problem.MISMATCH.send(send)
            case "in_flight":
                await problem.IN_FLIGHT.send(send)
            case "unknown":
                await problem.UNKNOWN.send(send)
            case "not_kept":
                await problem.not_kept(seen.status or 0).send(send)
            case "replay":
                await replay(Response(seen.status or 0, seen.headers, seen.body), send)
            case _:
                assert_never(verdict)


def _credentials(scope: Scope) -> list[bytes]:
    """HTTP/2 sends one `Cookie` header in parts, which may be other parts each time."""
    cookies = b"; ".join(header(scope, b"cookie"))
    return [cookies, *header(scope, b"authorization")]


def _check_methods(methods: Iterable[str]) -> frozenset[str]:
    named = [] if isinstance(methods, str) else list(methods)
    if not named or not all(isinstance(name, str) and name.isalpha() for name in named):
        raise InvalidInput(
            f"methods is {shown(methods)}; expected names of methods, such as ('POST', 'PATCH')"
        )
    return frozenset(name.upper() for name in named)


def _check_seconds(name: str, value: Any, longest: float) -> None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or not 0 < value <= longest:
        raise InvalidInput(
            f"{name} is {shown(value)}; expected seconds above 0, at most {longest:,}"
        )


def _check_bytes(name: str, value: Any) -> None:
    usable = isinstance(value, int) and not isinstance(value, bool)
    if not usable or not 0 <= value <= _LARGEST_BYTES:
        raise InvalidInput(f"{name} is {shown(value)}; expected bytes from 0 to {_LARGEST_BYTES:,}")
