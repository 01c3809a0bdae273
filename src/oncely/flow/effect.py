"""The protocol of an effect: intent, effect, outcome. Written once, driven sync or async.

What it needs done it yields: a plan to run in the store, or a function of the user's to call.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import Executor
from functools import partial
from typing import Any, TypeVar

import msgspec

from oncely.flow.aside import aside
from oncely.model import payload
from oncely.model.effect import (
    Entry,
    OnDoubt,
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
from oncely.model.errors import EffectMismatch, InDoubt, InvalidInput, LeaseLost
from oncely.store import effects
from oncely.store.claim import Fence
from oncely.store.effects import Effect
from oncely.store.engine import Access, Engine
from oncely.store.plan import Plan, arun, run

T = TypeVar("T")


class Ask(msgspec.Struct, frozen=True):
    make: Callable[[bool], Plan[Any]]
    access: Access = "transaction"


class Call(msgspec.Struct, frozen=True):
    function: Callable[..., Any]
    arguments: tuple[Any, ...]


Steps = Generator[Ask | Call, Any, T]


class Effects:
    """The effects of one execution. `open` are those that it began and nobody knows the end of,
    each with whether a person must say."""

    def __init__(self, job_id: str, fence: Fence) -> None:
        self._job_id = job_id
        self._fence = fence
        self._seen: set[str] = set()
        self.open: dict[str, bool] = {}
        self.repeats: list[str] = []
        """Those that were found done, and not done again."""

    def step(
        self, name: str, function: Callable[..., Any], args: tuple[Any, ...], key_ttl: float | None
    ) -> Steps[Any]:
        effect = self._effect(name, "step", function, args)
        check_key_ttl(key_ttl)
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
            yield Ask(lambda _: effects.retake(effect))
        try:
            value = yield Call(function, args)
        except BaseException as error:
            if proves_not_done(error, ()):
                yield Ask(lambda _: effects.clear(effect))
            raise
        return (yield from self._done(effect, value))

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
            yield Ask(lambda _: effects.retake(effect))
        self.open[name] = verify is None and in_doubt == "hold"
        try:
            value = yield Call(function, args)
        except BaseException as error:
            if proves_not_done(error, not_done):
                yield Ask(lambda _: effects.clear(effect))
                del self.open[name]
            raise
        return (yield from self._done(effect, value))

    def _effect(
        self, name: str, verb: Verb, function: Callable[..., Any], args: tuple[Any, ...]
    ) -> Effect:
        check_name(name)
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
        recorded = yield Ask(lambda _: effects.done(effect, source, result))
        self.open.pop(effect.name, None)
        if not recorded.held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        return self._value(effect, recorded.entry)

    def _assume(self, effect: Effect) -> Steps[Any]:
        recorded = yield Ask(lambda _: effects.done(effect, "assumed", None))
        if not recorded.held:
            raise LeaseLost(effect.id, effect.fence.epoch)
        return self._value(effect, recorded.entry)

    def _doubt(self, effect: Effect, why: str) -> InDoubt:
        self.open[effect.name] = True
        return InDoubt(effect.id, effect.name, why)


def drive(steps: Steps[T], engine: Engine) -> T:
    """In a thread of the handler's own."""

    def act(wanted: Ask | Call) -> Any:
        if isinstance(wanted, Ask):
            return engine.run(wanted.make, wanted.access)
        value = wanted.function(*wanted.arguments)
        if inspect.isawaitable(value):
            _refuse_coroutine(wanted.function, value)
        return value

    return run(steps, act)


async def adrive(steps: Steps[T], engine: Engine, store_threads: Executor) -> T:
    """On the loop. A function that is not async runs in a thread: it may wait for the network."""

    async def act(wanted: Ask | Call) -> Any:
        if isinstance(wanted, Ask):
            # A cancellation must not come between a write and our knowing of it.
            return await _whole(aside(store_threads, engine.run, wanted.make, wanted.access))
        if inspect.iscoroutinefunction(wanted.function):
            return await wanted.function(*wanted.arguments)
        call = partial(contextvars.copy_context().run, wanted.function, *wanted.arguments)
        value = await asyncio.get_running_loop().run_in_executor(None, call)
        return await value if inspect.isawaitable(value) else value

    return await arun(steps, act)


async def _whole(work: Awaitable[T]) -> T:
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
