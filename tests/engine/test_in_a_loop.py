"""Verbs that would block a running event loop for long raise there, and name their async twin."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from oncely import BlockingCall, Context, Oncely
from tests.waiting import PATIENCE_SECONDS

CALLS: dict[str, Callable[[Oncely, str], Any]] = {
    "await app.aresult(": lambda app, job_id: app.result(job_id),
    "await app.adrain(": lambda app, _: app.drain(),
    "async with app.running(": lambda app, _: app.worker().run(),
}


@pytest.mark.parametrize("twin", CALLS)
@pytest.mark.anyio
async def test_a_verb_that_waits_raises_at_once_in_a_running_loop(app: Oncely, twin: str) -> None:
    receipt = await app.aenqueue("k")
    with pytest.raises(BlockingCall) as raised:
        CALLS[twin](app, receipt.job_id)
    assert twin in str(raised.value)
    assert [job.state for job in app.jobs()] == ["pending"]


@pytest.mark.anyio
async def test_the_twins_that_it_names_work_there(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> int:
        return 1

    receipt = await app.aenqueue("k")
    assert await app.adrain() == 1
    assert await app.aresult(receipt.job_id, timeout=PATIENCE_SECONDS) == 1


def test_it_works_in_a_thread_beside_a_running_loop(app: Oncely) -> None:
    @app.job("outer")
    def outer(ctx: Context) -> Any:
        """A `def` handler runs in a thread: it blocks no loop."""
        return app.result(ctx.payload, timeout=PATIENCE_SECONDS)

    @app.job("inner")
    async def inner(ctx: Context) -> int:
        return 2

    receipt = app.enqueue("outer", app.enqueue("inner").job_id)
    assert app.drain() == 2
    assert app.result(receipt.job_id) == 2

    async def host() -> Any:
        return await asyncio.to_thread(app.result, receipt.job_id)

    assert asyncio.run(host()) == 2
