"""What every call stands on: the store, the tokens, the limits, and whether it is time to stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, TypeVar

import msgspec

from oncely.flow.aside import aside
from oncely.model.token import Kept, Token, id_of
from oncely.store import limits, schema, tokens
from oncely.store.engine import Access
from oncely.store.plan import Plan
from oncely.store.store_id import read_store_id
from oncely.surface.app import Oncely
from oncely.surface.http.cursor import Cursors
from oncely.surface.http.known import Known
from oncely.surface.http.problem import Refused
from oncely.surface.http.trusted_proxies import Network
from oncely.surface.http.witness import Witness
from oncely.worker.line import LAST_ANSWER_SECONDS

T = TypeVar("T")
_PUSHER_PAUSE_SECONDS: Final = 1.0
_log: Final = logging.getLogger("oncely.http")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    max_body_bytes: int = 2 * 1024 * 1024
    max_batch_bytes: int = 16 * 1024 * 1024
    requests_per_second: float = 10_000.0
    """Of one key, in one process; as many may come at once."""
    open_to_everyone: bool = False
    """While the store has neither a token nor a user, clients of other machines may use it too, and
    ask for it by a name."""
    trusted_proxies: tuple[Network, ...] = ()
    """Proxies that are believed about the address and the scheme of their clients."""
    redact: tuple[str, ...] = ()
    """Fields that the dashboard never shows, beside the usual ones."""


class Service:
    def __init__(self, app: Oncely, settings: Settings) -> None:
        self.app = app
        self.settings = settings
        self.stopping = asyncio.Event()
        self._tokens: Known[Kept | None] = Known(self._find)
        self._strict: Known[bool] = Known(self._requires_key)
        self._shut: Known[bool] = Known(self._any_token)
        self.witness = Witness(self)
        self._cursors: Cursors | None = None
        self._pushing: asyncio.Task[None] | None = None
        self._closed = False
        self._buckets: dict[str, tuple[float, float]] = {}

    async def admit(self, authorization: str | None) -> Token | None:
        """Who asks. None on a store that never had a token: then it is open."""
        key = _bearer(authorization)
        token_id = None if key is None else id_of(key)
        kept = None if token_id is None else await self._tokens.get(token_id)
        if key is not None and kept is not None and kept.token.valid and kept.opens_with(key):
            return kept.token
        if not await self.is_closed():
            return None
        raise Refused(
            "unauthenticated",
            "Send a valid key as `Authorization: Bearer <key>`; `oncely token create` makes one.",
            headers={"www-authenticate": "Bearer"},
        )

    def spend(self, token: Token | None) -> None:
        """One request of this token's allowance."""
        rate = self.settings.requests_per_second
        name = "" if token is None else token.token_id
        now = time.monotonic()
        most = max(rate, 1.0)
        left, at = self._buckets.get(name, (most, now))
        left = min(most, left + (now - at) * rate)
        if left < 1:
            wait_seconds = max(1, round((1 - left) / rate + 0.5))
            raise Refused(
                "rate_limited",
                f"This key may send {rate:g} requests per second to this server.",
                headers={"retry-after": str(wait_seconds)},
            )
        self._buckets[name] = (left - 1, now)

    async def requires_key(self, queue: str) -> bool:
        """Whether the queue takes only jobs with an idempotency key."""
        return await self._strict.get(queue)

    def forget_queue(self, queue: str) -> None:
        """Its policy was changed here."""
        self._strict.forget(queue)

    async def check(self) -> None:
        """An error unless the store answers, with the schema of this version, and can be
        written."""
        await self.ask(lambda _: tokens.any_token())
        await self.ask(lambda _: schema.check_writable(), "write")

    @asynccontextmanager
    async def running(self, *, grace_seconds: float = 30.0) -> AsyncIterator[None]:
        """What goes on beside the requests: jobs are pushed, and the store is kept in order."""
        self._pushing = asyncio.create_task(self._push(grace_seconds))
        witnessing = asyncio.create_task(self.witness.keep())
        try:
            yield
        finally:
            self.stopping.set()
            await asyncio.gather(self._pushing, return_exceptions=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LAST_ANSWER_SECONDS):
                    await asyncio.gather(witnessing, return_exceptions=True)
                    # Requests that were under way when it began to stop have ended by now.
                    await self.witness.tell()

    def stop(self) -> None:
        """Whoever waits ends its wait, and nothing is begun; again: nothing is waited for."""
        if self.stopping.is_set() and self._pushing is not None:
            self._pushing.cancel()
        self.stopping.set()

    async def _push(self, grace_seconds: float) -> None:
        while not self.stopping.is_set():
            pusher = self.app.pusher(grace_seconds=grace_seconds)
            work = asyncio.create_task(pusher.arun())
            told = asyncio.create_task(self.stopping.wait())
            try:
                await asyncio.wait([work, told], return_when=asyncio.FIRST_COMPLETED)
                pusher.stop()
                await work
            except Exception:
                _log.exception("the pusher failed, and begins anew")
                await asyncio.wait([told], timeout=_PUSHER_PAUSE_SECONDS)
            finally:
                told.cancel()
                work.cancel()

    async def ask(self, make: Callable[[bool], Plan[T]], access: Access = "read") -> T:
        return await aside(self.app._executor, self.app._engine.run, make, access)

    async def cursors(self) -> Cursors:
        if self._cursors is None:
            store = await self.ask(lambda _: read_store_id())
            self._cursors = Cursors(store.id)
        return self._cursors

    async def _find(self, token_id: str) -> Kept | None:
        return await self.ask(lambda _: tokens.find(token_id))

    async def _requires_key(self, queue: str) -> bool:
        return await self.ask(lambda _: limits.requires_key(queue))

    async def _any_token(self, _: str) -> bool:
        return await self.ask(lambda _: tokens.any_token())

    async def is_closed(self) -> bool:
        """Whether the store ever had a token or a user: then nobody gets in without a key or a
        sign-in."""
        self._closed = self._closed or await self._shut.get("")
        return self._closed


def _bearer(authorization: str | None) -> str | None:
    if authorization is None:
        return None
    scheme, _, key = authorization.partition(" ")
    return key.strip() if scheme.lower() == "bearer" else None
