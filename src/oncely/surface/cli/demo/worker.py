"""One worker of the demo, as a process of its own that can be killed.

Its handler charges an order, which is to say that it writes one line to standard output: outside
the store, as at a bank that takes no keys. A line that was written stays written, whatever becomes
of the process and of the execution.
"""

from __future__ import annotations

import asyncio
import os
import random
import sys
from threading import Thread
from typing import Final

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import OncelyError
from oncely.model.retry import Retry
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.place import KIND, Place
from oncely.worker.worker import Worker

LEASE_SECONDS: Final = 1.5
CONCURRENCY: Final = 4
BANK_SECONDS: Final = (0.02, 0.15)
"""So long a request is on its way to the bank, and its answer on the way back."""


class Order(msgspec.Struct, frozen=True):
    order_id: int


class Charge(msgspec.Struct, frozen=True):
    """What the bank saw: an order was charged, by this execution."""

    order: int
    execution_id: str


def main() -> None:
    place = msgspec.json.decode(sys.stdin.buffer.readline(), type=Place)
    with Oncely(place.url, schema=place.schema) as app:

        @app.job(KIND, retry=Retry(base=0))
        async def charge(ctx: Context, order: Order) -> str:
            await asyncio.sleep(random.uniform(*BANK_SECONDS))
            _say(Charge(order.order_id, ctx.execution_id))
            await asyncio.sleep(random.uniform(*BANK_SECONDS))
            return ctx.execution_id

        worker = app.worker(
            queues=[place.queue],
            concurrency=CONCURRENCY,
            lease_seconds=LEASE_SECONDS,
            poll_seconds=0.1,
        )
        Thread(target=_stop_when_dismissed, args=(worker,), daemon=True).start()
        worker.run()


def _stop_when_dismissed(worker: Worker) -> None:
    os.read(sys.stdin.fileno(), 1)  # its end: the demo is over, or whoever runs it is gone
    worker.stop()


def _say(charge: Charge) -> None:
    # One system call: the line is there in full or not at all.
    os.write(sys.stdout.fileno(), msgspec.json.encode(charge) + b"\n")


if __name__ == "__main__":
    try:
        main()
    except OncelyError as error:
        sys.exit(f"{error}")
