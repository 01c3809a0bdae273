"""The verbs that run jobs: handlers, middleware, workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, Unpack

from oncely.flow.aside import refuse_in_event_loop
from oncely.flow.execute import Middleware
from oncely.model.errors import InvalidInput, NotOverHttp
from oncely.model.retry import Retry
from oncely.surface.base import Base
from oncely.worker.gear import Gear, WorkerOptions
from oncely.worker.loop import run_alone
from oncely.worker.push import Pusher, PusherOptions
from oncely.worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])


class Running(Base):
    def job(
        self,
        kind: str,
        *,
        queue: str = "default",
        retry: Retry | None = None,
        timeout: float | None = None,
        drill: bool = False,
    ) -> Callable[[F], F]:
        """The decorated function, `async def` or `def`, handles jobs of this kind.

        It takes a `Context` and, if it wants it, the payload, converted to the type of its
        annotation. What it returns is kept as the result. With `drill`, a worker that was told to
        may deliver completed jobs of this kind once more, to see what that would repeat.
        """
        if callable(kind):
            name = getattr(kind, "__name__", "kind")
            raise InvalidInput(
                f'@app.job is given no kind: write @app.job("{name}") above {name}, with the name '
                "that its jobs are enqueued under"
            )

        def register(function: F) -> F:
            self._registry.add(
                kind, function, queue=queue, retry=retry, timeout=timeout, drill=drill
            )
            return function

        return register

    def middleware(self, function: Middleware) -> Middleware:
        """`async def around(ctx, call): ...; return await call(ctx)`, around every handler. The
        first one that was added is the outermost."""
        self._middleware.append(function)
        return function

    def worker(self, **options: Unpack[WorkerOptions]) -> Worker:
        """A worker: `.run()` runs it until SIGTERM or SIGINT. The options:

        - `queues`: the lanes it takes from; without it, all.
        - `concurrency`: so many handlers at once, 16. `def` handlers run in threads.
        - `lease_seconds`: so long after a worker died its jobs go to others; 60.
        - `poll_seconds`: an idle worker looks at least this often; 1.
        - `grace_seconds`: so long running handlers may go on when it is told to stop; 30.
        - `drill`: this share of the jobs that it completes, of kinds that allow it, is delivered
          once more, to see what that would repeat; 0.
        """
        if options.get("drill") and self.url.startswith(("http://", "https://")):
            raise NotOverHttp("a drill")
        return Worker(self._gear(), **options)

    def pusher(self, **options: Unpack[PusherOptions]) -> Pusher:
        """What sends the jobs of queues with a push target: `await pusher.arun()` runs it until
        `pusher.stop()`. `oncely serve` has one. The options:

        - `concurrency`: so many requests to one target at once, 100.
        - `lease_seconds`, `poll_seconds`, `grace_seconds`: as for `worker`.
        """
        return Pusher(self._gear(), **options)

    def _gear(self) -> Gear:
        self._refuse_if_closed()
        return Gear(
            engine=self._engine,
            store_threads=self._executor,
            enqueuer=self._enqueuer,
            writes=self._writes,
            registry=self._registry,
            middleware=self._middleware,
            retention=self._retention,
            schedules=self._schedules,
            events=self._events,
        )

    async def run_worker(self, **options: Unpack[WorkerOptions]) -> None:
        """`worker(...)` in the running event loop, until the task is cancelled. Signals are left to
        the program that it runs in."""
        await self.worker(**options).arun()

    @asynccontextmanager
    async def running(self, **options: Unpack[WorkerOptions]) -> AsyncIterator[Worker]:
        """`async with app.running(...) as worker:` has a worker in the running event loop for the
        time of the block, with the options of `worker`. Signals are left to the program.

        At the end of the block the worker stops: running handlers get their `grace_seconds`. A
        block that is cancelled a second time does not wait for that. If the worker fails, the block
        is cancelled and the worker's error is raised.
        """
        worker = self.worker(**options)
        host = asyncio.current_task()
        assert host is not None
        cancels = host.cancelling()
        running = asyncio.create_task(worker.arun())
        is_in_block, is_interrupted = True, False

        def interrupt(ended: asyncio.Task[None]) -> None:
            nonlocal is_interrupted
            if is_in_block and not ended.cancelled() and ended.exception():
                is_interrupted = host.cancel()

        running.add_done_callback(interrupt)
        try:
            yield worker
        except BaseException as error:
            only_by_us = is_interrupted and host.uncancel() <= cancels
            if not (only_by_us and isinstance(error, asyncio.CancelledError)):
                raise
        finally:
            is_in_block = False
            worker.stop()
            await running

    def drain(self, *, queues: Sequence[str] | None = None) -> int:
        """Run all that is due, in this process, and return how many executions there were. In an
        event loop it raises `BlockingCall`: use `await app.adrain()`."""
        refuse_in_event_loop("app.drain()", instead="await app.adrain()")
        return run_alone(self.adrain(queues=queues))

    async def adrain(self, *, queues: Sequence[str] | None = None) -> int:
        return await self.worker(queues=queues).drain()
