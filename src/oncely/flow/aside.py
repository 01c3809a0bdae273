"""Blocking work beside the event loop, in the threads of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


async def aside(executor: Executor, work: Callable[..., T], *args: Any) -> T:
    try:
        done = asyncio.get_running_loop().run_in_executor(executor, work, *args)
    except RuntimeError:
        # The store was closed and its threads are gone: the work itself finds that out and says so.
        return work(*args)
    return await done
