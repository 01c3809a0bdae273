"""The gate: the checks that are the same for all calls, in order, and the answer on the wire."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Mapping
from random import getrandbits
from typing import Any, Final

import msgspec

from oncely.model.draft import check_name
from oncely.model.errors import OncelyError
from oncely.model.token import Token
from oncely.surface.acting import acting
from oncely.surface.asgi.exchange import Disconnected, TooLarge, has_arrived, take_body
from oncely.surface.asgi.types import Receive, Scope, Send
from oncely.surface.base import is_job_id
from oncely.surface.http import problem
from oncely.surface.http.decode import decode_body, decode_query
from oncely.surface.http.endpoint import Answer, Call, Endpoint, absent
from oncely.surface.http.open_store import ONLY_THIS_MACHINE, is_address, is_local
from oncely.surface.http.paths import Paths
from oncely.surface.http.problem import Refused
from oncely.surface.http.service import Service, Settings

_access: Final = logging.getLogger("oncely.access")
_errors: Final = logging.getLogger("oncely.http")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
_CONTROL: Final = re.compile(rb"[^\t -~\x80-\xff]")
_BODY_SECONDS: Final = 60.0
_DRAIN_SECONDS: Final = 1.0
_HEADERS_LIMIT_BYTES: Final = 32 * 1024
_HEADER_LIMIT_BYTES: Final = 8 * 1024
_SINGLE: Final = frozenset(
    {
        "authorization",
        "content-encoding",
        "content-length",
        "content-type",
        "host",
        "idempotency-key",
        "origin",
        "transfer-encoding",
        "x-request-id",
    }
)
_ALWAYS_SENT: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
_encoder: Final = msgspec.json.Encoder()


class Gate:
    """All calls of one path."""

    def __init__(self, service: Service, endpoints: Iterable[Endpoint]) -> None:
        self._service = service
        self._endpoints = {each.method: each for each in endpoints}
        self._decoders = {
            each.method: msgspec.json.Decoder(each.body)
            for each in self._endpoints.values()
            if each.body is not None
        }
        self._allow = ", ".join(sorted(self._endpoints))

    async def take(
        self, exchange: Exchange, scope: Scope, receive: Receive, path: Mapping[str, str]
    ) -> None:
        method = scope["method"]
        endpoint = self._endpoints.get("GET" if method == "HEAD" else method)
        if endpoint is None:
            raise Refused(
                "method_not_allowed",
                f"This path has {self._allow}, and no {method}."
                if method.isalpha()
                else f"This path has {self._allow}.",
                headers={"allow": self._allow},
            )
        headers = exchange.headers
        token = None
        if endpoint.scope is not None:
            token = exchange.token = await self._service.admit(headers.get("authorization"))
            self._service.spend(token)
            _refuse_foreign(endpoint, token, scope, headers, self._service.settings)
        call: Call[Any, Any] = Call(
            self._service, path=path, headers=headers, token=token, receive=receive
        )
        if "queue" in path:
            call.enter(check_name(path["queue"], "queue"))
        if "id" in path and not is_job_id(path["id"]):
            raise absent()
        call.query = decode_query(scope["query_string"], endpoint.query)
        data = await self._body(endpoint, scope, receive, headers)
        exchange.is_body_read = True
        decoder = self._decoders.get(endpoint.method)
        if decoder is not None:
            call.body = decode_body(
                data,
                headers.get("content-type"),
                decoder,
                is_optional=endpoint.body_optional,
            )
        if endpoint.scope == "publish":
            answer = await endpoint.act(call)
        else:
            with acting(call.caller):  # the trail keeps who changed what, and no enqueue
                answer = await endpoint.act(call)
        await exchange.answer(endpoint, answer)

    async def _body(
        self, endpoint: Endpoint, scope: Scope, receive: Receive, headers: Mapping[str, str]
    ) -> bytes:
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Refused("unsupported_media_type", "Send the body as it is, not compressed.")
        settings = self._service.settings
        limit = settings.max_batch_bytes if endpoint.large else settings.max_body_bytes
        announced = headers.get("content-length", "")
        try:
            if announced.isdecimal() and int(announced[:18]) > limit:
                raise TooLarge
            if has_arrived(scope):  # A timer would cost more than to read the body.
                data = await take_body(receive, limit)
            else:
                async with asyncio.timeout(_BODY_SECONDS):
                    data = await take_body(receive, limit)
        except TimeoutError:
            raise Refused(
                "body_too_slow",
                f"The body did not arrive within {_BODY_SECONDS:g} seconds.",
                headers={"connection": "close"},
            ) from None
        except TooLarge:
            raise Refused(
                "body_too_large", f"The body of this call may have {limit:,} bytes."
            ) from None
        _refuse_unlike_announced(data, headers)
        return data


def _refuse_unlike_announced(data: bytes, headers: Mapping[str, str]) -> None:
    """Servers that use httptools skip the body of a request that asks for an upgrade, and read it
    as the next request. `oncely serve` is none of them, but this app may be mounted in one."""
    announced = headers.get("content-length")
    is_lost = not data and "upgrade" in headers and "transfer-encoding" in headers
    if is_lost or (announced is not None and announced != str(len(data))):
        raise Refused(
            "malformed_request",
            f"The body has {len(data):,} bytes, which is not what the head announces.",
            headers={"connection": "close"},
        )


async def _drain(receive: Receive) -> bool:
    """Whether the body has come to its end. Many clients look for an answer only after they have
    sent all, and would find the connection closed. So some more is taken and thrown away; of one
    that never ends, not for long."""
    try:
        async with asyncio.timeout(_DRAIN_SECONDS):
            while (await receive()).get("more_body", False):
                pass
    except TimeoutError:
        return False
    return True


def _refuse_foreign(
    endpoint: Endpoint,
    token: Token | None,
    scope: Scope,
    headers: Mapping[str, str],
    settings: Settings,
) -> None:
    if token is not None:
        if endpoint.scope is not None and not token.may(endpoint.scope):
            raise Refused(
                "scope_missing",
                f"This call takes a key with scope {endpoint.scope!r}; this one has "
                f"{', '.join(token.scopes)}.",
            )
        return
    if not (settings.open_to_everyone or is_local(scope, headers)):
        raise Refused("not_this_machine", ONLY_THIS_MACHINE)
    # Nobody needs a key here, so a page in somebody's browser must not be able to ask. A request
    # of such a page looks like that of any client: a browser says nothing of the page to a plain
    # http address.
    origin, host = headers.get("origin"), headers.get("host", "")
    site = headers.get("sec-fetch-site")
    foreign = origin is not None and origin.partition("://")[2] != host
    browsed = origin is not None or site is not None
    named = not is_address(host) and (browsed or not settings.open_to_everyone)
    if foreign or site == "cross-site" or named:
        raise Refused(
            "cross_site",
            "A server without tokens takes no requests of other sites, and is asked for by its "
            "address, not by a name: `oncely token create` makes a token.",
        )


class Exchange:
    """One request on the wire: its headers, its id, and its one answer."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._begun = time.perf_counter()
        self.token: Token | None = None
        self.status: int | None = None
        self.headers: dict[str, str] = {}
        self.is_body_read = False
        self._request_id: str | None = None

    @property
    def request_id(self) -> str:
        """The client's own, or one of ours."""
        if self._request_id is None:
            self._request_id = f"req_{getrandbits(96):024x}"
        return self._request_id

    def take_headers(self) -> None:
        """After a head that cannot be used nothing more is read: its end may be another one's to
        a proxy before us."""
        try:
            self._take_headers()
        except Refused as refused:
            refused.headers["connection"] = "close"
            raise

    def _take_headers(self) -> None:
        size = 0
        given, taken = self._scope["headers"], self.headers
        for raw_name, raw_value in given:
            size += len(raw_name) + len(raw_value)
            if len(raw_value) > _HEADER_LIMIT_BYTES or size > _HEADERS_LIMIT_BYTES:
                raise Refused(
                    "headers_too_large",
                    f"One header may have {_HEADER_LIMIT_BYTES:,} bytes, all together "
                    f"{_HEADERS_LIMIT_BYTES:,}.",
                )
            name = raw_name.decode("latin-1").lower()
            if name in taken and name in _SINGLE:
                raise Refused("invalid_header", f"The header {name} is given twice.")
            taken[name] = raw_value.decode("latin-1")
        if _CONTROL.search(b"".join([value for _, value in given])):
            name = next(name for name, value in given if _CONTROL.search(value)).decode("latin-1")
            raise Refused("invalid_header", f"The header {name} has a control character.")
        if taken.get("transfer-encoding", "chunked").lower() != "chunked":
            raise Refused("malformed_request", "Of the transfer codings there is only chunked.")
        if "host" not in taken and self._scope["http_version"] == "1.1":
            raise Refused("malformed_request", "The header Host is missing.")
        asked = taken.get("x-request-id")
        if asked is not None and _REQUEST_ID.fullmatch(asked):
            self._request_id = asked

    async def answer(self, endpoint: Endpoint, answer: Answer) -> None:
        value = answer.value
        body = value if isinstance(value, bytes) else _encoder.encode(value)
        sent = self._headers(answer.status, endpoint.media_type, body, answer.headers)
        await self._put(answer.status, sent, body)

    async def refuse(self, refused: Refused, receive: Receive) -> None:
        """A body that was not asked for is not read for ever."""
        has_body = "transfer-encoding" in self.headers or "content-length" in self.headers
        is_kept = "connection" not in refused.headers
        if has_body and is_kept and not self.is_body_read and not await _drain(receive):
            refused.headers["connection"] = "close"
        body = refused.body()
        sent = self._headers(refused.status, problem.MEDIA_TYPE, body, refused.headers)
        await self._put(refused.status, sent, body)

    def _headers(
        self, status: int, media_type: str, body: bytes, headers: Mapping[str, str]
    ) -> list[tuple[bytes, bytes]]:
        self.status = status
        return [
            (b"content-type", media_type.encode()),
            (b"content-length", b"%d" % len(body)),
            *_ALWAYS_SENT,
            (b"x-request-id", self.request_id.encode()),
            *((name.encode(), value.encode("latin-1")) for name, value in headers.items()),
        ]

    async def _put(self, status: int, sent: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": sent})
        await self._send({"type": "http.response.body", "body": body})

    def log(self) -> None:
        """Never the payload, the key or the query."""
        if _access.isEnabledFor(logging.INFO):
            scope = self._scope
            path = (scope.get("raw_path") or b"").decode("ascii", "backslashreplace")[:512]
            fields = {
                "event": "request",
                "method": scope["method"],
                "path": path,
                "status": self.status,
                "ms": round((time.perf_counter() - self._begun) * 1000, 2),
                "token": None if self.token is None else self.token.token_id,
                "client": (scope.get("client") or [None])[0],
                "request_id": self.request_id,
            }
            line = " ".join(f"{name}={value}" for name, value in fields.items())
            _access.info("%s", line, extra={"oncely": fields})


class Front:
    """Around the gates, and the router for all other paths: whatever happens inside, there is one
    answer, with a request id."""

    def __init__(self, router: Any, gates: Paths[Gate]) -> None:
        self._router = router
        self._gates = gates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        exchange = Exchange(scope, send)
        try:
            exchange.take_headers()
            if b"%2F" in (scope.get("raw_path") or b"").upper():
                # A proxy that guards paths has seen another one than the server would find.
                raise Refused("not_found", "No path here has a slash that is written as %2F.")
            found = self._gates.find(_path(scope))
            if found is None:
                await self._router({**scope, "oncely.exchange": exchange}, receive, send)
            else:
                gate, path = found
                await gate.take(exchange, scope, receive, path)
        except Disconnected:
            pass
        except Refused as refused:
            await exchange.refuse(refused, receive)
        except OncelyError as error:
            await self._refuse(exchange, error, receive)
        except Exception as error:
            if exchange.status is not None:
                raise
            await self._refuse(exchange, error, receive)
        finally:
            exchange.log()

    async def _refuse(self, exchange: Exchange, error: Exception, receive: Receive) -> None:
        refused = problem.of(error) if isinstance(error, OncelyError) else None
        if refused is None or refused.status >= 500:
            _errors.error("request_id=%s", exchange.request_id, exc_info=error)
        if refused is None:
            refused = Refused(
                "internal_error",
                f"Something went wrong here; the log has it under {exchange.request_id}.",
            )
        await exchange.refuse(refused, receive)


def _path(scope: Scope) -> str:
    """Below where the app is mounted."""
    path: str = scope["path"]
    root = scope.get("root_path", "")
    return path.removeprefix(root) if root and path.startswith(f"{root}/") else path
