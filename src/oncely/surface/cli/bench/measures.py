"""What is measured. Each measure prepares a new store, then does its work on the clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, Literal

import msgspec

from oncely.flow.context import Context
from oncely.model.job import NewJob
from oncely.surface.app import Oncely

CALLERS: Final = 64
BULK: Final = 1_000
TRANSACTIONS: Final = 16
_KIND: Final = "bench"
_IDLE_SECONDS: Final = 0.02
Handle = Callable[[Context], Awaitable[None]]
Prepare = Callable[[Oncely, int], None]


class Size(msgspec.Struct, frozen=True):
    """How many handlers run at once, and how many jobs there are."""

    jobs: int
    concurrency: int


class Timed(msgspec.Struct, frozen=True):
    seconds: float
    samples: list[float] = []
    """The seconds that single jobs took, where that is what is measured."""


class Measure(msgspec.Struct, frozen=True):
    name: str
    does: str
    jobs: int
    run: Callable[[Oncely, Size], Timed]
    prepare: Prepare = lambda app, jobs: None  # noqa: ARG005
    unit: Literal["jobs/s", "ms"] = "jobs/s"


def _bulk(app: Oncely, jobs: Iterable[NewJob]) -> None:
    batch: list[NewJob] = []
    for job in jobs:
        batch.append(job)
        if len(batch) == BULK:
            app.enqueue_many(batch)
            batch = []
    if batch:
        app.enqueue_many(batch)


def _plain(count: int) -> Iterable[NewJob]:
    return (NewJob(_KIND, {"n": n}) for n in range(count))


def _keyed(count: int) -> Iterable[NewJob]:
    return (NewJob(_KIND, {"n": n}, idempotency_key=f"bench:{n}") for n in range(count))


def _clocked(work: Callable[[], object]) -> Timed:
    started = time.perf_counter()
    work()
    return Timed(time.perf_counter() - started)


def _one_by_one(app: Oncely, size: Size) -> Timed:
    return _clocked(lambda: [app.enqueue(_KIND, {"n": n}) for n in range(size.jobs)])


def _concurrent(app: Oncely, size: Size) -> Timed:
    numbers = iter(range(size.jobs))

    async def call() -> None:
        for n in numbers:
            await app.aenqueue(_KIND, {"n": n})

    async def all_at_once() -> None:
        await asyncio.gather(*(call() for _ in range(CALLERS)))

    return _clocked(lambda: asyncio.run(all_at_once()))


def _in_bulk(make: Callable[[int], Iterable[NewJob]]) -> Callable[[Oncely, Size], Timed]:
    return lambda app, size: _clocked(lambda: _bulk(app, make(size.jobs)))


def _filled(app: Oncely, jobs: int) -> None:
    _bulk(app, _plain(jobs))


def _drain(handle: Handle, at_once: int | None = None) -> Callable[[Oncely, Size], Timed]:
    """From the start of a worker until all is settled."""

    def run(app: Oncely, size: Size) -> Timed:
        left = size.jobs
        wrong: list[Exception] = []
        worker = app.worker(concurrency=at_once or size.concurrency)

        @app.job(_KIND)
        async def handler(ctx: Context) -> None:
            nonlocal left
            try:
                await handle(ctx)
            except Exception as error:
                wrong.append(error)
                worker.stop()
                raise
            left -= 1
            if left == 0:
                worker.stop()

        timed = _clocked(worker.run)
        if wrong:
            raise wrong[0]
        if left:
            raise KeyboardInterrupt  # the worker took the signal for itself, and stopped
        return timed

    return run


async def _nothing(ctx: Context) -> None: ...


async def _step(ctx: Context) -> None:
    await ctx.step("charge", _charge)


def _charge() -> int:
    return 1


async def _transaction(ctx: Context) -> None:
    async with ctx.transaction() as tx:
        await tx.execute("select 1")


def _latency(app: Oncely, size: Size) -> Timed:
    """One job at a time for a worker that rests: from the call to the handler."""
    samples: list[float] = []
    arrived: list[asyncio.Event] = []
    started = 0.0

    @app.job(_KIND)
    async def handler(ctx: Context) -> None:  # noqa: ARG001
        samples.append(time.perf_counter() - started)
        arrived[-1].set()

    async def all_in_turn() -> None:
        nonlocal started
        worker = app.worker(concurrency=size.concurrency)
        running = asyncio.create_task(worker.arun())
        for n in range(size.jobs):
            await asyncio.sleep(_IDLE_SECONDS)
            arrived.append(asyncio.Event())
            started = time.perf_counter()
            await app.aenqueue(_KIND, {"n": n})
            waiting = asyncio.create_task(arrived[-1].wait())
            await asyncio.wait({waiting, running}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                waiting.cancel()
                raise KeyboardInterrupt
        worker.stop()
        await running

    timed = _clocked(lambda: asyncio.run(all_in_turn()))
    return Timed(timed.seconds, samples)


MEASURES: Final = {
    measure.name: measure
    for measure in (
        Measure("enqueue", "enqueue, one by one", 2_000, _one_by_one),
        Measure("concurrent", f"enqueue, {CALLERS} callers at once", 10_000, _concurrent),
        Measure("bulk", f"enqueue_many, {BULK:,} in a call", 50_000, _in_bulk(_plain)),
        Measure("keyed", "the same with idempotency keys", 20_000, _in_bulk(_keyed)),
        Measure(
            "repeats",
            "the same again: all deduplicated",
            20_000,
            _in_bulk(_keyed),
            lambda app, jobs: _bulk(app, _keyed(jobs)),
        ),
        Measure("drain", "run, handlers that do nothing", 20_000, _drain(_nothing), _filled),
        Measure("steps", "run, one step in each", 4_000, _drain(_step), _filled),
        Measure(
            "transactions",
            f"run, one transaction in each, {TRANSACTIONS} at once",
            2_000,
            _drain(_transaction, TRANSACTIONS),
            _filled,
        ),
        Measure("latency", "from enqueue to handler, idle", 200, _latency, unit="ms"),
    )
}


def percentile(samples: list[float], share: float) -> float:
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))]
