"""One publisher of the demo, as a process of its own that can be killed.

It reads its assignment from standard input, says that it is ready, and then publishes group by
group: each when it is told to, with all answers of a group in one line. What it stored of a group
in which it is killed, nobody hears of.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Final

import msgspec

from oncely.model.errors import OncelyError
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.place import KIND, Place
from oncely.surface.key import key

GROUP: Final = 25
PAUSE_SECONDS: Final = 0.004
"""Between two publishes. SQLite has no queue for its lock: processes that write without a pause can
keep a worker from renewing its leases, and here only the killed ones are to lose theirs."""


class Assignment(msgspec.Struct, frozen=True):
    place: Place
    name: str
    orders: list[int]


class Answer(msgspec.Struct, frozen=True):
    """A receipt, and the order it is for."""

    order: int
    job_id: str
    inserted: bool


def publish(app: Oncely, queue: str, order: int, publisher: str) -> Answer:
    time.sleep(PAUSE_SECONDS)
    receipt = app.enqueue(
        KIND,
        {"order_id": order},
        queue=queue,
        idempotency_key=key("order", order, "charge"),
        tags=[publisher],
    )
    return Answer(order, receipt.job_id, receipt.inserted)


def main() -> None:
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    place = assignment.place
    with Oncely(place.url, schema=place.schema) as app:
        _say([])
        for start in range(0, len(assignment.orders), GROUP):
            if not sys.stdin.buffer.readline():
                return  # whoever runs the demo is gone
            orders = assignment.orders[start : start + GROUP]
            _say([publish(app, place.queue, order, assignment.name) for order in orders])


def _say(answers: list[Answer]) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answers) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    try:
        main()
    except OncelyError as error:
        sys.exit(f"{error}")
    except BrokenPipeError:
        os._exit(1)
