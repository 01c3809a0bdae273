"""A worker: claims jobs, runs their handlers, settles them in batches, until it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import secrets
import socket
import time
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from oncely.flow.aside import refuse_in_event_loop
from oncely.flow.events import log
from oncely.model.drill import check_share
from oncely.model.errors import StoreUnavailable, WorkerStuck
from oncely.model.outcome import Ending
from oncely.store import deliver
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.lanes import Outlook, survey
from oncely.worker.bounds import Bounds
from oncely.worker.drill import Drill, Kit
from oncely.worker.ends import Lease, fences_of
from oncely.worker.exchange import Exchange
from oncely.worker.execution import Execution
from oncely.worker.gear import Gear, check_above_zero, check_queues
from oncely.worker.handler_threads import HandlerThreads
from oncely.worker.hands import Hands, tell
from oncely.worker.line import Line
from oncely.worker.loop import run_alone
from oncely.worker.report import Reporter, about
from oncely.worker.schedule import keep_schedules
from oncely.worker.signals import told_to_stop
from oncely.worker.sleep import FIRST_POLL_SECONDS, Sleep
from oncely.worker.told import Told
from oncely.worker.upkeep import forget, keep_tidy, recover


class Worker(Hands):
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
        drill: float = 0.0,
    ) -> None:
        check_above_zero(
            concurrency=concurrency, lease_seconds=lease_seconds, poll_seconds=poll_seconds
        )
        self._store = Line(gear.engine, gear.store_threads)
        self._queues = None if queues is None else check_queues(queues)
        self._lease_seconds = lease_seconds
        self._grace_seconds = grace_seconds
        self.name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._told = Told(gear.events, self.name)
        self._reporter = self._reports(concurrency)
        super().__init__(gear, concurrency, self._reporter.times)
        self._settling: list[tuple[Sequence[Lease], Sequence[Settlement]]] = []
        self._outlook = Outlook()
        self._bounds = Bounds()
        self._source: str | None = None
        self._under_way = 0
        self._pumped = False
        self._told_of_a_job = False
        self._looked_at = -math.inf
        self._tight_until = -math.inf
        self._stopping = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sleep = Sleep(self._wake, poll_seconds)
        self._drill = self._drills(drill)

    def _reports(self, concurrency: int) -> Reporter:
        me = about(self.name, self._queues, concurrency)
        return Reporter(self._store, self.name, lambda: me, self._places_taken)

    def _places_taken(self) -> int:
        return len(self._running) + len(self._stuck)

    def run(self) -> None:
        """Run until SIGTERM or SIGINT; a second signal hands everything back at once."""
        refuse_in_event_loop("worker.run()", instead="async with app.running(...)")
        run_alone(self._run_until_signal())

    async def _run_until_signal(self) -> None:
        with told_to_stop(self.stop):
            await self.arun()

    async def arun(self) -> None:
        """Run in the running event loop until `stop`. Signals are the host program's."""
        await self._work(until_idle=False)

    async def drain(self) -> int:
        """Run all that is due; how many executions there were."""
        await self._work(until_idle=True)
        for kind, count in self._unhandled.items():
            log("drain left jobs without a handler", level=logging.WARNING, kind=kind, jobs=count)
        return self.executions

    def stop(self) -> None:
        """No new claims; running handlers get their grace time. Again: no grace.

        May be called from any thread.
        """
        grace_seconds = 0.0 if self._stopping else self._grace_seconds
        self._stopping = True
        if self._loop is not None:
            tell(self._loop, partial(self._begin_stopping, grace_seconds))

    def _begin_stopping(self, grace_seconds: float) -> None:
        """The store is waited for as long as the handlers are."""
        self._store.end_patience_in(grace_seconds)
        self._wake.set()

    @property
    def gave_up(self) -> bool:
        """Whether it has ended while a call to the store was still under way in a thread."""
        return self._store.gave_up

    async def _work(self, *, until_idle: bool) -> None:
        self._loop = asyncio.get_running_loop()
        self._threads = HandlerThreads()
        log("worker started", worker=self.name)
        if self._stopping:
            self._begin_stopping(self._grace_seconds)
        pump = asyncio.create_task(self._pumps(until_idle))
        self._settler = asyncio.create_task(self._settle_locked())
        keepers = [self._settler, *map(asyncio.create_task, self._keepers(until_idle))]
        if not until_idle:
            self._sleep.listen(self._gear.engine, self._queues)
        try:
            # The keepers have no end of their own: one that is over has failed.
            await asyncio.wait([pump, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in (pump, *keepers):
                if task.done():
                    task.result()
            if self._has_no_place and not self._stopping:
                # What these handlers have locked is not waited for as long as they take.
                self._begin_stopping(self._grace_seconds)
                with suppress(StoreUnavailable):
                    await self._wind_down()
                raise WorkerStuck(self._concurrency)
            await self._wind_down()
        except StoreUnavailable as error:
            if not self._stopping:
                raise
            log(
                "the store did not answer until the worker stopped: its jobs go to others when "
                "their leases are over",
                level=logging.WARNING,
                worker=self.name,
                error=str(error),
            )
        except asyncio.CancelledError:
            self._stopping = True
            self._begin_stopping(0.0)
            # An exchange that is under way comes to its end, or what it claims would be lost.
            await asyncio.gather(pump, return_exceptions=True)
            with suppress(StoreUnavailable):  # then the leases run out, and others take over
                await self._wind_down()
            raise
        finally:
            self._sleep.close()
            await _end([pump, *keepers, *self._running, *filter(None, [self._row])])
            await self._reporter.leave()
            self._threads.shutdown()
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
            self._reporter.keep(),
            keep_tidy(self._store),
            keep_schedules(self._store, self._gear.schedules, self._wake.set),
            *([] if self._drill is None else [self._drill.keep()]),
        ]

    def _drills(self, share: float) -> Drill | None:
        if not check_share(share):
            return None
        return Drill(share, Kit(self.name, self._gear, self._store, self._lease_seconds))

    def _wanted(self) -> int:
        """So many jobs are claimed now: those that there is room for, and what is fetched ahead."""
        room = self._room()
        if self._care.is_singly:
            return min(1, room)
        ahead, begun = self._ahead(), room - len(self._hand) - self._under_way
        wanted = max(0, begun + ahead)
        # A few at a time cost as much as many, and a wave in parts would stay in parts.
        few = ahead if self._pace.in_waves else min(ahead // 2, self._concurrency)
        self._low = max(0, room - self._under_way + ahead - few)
        if wanted < few and (self._hand or self._under_way):
            return 0
        wanted = min(wanted, self._pace.lease_limit)
        half = max(self._concurrency, (room + ahead) // 2)
        return min(wanted, half) if self._by_turns else wanted

    @property
    def _apart(self) -> bool:
        """Whether each job has a lease of its own, which helps those that end at the same time."""
        return self._pace.apart and self._gear.engine.is_parallel

    def _ahead(self) -> int:
        """Not where a limit leaves little room: they would be kept from others, and take up room
        when ended."""
        if self._pushes or self._care.is_wary or time.monotonic() < self._tight_until:
            return 0
        return self._pace.ahead

    async def _pumps(self, until_idle: bool) -> None:
        self._beside = asyncio.create_task(self._pump_beside())
        self._beside.add_done_callback(lambda _: self._wake.set())
        try:
            await self._pump(until_idle)
        except BaseException:
            self._beside.cancel()
            raise
        finally:
            # One that is under way comes to its end: what it claims would be lost, and what it
            # settles would be settled again.
            self._pumped = True
            self._lease_over.set()
            await asyncio.wait([self._beside])

    async def _pump_beside(self) -> None:
        """A second exchange, while one is under way and quick handlers have ended a lease: so
        neither the store nor the handlers wait for the other."""
        while not (self._stopping or self._pumped):
            self._lease_over.clear()
            await self._lease_over.wait()
            is_known = time.monotonic() - self._looked_at < self._bounds.look_seconds
            if self._under_way and self._by_turns and is_known and not self._stopping:
                # Under limits one claim at a time: a second would find them held by the first.
                is_limited = self._outlook.due & self._outlook.limited
                await self._exchange(0 if is_limited else self._wanted())
                self._wake.set()

    @property
    def _by_turns(self) -> bool:
        """Whether two exchanges may be under way. Jobs in waves end together, and are settled
        together."""
        is_parallel = self._gear.engine.is_parallel
        return is_parallel and self._ahead() > 0 and not self._pace.in_waves

    async def _pump(self, until_idle: bool) -> None:
        """Settle what is done and claim what there is room for, in one exchange at a time."""
        poll = FIRST_POLL_SECONDS
        while not (self._stopping or self._has_no_place):
            self._wake.clear()
            if self._beside.done():
                self._beside.result()
            self._hand_back_stale()
            wanted = self._wanted()
            claimed, settled = await self._exchange(wanted)
            if claimed or settled or self._ends.waiting:
                poll = FIRST_POLL_SECONDS
                # One turn of the loop: quick handlers end in it, and are settled together.
                await asyncio.sleep(0)
                if claimed >= wanted and not (self._pace.in_waves and self._wanted()):
                    await self._until_woken(self._pace.hand_seconds if self._hand else None)
                continue
            is_idle = not (self._hand or self._running or self._stuck or self._under_way)
            if until_idle and is_idle and not (wanted and self._outlook.busy):
                return
            if wanted and self._outlook.unfinished:
                continue
            if self._room() and not self._hand:
                poll = await self._sleep.nap(poll, self._outlook.wait_seconds)
                self._told_of_a_job = self._wake.is_set()
            else:
                await self._until_woken(self._pace.hand_seconds if self._hand else None)

    async def _until_woken(self, seconds: float | None) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return False
        return True

    async def _exchange(self, wanted: int) -> tuple[int, int]:
        """Take in new jobs for those that have ended; how many were claimed, and how many settled.
        What could not be sent stays to be sent: the worker goes on when the store is back."""
        now = looked_at = time.monotonic()
        guess, self._told_of_a_job = self._told_of_a_job, False
        if self._looked_at == -math.inf and self._bounds.look_takes_long and self._ends.urgent:
            wanted = 0  # what has ended need not wait for it
        if wanted and guess and self._source is not None:
            # The next one is most likely where the last one was. If not, it is looked for.
            self._outlook.due = {self._source}
            self._outlook.unfinished = True
        elif wanted and now - self._looked_at > self._bounds.look_seconds:
            await self._store.ask(
                lambda _: survey(self._outlook, self._queues, pushed=self._pushes), "read"
            )
            now = self._looked_at = time.monotonic()
            self._bounds.forget(now)
        if wanted and not self._outlook.due:
            wanted, self._looked_at = 0, -math.inf
        locked = self._locked_leases()
        over, singles = self._ends.take(now, linger=self._ahead() > 0, locked=locked)
        if self._ends.held_back:
            self._lease_locked.set()
        if self._ends.waiting:
            self._linger()
        if not (over or singles or wanted):
            return 0, 0
        exchange = Exchange(
            self._outlook,
            self._bounds,
            worker=self.name,
            lease_seconds=self._lease_seconds,
            wanted=wanted,
            # Where each has a lease, those that are fetched ahead have leases that are not begun.
            begun=0 if self._apart and len(self._hand) >= self._room() else self._concurrency,
            pushes=self._pushes,
            apart=self._apart,
            parallel=self._gear.engine.is_parallel,
            take_in=self._take_in_early,
        )
        self._under_way += wanted
        self._settling.append((over, singles))
        try:
            claimed = await exchange.make(self._store, over, singles)
        except BaseException:
            self._ends.put_back(over, singles, now)
            raise
        finally:
            self._under_way -= wanted - exchange.taken_in
            self._settling.remove((over, singles))
        self._source = exchange.source or self._source
        over_at = time.monotonic()
        if self._outlook.due & self._outlook.tight:
            self._tight_until = over_at + self._pace.hand_seconds
        self._pace.exchanged(over_at - now, over_at, idle=not self._running)
        if looked_at < now:
            self._bounds.looked(over_at - looked_at)
        number = exchange.taken_in + len(claimed)
        if number < wanted:
            self._looked_at = -math.inf
        self._told.exchanged(over, singles, exchange.refused, claimed)
        if self._drill is not None:
            self._drill.settled(over, singles, exchange.refused)
        self._take_in(claimed)
        return number, len(singles) + sum(map(len, over))

    def _take_in_early(self, claimed: Sequence[Claimed]) -> None:
        """While the exchange goes on."""
        self._under_way -= len(claimed)
        self._told.exchanged((), (), (), claimed)
        self._take_in(claimed)

    async def _settle_locked(self) -> None:
        """Settle under leases that transactions of handlers may have locked, beside all other
        exchanges: this one may take as long as those transactions."""
        while True:
            await self._lease_locked.wait()
            self._lease_locked.clear()
            await self._settle_apart(self._ends.take_held_back())

    async def _settle_apart(self, ends: Sequence[Settlement]) -> None:
        self._settling.append(([], ends))
        try:
            refused = await self._store.ask(lambda again: deliver.settle(ends, again=again))
        except BaseException:
            self._ends.put_back([], ends, 0.0)
            raise
        finally:
            self._settling.remove(([], ends))
            self._wake.set()
        self._told.exchanged([], ends, refused, [])
        if self._drill is not None:
            self._drill.settled([], ends, refused)

    def _draw(self, execution: Execution, ending: Ending) -> None:
        """Its lot. A drill is not counted where limits are, so there is none there."""
        claimed, handler = execution.claimed, execution.handler
        if self._drill is None or handler is None:
            return
        if claimed.group_key is None and claimed.queue not in self._outlook.shared:
            timeout = execution.timeout_seconds
            self._drill.ended(claimed, handler, ending, execution.context, timeout)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_seconds / 3)
            await self._renew_now()

    async def _renew_now(self) -> None:
        """Keep the leases; let go of the executions whose lease is lost.

        If the store does not answer for as long as a lease lasts, all of them must be taken for
        lost: by then others may be running these jobs.
        """
        known = self._known_leases()
        if not known:
            return
        try:
            async with asyncio.timeout(self._lease_seconds * 2 / 3):
                held = await self._store.ask(
                    lambda _: deliver.renew(self.name, known, self._lease_seconds)
                )
        except TimeoutError:
            held = set()
        self._keep_in_hand(known, held)
        for task, execution in list(self._running.items()):
            claimed, context = execution.claimed, execution.context
            if not self._is_held(claimed, known, held) and not context.may_be_completed:
                log("lease lost", job_id=claimed.job_id, epoch=claimed.fence.epoch)
                task.cancel()

    def _known_leases(self) -> set[Fence]:
        """The leases of what is in hand, runs, or has ended and is not settled yet. One that the
        store has written for us and we were never told of is not among them, and runs out."""
        known = {claimed.fence for _, claimed in self._hand}
        known.update(execution.claimed.fence for execution in self._running.values())
        known |= self._ends.fences
        for over, singles in self._settling:
            known |= fences_of(over, singles)
        return known

    async def _wind_down(self) -> None:
        """Hand back what was fetched ahead, wait for the handlers, then hand back what has not
        ended."""
        self._hand_back()
        while self._running and (left := self._store.patience_seconds) > 0:
            self._wake.clear()
            if self._ends.waiting:
                await self._exchange(0)
            await self._until_woken(left)
        await _end(list(self._running))
        while self._ends.waiting or self._ends.held_back or self._settling:
            self._wake.clear()
            if self._settler.done():
                self._settler.result()
            if self._ends.waiting:
                await self._exchange(0)
            else:
                await self._wake.wait()


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
