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
from oncely.store import sessions, sign_in_guesses, tokens, users
from oncely.store.sessions import LIFE_SECONDS, Held, Kind
from oncely.store.sign_in_guesses import Place
from oncely.surface.asgi.types import Scope as ASGIScope
from oncely.surface.dashboard.answer import cookies
from oncely.surface.dashboard.ask import Refusal, Viewer
from oncely.surface.http.open_store import ONLY_THIS_MACHINE, is_address
from oncely.surface.http.service import Service
from oncely.surface.http.trusted_proxies import forwarded_scheme
from oncely.surface.password import is_right

_log: Final = logging.getLogger("oncely.http")
_FRESH_SECONDS: Final = 1.0
"""So long what is known of a session is believed; one that has ended is then over everywhere."""
_KNOWN_LIMIT: Final = 10_000
_AT_ONCE: Final = 2
"""So many passwords are checked at once: each takes 46 MiB for a moment."""
_ANYONE: Final = Viewer("anyone", "operator", "")
_OF_ONE_FROM_ONE: Final = 5
_OF_ONE_ACCOUNT: Final = 50
"""More than from one address: otherwise anybody could keep a user out by guessing."""
_DEVICE_SECONDS: Final = 180 * 86_400


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

    async def sign_in_with_password(
        self, name: str, password: str, *, address: str | None, device: str
    ) -> tuple[str, str]:
        """The session and the device, for the cookies. `device` is the cookie of a browser in which
        somebody has signed in before."""
        if len(name) > KEY_LIMIT or "\0" in name:
            raise NotSignedIn(422, f"A name has at most {KEY_LIMIT} characters, none of them zero.")
        kept = await self._service.ask(lambda _: users.find(name)) if name else None
        places = _places(name, None if kept is None else kept.stamp, address, device)
        async with self._checking:
            # Before it is checked: of any number that come at once, no more are checked.
            wait_seconds = await self._service.ask(
                lambda _: sign_in_guesses.reserve(places), "transaction"
            )
            if wait_seconds:
                raise NotSignedIn(
                    429,
                    f"There were too many wrong passwords. Try again in {wait_seconds} seconds.",
                )
            password_hash = None if kept is None else kept.password_hash
            right = await asyncio.to_thread(is_right, password, password_hash)
        if kept is None or not right:
            # Not the name: some type their password there.
            _log.warning("a sign-in at the dashboard from %s was refused", address)
            raise NotSignedIn(401, "The name or the password is wrong.")
        await self._service.ask(lambda _: sign_in_guesses.release(places), "transaction")
        return await self._begin("user", kept.user.name, kept.stamp), _new_device(kept.stamp)

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


def is_secure(scope: ASGIScope) -> bool:
    """Whether the browser speaks HTTPS, here or to a proxy before us."""
    return scope["scheme"] == "https" or forwarded_scheme(scope) == "https"


def set_cookie(session: str, *, secure: bool, root: str) -> tuple[str, str]:
    """The header. An empty session takes the cookie away."""
    life_seconds = LIFE_SECONDS if session else 0
    return (
        "set-cookie",
        f"{_cookie_name(secure=secure)}={session}; Max-Age={life_seconds}; "
        f"{_where(secure=secure, root=root)}; HttpOnly; SameSite=Lax",
    )


def set_device_cookie(device: str, *, secure: bool, root: str) -> tuple[str, str]:
    """The header. It stays when somebody signs out."""
    return (
        "set-cookie",
        f"{_device_name(secure=secure)}={device}; Max-Age={_DEVICE_SECONDS}; "
        f"{_where(secure=secure, root=root)}; HttpOnly; SameSite=Strict",
    )


def device_of(headers: Mapping[str, str], *, secure: bool) -> str:
    return cookies(headers).get(_device_name(secure=secure), "")


def _where(*, secure: bool, root: str) -> str:
    """Cookies whose names begin with __Host- are taken by browsers only over HTTPS, for this host
    and all its paths."""
    return "Path=/; Secure" if secure else f"Path={root or '/'}"


def _cookie_name(*, secure: bool) -> str:
    return "__Host-oncely" if secure else "oncely_session"


def _device_name(*, secure: bool) -> str:
    return "__Host-oncely-device" if secure else "oncely_device"


def _places(name: str, stamp: str | None, address: str | None, device: str) -> list[Place]:
    """Where a guess is counted. A browser in which this user has signed in before is counted by
    itself, so that nobody keeps its owner out by guessing. All counts begin anew with a new
    password. Names that do not exist are counted too: nobody learns which do."""
    if stamp is not None and _is_device_of(device, stamp):
        return [Place(_place("device", name, device), _OF_ONE_FROM_ONE)]
    return [
        Place(_place("address", name, stamp or "", address or ""), _OF_ONE_FROM_ONE),
        Place(_place("account", name, stamp or ""), _OF_ONE_ACCOUNT),
    ]


def _place(*parts: str) -> str:
    return sha256("\0".join(parts).encode()).hexdigest()


def _new_device(stamp: str) -> str:
    number = secrets.token_hex(16)
    return f"{number}.{_device_mac(number, stamp)}"


def _is_device_of(device: str, stamp: str) -> bool:
    number, _, mac = device.partition(".")
    return hmac.compare_digest(mac.encode(), _device_mac(number, stamp).encode())


def _device_mac(number: str, stamp: str) -> str:
    """By the stamp, which is a random secret of the user, new with each password."""
    return hmac.new(stamp.encode(), f"device:{number}".encode(), sha256).hexdigest()


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
