"""Step and fence outside a job: there is no lease on a job, so each entry of the ledger has one.

Its time decides only who may go on. Whoever comes after a holder that is gone finds an intent
whose end nobody knows: a step is repeated, a fence is in doubt.
"""

from __future__ import annotations

import inspect
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, Final, Protocol

import msgspec

from oncely.flow.drive import Ask, Rest, Steps
from oncely.flow.protocol import Doing, Terms
from oncely.model.effect import Entry, Source, Verb, described
from oncely.model.errors import InProgress, InvalidInput
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


def intend(key: str, verb: Verb, args: Any, kwargs: dict[str, Any] | None = None) -> Intent:
    check_key(key, "the key")
    return Intent(key, verb, *described(args, kwargs), secrets.token_hex(16))


class Entries:
    def __init__(self, keeper: Keeper, *, lease_seconds: float, wait_seconds: float) -> None:
        self._keeper = keeper
        self._lease_us = round(lease_seconds * 1_000_000)
        self._wait_seconds = wait_seconds

    def do(self, terms: Terms) -> Steps[Any]:
        """Whatever ends the call: what it holds it lets go, so that nobody waits for it. Only a
        function that goes on in its thread after its caller was cancelled keeps its entry."""
        if terms.was:
            raise InvalidInput(
                f"was is {terms.was!r}; a ledger finds an entry by its key alone, and only effects "
                "of a job are looked for under older names"
            )
        doing = _Doing(terms, self._keeper, self._lease_us, self._wait_seconds)
        try:
            return (yield from doing.steps())
        except GeneratorExit:
            raise
        except BaseException:
            if doing.is_running():
                self._keeper.let_go_after(doing.intent, doing.function_ended)
            else:
                with suppress(Exception):
                    yield doing.leave(doubt=False)
            raise
        finally:
            if not doing.is_running():
                self._keeper.let_go(doing.intent)


class _Doing(Doing):
    noun = "entry {!r} of the ledger"
    before = "call"

    def __init__(self, terms: Terms, keeper: Keeper, lease_us: int, wait_seconds: float) -> None:
        self.intent = intend(terms.name, terms.verb, *terms.all_arguments())
        super().__init__(None, self.intent.fingerprint, terms)
        self.terms = msgspec.structs.replace(terms, function=self._watched(terms.function))
        self._keeper = keeper
        self._lease_us = lease_us
        self._wait_seconds = wait_seconds
        self._function_begun = threading.Event()
        self.function_ended = threading.Event()

    def begin(self) -> Steps[Entry | None]:
        """Waits for another call that has it. If it is open, this call has it then."""
        deadline = time.monotonic() + self._wait_seconds
        rest = _FIRST_REST
        while True:
            found: Found = yield Ask(lambda _: plans.begin(self.intent, self._lease_us))
            self.refuse_other(found.entry)
            if found.entry.state == "done":
                return found.entry
            if found.held:
                self._keeper.hold(self.intent)
                self.first = found.begun
                return None if found.begun else found.entry
            seen: Found | None = found
            while seen is not None and seen.live and seen.entry.state != "done":
                if time.monotonic() > deadline:
                    raise InProgress(self.name, self._wait_seconds)
                yield Rest(rest)
                rest = min(rest * 1.5, _LONGEST_REST)
                seen = yield Ask(lambda _: plans.look(self.intent), "read")

    def retake(self) -> Steps[Entry | None]:
        if (yield Ask(lambda _: plans.retake(self.intent))):
            return None
        return (yield from self.begin())

    def hold(self) -> Steps[None]:
        yield self.leave(doubt=True)

    def evidence(self, source: Source, result: str | None) -> Ask:
        return Ask(lambda _: plans.done(self.intent, source, result), patient=True)

    def ended(self, answer: Found, source: Source, result: str | None) -> Any:
        entry = answer.entry
        if entry.state == "done" and self.has_arguments_of(entry):
            return self.read(entry.source, entry.result)
        # The key was given away meanwhile, to a call with other arguments.
        return self.read(source, result)

    def nothing_happened(self) -> Ask:
        return Ask(lambda _: plans.clear(self.intent), patient=True)

    def left(self, error: BaseException) -> Steps[None]:
        if self.terms.needs_a_person and not self.is_running():
            error.add_note(
                f"entry {self.name!r} of the ledger is in doubt now: nobody knows whether it "
                "happened"
            )
            with suppress(Exception):  # the store is gone: whoever comes next sees the intent
                yield self.leave(doubt=True)

    def left_late(self) -> Ask | None:
        return self.leave(doubt=self.terms.needs_a_person)

    def leave(self, *, doubt: bool) -> Ask:
        """It is nobody's then; with `doubt` somebody has to say."""
        return Ask(lambda _: plans.leave(self.intent, doubt=doubt))

    def is_running(self) -> bool:
        return self._function_begun.is_set() and not self.function_ended.is_set()

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(function):
            return function

        @wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            self._function_begun.set()
            try:
                return function(*args, **kwargs)
            finally:
                self.function_ended.set()

        return watched
