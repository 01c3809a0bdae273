"""A run of the demo: publishers, workers, a payment service, until every job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from oncely.model.job import Job
from oncely.model.transition import ACTIVE
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.child import child
from oncely.surface.cli.demo.operator import Operator
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publishing import Publishing
from oncely.surface.cli.demo.record import DemoFailed, Record, Standing, Watcher
from oncely.surface.cli.demo.service import Assignment
from oncely.surface.cli.demo.working import WORKERS, Working
from oncely.surface.looking import LIST_LIMIT

LIMIT_SECONDS: Final = 50.0
"""So long nothing has to happen until the demo gives up. A busy machine may take longer in all."""
LOOK_SECONDS: Final = 0.1
_SERVICE: Final = "oncely.surface.cli.demo.service"

Look = Callable[[], Awaitable[list[Job]]]


async def run(
    app: Oncely, place: Place, book: Path, orders: Sequence[int], *, times: int, watcher: Watcher
) -> Record:
    """`book` is where the payment service keeps its own."""

    async def look() -> list[Job]:
        return await app.ajobs(queue=place.queue, limit=LIST_LIMIT)

    record = Record()
    publishing = Publishing(place, record, watcher, look)
    try:
        async with asyncio.timeout(LIMIT_SECONDS) as limit, asyncio.TaskGroup() as tasks:
            published = tasks.create_task(publishing.publish(orders, times=times))
            async with payment_service(book) as port:
                working = Working(place, port, record, watcher)
                operator = Operator(app, book, working, record, watcher)
                at_work = [tasks.create_task(working.work()) for _ in range(WORKERS)]
                await _until_all_ended(published, record, watcher, look, operator, limit)
                working.dismiss()
                await asyncio.gather(*at_work)
    except TimeoutError:
        raise DemoFailed(
            f"nothing happened for {LIMIT_SECONDS:.0f} seconds: is the store very slow or locked "
            "by another program, or do workers of another app take jobs from all its queues?"
        ) from None
    except BaseExceptionGroup as group:
        raise first_of(group) from None
    return record


@asynccontextmanager
async def payment_service(book: Path) -> AsyncIterator[int]:
    async with child(_SERVICE, Assignment(str(book))) as process:
        line = await process.hear()
        if not line:
            raise DemoFailed(f"the payment service failed: {await process.last_words()}")
        yield int(line)


async def _until_all_ended(
    published: asyncio.Task[None],
    record: Record,
    watcher: Watcher,
    look: Look,
    operator: Operator,
    limit: asyncio.Timeout,
) -> None:
    over, before = False, None
    while not over:
        await asyncio.sleep(LOOK_SECONDS)
        over = published.done()
        jobs = await look()
        now = _standing(jobs, record)
        if (now, len(record.executions)) != before:
            before = now, len(record.executions)
            limit.reschedule(asyncio.get_running_loop().time() + LIMIT_SECONDS)
        watcher.stood(now)
        await operator.attend(jobs)
        over = over and not any(job.state in ACTIVE for job in jobs)


def _standing(jobs: Sequence[Job], record: Record) -> Standing:
    return Standing(
        publishes=len(record.answers),
        jobs=len(jobs),
        completed=sum(job.state == "completed" for job in jobs),
        recovered=sum(is_recovered(job) for job in jobs),
        held=sum(is_held(job) for job in jobs),
        resolved=len(record.resolved),
        publishers_killed=len(record.publishers_killed),
        workers_killed=len(record.workers_killed),
    )


def is_recovered(job: Job) -> bool:
    """Whether a worker died while it ran this job, and the job went back in line."""
    return any(execution.outcome == "crashed" for execution in job.executions)


def is_held(job: Job) -> bool:
    """Whether it was held, or is."""
    return any(execution.outcome == "in_doubt" for execution in job.executions)


def first_of(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
