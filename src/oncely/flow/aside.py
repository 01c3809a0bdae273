"""Blocking work: beside the event loop in the threads of the store, and never in the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from oncely.model.errors import BlockingCall

T = TypeVar("T")


def refuse_in_event_loop(verb: str, *, instead: str) -> None:
    """For verbs that may wait for long: in the thread of a running loop they raise."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise BlockingCall(verb, instead)


async def aside(executor: Executor, work: Callable[..., T], *args: Any) -> T:
    turn = [work]
    """Who takes it out does it: once, also where it is in line for a thread and was refused."""
    try:
        done = asyncio.get_running_loop().run_in_executor(executor, lambda: turn.pop()(*args))
    except RuntimeError:
        # The store was closed and its threads are gone: the work itself finds that out and says so.
        # Or no thread could be started; then the work is in line all the same, for those there are.
        if not turn:
            raise
        return turn.pop()(*args)
    return await done


async def in_own_thread(work: Callable[..., T], *args: Any) -> T:
    """For work that may hang, such as looking up a name: no other work waits for its thread, and
    the process can end without it."""
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work(*args))
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, name="oncely-own", daemon=True).start()
    return await asyncio.wrap_future(done)
