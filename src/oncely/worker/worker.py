"""A worker: claims jobs, runs their handlers, settles them in batches, until it is told to stop."""

from __future__ import annotations

import asyncio
import math
import os
import random
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypedDict, TypeVar

import msgspec

from oncely.flow.context import Context
from oncely.flow.enqueue import Enqueuer
from oncely.flow.events import Events, log
from oncely.flow.execute import Middleware, execute, with_doubt
from oncely.flow.handler import Handler, Registry
from oncely.flow.schedule import Schedules
from oncely.model import payload
from oncely.model.errors import InvalidInput, StoreUnavailable
from oncely.model.outcome import Deferred, Ending, Failure, Standing, decide
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.store import deliver
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement
from oncely.store.engine import Engine
from oncely.store.lanes import Outlook, survey
from oncely.worker.line import Line
from oncely.worker.schedule import keep_schedules
from oncely.worker.signals import told_to_stop
from oncely.worker.sleep import FIRST_POLL_SECONDS, Sleep
from oncely.worker.told import Told
from oncely.worker.upkeep import forget, keep_counters, recover

T = TypeVar("T")
MAX_RESULT_BYTES: Final = 1024 * 1024
DEFAULT_RETRY: Final = Retry()
_LOOK_SECONDS: Final = 1.0
_NO_HANDLER_SECONDS: Final = 30.0


class WorkerOptions(TypedDict, total=False):
    """The options of `Oncely.worker`, explained there."""

    queues: Sequence[str] | None
    concurrency: int
    lease_seconds: float
    poll_seconds: float
    grace_seconds: float


class Gear(msgspec.Struct, frozen=True):
    """What a worker shares with its app."""

    engine: Engine
    store_threads: Executor
    enqueuer: Enqueuer
    registry: Registry
    middleware: Sequence[Middleware]
    retention: Retention
    schedules: Schedules
    events: Events


