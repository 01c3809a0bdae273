"""A run of the demo: publishers and workers at once, until every job has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from oncely.model.job import Job
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publishing import Publishing
from oncely.surface.cli.demo.record import DemoFailed, Record, Standing, Watcher
from oncely.surface.cli.demo.working import WORKERS, Working

LIMIT_SECONDS: Final = 50.0
LOOK_SECONDS: Final = 0.1

Look = Callable[[], Awaitable[list[Job]]]


async def run(
    place: Place, orders: Sequence[int], *, times: int, watcher: Watcher, look: Look
) -> Record:
    """`look` reads the jobs of this run from the store."""
    record = Record()
    publishing = Publishing(place, record, watcher, look)
    working = Working(place, record, watcher)
    try:
        async with asyncio.timeout(LIMIT_SECONDS), asyncio.TaskGroup() as tasks:
            for _ in range(WORKERS):
                tasks.create_task(working.work())
            published = tasks.create_task(publishing.publish(orders, times=times))
            await _until_all_ended(published, record, watcher, look)
            working.dismiss()
    except TimeoutError:
        raise DemoFailed(
            f"not all jobs ended within {LIMIT_SECONDS:.0f} seconds: is the store very slow or "
            "locked by another program, or do workers of another app take jobs from all its "
            "queues?"
        ) from None
    except BaseExceptionGroup as group:
        raise _first(group) from None
    return record


async def _until_all_ended(
    published: asyncio.Task[None], record: Record, watcher: Watcher, look: Look
) -> None:
    over = False
    while not over:
        await asyncio.sleep(LOOK_SECONDS)
        over = published.done()
        jobs = await look()
        watcher.stood(_standing(jobs, record))
        over = over and not any(job.state in ("scheduled", "pending", "running") for job in jobs)


def _standing(jobs: Sequence[Job], record: Record) -> Standing:
    return Standing(
        publishes=len(record.answers),
        jobs=len(jobs),
        completed=sum(job.state == "completed" for job in jobs),
        recovered=sum(is_recovered(job) for job in jobs),
        publishers_killed=len(record.publishers_killed),
        workers_killed=len(record.workers_killed),
    )


def is_recovered(job: Job) -> bool:
    """Whether a worker died while it ran this job, and the job went back in line."""
    return any(execution.outcome == "crashed" for execution in job.executions)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
