"""An order and its job in one transaction, with psycopg: both are stored, or neither.

Run: python examples/tx_psycopg.py postgresql://localhost/shop
"""

import sys

import psycopg

from oncely import Oncely, key

url = sys.argv[1]
app = Oncely(url)  # the jobs live in the database that the orders live in
app.migrate()
shop = psycopg.connect(url, autocommit=True)
shop.execute("create table if not exists orders (id integer primary key, cents integer)")


def place_order(order_id: int, cents: int) -> None:
    with shop.transaction():  # commits at the end, or rolls back if something is raised
        shop.execute("insert into orders values (%s, %s) on conflict do nothing", (order_id, cents))
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
shop.close()
app.close()
