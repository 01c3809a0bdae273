"""The record of requests: written beside the event loop, insisted upon when the store is away."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from oncely.flow.aside import aside
from oncely.flow.redaction import redaction
from oncely.model.errors import StoreError
from oncely.model.request import OnUnknown, Response, Seen, is_kept
from oncely.store import requests
from oncely.store.plan import Plan
from oncely.store.requests import Mark
from oncely.surface.app import Oncely

T = TypeVar("T")
_log: Final = logging.getLogger("oncely.asgi")
_WAIT_SECONDS: Final = 5.0
"""So long a client waits at most for its response to be on record."""
_INSIST_SECONDS: Final = 300.0
_FIRST_PAUSE_SECONDS: Final = 0.1
_PAUSE_LIMIT_SECONDS: Final = 5.0
_PRUNE_SECONDS: Final = 60.0
_PRUNE_LIMIT: Final = 100


class Record:
    def __init__(self, store: Oncely, *, on_unknown: OnUnknown, renew_seconds: float) -> None:
        self._store = store
        self._on_unknown = on_unknown
        self._renew_seconds = renew_seconds
        self._prune_at = -math.inf
        self._tasks: set[asyncio.Task[Any]] = set()

    async def begin(self, mark: Mark, fingerprint: Callable[[], str]) -> tuple[Seen, str] | None:
        """What is on record, beside the fingerprint of this request; None if this one runs."""

        def begin() -> tuple[Seen, str] | None:
            asked = fingerprint()
            run_unknown = self._on_unknown == "run"
            seen = self._store._engine.run(
                lambda again: requests.begin(mark, asked, run_unknown=run_unknown, again=again),
                "write",
            )
            return None if seen is None else (seen, asked)

        begun = self._spawn(aside(self._store._executor, begin))
        try:
            return await asyncio.shield(begun)
        except asyncio.CancelledError:
            self._spawn(self._undo(mark, begun))
            raise

    async def _undo(self, mark: Mark, begun: asyncio.Task[Any]) -> None:
        """Nothing has run, and nothing will."""
        await asyncio.gather(begun, return_exceptions=True)
        await self._insist(lambda _: requests.clear(mark))

    def keep_alive(self, mark: Mark) -> asyncio.Task[None]:
        """Until it is cancelled."""
        return self._spawn(self._renew(mark))

    async def _renew(self, mark: Mark) -> None:
        held = True
        while held:
            await asyncio.sleep(self._renew_seconds)
            try:
                held = await self._ask(lambda _: requests.renew(mark))
            except StoreError as error:
                tell(logging.WARNING, "a request in flight could not be renewed", error=error)

    async def settle(self, mark: Mark, response: Response | None) -> None:
        """The run is over; without a response nobody knows what it did."""
        # If this is cancelled, the task goes on.
        await asyncio.wait([self._spawn(self._end(mark, response))], timeout=_WAIT_SECONDS)

    async def _end(self, mark: Mark, response: Response | None) -> None:
        if response is not None and is_kept(response.status, self._on_unknown):
            if await self._insist(lambda _: requests.done(mark, response)) is False:
                tell(logging.WARNING, "a request ended after another had its key", key=mark.key)
        elif response is not None or self._on_unknown == "run":
            await self._insist(lambda _: requests.clear(mark))
        else:
            tell(logging.WARNING, "a request ended without a response", key=mark.key)
            await self._insist(lambda _: requests.let_go(mark))

    async def _insist(self, make: Callable[[bool], Plan[T]]) -> T | None:
        """The answer; None if the store could not be reached for long."""
        deadline = time.monotonic() + _INSIST_SECONDS
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return await self._ask(make)
            except StoreError as error:
                tell(logging.ERROR, "the end of a request is not on record yet", error=error)
                if time.monotonic() > deadline:
                    return None
            await asyncio.sleep(pause)
            pause = min(pause * 2, _PAUSE_LIMIT_SECONDS)

    def prune_now_and_then(self) -> None:
        """A small step, beside the requests: there may be no worker that does it."""
        if time.monotonic() >= self._prune_at:
            self._prune_at = time.monotonic() + _PRUNE_SECONDS
            self._spawn(self._prune())

    async def _prune(self) -> None:
        try:
            if await self._ask(lambda _: requests.prune(_PRUNE_LIMIT)) == _PRUNE_LIMIT:
                self._prune_at = -math.inf
        except StoreError:
            pass  # Who asks for something that matters will say so.

    async def finish(self) -> None:
        """Let what is under way come to its end."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_WAIT_SECONDS)

    async def _ask(self, make: Callable[[bool], Plan[T]]) -> T:
        return await aside(self._store._executor, self._store._engine.run, make, "write")

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def tell(level: int, event: str, **fields: Any) -> None:
    if _log.isEnabledFor(level):
        if "error" in fields:
            fields["error"] = redaction().text(str(fields["error"]))
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        _log.log(level, "%s %s", event, told, extra={"oncely": {"event": event, **fields}})
