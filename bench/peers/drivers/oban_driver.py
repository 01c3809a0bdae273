"""oban-py on psycopg's pool with uvloop, as its command line runs; 100 jobs at once per process."""

import asyncio

import psycopg
import uvloop
from driving import Driver, hit, main
from oban import Oban, worker
from oban.schema import install_sql
from psycopg_pool import AsyncConnectionPool


@worker(queue="bench")
class Noop:
    async def process(self, job) -> None:
        hit(job.args["n"])


class ObanDriver(Driver):
    measures = ("enqueue", "bulk", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._oban: Oban | None = None

    async def _client(self) -> Oban:
        if self._oban is None:
            pool = AsyncConnectionPool(self.url, min_size=1, max_size=2, open=False)
            await pool.open()
            self._oban = Oban(pool=pool)
        return self._oban

    def prepare(self) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute(install_sql())

    def enqueue(self, first: int, last: int) -> None:
        async def calls() -> None:
            oban = await self._client()
            for n in range(first, last):
                await oban.enqueue(Noop.new({"n": n}))

        self._loop.run_until_complete(calls())

    def bulk(self, first: int, last: int) -> None:
        async def call() -> None:
            await (await self._client()).enqueue_many(
                [Noop.new({"n": n}) for n in range(first, last)]
            )

        self._loop.run_until_complete(call())

    def unsettled(self) -> int:
        with psycopg.connect(self.url) as connection:
            row = connection.execute(
                "select count(*) from oban_jobs where state <> 'completed'"
            ).fetchone()
        return int(row[0])

    def work(self, *, processes: int, mode: str) -> None:
        async def run() -> None:
            async with (
                AsyncConnectionPool(self.url, min_size=5, max_size=20) as pool,
                Oban(pool=pool, queues={"bench": 100}),
            ):
                await asyncio.Event().wait()

        uvloop.run(run())


if __name__ == "__main__":
    main(ObanDriver)
