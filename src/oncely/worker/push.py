"""The pusher: for every queue with a push target a worker that sends its jobs there.

Any number of servers may run one, for jobs are claimed under leases as everywhere.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Coroutine
from typing import Any, Final, TypedDict

from oncely.flow.events import log
from oncely.flow.push_target import Resolve, allowed_networks
from oncely.model.errors import InvalidInput, StoreUnavailable
from oncely.model.worker import About
from oncely.store import push as plans
from oncely.store.push_targets import Target, encrypt_secrets, targets
from oncely.store.secret_key import check_secret_key
from oncely.worker.gear import Gear
from oncely.worker.line import Line
from oncely.worker.push_worker import PushWorker, retry_of
from oncely.worker.report import Reporter, about
from oncely.worker.told import Told
from oncely.worker.upkeep import forget, recover

_LOOK_SECONDS: Final = 1.0
_OVERDUE_LIMIT: Final = 100


class PusherOptions(TypedDict, total=False):
    """The options of `Oncely.pusher`, explained there."""

    concurrency: int
    lease_seconds: float
    poll_seconds: float
    grace_seconds: float


class Pusher:
    """Looks for targets that were set, changed or removed, once a second. It also does what any
    worker does for all, so that a server whose workers are far away needs no other."""

    def __init__(
        self,
        gear: Gear,
        *,
        concurrency: int = 100,
        lease_seconds: float = 60.0,
        poll_seconds: float = 1.0,
        grace_seconds: float = 30.0,
        resolve: Resolve | None = None,
    ) -> None:
        allowed_networks()
        check_secret_key()
        self._gear = gear
        self._options = {
            "concurrency": concurrency,
            "lease_seconds": lease_seconds,
            "poll_seconds": poll_seconds,
            "grace_seconds": grace_seconds,
        }
        self._lease_seconds = lease_seconds
        self._resolve = resolve
        self._store = Line(gear.engine, gear.store_threads)
        self._concurrency = concurrency
        self._name = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._reporter = Reporter(self._store, self._name, self._about, self._running)
        self._workers: dict[str, tuple[PushWorker, asyncio.Task[None]]] = {}
        self._leaving: dict[asyncio.Task[None], PushWorker] = {}
        self._unusable: set[Target] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._stopping = False

    async def arun(self) -> None:
        """Until `stop`. A target that is gone is let go of after its requests have ended."""
        self._loop = asyncio.get_running_loop()
        keepers = [asyncio.create_task(keep) for keep in self._keepers()]
        looking = asyncio.create_task(self._look())
        try:
            # The keepers have no end of their own: one that is over has failed.
            await asyncio.wait([looking, *keepers], return_when=asyncio.FIRST_COMPLETED)
            for task in (looking, *keepers):
                if task.done():
                    _check(task, stopping=self._stopping)
            await asyncio.gather(*self._leaving)
        finally:
            await _end([looking, *keepers, *self._leaving, *(t for _, t in self._workers.values())])
            self._workers.clear()
            await self._reporter.leave()

    def stop(self) -> None:
        """No new claims; requests that are under way come to their end. Again: they do not. May be
        called from any thread."""
        again, self._stopping = self._stopping, True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin_stopping, again)

    def _begin_stopping(self, again: bool) -> None:
        """Its workers wait for the store as long as for their requests. It has nothing of its own
        to wait for."""
        if again:
            for worker in list(self._leaving.values()):
                worker.stop()
        self._store.end_patience_in(0.0)
        self._follow({})
        self._wake.set()

    async def drain(self) -> int:
        """Push all that is due; how many executions there were."""
        await self._store.ask(lambda _: self._fail_overdue())
        found = await self._store.ask(lambda _: targets(), "read")
        workers = [worker for target in found if (worker := self._make(target))]
        executions = sum(await asyncio.gather(*(worker.drain() for worker in workers)))
        await self._reporter.leave()
        return executions

    async def _look(self) -> None:
        await self._store.ask(lambda _: encrypt_secrets())
        while not self._stopping:
            self._wake.clear()
            found = await self._store.ask(lambda _: targets(), "read")
            self._follow({target.queue: target for target in found})
            try:
                async with asyncio.timeout(_LOOK_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                pass
            for _, task in self._workers.values():
                if task.done() and not self._stopping:
                    task.result()
        self._follow({})

    def _follow(self, wanted: dict[str, Target]) -> None:
        if wanted.keys() != self._workers.keys():
            self._reporter.soon()
        for queue, (worker, task) in list(self._workers.items()):
            target = wanted.get(queue)
            if target is None or not worker.take(target):
                worker.stop()
                del self._workers[queue]
                self._leaving[task] = worker
                task.add_done_callback(self._left)
        for queue, target in wanted.items():
            if queue not in self._workers and not self._stopping:
                worker_or_none = self._make(target)
                if worker_or_none is not None:
                    task = asyncio.create_task(worker_or_none.arun())
                    self._workers[queue] = (worker_or_none, task)

    def _about(self) -> About | None:
        """All its workers are one for whoever looks: there may be hundreds of targets."""
        if not self._workers:
            return None
        return about(self._name, sorted(self._workers), self._concurrency, pushes=True)

    def _running(self) -> int:
        return sum(worker.running for worker, _ in self._workers.values())

    def _left(self, task: asyncio.Task[None]) -> None:
        del self._leaving[task]

    def _make(self, target: Target) -> PushWorker | None:
        try:
            if target.problem is not None:
                raise InvalidInput(target.problem)
            return PushWorker(
                self._gear,
                target,
                resolve=self._resolve,
                reporter=self._reporter,
                **self._options,
            )
        except InvalidInput as error:
            if target not in self._unusable:
                self._unusable.add(target)
                log(
                    "push target not usable",
                    level=logging.WARNING,
                    queue=target.queue,
                    error=str(error),
                )
            return None

    def _keepers(self) -> list[Coroutine[Any, Any, None]]:
        told = Told(self._gear.events, "pusher")
        return [
            recover(self._store, self._lease_seconds, _nothing, told),
            forget(self._store, self._gear.retention),
            self._reporter.keep(),
            self._keep_time(),
        ]

    async def _keep_time(self) -> None:
        while True:
            late = await self._store.ask(lambda _: self._fail_overdue())
            for job_id in late:
                log("push not acknowledged", job_id=job_id)
            if len(late) < _OVERDUE_LIMIT:
                await asyncio.sleep(_LOOK_SECONDS * (0.5 + random.random()))

    def _fail_overdue(self) -> Any:
        return plans.fail_overdue(_OVERDUE_LIMIT, retry_of, random.random)


def _check(task: asyncio.Task[None], *, stopping: bool) -> None:
    """Whoever stops does not wait for a store that is away."""
    try:
        task.result()
    except StoreUnavailable as error:
        if not stopping:
            raise
        log("the pusher stops without the store", level=logging.WARNING, error=str(error))


def _nothing() -> None: ...


async def _end(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
