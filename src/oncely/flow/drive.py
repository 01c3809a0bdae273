"""What a protocol yields, and who does it: in a thread of the caller's own, or on the loop.

So that a protocol is written once, as a generator that does no I/O itself.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from oncely.flow.aside import aside
from oncely.flow.writes import Shared
from oncely.model.errors import InvalidInput, OncelyError, StoreUnavailable
from oncely.store.engine import Access, Runs, StoreClosed
from oncely.store.plan import Plan, run

T = TypeVar("T")
_WAITS_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.5, *(3.0,) * 19)
"""About a minute: longer than a server takes to restart, and as long as a lease lasts."""


class Ask(msgspec.Struct, frozen=True):
    """A plan to run in the store."""

    make: Callable[[bool], Plan[Any]]
    access: Access = "transaction"
    patient: bool = False
    """What is known of an effect must not be lost because the store is gone for a moment."""


class Put(msgspec.Struct, frozen=True):
    """A write that may share its commit with others."""

    shared: Shared[Any, Any]
    item: Any


class Call(msgspec.Struct, frozen=True):
    """A function of the user's to call."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}
    told: Callable[[Future[Any]], Ask | None] | None = None
    """How to write down its end if nobody waits for it any more."""


class Rest(msgspec.Struct, frozen=True):
    """A while in which others may get on."""

    seconds: float


Wanted = Ask | Put | Call | Rest
Steps = Generator[Wanted, Any, T]
RunOnLoop = Callable[[Callable[[bool], Plan[Any]], Access], Awaitable[Any]]


def drive(steps: Steps[T], engine: Runs) -> T:
    """In a thread of the caller's own."""

    def act(wanted: Wanted) -> Any:
        match wanted:
            case Ask():
                return _ask(engine, wanted)
            case Put(shared, item):
                return shared.put(item)
            case Rest(seconds):
                return time.sleep(seconds)
            case Call(function, args, kwargs):
                value = function(*args, **kwargs)
                if inspect.isawaitable(value):
                    _refuse_coroutine(function, value)
                return value

    return run(steps, act)


def adrive(steps: Steps[T], engine: Runs, store_threads: Executor) -> Coroutine[Any, Any, T]:
    """On the loop, with the store in threads beside it."""
    return drive_on_loop(steps, partial(aside, store_threads, engine.run), late=engine)


async def drive_on_loop(steps: Steps[T], run_plan: RunOnLoop, *, late: Runs | None) -> T:
    """A function that is not async runs in a thread: it may wait for the network. `late` is where
    its end is written down if nobody waits for it any more; None where no thread can reach it.

    In one coroutine: each one more that waits inside another costs, each time that it goes on.
    """
    answer: Any
    try:
        wanted = next(steps)
        while True:
            try:
                match wanted:
                    case Put():
                        answer = await wanted.shared.aput(wanted.item)
                    case Call() if _is_coroutine_function(wanted.function):
                        answer = await wanted.function(*wanted.args, **wanted.kwargs)
                    case Call():
                        answer = await _in_thread(wanted, late)
                        if inspect.isawaitable(answer):
                            answer = await answer
                    case Ask():
                        answer = await _aask(run_plan, wanted)
                    case Rest():
                        answer = await asyncio.sleep(wanted.seconds, None)
            except BaseException as error:
                wanted = steps.throw(error)
            else:
                wanted = steps.send(answer)
    except StopIteration as end:
        value: T = end.value
        return value


def _ask(engine: Runs, wanted: Ask) -> Any:
    waits = _waits(wanted)
    while True:
        try:
            return engine.run(wanted.make, wanted.access)
        except StoreUnavailable as error:
            seconds = _next_wait(waits, error)
        time.sleep(seconds)


async def _aask(run_plan: RunOnLoop, wanted: Ask) -> Any:
    waits = _waits(wanted)
    while True:
        try:
            # A cancellation must not come between a write and our knowing of it.
            return await _whole(run_plan(wanted.make, wanted.access))
        except StoreUnavailable as error:
            seconds = _next_wait(waits, error)
        await asyncio.sleep(seconds)


def _waits(wanted: Ask) -> Iterator[float]:
    return iter(_WAITS_SECONDS if wanted.patient else ())


def _next_wait(waits: Iterator[float], error: StoreUnavailable) -> float:
    seconds = next(waits, None)
    if seconds is None or isinstance(error, StoreClosed):
        raise error
    return seconds


async def _in_thread(wanted: Call, late: Runs | None) -> Any:
    """In a thread of its own: it may never return, and then neither the other handlers nor the end
    of the process may wait for it. If the caller is gone when it returns, what it knows is written
    down all the same."""
    end: Future[Any] = Future()
    end.set_running_or_notify_cancel()
    run = contextvars.copy_context().run
    call = partial(run, partial(wanted.function, *wanted.args, **wanted.kwargs))

    def act() -> None:
        try:
            end.set_result(call())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=act, name="oncely-effect", daemon=True).start()
    try:
        return await asyncio.wrap_future(end)
    except asyncio.CancelledError:
        if late is not None:
            tell = partial(_tell_late, wanted, late, end)
            threading.Thread(target=tell, name="oncely-evidence", daemon=True).start()
        raise


def _tell_late(call: Call, engine: Runs, end: Future[Any]) -> None:
    wait([end])
    if end.exception() is None and inspect.iscoroutine(end.result()):
        end.result().close()
        return
    evidence = call.told and call.told(end)
    if evidence is not None:
        with suppress(OncelyError):  # the store was closed: then the doubt stays
            _ask(engine, evidence)


async def _whole(work: Awaitable[T]) -> T:
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _is_coroutine_function(function: Callable[..., Any]) -> bool:
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_COROUTINE:
        return True
    return inspect.iscoroutinefunction(function)


def _refuse_coroutine(function: Callable[..., Any], value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()
    raise InvalidInput(
        f"{getattr(function, '__qualname__', function)!r} is async, and its caller is not: use "
        "it in an `async def` handler, or with astep or afence of a ledger, or make it a plain "
        "function"
    )
