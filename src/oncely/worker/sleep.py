"""How an idle worker waits: until it is told of a job, with a look now and then."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from oncely.store.engine import Engine
from oncely.store.listen import ANY_QUEUE, Ear, queue_topic

FIRST_POLL_SECONDS: Final = 0.02
_SHORTEST_SECONDS: Final = 0.002
_SECOND_LOOK_SECONDS: Final = 0.25
_TOPICS_LIMIT: Final = 100


class Sleep:
    """`wake` ends a nap, whoever sets it."""

    def __init__(self, wake: asyncio.Event, poll_seconds: float) -> None:
        self._wake = wake
        self._poll_seconds = poll_seconds
        self._ear: Ear | None = None

    def listen(self, engine: Engine, queues: Sequence[str] | None) -> None:
        """From now on naps end when a job can be had in one of the queues."""
        loop = asyncio.get_running_loop()
        every = queues is None or len(queues) > _TOPICS_LIMIT
        topics = [ANY_QUEUE] if every else [queue_topic(queue) for queue in queues or ()]
        self._ear = engine.listen(topics, lambda _: _set(loop, self._wake))

    def close(self) -> None:
        if self._ear is not None:
            self._ear.close()

    async def nap(self, seconds: float, due_seconds: float | None) -> float:
        """Wait until woken, at most `seconds` or until something falls due; how long the next nap
        may be.

        While nothing is told, the looks come at growing distances. Else one more look is enough,
        for the enqueue that saw nobody rest and was not committed yet.
        """
        sure = self._ear is not None and self._ear.rest()
        if sure:
            seconds = max(seconds, _SECOND_LOOK_SECONDS)
        seconds = min(seconds, self._poll_seconds)
        wait = max(_SHORTEST_SECONDS, min(seconds, due_seconds or seconds))
        try:
            async with asyncio.timeout(wait):
                await self._wake.wait()
        except TimeoutError:
            if wait >= seconds:
                return self._poll_seconds if sure else min(seconds * 2, self._poll_seconds)
        finally:
            if self._ear is not None:
                self._ear.stir()
        return seconds


def _set(loop: asyncio.AbstractEventLoop, wake: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(wake.set)
