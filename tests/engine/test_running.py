"""A worker inside a program of the user's: in its event loop, without a signal handler of ours."""

import asyncio
import os
import signal

import pytest

from oncely import Context, Oncely
from oncely.model.errors import SchemaError
from tests.waiting import PATIENCE_SECONDS

SIGNALS = (signal.SIGTERM, signal.SIGINT)


def completed(app: Oncely) -> int:
    return len(app.jobs(state="completed"))


@pytest.mark.parametrize("number", SIGNALS)
def test_a_worker_in_a_running_loop_leaves_signals_to_its_host(app: Oncely, number: int) -> None:
    ran = asyncio.Event()

    @app.job("k")
    async def handle(ctx: Context) -> None:
        ran.set()

    async def host() -> None:
        received = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(number, received.set)
        worker = app.worker(poll_seconds=0.01)
        running = asyncio.create_task(worker.arun())
        for _ in range(2):  # before and after the signal: the worker goes on
            ran.clear()
            await app.aenqueue("k")
            async with asyncio.timeout(PATIENCE_SECONDS):
                await ran.wait()
                os.kill(os.getpid(), number)
                await received.wait()
        worker.stop()
        await running
        received.clear()
        os.kill(os.getpid(), number)
        await received.wait()

    before = signal.getsignal(number)
    try:
        asyncio.run(host())
    finally:
        signal.signal(number, before)
    assert completed(app) == 2


@pytest.mark.anyio
async def test_running_works_in_the_block_and_waits_for_handlers_at_its_end(app: Oncely) -> None:
    begun, over = asyncio.Event(), asyncio.Event()

    @app.job("slow")
    async def slow(ctx: Context) -> None:
        begun.set()
        await over.wait()
        await asyncio.sleep(0.01)  # the end of the block comes first

    handlers = [signal.getsignal(number) for number in SIGNALS]
    async with asyncio.timeout(PATIENCE_SECONDS), app.running(poll_seconds=0.01) as worker:
        assert [signal.getsignal(number) for number in SIGNALS] == handlers
        await app.aenqueue("slow")
        await begun.wait()
        assert worker.executions == 1
        over.set()
    assert completed(app) == 1


@pytest.mark.anyio
async def test_running_takes_the_options_of_a_worker(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    left = await app.aenqueue("k", queue="b")
    async with app.running(queues=["a"], concurrency=1, poll_seconds=0.01):
        receipt = await app.aenqueue("k", queue="a")
        await app.aresult(receipt.job_id, timeout=PATIENCE_SECONDS)
    job = app.get(left.job_id)
    assert job is not None
    assert job.state == "pending"


@pytest.mark.anyio
async def test_an_error_of_the_worker_ends_the_block_and_is_raised(postgres_url: str) -> None:
    with Oncely(postgres_url) as app, pytest.raises(SchemaError, match="oncely migrate"):
        async with asyncio.timeout(PATIENCE_SECONDS), app.running():
            await asyncio.Event().wait()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


@pytest.mark.anyio
async def test_an_error_of_the_block_is_raised_after_the_worker_has_stopped(app: Oncely) -> None:
    ran = asyncio.Event()

    @app.job("k")
    async def handle(ctx: Context) -> None:
        ran.set()

    async def host() -> None:
        async with app.running():
            await app.aenqueue("k")
            await ran.wait()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await host()
    assert completed(app) == 1
    assert app.workers() == []


@pytest.mark.anyio
async def test_a_block_that_is_cancelled_gives_handlers_their_grace_and_stays_cancelled(
    app: Oncely,
) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @app.job("k")
    async def handle(ctx: Context) -> None:
        begun.set()
        await end.wait()

    async def host() -> None:
        async with app.running(poll_seconds=0.01):
            await asyncio.Event().wait()

    await app.aenqueue("k")
    task = asyncio.create_task(host())
    await begun.wait()
    task.cancel()
    end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert completed(app) == 1


@pytest.mark.anyio
async def test_a_second_cancel_does_not_wait_for_the_grace_time(app: Oncely) -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    @app.job("k")
    async def handle(ctx: Context) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def host() -> None:
        async with app.running(poll_seconds=0.01, grace_seconds=3600):
            await asyncio.Event().wait()

    receipt = await app.aenqueue("k")
    task = asyncio.create_task(host())
    await begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert cancelled.is_set()
    job = app.get(receipt.job_id)
    assert job is not None
    assert [execution.outcome for execution in job.executions] == ["released"]
