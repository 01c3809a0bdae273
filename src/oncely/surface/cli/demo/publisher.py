"""One publisher of the demo, as a process of its own that can be killed.

It reads its assignment from standard input, says that it is ready, and then publishes group by
group: each when it is told to, with all answers of a group in one line. What it stored of a group
in which it is killed, nobody hears of.
"""

from __future__ import annotations

import os
import sys
from typing import Final

import msgspec

from oncely.model.errors import OncelyError
from oncely.surface.app import Oncely
from oncely.surface.key import key

QUEUE: Final = "demo"
KIND: Final = "demo.charge"
GROUP: Final = 25


class Assignment(msgspec.Struct, frozen=True):
    url: str
    schema: str
    name: str
    orders: list[str]


class Answer(msgspec.Struct, frozen=True):
    """A receipt, and the order it is for."""

    order: str
    job_id: str
    inserted: bool


def publish(app: Oncely, order: str, publisher: str) -> Answer:
    receipt = app.enqueue(
        KIND,
        {"order_id": order},
        queue=QUEUE,
        idempotency_key=key("order", order, "charge"),
        tags=[publisher],
    )
    return Answer(order, receipt.job_id, receipt.inserted)


def main() -> None:
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    with Oncely(assignment.url, schema=assignment.schema) as app:
        _say([])
        for start in range(0, len(assignment.orders), GROUP):
            if not sys.stdin.buffer.readline():
                return  # whoever runs the demo is gone
            orders = assignment.orders[start : start + GROUP]
            _say([publish(app, order, assignment.name) for order in orders])


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
