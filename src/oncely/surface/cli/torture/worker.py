"""One worker under torture, as a process of its own. It is the demo's, and some of its orders are
paid in the store's own database, in the transaction that completes the job."""

from __future__ import annotations

import sys
from threading import Thread
from typing import Final

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import OncelyError
from oncely.model.retry import Retry
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.gate import Gate
from oncely.surface.cli.demo.payments import Payments
from oncely.surface.cli.demo.place import KIND, Place
from oncely.surface.cli.demo.worker import CONCURRENCY, Order, handle, work_until_dismissed

_EVERY: Final = 6


class Assignment(msgspec.Struct, frozen=True):
    place: Place
    port: int
    """Where the payment service listens."""
    lease_seconds: float


def is_in_store(order: int) -> bool:
    """Whether it is paid in the store's database, and not at the payment service."""
    return order % _EVERY == 1


def paid(place: Place) -> str:
    """The table of those."""
    return "torture_paid" if place.url.startswith("sqlite:") else f"{place.schema}.torture_paid"


def _pay(ctx: Context, order: int, place: Place, gate: Gate) -> str:
    gate.stop(ctx.execution_id, order, "charge", "intent")
    with ctx.transaction() as tx:
        tx.execute(f"insert into {paid(place)} values ({order})")
        ctx.complete(ctx.execution_id, tx=tx)
    gate.stop(ctx.execution_id, order, "charge", "outcome")
    return ctx.execution_id


def main() -> None:
    assignment = msgspec.json.decode(sys.stdin.buffer.readline(), type=Assignment)
    place, payments, gate = assignment.place, Payments(assignment.port), Gate()
    with Oncely(place.url, schema=place.schema) as app:

        @app.job(KIND, retry=Retry(base=0))
        def charge(ctx: Context, order: Order) -> str:
            try:
                if is_in_store(order.order_id):
                    return _pay(ctx, order.order_id, place, gate)
                return handle(ctx, order.order_id, payments, gate)
            finally:
                gate.leave(ctx.execution_id)

        worker = app.worker(
            queues=[place.queue],
            concurrency=CONCURRENCY,
            lease_seconds=assignment.lease_seconds,
            poll_seconds=0.1,
            grace_seconds=5,
        )
        Thread(target=work_until_dismissed, args=(gate, worker), daemon=True).start()
        worker.run()


if __name__ == "__main__":
    try:
        main()
    except OncelyError as error:
        sys.exit(f"{error}")
