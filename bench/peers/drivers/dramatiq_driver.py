"""Dramatiq on Redis: 8 threads per process, as its command line starts them, prefetching 1,000."""

import os
import threading

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from driving import Driver, hit, main
from redis import Redis

os.environ.setdefault("dramatiq_queue_prefetch", "1000")


class DramatiqDriver(Driver):
    measures = ("enqueue", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._redis = Redis.from_url(url)
        self._broker = RedisBroker(url=url)
        dramatiq.set_broker(self._broker)

        @dramatiq.actor(queue_name="bench", broker=self._broker)
        def noop(n: int) -> None:
            hit(n)

        self._noop = noop

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            self._noop.send(n)

    def unsettled(self) -> int:
        return self._redis.hlen("dramatiq:bench.msgs")

    def work(self, *, processes: int, mode: str) -> None:
        dramatiq.Worker(self._broker, worker_threads=8).start()
        threading.Event().wait()


main(DramatiqDriver)
