"""The protocol of an effect: intent, effect, outcome. Written once, driven sync or async.

What it needs done it yields: a plan to run in the store, or a function of the user's to call.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import Executor, Future, wait
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from oncely.flow.aside import aside
from oncely.model import payload
from oncely.model.effect import (
    Entry,
    OnDoubt,
    Source,
    Verb,
    check_key_ttl,
    check_name,
    check_on_doubt,
    fingerprint,
    judge,
    kept,
    proves_not_done,
    told,
)
from oncely.model.errors import (
    EffectMismatch,
    InDoubt,
    InvalidInput,
    LeaseLost,
    OncelyError,
    StoreUnavailable,
)
from oncely.store import effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect
from oncely.store.engine import CLOSED, Access, Runs
from oncely.store.plan import Plan, arun, run

T = TypeVar("T")
_WAITS_SECONDS: Final = (0.1, 0.2, 0.4, 0.8, 1.5, *(3.0,) * 19)
"""About a minute: longer than a server takes to restart, and as long as a lease lasts."""


class Ask(msgspec.Struct, frozen=True):
    make: Callable[[bool], Plan[Any]]
    access: Access = "transaction"
    patient: bool = False
    """What is known of an effect must not be lost because the store is gone for a moment."""


class Call(msgspec.Struct, frozen=True):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    told: Callable[[Future[Any]], Ask | None] | None = None
    """How to write down its end if nobody waits for it any more."""


Steps = Generator[Ask | Call, Any, T]


class Effects:
    """The effects of one execution. `open` are those that it began and nobody knows the end of,
    each with whether a person must say."""

    def __init__(self, job_id: str, fence: Fence) -> None:
        self._job_id = job_id
        self._fence = fence
        self._seen: set[str] = set()
        self.open: dict[str, bool] = {}
        self.under_way: set[str] = set()
        self.barred = ""
        """Why no effect may be begun now, if so."""
        self.repeats: list[str] = []
        """Those that were found done, and not done again."""

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], key_ttl: float | None
    ) -> Steps[Any]:
        effect = self._effect(name, "step", function, args)
        check_key_ttl(key_ttl)
        return (yield from self._under_way(name, self._step(effect, function, args, key_ttl)))

    def _step(
        self,
        effect: Effect,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        key_ttl: float | None,
    ) -> Steps[Any]:
        entry = yield Ask(lambda again: effects.begin(effect, again=again))
        if entry is not None:
            self._refuse_other(effect, entry)
            move = judge(entry, key_ttl=key_ttl, can_ask=False, on_doubt="hold", verb="step")
            if move == "recorded":
                return self._recorded(effect, entry)
            if move == "hold":
                raise self._doubt(
                    effect,
                    f"it was begun {entry.age_seconds:,.0f} seconds ago, and the other side "
                    f"remembers its key for {key_ttl:,.0f}: a repeat might do it twice",
                )
            ended = yield Ask(lambda _: effects.retake(effect))
            if ended is not None:
                return self._recorded(effect, ended)
        return (yield from self._do(effect, function, args, (), first=entry is None))

    def fence(
        self,
        name: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        verify: Callable[..., Any] | None,
        in_doubt: OnDoubt,
        not_done: tuple[type[BaseException], ...],
    ) -> Steps[Any]:
        effect = self._effect(name, "fence", function, args)
        check_on_doubt(in_doubt)
        steps = self._fence_off(effect, function, args, verify, in_doubt, not_done)
        return (yield from self._under_way(name, steps))

    def _fence_off(
        self,
        effect: Effect,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        verify: Callable[..., Any] | None,
        in_doubt: OnDoubt,
        not_done: tuple[type[BaseException], ...],
    ) -> Steps[Any]:
        entry = yield Ask(lambda again: effects.begin(effect, again=again))
        if entry is not None:
            self._refuse_other(effect, entry)
            can_ask = verify is not None
            move = judge(entry, key_ttl=None, can_ask=can_ask, on_doubt=in_doubt, verb="fence")
            if move == "ask":
                assert verify is not None
                found = yield Call(verify, args)
                if found is not None and found is not False:
                    return (yield from self._done(effect, found, verified=True))
            match move:
                case "recorded":
                    return self._recorded(effect, entry)
                case "assume":
                    return (yield from self._assume(effect))
                case "hold":
                    raise self._doubt(
                        effect, "an earlier execution began it, and did not say how it ended"
                    )
            ended = yield Ask(lambda _: effects.retake(effect))
            if ended is not None:
                return self._recorded(effect, ended)
        self.open[effect.name] = verify is None and in_doubt == "hold"
        return (yield from self._do(effect, function, args, not_done, first=entry is None))

    def _do(
        self,
        effect: Effect,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        not_done: tuple[type[BaseException], ...],
        *,
        first: bool,
    ) -> Steps[Any]:
        """An error that proves that nothing happened proves it of this time only: what an earlier
        execution began stays begun."""

        def clears(error: BaseException) -> bool:
            return first and proves_not_done(error, not_done)

        def told(end: Future[Any]) -> Ask | None:
            error = end.exception()
            if error is None:
                return _evidence(effect, *kept(end.result()))
            return _no_effect(effect) if clears(error) else None

        try:
            value = yield Call(function, args, told)
        except BaseException as error:
            if clears(error):
                yield _no_effect(effect)
                self.open.pop(effect.name, None)
            raise
        return (yield from self._done(effect, value))

    def _under_way(self, name: str, steps: Steps[T]) -> Steps[T]:
        self.under_way.add(name)
        try:
            return (yield from steps)
        finally:
            self.under_way.discard(name)

    def _effect(
        self, name: str, verb: Verb, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Effect:
        check_name(name)
        if self.barred:
            raise InvalidInput(f"effect {name!r} comes {self.barred}")
        if not callable(function):
            raise InvalidInput(
                f"effect {name!r} got {function!r}; expected a function, and its arguments after it"
            )
        if name in self._seen:
            raise InvalidInput(
                f"effect {name!r} comes twice in one execution: give each its own name, such as "
                f"'{name}:2'"
            )
        self._seen.add(name)
        return Effect(self._job_id, self._fence, name, verb, fingerprint(args), told(args))

    def _refuse_other(self, effect: Effect, entry: Entry) -> None:
        if entry.fingerprint != effect.fingerprint or entry.verb != effect.verb:
            raise EffectMismatch(effect.id, effect.name)

    def _recorded(self, effect: Effect, entry: Entry) -> Any:
        self.repeats.append(effect.name)
        return self._value(effect, entry)

    def _value(self, effect: Effect, entry: Entry) -> Any:
        if entry.source == "unkept":
            raise InvalidInput(
                f"effect {effect.name!r} happened and is recorded, but what it returned is not a "
                "JSON value and cannot be kept: let its function return what the handler needs"
            )
        return None if entry.result is None else payload.decode(entry.result)

    def _done(self, effect: Effect, value: Any, *, verified: bool = False) -> Steps[Any]:
        source, result = kept(value)
        if verified and source == "returned":
            source = "verified"
        recorded = yield _evidence(effect, source, result)
        self.open.pop(effect.name, None)
        if not recorded.held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        return self._value(effect, recorded.entry)

    def _assume(self, effect: Effect) -> Steps[Any]:
        recorded = yield _evidence(effect, "assumed", None)
        if not recorded.held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        return self._value(effect, recorded.entry)

    def _doubt(self, effect: Effect, why: str) -> InDoubt:
        self.open[effect.name] = True
        return InDoubt(effect.id, effect.name, why)


def _evidence(effect: Effect, source: Source, result: str | None) -> Ask:
    return Ask(lambda _: effects.done(effect, source, result), patient=True)


def _no_effect(effect: Effect) -> Ask:
    return Ask(lambda _: effects.clear(effect), patient=True)


def drive(steps: Steps[T], engine: Runs) -> T:
    """In a thread of the handler's own."""

    def act(wanted: Ask | Call) -> Any:
        if isinstance(wanted, Ask):
            return _ask(engine, wanted)
        value = wanted.function(*wanted.arguments)
        if inspect.isawaitable(value):
            _refuse_coroutine(wanted.function, value)
        return value

    return run(steps, act)


