"""Who looks at the dashboard: signed in with a password or a key, and guarded from other sites."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Mapping
from hashlib import sha256
from typing import Final

from oncely.model.keys import KEY_LIMIT
from oncely.model.token import Scope, id_of
from oncely.model.user import Role
from oncely.store import sessions, tokens, users
from oncely.store.sessions import LIFE_SECONDS, Held, Kind
from oncely.surface.dashboard.answer import cookies
from oncely.surface.dashboard.ask import Refusal, Viewer
from oncely.surface.dashboard.throttle import Throttle
from oncely.surface.http.open_store import ONLY_THIS_MACHINE, is_address
from oncely.surface.http.service import Service
from oncely.surface.password import is_right

_log: Final = logging.getLogger("oncely.http")
_FRESH_SECONDS: Final = 1.0
"""So long what is known of a session is believed; one that has ended is then over everywhere."""
_KNOWN_LIMIT: Final = 10_000
_AT_ONCE: Final = 2
"""So many passwords are checked at once: each takes 46 MiB for a moment."""
_ANYONE: Final = Viewer("anyone", "operator", "")


class NotSignedIn(Exception):
    """What was wrong, for the form."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(said)
        self.status = status
        self.said = said


class Sessions:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._known: dict[str, tuple[float, Held]] = {}
        self._throttle = Throttle()
        self._checking = asyncio.Semaphore(_AT_ONCE)

    async def viewer(
        self, headers: Mapping[str, str], *, secure: bool, local: bool
    ) -> Viewer | None:
        """None: nobody has signed in, and somebody has to."""
        session = _cookie(headers, secure=secure)
        held = None if session is None else await self._held(_digest(session))
        if session is not None and held is not None:
            role = held.role if held.kind == "user" else role_of(held.scopes, held.queues)
            if role is not None:
                return Viewer(_name(held), role, _csrf(session))
        if await self._service.is_closed():
            return None
        if not (self._service.settings.open_to_everyone or local):
            raise Refusal(403, "Open this page on the machine of the server", ONLY_THIS_MACHINE)
        # Nobody needs to sign in here, so a page of another site must not be able to ask.
        if not is_address(headers.get("host", "")):
            raise Refusal(
                403,
                "Open this page by its address",
                "Nobody has to sign in at this server, so it answers browsers only at an address "
                "such as http://127.0.0.1:8000, not at a name. `oncely user create` makes it ask "
                "for a sign-in, and then a name will do.",
            )
        return _ANYONE

    async def sign_in_with_password(self, name: str, password: str, address: str | None) -> str:
        """The session, for the cookie."""
        wait_seconds = self._throttle.wait_seconds(name, address)
        if wait_seconds:
            raise NotSignedIn(
                429, f"There were too many wrong passwords. Try again in {wait_seconds} seconds."
            )
        kept = await self._service.ask(lambda _: users.find(name)) if name else None
        password_hash = None if kept is None else kept.password_hash
        async with self._checking:
            right = await asyncio.to_thread(is_right, password, password_hash)
        if kept is None or not right:
            self._throttle.wrong(name, address)
            # Not the name: some type their password there.
            _log.warning("a sign-in at the dashboard from %s was refused", address)
            raise NotSignedIn(401, "The name or the password is wrong.")
        self._throttle.right(name, address)
        return await self._begin("user", kept.user.name, kept.stamp)

    async def sign_in_with_key(self, key: str) -> str:
        """The session, for the cookie. There is no throttle: a key has 256 random bits."""
        token_id = id_of(key)
        kept = (
            None if token_id is None else await self._service.ask(lambda _: tokens.find(token_id))
        )
        if kept is None or not kept.token.valid or not kept.opens_with(key):
            raise NotSignedIn(401, "This is not a valid key. `oncely token list` shows which are.")
        token = kept.token
        if token.queues:
            raise NotSignedIn(
                403,
                f"This key is only for {', '.join(token.queues)}, and the dashboard shows all "
                "queues. Make one without --queue.",
            )
        if role_of(token.scopes, token.queues) is None:
            raise NotSignedIn(
                403,
                f"This key is for {', '.join(token.scopes)}. The dashboard takes one with scope "
                "read, to look, or admin, to change things as well.",
            )
        return await self._begin("token", token.token_id, "")

    async def sign_out(self, headers: Mapping[str, str], *, secure: bool) -> None:
        session = _cookie(headers, secure=secure)
        if session is not None:
            self._known.pop(_digest(session), None)
            await self._service.ask(lambda _: sessions.end(_digest(session)), "transaction")

    async def _begin(self, kind: Kind, who: str, stamp: str) -> str:
        session = secrets.token_urlsafe(32)
        _log.info("%s %s signed in at the dashboard", kind, who)
        await self._service.ask(
            lambda _: sessions.make(_digest(session), kind, who, stamp), "transaction"
        )
        return session

    async def _held(self, session_digest: str) -> Held | None:
        known = self._known.get(session_digest)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        held = await self._service.ask(lambda _: sessions.look(session_digest))
        if held is None:
            self._known.pop(session_digest, None)
            return None
        if held.seen_long_ago:
            await self._service.ask(lambda _: sessions.see(session_digest), "transaction")
        if len(self._known) >= _KNOWN_LIMIT:
            self._known.clear()
        self._known[session_digest] = (time.monotonic() + _FRESH_SECONDS, held)
        return held


