"""One worker of the demo, as a process of its own that can be killed.

Its handler charges an order and mails a receipt, both at a payment service that knows nothing of
Oncely. What happened there has happened, whatever becomes of the process and of the execution.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, Final

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import OncelyError
from oncely.model.retry import Retry
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.gate import EffectName, Gate
from oncely.surface.cli.demo.payments import Payments
from oncely.surface.cli.demo.place import KIND, Place, asks
from oncely.worker.worker import Worker

LEASE_SECONDS: Final = 3.0
CONCURRENCY: Final = 4


class Assignment(msgspec.Struct, frozen=True):
    place: Place
    port: int
    """Where the payment service listens."""


class Order(msgspec.Struct, frozen=True):
    order_id: int


def handle(ctx: Context, order: int, payments: Payments, gate: Gate) -> str:
    """The two effects of an order, each with what its other side allows."""
    stop = partial(gate.stop, ctx.execution_id, order)

    def struck(name: EffectName, call: Callable[..., int]) -> Callable[..., int]:
        """The call, with a place to be killed at on either side of it."""

        def act(*args: object) -> int:
            stop(name, "intent")
            made = call(*args)
            stop(name, "effect")
            return made

        return act

    charge, send = struck("charge", payments.charge), struck("receipt", payments.send)

    ctx.step("charge", charge, order, ctx.key("charge"))
    stop("charge", "outcome")

    ctx.fence("receipt", send, order, verify=payments.find if asks(order) else None)
    stop("receipt", "outcome")

    return ctx.execution_id


def main() -> None:
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    payments, gate = Payments(assignment.port), Gate()

    def charge(ctx: Context, order: int) -> str:
        return handle(ctx, order, payments, gate)

    work(assignment.place, gate, charge, lease_seconds=LEASE_SECONDS)


def work(place: Place, gate: Gate, charge: Callable[[Context, int], str], **options: Any) -> None:
    """Until it is dismissed, or killed at the gate."""
    with Oncely(place.url, schema=place.schema) as app:

        @app.job(KIND, retry=Retry(base=0))
        def charge_once(ctx: Context, order: Order) -> str:
            try:
                return charge(ctx, order.order_id)
            finally:
                gate.leave(ctx.execution_id)

        worker = app.worker(
            queues=[place.queue], concurrency=CONCURRENCY, poll_seconds=0.1, **options
        )
        Thread(target=_work_until_dismissed, args=(gate, worker), daemon=True).start()
        worker.run()


def _work_until_dismissed(gate: Gate, worker: Worker) -> None:
    gate.keep()
    worker.stop()


if __name__ == "__main__":
    try:
        main()
    except OncelyError as error:
        sys.exit(f"{error}")