async def adrive(steps: Steps[T], engine: Runs, store_threads: Executor) -> T:
    """On the loop. A function that is not async runs in a thread: it may wait for the network."""

    async def act(wanted: Ask | Call) -> Any:
        if isinstance(wanted, Ask):
            return await _aask(engine, store_threads, wanted)
        if inspect.iscoroutinefunction(wanted.function):
            return await wanted.function(*wanted.arguments)
        value = await _in_thread(wanted, engine)
        return await value if inspect.isawaitable(value) else value

    return await arun(steps, act)


def _ask(engine: Runs, wanted: Ask) -> Any:
    waits = _waits(wanted)
    while True:
        try:
            return engine.run(wanted.make, wanted.access)
        except StoreUnavailable as error:
            seconds = _next_wait(waits, error)
        time.sleep(seconds)


async def _aask(engine: Runs, store_threads: Executor, wanted: Ask) -> Any:
    waits = _waits(wanted)
    while True:
        try:
            # A cancellation must not come between a write and our knowing of it.
            return await whole(aside(store_threads, engine.run, wanted.make, wanted.access))
        except StoreUnavailable as error:
            seconds = _next_wait(waits, error)
        await asyncio.sleep(seconds)


def _waits(wanted: Ask) -> Iterator[float]:
    return iter(_WAITS_SECONDS if wanted.patient else ())


def _next_wait(waits: Iterator[float], error: StoreUnavailable) -> float:
    seconds = next(waits, None)
    if seconds is None or str(error) == CLOSED:
        raise error
    return seconds


async def _in_thread(wanted: Call, engine: Runs) -> Any:
    """In a thread of its own: it may never return, and then neither the other handlers nor the end
    of the process may wait for it. If the handler is gone when it returns, what it knows is written
    down all the same."""
    end: Future[Any] = Future()
    end.set_running_or_notify_cancel()
    call = partial(contextvars.copy_context().run, wanted.function, *wanted.arguments)

    def act() -> None:
        try:
            end.set_result(call())
        except BaseException as error:
            end.set_exception(error)

    threading.Thread(target=act, name="oncely-effect", daemon=True).start()
    try:
        return await asyncio.wrap_future(end)
    except asyncio.CancelledError:
        late = partial(_tell_late, wanted, engine, end)
        threading.Thread(target=late, name="oncely-evidence", daemon=True).start()
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


async def whole(work: Awaitable[T]) -> T:
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise


def _refuse_coroutine(function: Callable[..., Any], value: Any) -> None:
    if inspect.iscoroutine(value):
        value.close()
    raise InvalidInput(
        f"{getattr(function, '__qualname__', function)!r} is async, and the handler is not: make "
        "the handler `async def`, or give it a plain function"
    )