def role_of(scopes: tuple[Scope, ...], queues: tuple[str, ...]) -> Role | None:
    if queues:
        return None
    return "operator" if "admin" in scopes else "reader" if "read" in scopes else None


def refuse_forged(viewer: Viewer | None, headers: Mapping[str, str], sent: str) -> None:
    """A form must come from a page of ours: the browser says where it comes from, and it carries
    what only our page knows. `sent` is that; without a session there is nothing to know."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    host = headers.get("host", "")
    if site is not None:
        ours = site == "same-origin"
    else:
        ours = origin is None or origin.partition("://")[2] == host
    if not ours:
        raise Refusal(
            403,
            "This did not come from the dashboard",
            "A form was sent from a page of another site, and nothing was done. If there is a "
            "proxy before the server, it must pass on the header Host.",
        )
    if viewer is not None and not hmac.compare_digest(sent.encode(), viewer.csrf.encode()):
        raise Refusal(
            403,
            "This page was too old",
            "Somebody has signed in or out since it was opened, and nothing was done. Go back, "
            "load the page again, and repeat it.",
        )


def is_secure(scheme: str, headers: Mapping[str, str]) -> bool:
    """Whether the browser speaks HTTPS, here or to a proxy before us. A forged header only keeps
    its sender's own cookie from being sent."""
    return scheme == "https" or headers.get("x-forwarded-proto", "").lower() == "https"


def set_cookie(session: str, *, secure: bool, root: str) -> tuple[str, str]:
    """The header. An empty session takes the cookie away."""
    life_seconds = LIFE_SECONDS if session else 0
    # A name that begins so is taken by browsers only over HTTPS, for this host and all its paths.
    where = "Path=/; Secure" if secure else f"Path={root or '/'}"
    return (
        "set-cookie",
        f"{_cookie_name(secure=secure)}={session}; Max-Age={life_seconds}; {where}; HttpOnly; "
        "SameSite=Lax",
    )


def _cookie_name(*, secure: bool) -> str:
    return "__Host-oncely" if secure else "oncely_session"


def _cookie(headers: Mapping[str, str], *, secure: bool) -> str | None:
    return cookies(headers).get(_cookie_name(secure=secure)) or None


def _name(held: Held) -> str:
    """As it stands in the audit trail."""
    name = held.who if held.kind == "user" else f"token:{held.token_name or held.who}"
    return name[:KEY_LIMIT]


def _digest(session: str) -> str:
    return sha256(session.encode()).hexdigest()


def _csrf(session: str) -> str:
    return hmac.new(session.encode(), b"csrf", sha256).hexdigest()
