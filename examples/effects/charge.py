"""A charge. The provider takes a key and remembers it for a day: a step with `key_ttl`."""

from pathlib import Path
from typing import TypedDict

from world import Payments

from oncely import Context, Oncely, Receipt, key

A_DAY = 24 * 3600


class Order(TypedDict):
    customer: str
    cents: int


def register(app: Oncely, folder: Path) -> None:
    payments = Payments(folder, "payments")

    @app.job("order.charge")
    def charge(ctx: Context, order: Order) -> str:
        answer: str = ctx.step(
            "charge",
            payments.charge,
            order["customer"],
            order["cents"],
            ctx.key("charge"),
            key_ttl=A_DAY,
        )
        return answer


def publish(app: Oncely) -> Receipt:
    order = Order(customer="ann", cents=4999)
    return app.enqueue("order.charge", order, idempotency_key=key("order", 9482, "charge"))
