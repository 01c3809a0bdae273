"""How long the jobs took that are claimed and settled over HTTP, one by one: the server saw it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from oncely.model.errors import OncelyError
from oncely.model.job import Job
from oncely.store import traffic
from oncely.store.claim import Claimed, Fence
from oncely.store.plan import Plan
from oncely.worker.report import Times

if TYPE_CHECKING:
    from oncely.surface.http.service import Service

_KEEP_SECONDS: Final = 5.0
_log: Final = logging.getLogger("oncely.http")


class Witness:
    """Workers in other languages tell nothing of this, so the server adds it to the traffic."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._times = Times()
        self._telling = asyncio.Lock()

    def claimed(self, jobs: Iterable[Claimed]) -> None:
        for job in jobs:
            self._times.waited(job, job.waited_seconds)

    def ended(self, job: Job, fence: Fence) -> None:
        for each in job.executions:
            if each.epoch == fence.epoch and each.started_at is not None:
                self._times.ran(job, (each.ended_at - each.started_at).total_seconds())

    async def keep(self) -> None:
        """Until the server stops."""
        stopping = self._service.stopping
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _KEEP_SECONDS)
            await self.tell()

    async def tell(self) -> None:
        """What was seen since the last time. When it returns, all that was seen before the call is
        in the store, also what another call had taken."""
        async with self._telling:
            if samples := self._times.take():
                try:
                    await self._service.ask(partial(_add, samples), "transaction")
                except OncelyError as error:
                    _log.warning("what was measured is lost: %s", error)


def _add(samples: list[traffic.Sample], lost: bool) -> Plan[None]:
    # Those that may have arrived are not sent again: a few are missing rather than twice there.
    return traffic.add([] if lost else samples)
