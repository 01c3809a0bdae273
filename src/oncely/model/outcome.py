"""How an execution ended, and what becomes of its job: decided here, written elsewhere."""

from __future__ import annotations

from typing import Any, Final, Literal, assert_never

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.retry import Retry

DEFER_LIMIT: Final = 1_000
DEFER_LIMIT_SECONDS: Final = 14 * 86_400
HAND_BACK_LIMIT: Final = 20
"""A job goes back in line this often in a row because the store failed. After that each failure of
the store uses up an attempt."""
NO_HANDLER: Final = "NoHandler"
"""The type of the error with which a worker defers a job of a kind that it does not know."""
ERROR_LIMIT: Final = 16_384
_DELAY_LIMIT_SECONDS: Final = 366 * 86_400
_HAND_BACK: Final = Retry(base=0.5, cap=30.0)


class NotDone(Exception):
    """Raised by the function of a step or a fence: nothing happened. Out of a handler it is a
    failed attempt."""


class Nack(Exception):
    """Raised by a handler: this attempt failed. `retryable=False` fails the job at once; `delay` is
    the time in seconds until the next attempt, instead of the policy's."""

    def __init__(
        self, reason: str = "", *, retryable: bool = True, delay: float | None = None
    ) -> None:
        if delay is not None:
            _check_delay("Nack takes a delay", delay)
            if not retryable:
                raise InvalidInput("Nack got a delay and retryable=False: there is no next attempt")
        self.reason = reason
        self.retryable = retryable
        self.delay = None if delay is None else float(delay)
        super().__init__(reason)


class Defer(Exception):
    """Raised by a handler: not now, come back in `seconds`. Burns no attempt."""

    def __init__(self, seconds: float, reason: str = "") -> None:
        _check_delay("Defer takes seconds", seconds)
        self.seconds = float(seconds)
        self.reason = reason
        super().__init__(reason or f"deferred by {seconds} s")


class Cancel(Exception):
    """Raised by a handler: the job is not wanted any more."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason)


def _check_delay(said: str, seconds: Any) -> None:
    usable = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not usable or not 0 <= seconds <= _DELAY_LIMIT_SECONDS:
        raise InvalidInput(f"{said} from 0 to {_DELAY_LIMIT_SECONDS:,}; got {seconds!r}")


class Failure(msgspec.Struct, frozen=True):
    """An error as it is kept: bounded, and readable without the code that raised it."""

    type: str
    message: str
    traceback: str | None = None


class Returned(msgspec.Struct, frozen=True):
    result: str


class Raised(msgspec.Struct, frozen=True):
    failure: Failure
    retryable: bool = True
    delay_seconds: float | None = None
    """Until the next attempt; None: as the policy says."""


class Deferred(msgspec.Struct, frozen=True):
    seconds: float
    failure: Failure


class Cancelled(msgspec.Struct, frozen=True):
    failure: Failure


class Doubted(msgspec.Struct, frozen=True):
    """Effects were begun, and nobody knows whether they happened."""

    effects: list[str]
    failure: Failure


class Unhandled(msgspec.Struct, frozen=True):
    """The worker has no handler for the kind of the job, so nothing was tried."""

    seconds: float
    failure: Failure


class StoreFailed(msgspec.Struct, frozen=True):
    """The handler ended with an error of the store, raised by a verb of its context."""

    failure: Failure


Ending = Returned | Raised | Deferred | Cancelled | Doubted | Unhandled | StoreFailed


class Standing(msgspec.Struct, frozen=True):
    """What counts for the decision: the execution that ended, and what came before it."""

    attempt: int
    max_attempts: int
    defers: int
    """Number of defers in a row."""
    deferred_seconds: float
    """Time since the first of them."""
    crashes: int = 0
    hand_backs: int = 0


class Rest(msgspec.Struct, frozen=True):
    """The job comes to rest in `state`."""

    state: Literal["completed", "failed", "cancelled", "in_doubt"]
    result: str | None = None
    failure: Failure | None = None
    doubts: list[str] = []


class Back(msgspec.Struct, frozen=True):
    """The job goes back in line, due in `delay_seconds`. The numbers are what it has used up by
    then: attempts, and defers, crashes and hand-backs in a row."""

    outcome: Literal["retried", "deferred", "released"]
    delay_seconds: float
    attempts: int
    defers: int
    failure: Failure
    crashes: int = 0
    hand_backs: int = 0


Verdict = Rest | Back


def decide(ending: Ending, standing: Standing, retry: Retry, chance: float) -> Verdict:
    match ending:
        case Returned(result):
            return Rest("completed", result=result)
        case Cancelled(failure):
            return Rest("cancelled", failure=failure)
        case Doubted(effects, failure):
            return Rest("in_doubt", failure=failure, doubts=effects)
        case Raised(failure, retryable, delay):
            if not retryable or standing.attempt >= standing.max_attempts:
                return Rest("failed", failure=failure)
            return Back(
                "retried",
                retry.delay_seconds(standing.attempt, chance) if delay is None else delay,
                attempts=standing.attempt,
                defers=0,
                failure=failure,
            )
        case Deferred(seconds, failure):
            if standing.defers >= DEFER_LIMIT or standing.deferred_seconds > DEFER_LIMIT_SECONDS:
                return Rest("failed", failure=_too_often(failure, standing))
            return Back(
                "deferred",
                seconds,
                attempts=standing.attempt - 1,
                defers=standing.defers + 1,
                failure=failure,
            )
        case Unhandled(seconds, failure):
            return Back(
                "deferred",
                seconds,
                attempts=standing.attempt - 1,
                defers=standing.defers,
                failure=failure,
                crashes=standing.crashes,
                hand_backs=standing.hand_backs,
            )
        case StoreFailed(failure):
            return _handed_back(failure, standing, retry, chance)
        case _:
            assert_never(ending)


def _handed_back(failure: Failure, standing: Standing, retry: Retry, chance: float) -> Verdict:
    hand_backs = standing.hand_backs + 1
    if hand_backs > HAND_BACK_LIMIT:
        verdict = decide(Raised(failure), standing, retry, chance)
        if isinstance(verdict, Rest):
            return verdict
        return msgspec.structs.replace(verdict, hand_backs=standing.hand_backs)
    return Back(
        "released",
        # At once for the first time: who can settle this has reached the store again.
        _HAND_BACK.delay_seconds(hand_backs, chance) if hand_backs > 1 else 0.0,
        attempts=standing.attempt - 1,
        defers=standing.defers,
        failure=Failure(
            failure.type,
            f"handed back with no attempt used, for the store failed: {failure.message}",
            failure.traceback,
        ),
        crashes=standing.crashes,
        hand_backs=hand_backs,
    )


def _too_often(failure: Failure, standing: Standing) -> Failure:
    days = standing.deferred_seconds / 86_400
    return Failure(
        failure.type,
        f"deferred {standing.defers} times over {days:.1f} days, which is the limit; the last "
        f"time: {failure.message}",
        failure.traceback,
    )


def kept_text(text: str) -> str:
    """Text as any store can keep it: whole characters, no NUL, and of a long one the beginning
    and the end; the cause is in one of them."""
    text = text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    if len(text) <= ERROR_LIMIT:
        return text
    half = ERROR_LIMIT // 2
    return f"{text[:half]}\n… {len(text) - 2 * half:,} characters left out …\n{text[-half:]}"
