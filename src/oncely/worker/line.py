"""The worker's line to the store, which may be gone for a while."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from oncely.flow.events import log
from oncely.model.errors import StoreError, StoreUnavailable
from oncely.store.engine import Access, Engine
from oncely.store.plan import Plan

T = TypeVar("T")
_FIRST_WAIT_SECONDS: Final = 0.1
_WAIT_LIMIT_SECONDS: Final = 5.0
_TIDY_AGAIN_SECONDS: Final = 60.0


class Line:
    """`patient` waits for a store that does not answer; otherwise that is an error."""

    def __init__(self, engine: Engine, threads: Executor) -> None:
        self._engine = engine
        self._threads = threads
        self.patient = True

    async def ask(self, make: Callable[[bool], Plan[T]], access: Access = "transaction") -> T:
        """Run the plan. It is made with True if an earlier try may have arrived."""
        wait = _FIRST_WAIT_SECONDS
        again = False
        while True:
            try:
                return await asyncio.get_running_loop().run_in_executor(
                    self._threads, self._run, make, again, access
                )
            except StoreUnavailable as error:
                if not self.patient:
                    raise
                log("the store does not answer", level=logging.WARNING, error=str(error))
            again = True
            await asyncio.sleep(wait)
            wait = min(wait * 2, _WAIT_LIMIT_SECONDS)

    async def tidy(self) -> float | None:
        try:
            return await asyncio.get_running_loop().run_in_executor(
                self._threads, self._engine.tidy
            )
        except StoreError as error:
            # It makes things faster, and no more: whoever may not do it goes without.
            log("the tables were not tidied", level=logging.WARNING, error=str(error))
            return _TIDY_AGAIN_SECONDS

    def _run(self, make: Callable[[bool], Plan[T]], again: bool, access: Access) -> T:
        return self._engine.run(lambda retried: make(retried or again), access)
