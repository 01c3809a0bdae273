"""Chancy with its async executor, 1,000 jobs at once, and eager polling."""

import asyncio
import logging

import psycopg
from chancy import Chancy, Queue, Worker, job
from driving import Driver, hit, main

QUEUE = Queue(
    "bench",
    concurrency=1_000,
    executor=Chancy.Executor.Async,
    polling_interval=1,
    eager_polling=True,
)


@job(queue="bench")
async def noop(*, n: int) -> None:
    hit(n)


class ChancyDriver(Driver):
    measures = (*Driver.measures, "bulk_keyed")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        quiet = logging.getLogger("chancy-quiet")
        quiet.setLevel(logging.WARNING)
        self._chancy = Chancy(url, log=quiet)

    def prepare(self) -> None:
        async def run() -> None:
            async with Chancy(self.url) as chancy:
                await chancy.migrate()
                await chancy.declare(QUEUE, upsert=True)

        asyncio.run(run())
        self._chancy.sync_pool.open()

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._chancy.sync_push(noop.job.with_kwargs(n=n))

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._chancy.sync_push(noop.job.with_kwargs(n=n).with_unique_key(f"key:{n}"))

    def bulk(self, first: int, last: int) -> None:
        jobs = [noop.job.with_kwargs(n=n) for n in range(first, last)]
        for _ in self._chancy.sync_push_many(jobs, batch_size=len(jobs)):
            pass

    def bulk_keyed(self, first: int, last: int) -> None:
        jobs = [noop.job.with_kwargs(n=n).with_unique_key(f"key:{n}") for n in range(first, last)]
        for _ in self._chancy.sync_push_many(jobs, batch_size=len(jobs)):
            pass

    def unsettled(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "select count(*) from chancy_jobs where state in ('pending', 'running')"
            ).fetchone()
        return int(row[0])

    def work(self, *, processes: int, mode: str) -> None:
        async def run() -> None:
            async with self._chancy as chancy, Worker(chancy) as worker:
                await worker.wait_for_shutdown()

        asyncio.run(run())


if __name__ == "__main__":
    main(ChancyDriver)
