"""One worker under torture, as a process of its own. It is the demo's, and some of its orders are
paid in the store's own database, in the transaction that completes the job."""

from __future__ import annotations

import sys
from typing import Final

import msgspec

from oncely.flow.context import Context
from oncely.model.errors import OncelyError
from oncely.surface.cli.demo.gate import Gate
from oncely.surface.cli.demo.payments import Payments
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.worker import handle, work

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

    def charge(ctx: Context, order: int) -> str:
        if is_in_store(order):
            return _pay(ctx, order, place, gate)
        return handle(ctx, order, payments, gate)

    work(place, gate, charge, lease_seconds=assignment.lease_seconds, grace_seconds=5)


if __name__ == "__main__":
    try:
        main()
    except OncelyError as error:
        sys.exit(f"{error}")
