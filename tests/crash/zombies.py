"""Worker processes for the tests of late evidence: stopped and woken up from outside.

Their effects go to files: the handler tells that it is in the middle, and waits to be let on.
"""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

from oncely import Context, Oncely


def make_app(url: str, folder: Path) -> Oncely:
    app = Oncely(url)

    def send(name: str) -> str:
        with (folder / "sent").open("a") as file:
            file.write(f"{name}\n")
        (folder / "in the middle").touch()
        while not (folder / "go on").exists():
            time.sleep(0.02)
        return f"sent {name}"

    async def asend(name: str) -> str:
        return await asyncio.to_thread(send, name)

    @app.job("fence_def")
    def fence_def(ctx: Context, name: str) -> Any:
        return ctx.fence("send", send, name)

    @app.job("fence_async")
    async def fence_async(ctx: Context, name: str) -> Any:
        return await ctx.fence("send", asend, name)

    @app.job("fence_thread")
    async def fence_thread(ctx: Context, name: str) -> Any:
        """A plain function in an async handler: it goes on when the handler is cancelled."""
        return await ctx.fence("send", send, name)

    return app


def work(url: str, folder: Path, lease_seconds: float) -> None:
    logging.disable(logging.CRITICAL)
    with make_app(url, folder) as app:
        app.worker(lease_seconds=lease_seconds, poll_seconds=0.05, grace_seconds=0.2).run()
