"""PgQueuer on asyncpg with uvloop; batches of 500, and of 1,000 with two processes."""

import asyncio
from datetime import timedelta

import asyncpg
import uvloop
from driving import Driver, hit, main
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.queries import Queries


class PgQueuerDriver(Driver):
    measures = (*Driver.measures, "bulk_keyed")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._loop = uvloop.new_event_loop()
        asyncio.set_event_loop(self._loop)
        self._opened: Queries | None = None

    async def _queries(self) -> Queries:
        if self._opened is None:
            self._opened = Queries(AsyncpgDriver(await asyncpg.connect(self.url)))
        return self._opened

    def prepare(self) -> None:
        async def install() -> None:
            await (await self._queries()).install()

        self._loop.run_until_complete(install())

    def enqueue(self, first: int, last: int) -> None:
        async def calls() -> None:
            queries = await self._queries()
            for n in range(first, last):
                await queries.enqueue("noop", b"%d" % n)

        self._loop.run_until_complete(calls())

    def keyed(self, first: int, last: int) -> None:
        async def calls() -> None:
            queries = await self._queries()
            for n in range(first, last):
                await queries.enqueue("noop", b"%d" % n, dedupe_key=f"key:{n}")

        self._loop.run_until_complete(calls())

    def bulk(self, first: int, last: int) -> None:
        self._bulk(first, last, keyed=False)

    def bulk_keyed(self, first: int, last: int) -> None:
        self._bulk(first, last, keyed=True)

    def _bulk(self, first: int, last: int, *, keyed: bool) -> None:
        async def call() -> None:
            size = last - first
            await (await self._queries()).enqueue(
                ["noop"] * size,
                [b"%d" % n for n in range(first, last)],
                [0] * size,
                dedupe_key=[f"key:{n}" for n in range(first, last)] if keyed else None,
            )

        self._loop.run_until_complete(call())

    def unsettled(self) -> int:
        async def ask() -> int:
            sizes = await (await self._queries()).queue_size()
            return sum(size.count for size in sizes)

        return self._loop.run_until_complete(ask())

    def work(self, *, processes: int, mode: str) -> None:
        async def run() -> None:
            queuer = PgQueuer(AsyncpgDriver(await asyncpg.connect(self.url)))

            @queuer.entrypoint("noop")
            async def noop(job) -> None:
                hit(int(job.payload))

            size = 10 if mode == "latency" else 500 * processes
            await queuer.run(dequeue_timeout=timedelta(seconds=30), batch_size=size)

        uvloop.run(run())


main(PgQueuerDriver)
