"""Drills: the handler of a completed job runs once more; what that would have repeated is told."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal, assert_never

import msgspec

from oncely.model import payload
from oncely.model.errors import InvalidInput
from oncely.model.outcome import (
    Cancelled,
    Deferred,
    Doubted,
    Ending,
    Failure,
    Raised,
    Returned,
    StoreFailed,
    Unhandled,
)

DrillOutcome = Literal["recognised", "repeated", "diverged", "failed", "unseen"]
TO_LOOK_AT: Final[tuple[DrillOutcome, ...]] = ("repeated", "diverged", "failed")
_MOST: Final = 20
_LONGEST: Final = 200


class Found(msgspec.Struct):
    """What one drill has met so far. A handler in a thread may still add to it."""

    recognised: list[str] = []
    repeated: list[str] = []
    undone: bool = False
    """It came to a transaction, which was rolled back: nothing after it counts."""
    stopped: bool = False
    """Nothing may be begun any more."""


class Drilled(msgspec.Struct, frozen=True):
    """What a drill found, as it is kept."""

    outcome: DrillOutcome
    recognised: list[str]
    repeated: list[str]
    failure: Failure | None = None


class DrillFinding(msgspec.Struct, frozen=True):
    """A drill after which somebody should look at the handler."""

    job_id: str
    kind: str
    execution_id: str
    at: datetime
    worker: str
    outcome: DrillOutcome
    recognised: list[str]
    repeated: list[str]
    error: Any = None


class Drills(msgspec.Struct, frozen=True):
    """How drills stand in a store: the switch, what was counted by kind, and what to look at."""

    stopped: bool
    by: str | None
    """Who used the switch last."""
    at: datetime | None
    outcomes: dict[str, dict[str, int]]
    """By kind: how many drills ended so."""
    recognised: int
    repeated: int
    findings: list[DrillFinding]


def check_share(share: Any) -> float:
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise InvalidInput(
            f"drill is {share!r}; expected the share of jobs to deliver a second time, from 0 to 1"
        )
    return float(share)


def judge(found: Found, ending: Ending, result: str | None) -> Drilled:
    """`result` is the JSON text of what the job was completed with, None where the handler said so
    itself, in a transaction."""
    failure: Failure | None = None
    repeated = list(found.repeated)
    outcome: DrillOutcome = "recognised" if found.recognised else "unseen"
    match ending:
        case Returned(text):
            if result is not None and payload.decode(text) != payload.decode(result):
                outcome = "diverged"
        case Raised(why) | Doubted(_, why) | StoreFailed(why) | Unhandled(_, why):
            outcome, failure = "failed", why
        case Deferred(_, why) | Cancelled(why):
            outcome, failure = "diverged", why
        case _:
            assert_never(ending)
    if found.undone:
        outcome, failure = "recognised", None
    if repeated:
        outcome, failure = "repeated", None
    return Drilled(outcome, _cut(found.recognised), _cut(repeated), failure)


def _cut(names: list[str]) -> list[str]:
    return [name[:_LONGEST] for name in names[:_MOST]]
