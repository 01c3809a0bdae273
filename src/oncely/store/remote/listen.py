"""Being told of jobs by the server: one request that waits until there is one."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import httpx2
import msgspec

from oncely.model.errors import OncelyError, StoreUnavailable
from oncely.store.listen import ANY_QUEUE, ready
from oncely.store.remote.server import TIMEOUT, Server, json_body, trusted
from oncely.store.remote.wire import WAIT_LIMIT_SECONDS, Wait, Waited

_PAUSE_SECONDS: Final = 0.05
_PAUSE_LIMIT_SECONDS: Final = 1.0


class RemoteSource:
    """The server says whether something is due now, so nothing is missed between two requests. If
    it is and we cannot have it, the next request waits a little, and longer each time."""

    news_per_second = 1_000.0

    def __init__(self, server: Server) -> None:
        self._server = server
        self._topics: frozenset[str] = frozenset()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._pause = 0.0
        self._told_at = -math.inf

    def hold(self, topics: frozenset[str]) -> bool:
        self._topics = frozenset(topic for topic in topics if topic.partition(":")[0] == ANY_QUEUE)
        return True

    def wait(self, seconds: float | None, alarm: int) -> Iterable[tuple[str, str]]:
        if not self._topics:
            ready([alarm], seconds)
            return ()
        quiet = time.monotonic() - self._told_at
        self._pause = min(2 * self._pause, _PAUSE_LIMIT_SECONDS) if quiet < 2 * self._pause else 0.0
        if self._pause and ready([alarm], min(self._pause, seconds or self._pause)):
            return ()
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        due = self._loop.run_until_complete(self._ask(seconds, alarm))
        if not due:
            return ()
        self._told_at = time.monotonic()
        self._pause = max(self._pause, _PAUSE_SECONDS)
        return [(topic, "") for topic in self._topics]

    def drop(self) -> None:
        if self._loop is not None:
            if self._client is not None:
                with suppress(Exception):
                    self._loop.run_until_complete(self._client.aclose())
            self._loop.close()
        self._loop = self._client = None

    async def _ask(self, seconds: float | None, alarm: int) -> bool:
        """Until it answers, the time is over or the alarm is given."""
        loop = asyncio.get_running_loop()
        rung = asyncio.Event()
        loop.add_reader(alarm, rung.set)
        bell = asyncio.ensure_future(rung.wait())
        asked = asyncio.ensure_future(self._post())
        try:
            await asyncio.wait({bell, asked}, timeout=seconds, return_when="FIRST_COMPLETED")
            return asked.done() and asked.result()
        finally:
            loop.remove_reader(alarm)
            for task in (bell, asked):
                task.cancel()
            await asyncio.gather(bell, asked, return_exceptions=True)

    async def _post(self) -> bool:
        if self._client is None:
            timeout = httpx2.Timeout(TIMEOUT.read, connect=TIMEOUT.connect)
            self._client = httpx2.AsyncClient(
                headers=self._server.headers, timeout=timeout, verify=trusted()
            )
        every = ANY_QUEUE in self._topics
        queues = None if every else [topic.partition(":")[2] for topic in sorted(self._topics)]
        content = json_body(Wait(queues, WAIT_LIMIT_SECONDS))
        try:
            answer = await self._client.post(f"{self._server.url}/v1/worker/wait", **content)
            body = self._server.answer(answer.status_code, answer.content, {})
            return msgspec.json.decode(body, type=Waited).due
        except httpx2.HTTPError as error:
            raise self._server.trouble(error) from error
        except (OncelyError, msgspec.DecodeError) as error:
            raise StoreUnavailable(str(error)) from error
