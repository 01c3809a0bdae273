"""A worker: claims jobs, runs their handlers, settles them in batches, until it is told to stop."""

from __future__ import annotations

import asyncio
import math
import os
import random
import secrets
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ClassVar, Final, TypedDict

import msgspec

from oncely.flow.context import Context
from oncely.flow.enqueue import Enqueuer
from oncely.flow.events import Events, log
from oncely.flow.execute import Middleware, execute, with_doubt
from oncely.flow.handler import Handler, Registry
from oncely.flow.schedule import Schedules
from oncely.flow.writes import Writes
from oncely.model.errors import InvalidInput, StoreUnavailable
from oncely.model.outcome import Deferred, Ending, Failure, Returned, Standing, decide
from oncely.model.retention import Retention
from oncely.model.retry import Retry
from oncely.store import deliver
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement
from oncely.store.engine import Engine
from oncely.store.lanes import Outlook, survey
from oncely.store.swap import Completed
from oncely.worker.bounds import Bounds
from oncely.worker.care import ALONE_SECONDS, Care
from oncely.worker.ends import Ends
from oncely.worker.exchange import Exchange, Lost
from oncely.worker.line import Line
from oncely.worker.loop import run_alone
from oncely.worker.pace import HAND_SECONDS, LINGER_SECONDS, Pace
from oncely.worker.schedule import keep_schedules
from oncely.worker.signals import told_to_stop
from oncely.worker.sleep import FIRST_POLL_SECONDS, Sleep
from oncely.worker.told import Told
from oncely.worker.upkeep import forget, keep_counters, keep_tidy, recover

MAX_RESULT_BYTES: Final = 1024 * 1024
DEFAULT_RETRY: Final = Retry()
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
    writes: Writes
    registry: Registry
    middleware: Sequence[Middleware]
    retention: Retention
    schedules: Schedules
    events: Events


