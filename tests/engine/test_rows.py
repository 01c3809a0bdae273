"""Handlers that end without waiting share a task. None of them may notice."""

import asyncio
from contextvars import ContextVar

from oncely import Context, NewJob, Oncely

trace: ContextVar[str] = ContextVar("trace", default="")
JOBS = 6


def test_what_a_handler_puts_into_context_variables_is_not_seen_by_the_next(app: Oncely) -> None:
    found: list[str] = []

    @app.job("binds")
    async def binds(ctx: Context) -> None:
        found.append(trace.get())
        trace.set(ctx.job_id)

    @app.job("binds.waits")
    async def binds_and_waits(ctx: Context) -> None:
        await binds(ctx)
        await asyncio.sleep(0)

    app.enqueue_many(NewJob("binds.waits" if n < JOBS else "binds") for n in range(2 * JOBS))
    assert app.drain() == 2 * JOBS
    assert found == [""] * 2 * JOBS


def test_a_handler_that_waits_has_its_task_for_itself_from_the_beginning(app: Oncely) -> None:
    tasks: list[asyncio.Task[None] | None] = []
    together = asyncio.Barrier(JOBS)

    @app.job("meets")
    async def meets(ctx: Context, waits: bool) -> bool:
        if not waits:
            return True
        task = asyncio.current_task()
        tasks.append(task)
        async with asyncio.timeout(30):  # it belongs to the task in which it is entered
            await together.wait()
        return asyncio.current_task() is task

    receipts = app.enqueue_many(NewJob("meets", n % 2 == 1) for n in range(2 * JOBS))
    assert app.drain() == 2 * JOBS
    assert len(set(tasks)) == JOBS
    assert all((job := app.get(each.job_id)) and job.result is True for each in receipts.receipts)


def test_a_time_out_ends_the_handler_that_waits_and_no_other(app: Oncely) -> None:
    @app.job("hangs", timeout=0.05)
    async def hangs(ctx: Context, waits: bool) -> None:
        if waits:
            await asyncio.Event().wait()

    made = [NewJob("hangs", n == 2, max_attempts=1) for n in range(JOBS)]
    receipts = app.enqueue_many(made)
    app.drain()
    states = [job.state for each in receipts.receipts if (job := app.get(each.job_id))]
    assert states == ["completed"] * 2 + ["failed"] + ["completed"] * (JOBS - 3)


def test_a_handler_that_gives_itself_up_is_handed_back_and_the_others_go_on(app: Oncely) -> None:
    begun: list[int] = []

    @app.job("leaves")
    async def leaves(ctx: Context, n: int) -> None:
        begun.append(n)
        if n == 2 and begun.count(2) == 1:
            raise asyncio.CancelledError

    app.enqueue_many(NewJob("leaves", n) for n in range(JOBS))
    assert app.drain() == JOBS + 1
    assert sorted(begun) == sorted([*range(JOBS), 2])
