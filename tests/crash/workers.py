"""Worker processes for the crash tests: run here, killed and stopped from outside."""

import asyncio
import logging
from itertools import count
from pathlib import Path

from oncely import Context, Oncely, Retry


def make_app(url: str) -> Oncely:
    app = Oncely(url)

    @app.job("work", retry=Retry(base=0))
    async def work(ctx: Context, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return ctx.epoch

    @app.job("threaded", retry=Retry(base=0))
    def threaded(ctx: Context) -> int:
        return ctx.epoch

    begun: set[str] = set()

    @app.job("hangs_once")
    async def hangs_once(ctx: Context, let_go: str) -> int:
        """The first delivery in this process ends only if it is cancelled; then a file says so."""
        if ctx.job_id not in begun:
            begun.add(ctx.job_id)
            try:
                await asyncio.Event().wait()
            finally:
                touch(let_go)
        return ctx.epoch

    return app


def touch(path: str) -> None:
    Path(path).touch()


def run_worker(url: str, lease_seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    with make_app(url) as app:
        app.worker(
            concurrency=8, lease_seconds=lease_seconds, poll_seconds=0.05, grace_seconds=5
        ).run()


def run_worker_without_end(url: str, folder: Path) -> None:
    """Its handlers get all the grace there is. Each time that it is told to stop, a file more says
    so: `told 0`, `told 1`."""
    logging.disable(logging.CRITICAL)
    with make_app(url) as app:
        worker = app.worker(concurrency=8, grace_seconds=3600)
        stop, numbers = worker.stop, count()

        def stop_and_note() -> None:
            stop()
            (folder / f"told {next(numbers)}").touch()

        worker.stop = stop_and_note  # type: ignore[method-assign]
        worker.run()
