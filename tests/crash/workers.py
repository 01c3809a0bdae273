"""Worker processes for the crash tests: run here, killed and stopped from outside."""

import asyncio
import logging
import random

from oncely import Context, Oncely, Retry


def make_app(url: str) -> Oncely:
    app = Oncely(url)

    @app.job("work", retry=Retry(base=0))
    async def work(ctx: Context, seconds: float) -> int:
        await asyncio.sleep(seconds * random.random())
        return ctx.epoch

    @app.job("threaded", retry=Retry(base=0))
    def threaded(ctx: Context) -> int:
        return ctx.epoch

    begun: set[str] = set()

    @app.job("hangs_once")
    async def hangs_once(ctx: Context) -> int:
        """The first delivery in this process ends only if it is cancelled."""
        if ctx.job_id not in begun:
            begun.add(ctx.job_id)
            await asyncio.Event().wait()
        return ctx.epoch

    return app


def run_worker(url: str, lease_seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    with make_app(url) as app:
        app.worker(
            concurrency=8, lease_seconds=lease_seconds, poll_seconds=0.05, grace_seconds=5
        ).run()
