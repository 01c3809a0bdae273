"""Celery on Redis: prefork with one child per process asked for, prefetching 1,000, results,
events, gossip and mingle off, settled early as it is by default."""

import logging
import os

from celery import Celery
from driving import Driver, hit, main
from redis import Redis

app = Celery("bench")
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=1_000,
    task_default_queue="bench",
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
)


@app.task(name="noop")
def noop(n: int) -> None:
    hit(n)


class CeleryDriver(Driver):
    measures = ("enqueue", "bulk", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        super().__init__(url)
        app.conf.broker_url = url
        self._redis = Redis.from_url(url)

    def enqueue(self, first: int, last: int) -> None:
        for n in range(first, last):
            noop.delay(n)

    def bulk(self, first: int, last: int) -> None:
        # A group is how Celery sends many; it sends them one by one over one connection.
        with app.producer_or_acquire() as producer:
            for n in range(first, last):
                noop.apply_async((n,), producer=producer)

    def unsettled(self) -> int:
        return self._redis.llen("bench") + self._redis.hlen("unacked")

    def work(self, *, processes: int, mode: str) -> None:
        logging.disable(logging.WARNING)
        app.worker_main(
            [
                *("worker", "--pool=prefork", "--concurrency=1", "--without-gossip"),
                *("--without-mingle", "--without-heartbeat", "--loglevel=ERROR", "-O", "fair"),
                f"--hostname=bench{os.getpid()}@here",
            ]
        )


main(CeleryDriver)
