"""Sleeps of a handler that take no time: the clock of the proof moves on instead.

Only where nothing else can happen meanwhile. While a thread, a task or a process of the handler is
at work, or a time-out is set, it sleeps for real; so do the worker and every wait for an answer.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final

from oncely.prove.callers import is_for_handler, is_own_file
from oncely.prove.clock import Clock
from oncely.prove.copies import Copies
from oncely.prove.watch import Watch

_WORKERS: Final = "oncely"
_ROOMS: Final = tuple(
    str(Path(__file__).parents[2] / name) + os.sep for name in ("worker", "store", "prove")
)
"""Whose tasks are the worker's own. A verb that the handler has begun as a task is not."""
_POLLS: Final = 20
"""A line that sleeps more often waits for something that happens elsewhere."""


def install(watch: Watch, copies: Copies, clock: Clock, loop: asyncio.AbstractEventLoop) -> None:
    sleeps = _Sleeps(watch, copies, clock, loop)
    real_sleep, real_wait, real_async = time.sleep, threading.Event.wait, asyncio.sleep

    def sleep(seconds: float, /) -> None:
        if not sleeps.pass_virtually(seconds, sys._getframe(1)):
            real_sleep(seconds)

    def wait(event: threading.Event, timeout: float | None = None) -> bool:
        if event.is_set() or not sleeps.pass_virtually(timeout, sys._getframe(1)):
            return real_wait(event, timeout)
        return False

    async def sleep_async(delay: float, result: Any = None) -> Any:
        passes = not _has_timer(loop, delay) and sleeps.pass_virtually(delay, sys._getframe(1))
        return await real_async(0 if passes else delay, result)

    copies.everywhere.replace(real_sleep, sleep)
    copies.everywhere.replace(real_async, sleep_async)
    threading.Event.wait = wait  # type: ignore[method-assign, assignment]


class _Sleeps:
    def __init__(
        self, watch: Watch, copies: Copies, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self._watch = watch
        self._copies = copies
        self._clock = clock
        self._loop = loop
        self._times: Counter[tuple[str, int]] = Counter()

    def pass_virtually(self, seconds: float | None, frame: FrameType) -> bool:
        """Whether it did."""
        if not isinstance(seconds, int | float) or not seconds > 0 or not is_for_handler(frame):
            return False
        line = frame.f_code.co_filename, frame.f_lineno
        self._times[line] += 1
        if self._times[line] > _POLLS or self._is_something_at_work():
            return False
        self._clock.advance(seconds)
        return True

    def _is_something_at_work(self) -> bool:
        """Or is forgotten meanwhile by a server whose clock does not move."""
        return (
            self._watch.has_started_processes
            or self._copies.redis.is_used
            or not _is_handlers(threading.current_thread())
            or any(map(_is_at_work, threading.enumerate()))
            or any(map(_is_of_handler, asyncio.all_tasks(self._loop)))
        )


def _is_handlers(thread: threading.Thread) -> bool:
    return thread is threading.main_thread() or thread.name.startswith(_WORKERS)


def _is_at_work(thread: threading.Thread) -> bool:
    """Another one, and neither the worker's own nor one of a pool that waits for work."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None or thread is threading.current_thread() or _is_handlers(thread):
        return False
    return frame.f_globals.get("__name__") != "concurrent.futures.thread"


def _is_of_handler(task: asyncio.Task[Any]) -> bool:
    """A task that it has made. The one that it runs in is the worker's."""
    code = getattr(task.get_coro(), "cr_code", None)
    return code is None or not code.co_filename.startswith(_ROOMS)


def _has_timer(loop: asyncio.AbstractEventLoop, seconds: float) -> bool:
    """Whether a time-out of this task, or a call that the handler has asked for, comes first."""
    timers = getattr(loop, "_scheduled", None)
    if timers is None:
        return True
    task, end = asyncio.current_task(), loop.time() + seconds
    return any(
        not timer.cancelled() and timer.when() < end and _concerns(timer._callback, task)
        for timer in list(timers)
    )


def _concerns(callback: Any, task: asyncio.Task[Any] | None) -> bool:
    owner = getattr(callback, "__self__", None)
    if task is not None and task in (
        getattr(owner, "_task", None),
        getattr(owner, "_host_task", None),
    ):
        return True
    code = getattr(callback, "__code__", None)
    return (
        code is not None
        and not code.co_filename.startswith(asyncio.__path__[0])
        and not (is_own_file(code.co_filename))
    )
