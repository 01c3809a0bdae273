"""How long the jobs took that are claimed and settled over HTTP, one by one: the server saw it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from oncely.model.errors import OncelyError
from oncely.model.job import Job
from oncely.store import traffic
from oncely.store.claim import Claimed, Fence
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

    def claimed(self, jobs: Iterable[Claimed]) -> None:
        for job in jobs:
            self._times.waited(job, job.waited_seconds)

    def ended(self, job: Job, fence: Fence) -> None:
        for each in job.executions:
            if each.epoch == fence.epoch and each.started_at is not None:
                self._times.ran(job, (each.ended_at - each.started_at).total_seconds())

    async def keep(self) -> None:
        """Until the server stops, and once more then."""
        stopping = self._service.stopping
        while not stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), _KEEP_SECONDS)
            if samples := self._times.take():
                try:
                    await self._service.ask(lambda _, s=samples: traffic.add(s), "transaction")  # type: ignore[misc]
                except OncelyError as error:
                    _log.warning("what was measured is lost: %s", error)
