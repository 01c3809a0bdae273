"""The verbs that an async handler called, and whether it awaited them."""

from __future__ import annotations

import inspect
from collections.abc import Coroutine, Sequence
from types import CodeType
from typing import Any

from oncely.model.outcome import Cancelled, Deferred, Ending, Failure, Raised, Returned


class IssuedVerb:
    """A call of a verb. Its line is looked up only when it is asked for."""

    __slots__ = ("_called", "_code", "_instruction", "_verb")

    def __init__(
        self, called: str, verb: Coroutine[Any, Any, Any], code: CodeType, instruction: int
    ) -> None:
        self._called = called
        self._verb = verb
        self._code = code
        self._instruction = instruction

    @property
    def is_over(self) -> bool:
        # None once it has returned or raised, or was closed.
        return getattr(self._verb, "cr_frame", None) is None

    @property
    def is_unstarted(self) -> bool:
        return inspect.getcoroutinestate(self._verb) == inspect.CORO_CREATED

    def is_of(self, value: Any) -> bool:
        return self._verb is value

    def close(self) -> None:
        """Python does not warn of a coroutine that was closed."""
        self._verb.close()

    def __str__(self) -> str:
        lines = self._code.co_lines()
        line = next((n for start, end, n in lines if start <= self._instruction < end), None)
        return f"{self._called} at {self._code.co_filename}:{line}"


def is_issued(value: Any, issued: Sequence[IssuedVerb]) -> bool:
    """Whether it is one of the verbs, and not what one returned."""
    return any(verb.is_of(value) for verb in issued)


def close_unstarted(issued: Sequence[IssuedVerb]) -> list[str]:
    """Close the verbs that nobody awaited; the calls that they came from."""
    unstarted = [verb for verb in issued if not verb.is_over and verb.is_unstarted]
    for verb in unstarted:
        verb.close()
    return [str(verb) for verb in unstarted]


def fail_unawaited(ending: Ending, issued: Sequence[IssuedVerb]) -> Ending:
    """The ending of an execution whose handler called these verbs. One that did not await a verb
    has failed, whatever it returned."""
    unawaited = close_unstarted(issued)
    running = [str(verb) for verb in issued if not verb.is_over]
    told = []
    if unawaited:
        told.append(f"not awaited, so nothing was done: {', '.join(unawaited)}")
    if running and isinstance(ending, Returned):
        told.append(f"still running when the handler returned: {', '.join(running)}")
    if not told:
        return ending
    message = "; ".join(told)
    match ending:
        case Raised(failure):
            failure = Failure(
                failure.type, f"{failure.message} (also {message})", failure.traceback
            )
            return Raised(failure, ending.retryable, ending.delay_seconds)
        case Returned() | Deferred() | Cancelled():
            return Raised(Failure("NotAwaited", f"{message}. Write `await` before each verb"))
        case _:
            return ending
