"""Drills of a worker: a share of the jobs that it completed runs once more, at once or later.

What waits for its drill is only remembered here: whatever becomes of the worker, the job is
completed and stays so.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any, Final

import msgspec

from oncely.flow.context import Context
from oncely.flow.drill import DrillContext
from oncely.flow.events import log
from oncely.flow.execute import execute
from oncely.flow.handler import Handler
from oncely.model.drill import Drilled
from oncely.model.event import Event
from oncely.model.outcome import Ending, Returned
from oncely.store import drills
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.swap import Completed
from oncely.worker.gear import Gear
from oncely.worker.line import Line

_AT_ONCE: Final = 4
_WAITING: Final = 1_000
"""More are not remembered: a drill is a sample."""
_LOOK_SECONDS: Final = 0.5
"""While drills run, the switch is looked at so often."""
_MAX_RESULT_BYTES: Final = 1024 * 1024


class Kit(msgspec.Struct, frozen=True):
    """What drills need of their worker."""

    worker: str
    gear: Gear
    store: Line
    late_seconds: float


class Chosen(msgspec.Struct, frozen=True):
    claimed: Claimed
    handler: Handler
    max_attempts: int
    timeout_seconds: float | None
    result: str | None
    """What it was completed with; None if the handler said so itself."""


class Drill:
    """`share` of the jobs of kinds that allow it."""

    def __init__(self, share: float, kit: Kit) -> None:
        self._share = share
        self._kit = kit
        self._chosen: dict[tuple[str, Fence], Chosen] = {}
        self._waiting: list[tuple[float, int, Chosen]] = []
        self._running: dict[asyncio.Task[None], DrillContext] = {}
        self._wake = asyncio.Event()
        self._number = 0

    def ended(
        self,
        claimed: Claimed,
        handler: Handler,
        ending: Ending,
        context: Context,
        timeout_seconds: float | None,
    ) -> None:
        """Draw the lot of a job that will be settled now."""
        if not handler.drill or random.random() >= self._share:
            return
        said_so_itself = context.may_be_completed
        if not (said_so_itself or isinstance(ending, Returned)):
            return
        result = None if said_so_itself or not isinstance(ending, Returned) else ending.result
        chosen = Chosen(claimed, handler, context.max_attempts, timeout_seconds, result)
        self._chosen[claimed.job_id, claimed.fence] = chosen

    def settled(
        self,
        over: Sequence[Sequence[Completed]],
        singles: Sequence[Settlement],
        refused: Sequence[Settlement],
    ) -> None:
        """After an exchange with the store has been committed."""
        if not self._chosen:
            return
        late = {(end.id, end.fence) for end in refused}
        ends = [(end.id, end.fence, end.state) for end in singles]
        ends += [
            (end.claimed.job_id, end.claimed.fence, "completed") for lease in over for end in lease
        ]
        for job_id, fence, state in ends:
            chosen = self._chosen.pop((job_id, fence), None)
            known = chosen is not None and state == "completed" and (job_id, fence) not in late
            if chosen is not None and known and len(self._waiting) < _WAITING:
                self._put(chosen)

    def _put(self, chosen: Chosen) -> None:
        """Every other one at once, the rest at any moment until a lease would have run out."""
        self._number += 1
        later = random.random() * self._kit.late_seconds if self._number % 2 else 0.0
        heapq.heappush(self._waiting, (time.monotonic() + later, self._number, chosen))
        self._wake.set()

    async def keep(self) -> None:
        threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="oncely-handler-drill")
        try:
            while True:
                self._wake.clear()
                self._begin_due(threads)
                if self._running and await self._is_stopped():
                    await self._stop()
                await self._rest()
        finally:
            await self._stop()
            threads.shutdown(wait=False, cancel_futures=True)

    def _begin_due(self, threads: Executor) -> None:
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now and len(self._running) < _AT_ONCE:
            chosen = heapq.heappop(self._waiting)[2]
            context = self._context(chosen)
            task = asyncio.create_task(self._deliver(chosen, context, threads))
            self._running[task] = context
            task.add_done_callback(self._over)

    async def _is_stopped(self) -> bool:
        return await self._kit.store.ask(lambda _: drills.is_stopped(), "read")

    async def _rest(self) -> None:
        seconds = _LOOK_SECONDS if self._running else None
        if seconds is None and self._waiting:
            seconds = max(0.0, self._waiting[0][0] - time.monotonic())
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    def _context(self, chosen: Chosen) -> DrillContext:
        # The epoch of the execution that completed the job, with a nonce that no lease has.
        fence = Fence(chosen.claimed.fence.epoch, secrets.randbits(62))
        kit, timeout = self._kit, chosen.timeout_seconds
        return DrillContext(
            msgspec.structs.replace(chosen.claimed, fence=fence),
            max_attempts=chosen.max_attempts,
            deadline=None if timeout is None else time.monotonic() + timeout,
            tools=kit.gear,
            enqueuer=kit.gear.enqueuer,
            is_async=chosen.handler.is_async,
        )

    async def _deliver(self, chosen: Chosen, context: DrillContext, threads: Executor) -> None:
        kit, claimed = self._kit, chosen.claimed
        may_begin = await kit.store.ask(
            lambda _: drills.may_begin(claimed.job_id, claimed.fence.epoch), "read"
        )
        if not may_begin:
            return
        context.watch()
        ending = await execute(
            chosen.handler,
            context.claimed,
            context,
            middleware=kit.gear.middleware,
            threads=threads,
            timeout_seconds=chosen.timeout_seconds,
            max_result_bytes=_MAX_RESULT_BYTES,
        )
        drilled = context.judged(ending, chosen.result)
        await kit.store.ask(lambda _: drills.keep(context.claimed, kit.worker, drilled))
        self._tell(context.claimed, drilled)

    def _tell(self, claimed: Claimed, drilled: Drilled) -> None:
        wanted = self._kit.gear.events.wanted("worker")
        if wanted is None or not wanted("drilled"):
            return
        failure = drilled.failure
        event = Event(
            what="drilled",
            job_id=claimed.job_id,
            kind=claimed.kind,
            queue=claimed.queue,
            epoch=claimed.fence.epoch,
            worker=self._kit.worker,
            drill=drilled.outcome,
            recognised=drilled.recognised,
            repeated=drilled.repeated,
            error=None if failure is None else msgspec.structs.asdict(failure),
        )
        self._kit.gear.events.tell("worker", [event])

    def _over(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task).found.stopped = True
        self._wake.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log("a drill was given up", level=logging.WARNING, error=str(error))

    async def _stop(self) -> None:
        """What waits is forgotten, what runs is ended, and a thread gets no further than its next
        verb."""
        self._chosen.clear()
        self._waiting.clear()
        running: list[asyncio.Task[Any]] = list(self._running)
        for task, context in list(self._running.items()):
            context.found.stopped = True
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
