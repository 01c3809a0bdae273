"""Jobs that take a moment: as many as there are places are claimed, and settled, together."""

import asyncio
from typing import Any

import pytest

from oncely import Context, NewJob, Oncely
from oncely.store.engine import Access
from tests.engine.paces import given_pace
from tests.engine.steps import sql
from tests.engine.virtual_time import VirtualTime

PLACES = 4
JOBS = 80
JOB_SECONDS = 0.03


@pytest.mark.parametrize("store_seconds", [0.005, 0.025])
def test_a_wave_that_fell_apart_comes_together_again(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, store_seconds: float
) -> None:
    """Half of the first ones take longer. Claimed in the parts in which the places come free, all
    that come after them would come in halves as well. With a store that is slow for such jobs more
    than one wave is fetched ahead, and not in parts either."""
    time = VirtualTime()

    @app.job("moment")
    async def moment(ctx: Context, n: int) -> None:
        await time.sleep(JOB_SECONDS * (1.5 if n < PLACES / 2 else 1))

    app.enqueue_many(NewJob("moment", n) for n in range(JOBS))
    worker = app.worker(concurrency=PLACES)
    given_pace(worker, job_seconds=JOB_SECONDS, exchange_seconds=store_seconds).learn()
    ask = worker._store.ask

    async def slowly(make: Any, access: Access = "transaction") -> Any:
        if access == "write":
            await time.sleep(store_seconds)
        return await time.work(ask(make, access))

    monkeypatch.setattr(worker._store, "ask", slowly)
    asyncio.run(time.run(worker.drain()))
    sizes = [
        n for (n,) in sql(app, "select count(*) from oncely.outcome group by epoch order by epoch")
    ]
    assert sum(sizes) == JOBS
    assert max(sizes) <= PLACES
    assert len(sizes) <= JOBS / 3, sizes
