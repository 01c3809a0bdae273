"""Processes that do something at the same moment. What they run is imported by name, so it is in
this module, which imports little."""

import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from typing import Any, TypeVar

from oncely import NewJob, Oncely
from tests.crash.fleet import CONTEXT

T = TypeVar("T")


def race(runner: Callable[..., T], arguments: Sequence[tuple[Any, ...]]) -> list[T]:
    """What each process answers. All are let go at once, when the last one is ready."""
    barrier = CONTEXT.Barrier(len(arguments))
    processes = []
    answers = []
    for given in arguments:
        answer, question = CONTEXT.Pipe(duplex=False)
        process = CONTEXT.Process(target=_run, args=(question, barrier, runner, given))
        process.start()
        question.close()
        processes.append(process)
        answers.append(answer)
    try:
        results = [answer.recv() for answer in answers]
    finally:
        for process in processes:
            process.join()
            process.close()
        for answer in answers:
            answer.close()
    for result in results:
        if isinstance(result, str):
            raise AssertionError(f"a process failed:\n{result}")
    return [value for [value] in results]


def _run(
    question: Connection, barrier: Barrier, runner: Callable[..., T], given: tuple[Any, ...]
) -> None:
    try:
        question.send([runner(barrier, *given)])
    except BaseException:
        barrier.abort()
        question.send(traceback.format_exc())


def migrate(barrier: Barrier, url: str, schema: str) -> list[str]:
    barrier.wait()
    with Oncely(url, schema=schema) as app:
        return app.migrate()


def enqueue_batches(
    barrier: Barrier, url: str, batches: list[list[NewJob]]
) -> list[list[tuple[str, bool]]]:
    """The receipts of each batch. The processes begin each batch together."""
    answers = []
    with Oncely(url) as app:
        for batch in batches:
            barrier.wait()
            receipts = app.enqueue_many(batch).receipts
            answers.append([(receipt.job_id, receipt.inserted) for receipt in receipts])
    return answers


def enqueue_each(barrier: Barrier, url: str, jobs: list[NewJob]) -> list[tuple[str, bool]]:
    """One call per job."""
    answers = []
    with Oncely(url) as app:
        barrier.wait()
        for job in jobs:
            receipt = app.enqueue(
                job.kind,
                job.payload,
                idempotency_key=job.idempotency_key,
                unique_key=job.unique_key,
            )
            answers.append((receipt.job_id, receipt.inserted))
    return answers


def look_at_schedules(barrier: Barrier, url: str, cron: str) -> int:
    """One worker's passes over a schedule; how many ticks it fired."""
    with Oncely(url) as app:
        app.schedule("digest", cron=cron, catch_up="all")
        app.jobs()
        barrier.wait()
        looks = [app._engine.run(lambda _: app._schedules.look(), "transaction") for _ in range(5)]
    return sum(tick.inserted for look in looks for tick in look.fired)