class Worker:
    """`queues` are the lanes it claims from, in turn; None means every queue that has jobs."""

    _pushes: ClassVar[bool] = False
    """Whether it serves the queues whose jobs are pushed to a URL, or all others."""

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
        self._hand: deque[tuple[float, Claimed]] = deque()
        self._running: dict[asyncio.Task[None], tuple[Claimed, Context]] = {}
        self._care = Care()
        self._stuck = 0
        self._ends = Ends()
        self._lost: list[Lost] = []
        self._pace = Pace(concurrency)
        self._lingers = False
        self._outlook = Outlook()
        self._bounds = Bounds()
        self._source: str | None = None
        self._told_of_a_job = False
        self._looked_at = -math.inf
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._sleep = Sleep(self._wake, poll_seconds)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second signal hands everything back at once."""
        run_alone(self.arun())

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
        keepers = [asyncio.create_task(keep) for keep in self._keepers(until_idle)]
        if not until_idle:
            self._sleep.listen(self._gear.engine, self._queues)
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

    def _keepers(self, until_idle: bool) -> list[Coroutine[Any, Any, None]]:
        """What goes on beside the pump, without an end of its own."""
        always = [
            self._renew(),
            recover(self._store, self._lease_seconds, self._wake.set, self._told),
        ]
        if until_idle:
            return always
        return [
            *always,
            forget(self._store, self._gear.retention),
            keep_counters(self._store),
            keep_tidy(self._store),
            keep_schedules(self._store, self._gear.schedules, self._wake.set),
        ]

    def _room(self) -> int:
        """So many more jobs may be begun now."""
        if self._care.alone is not None:
            return 0
        return self._concurrency - len(self._running) - self._stuck

    def _wanted(self) -> int:
        """So many jobs are claimed now: those that there is room for, and what is fetched ahead."""
        room = self._room()
        if self._care.is_singly:
            return min(1, room)
        return max(0, room + self._ahead() - len(self._hand))

    def _ahead(self) -> int:
        """Not of jobs under limits: they would be kept from others, and take up room when ended."""
        if self._pushes or self._care.is_wary or self._outlook.due & self._outlook.shared:
            return 0
        return self._pace.ahead

    async def _pump(self, until_idle: bool) -> None:
        """Settle what is done and claim what there is room for, in one exchange at a time."""
        poll = FIRST_POLL_SECONDS
        while not self._stopping:
            self._wake.clear()
            self._hand_back_stale()
            wanted = self._wanted()
            claimed, settled = await self._exchange(wanted)
            self._take_in(claimed)
            if claimed or settled or self._ends.waiting:
                poll = FIRST_POLL_SECONDS
                # One turn of the loop: quick handlers end in it, and are settled together.
                await asyncio.sleep(0)
                if len(claimed) >= wanted:
                    await self._until_woken(HAND_SECONDS if self._hand else None)
                continue
            if until_idle and not self._running and not self._stuck:
                return
            if wanted and self._outlook.unfinished:
                continue
            if self._room():
                poll = await self._sleep.nap(poll, self._outlook.wait_seconds)
                self._told_of_a_job = self._wake.is_set()
            else:
                await self._until_woken(HAND_SECONDS if self._hand else None)

    def _take_in(self, claimed: Sequence[Claimed]) -> None:
        now = time.monotonic()
        self._ends.expect(claimed)
        self._hand.extend((now, job) for job in claimed)
        singly = self._care.is_singly
        if self._care.met(claimed):
            self._begin_next()
        if self._care.is_wary and self._hand:
            self._hand_back()
            self._wake.set()
        if claimed and singly:  # there may be room for more
            self._wake.set()

    def _begin_next(self) -> None:
        room = min(self._room(), len(self._hand))
        while room > 0 and self._care.alone is None:
            self._begin(self._hand.popleft()[1])
            room -= 1

    def _hand_back_stale(self) -> None:
        if self._hand and time.monotonic() - self._hand[0][0] > HAND_SECONDS:
            self._hand_back()

    def _hand_back(self) -> None:
        """What was fetched ahead and is not begun."""
        while self._hand:
            _, claimed = self._hand.popleft()
            self._ends.add(claimed, deliver.handed_back(claimed, tried=False), 0.0)

    def _keep_in_hand(self, kept: set[tuple[int, str]], asked: float) -> None:
        """What was cancelled, or lost with its lease, is not begun. It is handed back all the same:
        where the store only did not answer it may still be ours, and would be renewed for ever."""
        hand, self._hand = self._hand, deque()
        for at, claimed in hand:
            if at > asked or (claimed.fence.epoch, claimed.job_id) in kept:
                self._hand.append((at, claimed))
            else:
                self._ends.add(claimed, deliver.handed_back(claimed, tried=False), 0.0)
                self._wake.set()

    async def _until_woken(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _exchange(self, wanted: int) -> tuple[list[Claimed], int]:
        """The jobs that were claimed, and how many were settled. What could not be sent stays to be
        sent: the worker goes on when the store is back."""
        now = time.monotonic()
        guess, self._told_of_a_job = self._told_of_a_job, False
        if wanted and guess and self._source is not None:
            # The next one is most likely where the last one was. If not, it is looked for.
            self._outlook.due = {self._source}
            self._outlook.unfinished = True
        elif wanted and now - self._looked_at > self._bounds.look_seconds:
            await self._store.ask(
                lambda _: survey(self._outlook, self._queues, pushed=self._pushes), "read"
            )
            self._looked_at = time.monotonic()
            self._bounds.looked(self._looked_at - now)
            self._bounds.forget()
            now = self._looked_at
        if not self._outlook.due:
            wanted = 0
        over, singles = self._ends.take(now, linger=self._ahead() > 0)
        if self._ends.waiting:
            self._linger()
        if not (over or singles or wanted):
            self._looked_at = -math.inf
            return [], 0
        exchange = Exchange(
            self._outlook,
            self._bounds,
            worker=self.name,
            lease_seconds=self._lease_seconds,
            wanted=wanted,
            room=self._room(),
            begun=self._concurrency,
            pushes=self._pushes,
        )
        try:
            claimed = await exchange.make(self._store, over, singles)
        except BaseException:
            self._ends.put_back(over, singles, now)
            raise
        self._source = exchange.source or self._source
        if exchange.lost is not None:
            self._lost.append(exchange.lost)
        self._pace.exchanged(time.monotonic() - now)
        if len(claimed) < wanted or not wanted:
            self._looked_at = -math.inf
        self._told.exchanged(over, singles, exchange.refused, claimed)
        return claimed, len(singles) + sum(map(len, over))

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
            max_attempts=claimed.max_attempts or retry.max_attempts,
            deadline=None if timeout is None else time.monotonic() + timeout,
            engine=self._gear.engine,
            store_threads=self._gear.store_threads,
            enqueuer=self._gear.enqueuer,
            writes=self._gear.writes,
            is_async=handler is None or handler.is_async,
        )
        loop = asyncio.get_running_loop()
        self.executions += 1
        task = loop.create_task(self._execute(claimed, context, handler, retry, timeout))
        self._running[task] = (claimed, context)
        task.add_done_callback(self._ended)
        if self._care.begun(claimed, task):
            loop.call_later(ALONE_SECONDS, self._not_alone, task)

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
        now = time.monotonic()
        self._pace.ended(now - context.begun)
        if isinstance(ending, Returned) and context.only_returned and not self._pushes:
            self._ends.add(claimed, Completed(claimed, ending.result), now)
        else:
            standing = Standing(
                claimed.attempt, context.max_attempts, claimed.defers, claimed.age_seconds
            )
            verdict = decide(ending, standing, retry, random.random())
            self._settle(claimed, deliver.settlement(claimed, verdict), context)

    def _settle(self, claimed: Claimed, settlement: Settlement, context: Context) -> None:
        """With the next exchange. A handler that completed its job itself has done it before us,
        unless its transaction was rolled back."""
        repeats = list(context.effects.repeats) if context.has_effects else []
        told = msgspec.structs.replace(
            settlement,
            maybe_written=context.may_be_completed,
            written=context.is_completed,
            repeats=repeats,
        )
        self._ends.add(claimed, told, 0.0)

    def _not_alone(self, task: asyncio.Task[None]) -> None:
        if self._care.ended(task):
            self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        claimed, context = self._running.pop(task)
        self._not_alone(task)
        if task.cancelled():
            # Somebody else runs it from the beginning. Also if the lease was lost: where the
            # store only did not answer it may still be ours, and would be renewed for ever.
            self._settle(claimed, deliver.handed_back(claimed, tried=True), context)
        thread = context.thread
        if thread is not None and not thread.done():
            # It cannot be ended from outside, so it goes on taking up its place.
            self._stuck += 1
            loop = asyncio.get_running_loop()
            thread.add_done_callback(lambda _: _tell(loop, self._unstick))
        if self._hand:
            self._begin_next()
            if not self._ends.urgent:
                self._linger()
                return
        self._wake.set()

    def _linger(self) -> None:
        """There is work in hand, so the store can wait until a lease is over."""
        if not self._lingers:
            self._lingers = True
            asyncio.get_running_loop().call_later(LINGER_SECONDS, self._linger_over)

    def _linger_over(self) -> None:
        self._lingers = False
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
            self._keep_in_hand(kept, asked)
            for task, (claimed, context) in list(self._running.items()):
                held = (claimed.fence.epoch, claimed.job_id) in kept
                if not (held or context.may_be_completed) and context.begun < asked:
                    log("lease lost", job_id=claimed.job_id, epoch=claimed.fence.epoch)
                    task.cancel()
            if self._lost:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._lease_seconds / 3):
                        await self._find_lost()

    async def _find_lost(self) -> None:
        """Their leases are in our name, so nobody else will take them back."""
        for lost in list(self._lost):
            found = await self._store.ask(lambda _, lost=lost: lost.look(self.name), "read")  # type: ignore[misc]
            lost.looks -= 1
            if found and not self._stopping:
                lost.known.update(job.fence.epoch for job in found)
                self._told.exchanged([], [], [], found)
                self._take_in(found)
        self._lost = [lost for lost in self._lost if lost.looks]

    async def _wind_down(self) -> None:
        """Hand back what was fetched ahead, wait for the handlers, then hand back what has not
        ended."""
        self._hand_back()
        deadline = time.monotonic() + self._grace_seconds
        while self._running and self._store.patient:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._wake.clear()
            if self._ends.waiting:
                await self._exchange(0)
            await self._until_woken(left)
        await _end(list(self._running))
        while self._ends.waiting:
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
