"""A FastAPI app that enqueues in its own transaction: the order and its job, or neither.

Run, in this folder: SHOP_URL=postgresql://localhost/shop uvicorn fastapi_app:web
and beside it a worker:    SHOP_URL=postgresql://localhost/shop oncely worker fastapi_app:jobs
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from oncely import Context, KeyConflict, Oncely, key

URL = os.environ["SHOP_URL"]
DRIVERS = {"postgresql:": "postgresql+psycopg:", "sqlite:": "sqlite+aiosqlite:"}
SCHEME = URL[: URL.index(":") + 1]

jobs = Oncely(URL)  # the jobs live in the database that the orders live in
engine = create_async_engine(URL.replace(SCHEME, DRIVERS[SCHEME], 1))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "shop_order"
    id: Mapped[int] = mapped_column(primary_key=True)
    cents: Mapped[int]


class NewOrder(BaseModel):
    id: int
    cents: int


@jobs.job("order.charge")
def charge(ctx: Context) -> str:
    return ctx.step("charge", lambda: f"charged order {ctx.payload['order_id']}")


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await jobs.amigrate()
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    yield
    await engine.dispose()
    jobs.close()


web = FastAPI(lifespan=lifespan)


@web.post("/orders", status_code=201)
async def place_order(order: NewOrder) -> dict[str, object]:
    async with AsyncSession(engine) as session, session.begin():  # commits at the end
        try:
            receipt = await jobs.aenqueue(
                "order.charge",
                {"order_id": order.id, "cents": order.cents},
                idempotency_key=key("order", order.id, "charge"),
                tx=session,
            )
        except KeyConflict:
            raise HTTPException(409, "this order was placed with another amount") from None
        if receipt.inserted:  # the first of two clicks
            session.add(Order(id=order.id, cents=order.cents))
        if order.cents <= 0:
            raise HTTPException(422, "nothing to charge")  # rolls back the order and its job
    return {"job_id": receipt.job_id, "first": receipt.inserted}
