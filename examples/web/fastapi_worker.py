"""A FastAPI app with a worker inside: one process serves requests and runs their jobs.

Run, in this folder: SHOP_URL=sqlite:///shop.db uvicorn fastapi_worker:web

The worker starts with the app and stops with it: when uvicorn gets SIGTERM or Ctrl-C, running
handlers have `grace_seconds` to end, and what has not ended goes back in line for another process.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from oncely import Context, Oncely, key

jobs = Oncely(os.environ["SHOP_URL"])


@jobs.job("order.confirm", queue="mail")
async def confirm(ctx: Context, order_id: int) -> str:
    return await ctx.step("mail", send_mail, order_id)


async def send_mail(order_id: int) -> str:
    await asyncio.sleep(0.5)  # a slow mail server
    return f"confirmed order {order_id}"


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    await jobs.amigrate()
    async with jobs.running(queues=["mail"], concurrency=8, grace_seconds=20):
        yield
    await jobs.aclose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders/{order_id}", status_code=202)
async def place_order(order_id: int) -> dict[str, str]:
    receipt = await jobs.aenqueue(
        "order.confirm", order_id, idempotency_key=key("order", order_id, "confirm")
    )
    return {"job_id": receipt.job_id}
