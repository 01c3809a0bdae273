"""A time-out that comes only when the handler is where the test wants it."""

import asyncio
import threading
from typing import Any

from oncely import Context, Oncely
from tests.waiting import PATIENCE_SECONDS


class HeldTimers:
    """For a kind with a `def` handler, which calls `let_go`: however busy the machine is, its time
    is not over before that. The loop of the worker stands still until then, and its timers too."""

    def __init__(self, app: Oncely, kind: str) -> None:
        self._kind = kind
        self._reached: dict[str, threading.Event] = {}
        app.middleware(self._hold)

    def let_go(self, ctx: Context) -> None:
        self._reached[ctx.job_id].set()

    async def _hold(self, ctx: Context, call: Any) -> Any:
        if ctx.kind != self._kind:
            return await call(ctx)
        reached = self._reached[ctx.job_id] = threading.Event()
        running = asyncio.ensure_future(call(ctx))
        await asyncio.sleep(0)  # the handler is given to its thread
        assert reached.wait(PATIENCE_SECONDS)
        return await running
