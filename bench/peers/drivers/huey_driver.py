"""Huey on Redis or SQLite: one worker thread per process, results not kept, polling from 10 ms.

On SQLite as it comes: journal in WAL, and no fsync.
"""

import logging

from driving import Driver, hit, main
from huey import RedisHuey, SqliteHuey


class HueyDriver(Driver):
    measures = ("enqueue", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        if url.startswith("redis:"):
            self._huey = RedisHuey("bench", url=url, results=False)
        else:
            path = url.removeprefix("sqlite:///")
            self._huey = SqliteHuey("bench", filename=path, results=False)

        @self._huey.task(name="noop")
        def noop(n: int) -> None:
            hit(n)

        self._noop = noop

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._noop(n)

    def unsettled(self) -> int:
        return self._huey.pending_count()

    def work(self, *, processes: int, mode: str) -> None:
        logging.disable(logging.WARNING)
        consumer = self._huey.create_consumer(
            workers=1, worker_type="thread", periodic=False, initial_delay=0.01, max_delay=0.1
        )
        consumer.run()


main(HueyDriver)
