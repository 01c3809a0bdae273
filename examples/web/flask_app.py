"""A Flask app that enqueues in its own transaction: the order and its job, or neither.

Run, in this folder: SHOP_URL=postgresql://localhost/shop flask --app flask_app:web run
and beside it a worker:    SHOP_URL=postgresql://localhost/shop oncely worker flask_app:jobs
"""

import os

from flask import Flask, abort, request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from oncely import Context, KeyConflict, Oncely, key

URL = os.environ["SHOP_URL"]

jobs = Oncely(URL)  # the jobs live in the database that the orders live in
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


@jobs.job("order.charge")
def charge(ctx: Context) -> str:
    return ctx.step("charge", lambda: f"charged order {ctx.payload['order_id']}")


jobs.migrate()
Base.metadata.create_all(engine)
web = Flask(__name__)


@web.post("/orders")
def place_order() -> tuple[dict[str, object], int]:
    order = request.get_json()
    with Session(engine) as session, session.begin():  # commits at the end
        try:
            receipt = jobs.enqueue(
                "order.charge",
                {"order_id": order["id"], "cents": order["cents"]},
                idempotency_key=key("order", order["id"], "charge"),
                tx=session,
            )
        except KeyConflict:
            abort(409, "this order was placed with another amount")
        if receipt.inserted:  # the first of two clicks
            session.add(Order(id=order["id"], cents=order["cents"]))
        if order["cents"] <= 0:
            abort(422, "nothing to charge")  # rolls back the order and its job
    return {"job_id": receipt.job_id, "first": receipt.inserted}, 201
