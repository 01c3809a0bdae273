"""An order and its job in one transaction, with sqlite3: both are stored, or neither.

Run: python examples/tx_sqlite3.py shop.db
"""

import sqlite3
import sys

from oncely import Oncely, key

path = sys.argv[1]
app = Oncely(f"sqlite:///{path}")  # the jobs live in the file that the orders live in
shop = sqlite3.connect(path)
shop.execute("create table if not exists orders (id integer primary key, cents integer)")


def place_order(order_id: int, cents: int) -> None:
    with shop:  # commits at the end, or rolls back if something is raised
        shop.execute("insert or ignore into orders values (?, ?)", (order_id, cents))
        receipt = app.enqueue(
            "order.charge",
            {"order_id": order_id, "cents": cents},
            idempotency_key=key("order", order_id, "charge"),
            tx=shop,
        )
        if cents <= 0:
            raise ValueError("nothing to charge")
    print(f"order {order_id}:", "job enqueued" if receipt.inserted else "was placed before")


place_order(1, 990)
place_order(1, 990)  # a button clicked twice
try:
    place_order(2, 0)
except ValueError as error:
    print("order 2: rolled back,", error)
print("jobs for orders:", [job.payload["order_id"] for job in app.jobs()])
shop.close()
app.close()
