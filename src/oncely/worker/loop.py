"""The event loop of a worker that has the process for itself."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

T = TypeVar("T")
_SWITCH_SECONDS: Final = 0.0005
"""The thread that speaks to the store must not wait for the handlers any longer than that."""
_COLLECT_AFTER: Final = 20_000
"""Every job is a task and a few objects more, and none of them is garbage that only a collection
finds."""


def run_alone(work: Coroutine[Any, Any, T]) -> T:
    switch, collect = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_COLLECT_AFTER, *collect[1:])
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(work)
    finally:
        sys.setswitchinterval(switch)
        gc.set_threshold(*collect)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's where it is installed: a task costs half."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
