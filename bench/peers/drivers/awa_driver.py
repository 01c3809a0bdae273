"""awa-pg: the Rust core with Python handlers, 1,000 at once, jobs put in by COPY."""

import asyncio
from dataclasses import dataclass

import awa
from driving import Driver, hit, main


@dataclass
class Noop:
    n: int


class AwaDriver(Driver):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._client = awa.Client(url)

    def prepare(self) -> None:
        self._client.migrate()
        self._client.install_queue_storage()

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._client.insert(Noop(n), queue="bench")

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._client.insert(Noop(n), queue="bench", unique_opts={"by_args": True})

    def bulk(self, first: int, last: int) -> None:
        self._client.enqueue_many_copy([Noop(n) for n in range(first, last)], queue="bench")

    def unsettled(self) -> int:
        return sum(
            stat.available + stat.running + stat.scheduled + stat.retryable
            for stat in self._client.queue_stats()
        )

    def work(self, *, processes: int, mode: str) -> None:
        async def run() -> None:
            client = awa.AsyncClient(self.url)

            @client.task(Noop, queue="bench")
            async def noop(job: awa.Job) -> None:
                hit(job.args.n)

            await client.start([("bench", 1_000)], poll_interval_ms=50)
            await asyncio.Event().wait()

        asyncio.run(run())


main(AwaDriver)
