"""A worker whose jobs run until the test ends them."""

import asyncio
import threading
from collections import Counter, defaultdict
from types import TracebackType
from typing import Any, Self

from oncely import Context, Oncely
from tests.engine.paces import given_pace
from tests.engine.steps import found
from tests.waiting import PATIENCE_SECONDS, wait_until


class LongJobs:
    """`with LongJobs(app) as jobs:` runs a worker of this process for the kind `k`. With
    `one_lease` it takes the jobs that it claims together for quick ones: they share a lease."""

    def __init__(self, app: Oncely, *, one_lease: bool = False, **options: Any) -> None:
        self._gates: dict[str, list[asyncio.Event]] = defaultdict(list)
        self.cancelled: Counter[str] = Counter()
        """How many executions of each job were cancelled."""
        self.worker = app.worker(**{"concurrency": 8, "poll_seconds": 0.05, **options})
        if one_lease:
            given_pace(self.worker).learn()
        self._thread = threading.Thread(target=self.worker.run)
        self._app = app
        app.job("k")(self._run)

    async def _run(self, ctx: Context) -> None:
        gate = asyncio.Event()
        self._gates[ctx.job_id].append(gate)
        try:
            await gate.wait()
        except asyncio.CancelledError:
            self.cancelled[ctx.job_id] += 1
            raise

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.worker.stop()
        self.worker.stop()
        self._thread.join(PATIENCE_SECONDS)

    def begun(self, job_id: str) -> int:
        """How many executions of the job have begun."""
        return len(self._gates[job_id])

    def run_until_begun(self, executions: dict[str, int]) -> None:
        """Until each job has begun so often."""
        wait_until(lambda: all(self.begun(each) == n for each, n in executions.items()))

    def run_one(self) -> None:
        """Another job, from its enqueue to its end."""
        job_id = self._app.enqueue("k").job_id
        self.run_until_begun({job_id: 1})
        self.end_together((job_id, 0))
        wait_until(lambda: found(self._app, job_id).state == "completed")

    def end_together(self, *executions: tuple[str, int]) -> None:
        """End executions in one turn of the worker's loop, in this order; each is named by its job
        and its number."""
        gates = [self._gates[job_id][n] for job_id, n in executions]
        assert self.worker._loop is not None

        def end() -> None:
            for gate in gates:
                gate.set()

        self.worker._loop.call_soon_threadsafe(end)
