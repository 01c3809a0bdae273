"""Time that passes only while nothing else happens."""

import asyncio
import heapq
from collections.abc import Coroutine
from itertools import count
from typing import Any, TypeVar

T = TypeVar("T")
_TURNS = 20
"""So many turns of the loop after which a worker that is not asked anything has come to rest."""


class VirtualTime:
    """Whoever sleeps is woken in order, as soon as all others wait for them: a busy machine takes
    longer, and sees the same."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = count()
        self._at_work = 0

    async def sleep(self, seconds: float) -> None:
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._numbers), woken))
        await woken

    async def work(self, real: Coroutine[Any, Any, T]) -> T:
        """Something that takes no time here, however long it takes."""
        self._at_work += 1
        try:
            return await real
        finally:
            self._at_work -= 1

    async def run(self, main: Coroutine[Any, Any, T]) -> T:
        task = asyncio.create_task(main)
        while not task.done():
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if self._at_work or not self._sleepers:
                await asyncio.sleep(0.001)
            else:
                self._wake_next()
        return task.result()

    def _wake_next(self) -> None:
        self._now = self._sleepers[0][0]
        while self._sleepers and self._sleepers[0][0] == self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():
                woken.set_result(None)
