"""The worker's line to the store, which may be gone for a while."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from typing import Final, TypeVar

from oncely.flow.aside import aside
from oncely.flow.events import log
from oncely.model.errors import StoreError, StoreUnavailable
from oncely.store.engine import Access, Engine, StoreClosed
from oncely.store.plan import Plan

T = TypeVar("T")
LAST_ANSWER_SECONDS: Final = 5.0
"""How long a call that is under way when the patience ends may still take."""
_FIRST_WAIT_SECONDS: Final = 0.1
_WAIT_LIMIT_SECONDS: Final = 5.0
_TIDY_AGAIN_SECONDS: Final = 60.0


class Line:
    """Waits for a store that does not answer, for as long as the worker is patient. Then that is an
    error."""

    def __init__(self, engine: Engine, threads: Executor) -> None:
        self._engine = engine
        self._threads = threads
        self._patient_until = math.inf
        self._patience_changed = asyncio.Event()
        self._limits: set[asyncio.Timeout] = set()
        self.gave_up = False
        """A call may still be under way in its thread."""

    def end_patience_in(self, seconds: float) -> None:
        """Called on the loop. It can be ended earlier, and not later."""
        loop = asyncio.get_running_loop()
        self._patient_until = min(self._patient_until, loop.time() + seconds)
        for limit in self._limits:
            if not limit.expired():
                limit.reschedule(self._last_answer_at())
        self._patience_changed.set()
        self._patience_changed = asyncio.Event()

    @property
    def patience_seconds(self) -> float:
        return self._patient_until - asyncio.get_running_loop().time()

    def _last_answer_at(self) -> float | None:
        if self._patient_until == math.inf:
            return None
        now = asyncio.get_running_loop().time()
        return max(now, self._patient_until) + LAST_ANSWER_SECONDS

    async def ask(self, make: Callable[[bool], Plan[T]], access: Access = "transaction") -> T:
        """Run the plan. It is made with True if an earlier try may have arrived."""
        wait = _FIRST_WAIT_SECONDS
        again = False
        while True:
            try:
                return await self._ask_once(make, again, access)
            except StoreClosed:
                raise
            except StoreUnavailable as error:
                patience = self.patience_seconds
                if patience <= 0:
                    raise
                log("the store does not answer", level=logging.WARNING, error=str(error))
            again = True
            with suppress(TimeoutError):
                async with asyncio.timeout(min(wait, patience)):
                    await self._patience_changed.wait()
            wait = min(wait * 2, _WAIT_LIMIT_SECONDS)

    async def _ask_once(self, make: Callable[[bool], Plan[T]], again: bool, access: Access) -> T:
        limit = asyncio.timeout_at(self._last_answer_at())
        self._limits.add(limit)
        try:
            async with limit:
                return await aside(self._threads, self._run, make, again, access)
        except TimeoutError:
            if not limit.expired():
                raise
            self.gave_up = True
            raise StoreUnavailable("the store has not answered") from None
        finally:
            self._limits.discard(limit)

    async def tidy(self) -> float | None:
        try:
            return await aside(self._threads, self._engine.tidy)
        except StoreError as error:
            # It makes things faster, and no more: whoever may not do it goes without.
            log("the tables were not tidied", level=logging.WARNING, error=str(error))
            return _TIDY_AGAIN_SECONDS

    def _run(self, make: Callable[[bool], Plan[T]], again: bool, access: Access) -> T:
        return self._engine.run(lambda retried: make(retried or again), access)
