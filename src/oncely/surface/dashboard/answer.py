"""One answer of the dashboard on the wire, with the headers that every page has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from oncely.surface.asgi.types import Scope, Send
from oncely.surface.dashboard.ask import Go, Page, View, Viewer
from oncely.surface.dashboard.render import render

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site

_SAID: Final = "oncely_said"
_UNREAD_BODY_STATUSES: Final = (408, 413)
"""Statuses of requests whose body was not read to its end. The connection is closed after them."""
_GUARDS: Final = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        b"connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


class Answer:
    def __init__(self, scope: Scope, send: Send, nav: Sequence[Page]) -> None:
        self._nav = nav
        self._scope = scope
        self._send = send
        self.root: str = scope.get("root_path", "")
        self.headers = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope["headers"]
        }
        self.viewer: Viewer | None = None
        self.status: int | None = None

    async def page(self, site: Site, view: View, *, title: str) -> None:
        said = self._said()
        base = "part.html" if self.headers.get("hx-request") == "true" else "base.html"
        data = {
            "title": title,
            "said": said,
            "viewer": self.viewer,
            "base": base,
            "here": self._scope["path"].removeprefix(self.root),
            "nav": self._nav,
            **site.names(self.root),
            **view.data,
        }
        text = render(view.template, data)
        headers = [(b"content-type", b"text/html; charset=utf-8"), (b"cache-control", b"no-store")]
        headers += [
            (name.encode(), value.encode("latin-1")) for name, value in view.headers.items()
        ]
        if said is not None:
            headers.append(self._cookie("", 0))
        await self.put(view.status, headers, text.encode())

    async def lead(self, path: str, go: Go | None = None) -> None:
        headers = [(b"location", (self.root + path).encode("latin-1", "ignore"))]
        headers.append((b"cache-control", b"no-store"))
        if go is not None:
            headers += [(name.encode(), value.encode("latin-1")) for name, value in go.headers]
            if go.said:
                headers.append(self._cookie(f"{go.tone}:{go.said[:1000]}", 60))
        await self.put(303, headers, b"")

    async def put(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        await self.begin(status, [*headers, (b"content-length", b"%d" % len(body))])
        sent = b"" if self._scope["method"] == "HEAD" else body
        await self._send({"type": "http.response.body", "body": sent})

    async def begin(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        exchange = self._scope.get("oncely.exchange")
        if exchange is not None:
            exchange.status = status
        if status in _UNREAD_BODY_STATUSES:
            headers = [*headers, (b"connection", b"close")]
        await self._send(
            {"type": "http.response.start", "status": status, "headers": [*headers, *_GUARDS]}
        )

    async def more(self, body: bytes) -> None:
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    def _said(self) -> tuple[str, str] | None:
        tone, _, text = unquote(cookies(self.headers).get(_SAID, "")).partition(":")
        return (tone, text) if text and tone in ("good", "bad") else None

    def _cookie(self, value: str, life_seconds: int) -> tuple[bytes, bytes]:
        text = (
            f"{_SAID}={quote(value, safe='')}; Max-Age={life_seconds}; Path={self.root or '/'}; "
            "HttpOnly; SameSite=Strict"
        )
        return b"set-cookie", text.encode()


def cookies(headers: Mapping[str, str]) -> dict[str, str]:
    try:
        found = SimpleCookie(headers.get("cookie", ""))
    except CookieError:
        return {}
    return {name: morsel.value for name, morsel in found.items()}
