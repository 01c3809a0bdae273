"""RQ's SimpleWorker, which forks no process per job; results thrown away, bulk by enqueue_many."""

import logging

from driving import Driver, hit, main
from redis import Redis
from rq import Queue, SimpleWorker


def noop(n: int) -> None:
    hit(n)


class RqDriver(Driver):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._redis = Redis.from_url(url)
        self._queue = Queue("bench", connection=self._redis)

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._queue.enqueue("rq_driver.noop", n, result_ttl=0)

    def keyed(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._queue.enqueue("rq_driver.noop", n, result_ttl=0, job_id=f"key-{n}", unique=True)

    def bulk(self, first: int, last: int) -> None:
        self._queue.enqueue_many(
            [Queue.prepare_data("rq_driver.noop", (n,), result_ttl=0) for n in range(first, last)]
        )

    def unsettled(self) -> int:
        return self._redis.llen("rq:queue:bench") + self._redis.zcard("rq:wip:bench")

    def work(self, *, processes: int, mode: str) -> None:
        logging.getLogger("rq.worker").setLevel(logging.ERROR)
        SimpleWorker([self._queue], connection=self._redis).work(logging_level="ERROR")


if __name__ == "__main__":
    main(RqDriver)
