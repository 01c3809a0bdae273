"""Execute: call the handler of one claimed job, and say how that ended. Nothing is written here."""

from __future__ import annotations

import asyncio
import contextvars
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, assert_never

from oncely.flow.context import Context
from oncely.flow.handler import Handler
from oncely.flow.issued_verbs import close_unstarted, fail_unawaited, is_issued
from oncely.flow.trace import UNRECORDED, Span, carry_on, executing, record_exception
from oncely.model import payload
from oncely.model.errors import InvalidInput
from oncely.model.http_errors import busy_seconds
from oncely.model.outcome import (
    Cancel,
    Cancelled,
    Defer,
    Deferred,
    Doubted,
    Ending,
    Failure,
    Nack,
    Raised,
    Returned,
    StoreFailed,
    Unhandled,
    kept_text,
)
from oncely.model.retry import Retry
from oncely.store.claim import Claimed

RETURNED_NOTHING: Final = Returned("null")
Call = Callable[[Context], Awaitable[Any]]
Middleware = Callable[[Context, Call], Awaitable[Any]]


def execute(
    handler: Handler,
    claimed: Claimed,
    context: Context,
    *,
    middleware: Sequence[Middleware],
    threads: Executor,
    timeout_seconds: float | None,
    max_result_bytes: int,
) -> Coroutine[Any, Any, Ending]:
    """To be called in the task that the execution runs in: what it does belongs to the trace of its
    job. A cancellation from outside passes through: then it has no end of its own."""
    carry_on(claimed)
    span = executing(claimed)
    run = _run(handler, claimed, context, middleware, threads, timeout_seconds, max_result_bytes)
    return run if span is UNRECORDED else _recorded(span, run)


async def _recorded(span: Span, run: Coroutine[Any, Any, Ending]) -> Ending:
    with span:
        ending = await run
        span.ended(ending)
        return ending


async def _run(
    handler: Handler,
    claimed: Claimed,
    context: Context,
    middleware: Sequence[Middleware],
    threads: Executor,
    timeout_seconds: float | None,
    max_result_bytes: int,
) -> Ending:
    try:
        arguments = handler.arguments(context, claimed.payload)
    except Exception as error:
        return _raised(error, "the payload does not fit the handler: ", retryable=False)
    limit: asyncio.Timeout | None = None
    ending: Ending
    try:
        if timeout_seconds is not None:
            async with (limit := asyncio.timeout(timeout_seconds)):
                value = await _chain(handler, arguments, middleware, threads)(context)
        elif handler.is_async and not middleware:
            value = await handler.function(*arguments)
        else:
            value = await _chain(handler, arguments, middleware, threads)(context)
    except Exception as error:
        if context.is_store_error(error):
            record_exception(error)
            ending = StoreFailed(_failure(error))
        else:
            expired = limit is not None and limit.expired()
            told = f"no end within {timeout_seconds} seconds" if expired else ""
            ending = _ended_by(error, told, handler.retry)
    except BaseException:
        close_unstarted(context.issued or ())
        raise
    else:
        is_result = value is not None and not is_issued(value, context.issued or ())
        ending = _returned(value, max_result_bytes) if is_result else RETURNED_NOTHING
    return ending if context.issued is None else fail_unawaited(ending, context.issued)


def _returned(value: Any, max_result_bytes: int) -> Ending:
    if isinstance(value, Ending):  # of our own handlers: no traceback is made of it
        return value
    try:
        return Returned(payload.encode(value, max_bytes=max_result_bytes))
    except InvalidInput as error:
        return _raised(error, "the result cannot be kept: ", retryable=False)


def _ended_by(error: Exception, told: str, retry: Retry | None) -> Ending:
    match error:
        case Nack():
            return _raised(error, told, retryable=error.retryable, delay_seconds=error.delay)
        case Defer():
            return Deferred(error.seconds, _failure(error, told))
        case Cancel():
            return Cancelled(_failure(error, told))
    if retry is not None and isinstance(error, retry.never_on):
        return _raised(error, told, retryable=False)
    seconds = busy_seconds(error, datetime.now(UTC))
    if seconds is not None:
        return Deferred(seconds, _failure(error, told))
    return _raised(error, told, retryable=retry is None or retry.covers(error))


def with_doubt(ending: Ending, context: Context) -> Ending:
    """An effect without a known end is not forgotten, whatever the handler made of it: a person
    must say, or the next execution asks."""
    if not context.has_effects:
        return ending
    begun = dict(context.effects.open)  # a handler in a thread may still be at it
    if not begun:
        return ending
    for_a_person = [name for name, must in begun.items() if must]
    match ending:
        case Raised(failure) | Cancelled(failure) | StoreFailed(failure):
            pass
        case Deferred(_, failure) | Doubted(_, failure) | Unhandled(_, failure):
            pass
        case Returned():
            names = ", ".join(map(repr, begun))
            failure = Failure(
                "InDoubt", f"the handler returned, but nobody knows how effect {names} ended"
            )
            ending = Raised(failure)
        case _:
            assert_never(ending)
    if for_a_person:
        return Doubted(for_a_person, failure)
    return ending


def _chain(
    handler: Handler,
    arguments: tuple[Any, ...],
    middleware: Sequence[Middleware],
    threads: Executor,
) -> Call:
    """The handler with the middleware around it, the first one outermost."""

    async def call(context: Context) -> Any:
        if handler.is_async:
            return await handler.function(*arguments)
        # The context variables of the caller go along, for logging and tracing.
        run = contextvars.copy_context().run
        context.thread = threads.submit(run, _caught, handler.function, *arguments)
        value, error = await asyncio.wrap_future(context.thread)
        if error is not None:
            raise error
        return value

    chain: Call = call
    for wrap in reversed(middleware):
        chain = partial(_wrapped, wrap, chain)
    return chain


def _caught(function: Callable[..., Any], *arguments: Any) -> tuple[Any, BaseException | None]:
    """Carried over as a value: on its way through a future a TimeoutError would be made anew,
    without the lines where it was raised."""
    try:
        return function(*arguments), None
    except BaseException as error:
        return None, error


async def _wrapped(wrap: Middleware, inner: Call, context: Context) -> Any:
    return await wrap(context, inner)


def _raised(
    error: Exception, told: str = "", *, retryable: bool, delay_seconds: float | None = None
) -> Raised:
    record_exception(error)
    return Raised(_failure(error, told), retryable, delay_seconds)


def _failure(error: BaseException, told: str = "") -> Failure:
    frames = traceback.TracebackException.from_exception(error, limit=-20)
    return Failure(
        type(error).__name__,
        kept_text(f"{told}{_words(error)}"),
        kept_text("".join(frames.format())),
    )


def _words(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "an error that cannot be told"
