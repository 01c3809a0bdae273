"""What the store said a moment ago, and is believed for so long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

V = TypeVar("V")
FRESH_SECONDS: Final = 1.0
"""What was changed by another process is seen after that everywhere: a revoked token, say."""
_LIMIT: Final = 10_000


class Known(Generic[V]):
    """By name. All who want to know at once wait for one answer. Nothing is kept of names that the
    store does not know, which is None: anybody could send any number of them."""

    def __init__(self, ask: Callable[[str], Awaitable[V]]) -> None:
        self._ask = ask
        self._known: dict[str, tuple[float, V]] = {}
        self._asked: dict[str, asyncio.Task[V]] = {}

    async def get(self, name: str) -> V:
        known = self._known.get(name)
        if known is not None and time.monotonic() < known[0]:
            return known[1]
        asked = self._asked.get(name)
        if asked is None:
            asked = self._asked[name] = asyncio.create_task(self._learn(name))
        return await asyncio.shield(asked)

    def forget(self, name: str) -> None:
        """It was changed here; an answer that is under way may be from before."""
        self._known.pop(name, None)
        self._asked.pop(name, None)

    async def _learn(self, name: str) -> V:
        this = asyncio.current_task()
        try:
            value = await self._ask(name)
            if self._asked.get(name) is this:
                self._keep(name, value)
        finally:
            if self._asked.get(name) is this:
                del self._asked[name]
        return value

    def _keep(self, name: str, value: V) -> None:
        if value is None:
            self._known.pop(name, None)
            return
        if len(self._known) >= _LIMIT:
            self._known.clear()
        self._known[name] = (time.monotonic() + FRESH_SECONDS, value)
