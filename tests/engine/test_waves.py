"""Jobs that take a moment: as many as there are places are claimed, and settled, together."""

import asyncio
import time
from typing import Any

import pytest

from oncely import Context, NewJob, Oncely
from oncely.store.engine import Access
from tests.engine.steps import sql

PLACES = 4
JOBS = 80
JOB_SECONDS = 0.03


def slow_store(app: Oncely, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The store as it is, only that an exchange takes so long."""
    run = app._engine.run

    def slowly(make: Any, access: Access) -> Any:
        if access == "write":
            time.sleep(seconds)
        return run(make, access)

    monkeypatch.setattr(app._engine, "run", slowly)


@pytest.mark.parametrize("store_seconds", [0.005, 0.025])
def test_a_wave_that_fell_apart_comes_together_again(
    app: Oncely, monkeypatch: pytest.MonkeyPatch, store_seconds: float
) -> None:
    """Half of the first ones take longer. Claimed in the parts in which the places come free, all
    that come after them would come in halves as well. With a store that is slow for such jobs more
    than one wave is fetched ahead, and not in parts either."""

    @app.job("moment")
    async def moment(ctx: Context, n: int) -> None:
        await asyncio.sleep(JOB_SECONDS * (1.5 if n < PLACES / 2 else 1))

    app.enqueue_many(NewJob("moment", n) for n in range(JOBS))
    slow_store(app, monkeypatch, store_seconds)
    asyncio.run(app.worker(concurrency=PLACES).drain())
    sizes = [n for (n,) in sql(app, "select count(*) from oncely.outcome group by epoch")]
    assert sum(sizes) == JOBS
    assert max(sizes) <= PLACES
    assert len(sizes) <= JOBS / 3, sizes