class Worker:
    """`queues` are the lanes it claims from, in turn; None means every queue that has jobs."""

    def __init__(
        self,
        gear: Gear,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 16,
        lease_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        grace_seconds: float = 30.0,
    ) -> None:
        for name, value in (
            ("concurrency", concurrency),
            ("lease_seconds", lease_seconds),
            ("poll_seconds", poll_seconds),
        ):
            if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
                raise InvalidInput(f"{name} is {value!r}; expected a number above 0")
        self._gear = gear
        self._store = Line(gear.engine, gear.store_threads)
        self._queues = None if queues is None else list(queues)
        self._concurrency = concurrency
        self._lease_seconds = lease_seconds
        self._grace_seconds = grace_seconds
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._told = Told(gear.events, self.name)
        self.executions = 0
        self._running: dict[asyncio.Task[None], tuple[Claimed, Context]] = {}
        self._stuck = 0
        self._done: list[Settlement] = []
        self._outlook = Outlook()
        self._looked_at = -math.inf
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._sleep = Sleep(self._wake, poll_seconds)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second signal hands everything back at once."""
        asyncio.run(self.arun())

    async def arun(self) -> None:
        with told_to_stop(self.stop):
            await self._work(until_idle=False)

    async def drain(self) -> int:
        """Run all that is due; how many executions there were."""
        await self._work(until_idle=True)
        return self.executions

    def stop(self) -> None:
        """No new claims; running handlers get their grace time. Again: no grace.

        May be called from any thread.
        """
        self._store.patient = not self._stopping
        self._stopping = True
        if self._loop is not None:
            _tell(self._loop, self._wake.set)

    async def _work(self, *, until_idle: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = ThreadPoolExecutor(self._concurrency, thread_name_prefix="oncely-handler")
        log("worker started", worker=self.name)
        pump = asyncio.create_task(self._pump(until_idle))
        keepers = [
            asyncio.create_task(self._renew()),
            asyncio.create_task(
                recover(self._store, self._lease_seconds, self._wake.set, self._told)
            ),
        ]
        if not until_idle:
            self._sleep.listen(self._gear.engine, self._queues)
            keepers.append(asyncio.create_task(forget(self._store, self._gear.retention)))
            keepers.append(asyncio.create_task(keep_counters(self._store)))
            ticks = keep_schedules(self._store, self._gear.schedules, self._wake.set)
            keepers.append(asyncio.create_task(ticks))
        try:
            # The keepers have no end of their own: one that is over has failed.
            await asyncio.wait([pump, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in (pump, *keepers):
                if task.done():
                    task.result()
            await self._wind_down()
        except asyncio.CancelledError:
            self._stopping = True
            self._store.patient = False
            self._wake.set()
            # An exchange that is under way comes to its end, or what it claims would be lost.
            await asyncio.gather(pump, return_exceptions=True)
            with suppress(StoreUnavailable):  # then the leases run out, and others take over
                await self._wind_down()
            raise
        finally:
            self._sleep.close()
            await _end([pump, *keepers, *self._running])
            self._threads.shutdown(wait=False, cancel_futures=True)
            log("worker stopped", worker=self.name, executions=self.executions)

    async def _pump(self, until_idle: bool) -> None:
        """Settle what is done and claim what there is room for, in one exchange at a time."""
        poll = FIRST_POLL_SECONDS
        while not self._stopping:
            self._wake.clear()
            room = self._concurrency - len(self._running) - self._stuck
            claimed, settled = await self._exchange(room)
            for job in claimed:
                self._begin(job)
            if claimed or settled or self._done:
                poll = FIRST_POLL_SECONDS
                # One turn of the loop: quick handlers end in it, and are settled together.
                await asyncio.sleep(0)
                if len(claimed) >= room:
                    await self._until_woken(None)
                continue
            if until_idle and not self._running and not self._stuck:
                return
            if self._outlook.unfinished:
                continue
            if room:
                poll = await self._sleep.nap(poll, self._outlook.wait_seconds)
            else:
                await self._until_woken(None)

    async def _until_woken(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _exchange(self, room: int) -> tuple[list[Claimed], int]:
        """The jobs that were claimed, and how many were settled. What could not be sent stays to be
        sent: the worker goes on when the store is back."""
        if room and time.monotonic() - self._looked_at > _LOOK_SECONDS:
            await self._store.ask(lambda _: survey(self._outlook, self._queues), "read")
            self._looked_at = time.monotonic()
        if not self._outlook.due:
            room = 0
        done, self._done = self._done, []
        if not done and not room:
            self._looked_at = -math.inf
            return [], 0
        nonce = secrets.randbits(60)
        try:
            exchanged = await self._store.ask(
                lambda again: deliver.exchange(
                    done,
                    outlook=self._outlook,
                    worker=self.name,
                    nonce=nonce,
                    lease_seconds=self._lease_seconds,
                    limit=room,
                    again=again,
                )
            )
        except BaseException:
            self._done = done + self._done
            raise
        if len(exchanged.claimed) < room or not room:
            self._looked_at = -math.inf
        self._told.exchanged(done, exchanged.refused, exchanged.claimed)
        return exchanged.claimed, len(done)

    def _begin(self, claimed: Claimed) -> None:
        handler = self._gear.registry.get(claimed.kind)
        timeout = (
            claimed.timeout_seconds
            or (handler and handler.timeout_seconds)
            or claimed.queue_timeout_seconds
        )
        retry = (handler and handler.retry) or _retry_of_queue(claimed)
        context = Context(
            claimed,
            payload.decode(claimed.payload),
            max_attempts=claimed.max_attempts or retry.max_attempts,
            deadline=None if timeout is None else time.monotonic() + timeout,
            engine=self._gear.engine,
            store_threads=self._gear.store_threads,
            enqueuer=self._gear.enqueuer,
            is_async=handler is None or handler.is_async,
        )
        self.executions += 1
        task = asyncio.create_task(self._execute(claimed, context, handler, retry, timeout))
        self._running[task] = (claimed, context)
        task.add_done_callback(self._ended)

    async def _execute(
        self,
        claimed: Claimed,
        context: Context,
        handler: Handler | None,
        retry: Retry,
        timeout_seconds: float | None,
    ) -> None:
        if handler is None:
            ending: Ending = Deferred(_NO_HANDLER_SECONDS, _no_handler(claimed.kind))
        else:
            ending = await execute(
                handler,
                claimed,
                context,
                middleware=self._gear.middleware,
                threads=self._threads,
                timeout_seconds=timeout_seconds,
                max_result_bytes=MAX_RESULT_BYTES,
            )
            ending = with_doubt(ending, context)
        standing = Standing(
            claimed.attempt, context.max_attempts, claimed.defers, claimed.age_seconds
        )
        verdict = decide(ending, standing, retry, random.random())
        self._settle(deliver.settlement(claimed, verdict), context)

    def _settle(self, settlement: Settlement, context: Context) -> None:
        """With the next exchange. A handler that completed its job itself has done it before us,
        unless its transaction was rolled back."""
        written = context.completion.begun
        repeats = list(context.effects.repeats)
        self._done.append(
            msgspec.structs.replace(settlement, maybe_written=written, repeats=repeats)
        )

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed, context = self._running.pop(task)
        if task.cancelled():
            # Somebody else runs it from the beginning. Also if the lease was lost: where the
            # store only did not answer it may still be ours, and would be renewed for ever.
            self._settle(deliver.handed_back(claimed, tried=True), context)
        thread = context.thread
        if thread is not None and not thread.done():
            # It cannot be ended from outside, so it goes on taking up its place.
            self._stuck += 1
            loop = asyncio.get_running_loop()
            thread.add_done_callback(lambda _: _tell(loop, self._unstick))
        self._wake.set()

    def _unstick(self) -> None:
        self._stuck -= 1
        self._wake.set()

    async def _renew(self) -> None:
        """Keep the leases; let go of the executions whose lease is lost.

        If the store does not answer for as long as a lease lasts, all of them must be taken for
        lost: by then others may be running these jobs.
        """
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            asked = time.monotonic()
            try:
                async with asyncio.timeout(self._lease_seconds * 2 / 3):
                    kept = await self._store.ask(
                        lambda _: deliver.renew(self.name, self._lease_seconds)
                    )
            except TimeoutError:
                kept = set()
            for task, (claimed, context) in list(self._running.items()):
                held = (claimed.fence.epoch, claimed.job_id) in kept
                if not (held or context.completion.begun) and context.begun < asked:
                    log("lease lost", job_id=claimed.job_id, epoch=claimed.fence.epoch)
                    task.cancel()

    async def _wind_down(self) -> None:
        """Wait for the handlers, then hand back what has not ended."""
        deadline = time.monotonic() + self._grace_seconds
        while self._running and self._store.patient:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._wake.clear()
            if self._done:
                await self._exchange(0)
            await self._until_woken(left)
        await _end(list(self._running))
        while self._done:
            await self._exchange(0)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)


def _retry_of_queue(claimed: Claimed) -> Retry:
    if claimed.queue_retry is None:
        return DEFAULT_RETRY
    return msgspec.json.decode(claimed.queue_retry, type=Retry)


def _no_handler(kind: str) -> Failure:
    return Failure(
        "NoHandler",
        f"this worker has no handler for kind {kind!r}: import the module that has it, or give "
        "such jobs a queue of their own",
    )
