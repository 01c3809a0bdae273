"""The dashboard as an ASGI app: served by `oncely serve`, or mounted in another app."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import parse_qs, quote

from starlette.routing import BaseRoute, Route, Router

from oncely.model.counter import OTHER_KINDS
from oncely.model.errors import OncelyError, StoreError
from oncely.model.redact import Redact
from oncely.surface.acting import acting
from oncely.surface.app import Oncely
from oncely.surface.asgi.exchange import Disconnected, TooLarge, read_body
from oncely.surface.asgi.types import Receive, Scope, Send
from oncely.surface.dashboard.answer import Answer
from oncely.surface.dashboard.ask import NOBODY, Ask, Go, Page, Refusal, View, Viewer
from oncely.surface.dashboard.live import Live
from oncely.surface.dashboard.pages import PAGES, TOPICS
from oncely.surface.dashboard.render import STATIC, digest
from oncely.surface.dashboard.session import Sessions, is_secure, refuse_forged
from oncely.surface.http.open_store import is_local
from oncely.surface.http.service import Service, Settings

_errors: Final = logging.getLogger("oncely.http")
_FORM_LIMIT_BYTES: Final = 2 * 1024 * 1024
_PUBLIC_FORM_LIMIT_BYTES: Final = 8 * 1024
_FORM_SECONDS: Final = 15.0
"""Of a page that is shown before anybody has signed in."""
_MEDIA: Final = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


class Site:
    """What all pages stand on."""

    def __init__(self, service: Service, redact: Iterable[str] = ()) -> None:
        self.service = service
        self.app = service.app
        self.redact = Redact(redact)
        self.live = Live(self, TOPICS)
        self.sessions = Sessions(service)

    async def viewer(
        self, scope: Scope, headers: Mapping[str, str], *, secure: bool
    ) -> Viewer | None:
        local = is_local(scope, headers)
        return await self.sessions.viewer(headers, secure=secure, local=local)

    def names(self, root: str) -> dict[str, Any]:
        """What every template knows."""
        return {
            "url": lambda path: root + path,
            "static": lambda name: f"{root}/static/{name}?v={digest(name)}",
            "redact": self.redact,
            "other_kinds": OTHER_KINDS,
        }


class Dashboard:
    """An ASGI app. It looks at the store of `app`, and stands at whatever path it is mounted.

    `redact` are names of fields that are never shown, beside the usual ones (password, token, …).
    A store without users and tokens is open to clients on this machine only, unless
    `open_to_everyone` says that it is open to all.
    """

    def __init__(
        self,
        app: Oncely,
        *,
        redact: Iterable[str] = (),
        open_to_everyone: bool = False,
        service: Service | None = None,
    ) -> None:
        settings = Settings(open_to_everyone=open_to_everyone)
        self.site = Site(service or Service(app, settings), redact)
        self._nav = [page for page in PAGES if page.nav]
        paths: dict[str, dict[str, Page]] = {}
        for page in PAGES:
            paths.setdefault(page.path, {})[page.method] = page
        routes: list[BaseRoute] = [
            Route("/static/{name}", _Static()),
            Route("/live", _Stream(self.site)),
            *(Route(path, _Door(self.site, methods)) for path, methods in paths.items()),
        ]
        self._router = Router(routes=routes, default=_nothing_here, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        answer = Answer(scope, send, self._nav)
        try:
            path = scope["path"].removeprefix(answer.root)
            if path == "" and scope["method"] in ("GET", "HEAD"):
                await answer.lead("/")
                return
            await self._router({**scope, "oncely.answer": answer}, receive, send)
        except Disconnected:
            pass
        except Refusal as refusal:
            await self._refuse(answer, refusal)
        except OncelyError as error:
            if isinstance(error, StoreError):
                _errors.error("a page of the dashboard failed: %s", scope["path"], exc_info=error)
            await self._refuse(answer, _refusal(error))
        except Exception:
            if answer.status is not None:
                raise
            _errors.exception("a page of the dashboard failed: %s", scope["path"])
            await self._refuse(
                answer,
                Refusal(500, "Something went wrong here", "The log of the server has the details."),
            )

    async def _refuse(self, answer: Answer, refusal: Refusal) -> None:
        data = {"title": refusal.title, "detail": refusal.detail, "status": refusal.status}
        view = View("refusal.html", data, refusal.status)
        await answer.page(self.site, view, title=refusal.title)


class _Door:
    """All pages of one path."""

    def __init__(self, site: Site, pages: Mapping[str, Page]) -> None:
        self._site = site
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, _: Send) -> None:
        answer: Answer = scope["oncely.answer"]
        method = "GET" if scope["method"] == "HEAD" else scope["method"]
        page = self._pages.get(method)
        if page is None:
            raise Refusal(405, "Not here", f"This page has no {method}.")
        secure = is_secure(scope)
        answer.viewer = await self._site.viewer(scope, answer.headers, secure=secure)
        if answer.viewer is None and not page.public:
            await _ask_to_sign_in(answer, scope)
            return
        limit = _PUBLIC_FORM_LIMIT_BYTES if page.public else _FORM_LIMIT_BYTES
        form = await _form(scope, receive, limit) if method == "POST" else {}
        if method == "POST":
            sent = form.get("csrf", [answer.headers.get("x-csrf-token", "")])[-1]
            refuse_forged(None if page.public else answer.viewer, answer.headers, sent)
        viewer = answer.viewer or NOBODY
        if not page.public and not viewer.may(page.needed):
            raise Refusal(
                403,
                "Only operators may do this",
                f"You are signed in as {viewer.name}, who may look and change nothing.",
            )
        client = scope.get("client")
        ask = Ask(
            self._site,
            viewer=viewer,
            root=answer.root,
            path=scope["path_params"],
            query=_pairs(scope["query_string"]),
            form=form,
            headers=answer.headers,
            address=client[0] if client else None,
            secure=secure,
        )
        with acting(viewer.name):
            outcome = await page.act(ask)
        if isinstance(outcome, Go):
            await answer.lead(outcome.path, outcome)
        else:
            await answer.page(self._site, outcome, title=page.title)


class _Stream:
    def __init__(self, site: Site) -> None:
        self._site = site

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer: Answer = scope["oncely.answer"]
        secure = is_secure(scope)
        answer.viewer = await self._site.viewer(scope, answer.headers, secure=secure)
        if answer.viewer is None:
            raise Refusal(401, "Sign in first", "This part of a page is for those who signed in.")
        names = _pairs(scope["query_string"]).get("topic", [])
        if not names or any(name not in self._site.live for name in names):
            raise Refusal(404, "There is nothing here", "This page has no live part of that name.")
        await answer.begin(
            200, [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")]
        )
        sending = asyncio.create_task(self._send(answer, names, send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
            if not sending.done():
                sending.cancel()
        if not sending.cancelling():
            await sending

    async def _send(self, answer: Answer, names: list[str], send: Send) -> None:
        async for chunk in self._site.live.stream(names, answer.root):
            await answer.more(chunk)
        await send({"type": "http.response.body", "body": b""})


class _Static:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        answer: Answer = scope["oncely.answer"]
        file = STATIC / scope["path_params"]["name"]
        media = _MEDIA.get(file.suffix)
        if media is None or file.parent != STATIC or not file.is_file():
            raise Refusal(404, "There is nothing here", "No file of the dashboard has this name.")
        fresh = scope["query_string"] == f"v={digest(file.name)}".encode()
        kept = b"public, max-age=31536000, immutable" if fresh else b"no-cache"
        headers = [(b"content-type", f"{media}; charset=utf-8".encode()), (b"cache-control", kept)]
        await answer.put(200, headers, file.read_bytes())


async def _gone(receive: Receive) -> None:
    """Until the browser has left: servers take what is sent to nobody without a word."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _ask_to_sign_in(answer: Answer, scope: Scope) -> None:
    """And then to lead to what was asked for."""
    if scope["method"] not in ("GET", "HEAD"):
        raise Refusal(
            401, "You are signed out", "Nothing was done. Sign in, and then do it once more."
        )
    asked = scope["path"].removeprefix(answer.root)
    if scope["query_string"]:
        asked += "?" + scope["query_string"].decode("latin-1")
    place = "/sign-in" if asked == "/" else f"/sign-in?next={quote(asked, safe='/')}"
    if answer.headers.get("hx-request") == "true":
        await answer.put(401, [(b"hx-redirect", (answer.root + place).encode())], b"")
    else:
        await answer.lead(place)


async def _form(scope: Scope, receive: Receive, limit: int) -> dict[str, list[str]]:
    try:
        async with asyncio.timeout(_FORM_SECONDS):
            body = await read_body(scope, receive, limit)
    except TimeoutError:
        raise Refusal(408, "That took too long", "Nothing was done. Send the form again.") from None
    except TooLarge:
        raise Refusal(413, "That is too much", f"A form may have {limit:,} bytes.") from None
    return _pairs(body)


def _pairs(data: bytes) -> dict[str, list[str]]:
    try:
        return parse_qs(
            data.decode(), keep_blank_values=True, errors="strict", max_num_fields=2_000
        )
    except ValueError:
        raise Refusal(400, "That cannot be read", "Expected fields of a form in UTF-8.") from None


def _refusal(error: OncelyError) -> Refusal:
    if isinstance(error, StoreError):
        return Refusal(
            503,
            "The store does not answer as it should",
            "Try again in a moment. The log of the server has the details.",
        )
    if isinstance(error, LookupError):
        return Refusal(404, "That is not here", str(error))
    return Refusal(422, "That cannot be done", str(error))


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise Refusal(404, "There is nothing here", "Check the address, or begin at the overview.")
