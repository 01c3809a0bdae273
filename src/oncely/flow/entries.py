"""Step and fence outside a job: there is no lease on a job, so each entry of the ledger has one.

Its time decides only who may go on. Whoever comes after a holder that is gone finds an intent
whose end nobody knows: a step is repeated, a fence is in doubt.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import wraps
from typing import Any, Final, Protocol

from oncely.flow.effect import Ask, Call, Steps
from oncely.model import payload
from oncely.model.effect import (
    Entry,
    OnDoubt,
    Source,
    Verb,
    check_key_ttl,
    check_on_doubt,
    fingerprint,
    judge,
    kept,
    proves_not_done,
    told,
)
from oncely.model.errors import EffectMismatch, InDoubt, InProgress, InvalidInput
from oncely.model.keys import check_key
from oncely.store.ledger import plans
from oncely.store.ledger.plans import Found, Intent

_FIRST_REST: Final = 0.02
_LONGEST_REST: Final = 0.5


class Keeper(Protocol):
    """Renews what is held, until it is let go, or until its function has ended."""

    def hold(self, intent: Intent) -> None: ...

    def let_go(self, intent: Intent) -> None: ...

    def let_go_after(self, intent: Intent, ended: threading.Event) -> None: ...


def intend(key: str, verb: Verb, arguments: Any) -> Intent:
    check_key(key, "the key")
    return Intent(key, verb, fingerprint(arguments), told(arguments), secrets.token_hex(16))


class Entries:
    def __init__(self, keeper: Keeper, *, lease_seconds: float, wait_seconds: float) -> None:
        self._keeper = keeper
        self._lease_us = round(lease_seconds * 1_000_000)
        self._wait_seconds = wait_seconds

    def step(
        self,
        key: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        key_ttl: float | None,
        on_loop: bool,
    ) -> Steps[Any]:
        call = _Effect(self, intend(key, "step", args), function, args, on_loop)
        check_key_ttl(key_ttl)
        return call.whole(call.step(key_ttl))

    def fence(
        self,
        key: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        *,
        verify: Callable[..., Any] | None,
        in_doubt: OnDoubt,
        not_done: tuple[type[BaseException], ...],
        on_loop: bool,
    ) -> Steps[Any]:
        call = _Effect(self, intend(key, "fence", args), function, args, on_loop)
        check_on_doubt(in_doubt)
        if verify is not None and not callable(verify):
            raise InvalidInput(f"verify is {verify!r}; expected a function of the arguments")
        return call.whole(call.fence(verify, in_doubt, not_done))


class _Effect:
    """One call of step or fence."""

    def __init__(
        self,
        entries: Entries,
        intent: Intent,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        on_loop: bool,
    ) -> None:
        if not callable(function):
            raise InvalidInput(
                f"entry {intent.name!r} got {function!r}; expected a function, and its arguments "
                "after it"
            )
        self._intent = intent
        self._args = args
        self._keeper = entries._keeper
        self._lease_us = entries._lease_us
        self._wait_seconds = entries._wait_seconds
        self._rest: Callable[..., Any] = asyncio.sleep if on_loop else time.sleep
        self._first = False
        self._running = threading.Event()
        self._ended = threading.Event()
        self._function = self._watched(function)

    def whole(self, steps: Steps[Any]) -> Steps[Any]:
        """Whatever ends the call: what it holds it lets go, so that nobody waits for it. Only a
        function that goes on in its thread after its caller was cancelled keeps its entry."""
        try:
            return (yield from steps)
        except GeneratorExit:
            raise
        except BaseException:
            if self._is_running():
                self._keeper.let_go_after(self._intent, self._ended)
            else:
                with suppress(Exception):
                    yield self._leave(doubt=False)
            raise
        finally:
            if not self._is_running():
                self._keeper.let_go(self._intent)

    def step(self, key_ttl: float | None) -> Steps[Any]:
        entry = yield from self._begin()
        while entry is not None:
            move = judge(entry, key_ttl=key_ttl, can_ask=False, on_doubt="hold", verb="step")
            if move == "recorded":
                return self._value(entry)
            if move == "hold":
                yield self._leave(doubt=True)
                raise InDoubt(
                    None,
                    self._intent.name,
                    f"it was begun {entry.age_seconds:,.0f} seconds ago, and the other side "
                    f"remembers its key for {key_ttl:,.0f}: a repeat might do it twice",
                )
            entry = yield from self._retake()
        return (yield from self._do((), doubt=False))

    def fence(
        self,
        verify: Callable[..., Any] | None,
        in_doubt: OnDoubt,
        not_done: tuple[type[BaseException], ...],
    ) -> Steps[Any]:
        entry = yield from self._begin()
        while entry is not None:
            can_ask = verify is not None
            move = judge(entry, key_ttl=None, can_ask=can_ask, on_doubt=in_doubt, verb="fence")
            if move == "ask":
                assert verify is not None
                found = yield Call(verify, self._args)
                if found is not None and found is not False:
                    return (yield from self._done(found, verified=True))
            match move:
                case "recorded":
                    return self._value(entry)
                case "assume":
                    return (yield from self._record("assumed", None))
                case "hold":
                    yield self._leave(doubt=True)
                    raise InDoubt(
                        None,
                        self._intent.name,
                        "an earlier call began it, and did not say how it ended",
                    )
            entry = yield from self._retake()
        doubt = verify is None and in_doubt == "hold"
        return (yield from self._do(not_done, doubt=doubt))

    def _begin(self) -> Steps[Entry | None]:
        """None if this call is the first; else what is known, and the call has it if it is open.
        Waits for another call that has it."""
        deadline = time.monotonic() + self._wait_seconds
        rest = _FIRST_REST
        while True:
            found: Found = yield Ask(lambda _: plans.begin(self._intent, self._lease_us))
            self._refuse_other(found.entry)
            if found.entry.state == "done":
                return found.entry
            if found.held:
                self._keeper.hold(self._intent)
                self._first = found.begun
                return None if found.begun else found.entry
            seen: Found | None = found
            while seen is not None and seen.live and seen.entry.state != "done":
                if time.monotonic() > deadline:
                    raise InProgress(self._intent.name, self._wait_seconds)
                yield Call(self._rest, (rest,))
                rest = min(rest * 1.5, _LONGEST_REST)
                seen = yield Ask(lambda _: plans.look(self._intent), "read")

    def _retake(self) -> Steps[Entry | None]:
        """None if it is this call's to do now. If not, somebody knew more meanwhile."""
        if (yield Ask(lambda _: plans.retake(self._intent))):
            return None
        return (yield from self._begin())

    def _do(self, not_done: tuple[type[BaseException], ...], *, doubt: bool) -> Steps[Any]:
        """An error that proves that nothing happened proves it of this time only: what an earlier
        call began stays begun."""

        def clears(error: BaseException) -> bool:
            return self._first and proves_not_done(error, not_done)

        def told_late(end: Future[Any]) -> Ask | None:
            error = end.exception()
            if error is None:
                return self._evidence(*kept(end.result()))
            return self._no_effect() if clears(error) else self._leave(doubt=doubt)

        try:
            value = yield Call(self._function, self._args, told_late)
        except BaseException as error:
            if clears(error):
                yield self._no_effect()
            elif doubt and not self._is_running():
                error.add_note(
                    f"entry {self._intent.name!r} of the ledger is in doubt now: nobody knows "
                    "whether it happened"
                )
                with suppress(Exception):  # the store is gone: whoever comes next sees the intent
                    yield self._leave(doubt=True)
            raise
        return (yield from self._done(value))

    def _done(self, value: Any, *, verified: bool = False) -> Steps[Any]:
        source, result = kept(value)
        if verified and source == "returned":
            source = "verified"
        return (yield from self._record(source, result))

    def _record(self, source: Source, result: str | None) -> Steps[Any]:
        found: Found = yield self._evidence(source, result)
        same = found.entry.state == "done" and found.entry.fingerprint == self._intent.fingerprint
        if same:
            return self._value(found.entry)
        # The key was given away meanwhile, to a call with other arguments.
        return self._read(source, result)

    def _value(self, entry: Entry) -> Any:
        return self._read(entry.source, entry.result)

    def _read(self, source: Source | None, result: str | None) -> Any:
        if source == "unkept":
            raise InvalidInput(
                f"entry {self._intent.name!r} of the ledger happened and is recorded, but what its "
                "function returned is not a JSON value and cannot be kept: let it return one"
            )
        return None if result is None else payload.decode(result)

    def _refuse_other(self, entry: Entry) -> None:
        if entry.fingerprint != self._intent.fingerprint or entry.verb != self._intent.verb:
            raise EffectMismatch(None, self._intent.name)

    def _evidence(self, source: Source, result: str | None) -> Ask:
        return Ask(lambda _: plans.done(self._intent, source, result), patient=True)

    def _no_effect(self) -> Ask:
        return Ask(lambda _: plans.clear(self._intent), patient=True)

    def _leave(self, *, doubt: bool) -> Ask:
        return Ask(lambda _: plans.leave(self._intent, doubt=doubt))

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return function

        @wraps(function)
        def watched(*args: Any) -> Any:
            self._running.set()
            try:
                return function(*args)
            finally:
                self._ended.set()

        return watched

    def _is_running(self) -> bool:
        return self._running.is_set() and not self._ended.is_set()
