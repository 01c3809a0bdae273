"""Workers whose clocks are wrong by days: only the clock of the store counts."""

import asyncio
import time
from collections.abc import Callable

import pytest

from oncely import Context, Defer, Oncely
from oncely.store import deliver
from tests.engine.steps import claim_one, end, found, let_days_pass
from tests.waiting import PATIENCE_SECONDS

A_DAY = 86_400.0


def set_clock(monkeypatch: pytest.MonkeyPatch, days: float) -> None:
    """From now on this process reads a wall clock that is wrong. The store's own clock is
    another's: that of the server, or the one that SQLite reads from the system."""
    right = time.time
    right_ns = time.time_ns
    monkeypatch.setattr(time, "time", lambda: right() + days * A_DAY)
    monkeypatch.setattr(time, "time_ns", lambda: right_ns() + round(days * A_DAY * 1e9))


@pytest.fixture(params=[-40, 40], ids=["slow", "fast"])
def wrong_clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, request.param)


def reclaim(app: Oncely) -> int:
    return len(app._engine.run(lambda _: deliver.reclaim(10), "transaction"))


@pytest.mark.usefixtures("wrong_clock")
def test_a_lease_lasts_as_long_as_was_asked_for(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    assert reclaim(app) == 0
    assert found(app, claimed.job_id).state == "running"
    let_days_pass(app, 1)
    assert reclaim(app) == 1


@pytest.mark.usefixtures("wrong_clock")
def test_a_renewed_lease_lasts_as_long_as_was_asked_for(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim_one(app)
    let_days_pass(app, 30 / 86_400)
    renew = deliver.renew("worker-1", [claimed.fence], 60)
    assert app._engine.run(lambda _: renew, "transaction")
    let_days_pass(app, 45 / 86_400)
    assert reclaim(app) == 0
    let_days_pass(app, 1)
    assert reclaim(app) == 1
    assert end(app, claimed, "completed")


@pytest.mark.usefixtures("wrong_clock")
def test_a_job_comes_back_when_the_store_says_so(app: Oncely) -> None:
    turns = []

    @app.job("k")
    async def handle(ctx: Context) -> None:
        turns.append(ctx.attempt)
        if len(turns) < 3:
            raise Defer(3600)

    app.enqueue("k", delay=3600)
    for turn in range(3):
        assert app.drain() == 0
        let_days_pass(app, 1)
        assert app.drain() == 1
        assert len(turns) == turn + 1
    assert [job.state for job in app.jobs()] == ["completed"]


def test_a_worker_with_a_fast_clock_prunes_nothing_early(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    old = app.enqueue("k")
    app.drain()
    let_days_pass(app, 400)
    fresh = app.enqueue("k")
    app.drain()
    set_clock(monkeypatch, 400)
    monkeypatch.setattr("oncely.worker.upkeep._FORGET_FIRST_SECONDS", 0.1)
    asyncio.run(_run_until(app, lambda: app.get(old.job_id) is None))
    assert found(app, fresh.job_id).state == "completed"


async def _run_until(app: Oncely, reached: Callable[[], bool]) -> None:
    worker = app.worker()

    async def watch() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            over = False
            while not over:
                await asyncio.sleep(0.02)
                over = await asyncio.to_thread(reached)
        worker.stop()

    await asyncio.gather(worker.arun(), watch())
