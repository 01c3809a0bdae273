"""Flow: how many jobs of a queue or a group may run, and how a claim is shared out among groups."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.model.push import PushTarget
from oncely.model.retry import Retry

COUNT_LIMIT: Final = 1_000_000
RATE_LEAST_SECONDS: Final = 0.001
"""Of a much shorter time the store could not tell how many jobs it allows: they are too many."""
RATE_LIMIT_SECONDS: Final = 7 * 86_400
_BUSY_SECONDS: Final = 0.01
Rate = tuple[int, float]


class Queue(msgspec.Struct, frozen=True):
    """A queue as it stands. `waiting` is counted up to 10,000, and said to be 10,001 above that."""

    name: str
    paused: bool
    concurrency: int | None
    rate: Rate | None
    retry: Retry | None
    timeout: float | None
    waiting: int
    running: int
    require_key: bool = False
    """Over HTTP it takes only jobs with an idempotency key."""
    push: PushTarget | None = None
    """Where its jobs are sent to, if they are."""


class Group(msgspec.Struct, frozen=True):
    """A group that has a limit or a pause."""

    key: str
    paused: bool
    concurrency: int | None
    rate: Rate | None
    running: int


class Limit(msgspec.Struct, frozen=True):
    """A limit at the moment of a claim. One that is not `held` is in somebody else's hands."""

    held: bool
    paused: bool = False
    concurrency: int | None = None
    rate: Rate | None = None
    tokens: float = 0.0
    running: int = 0
    at_us: int = 0

    def room(self, wanted: int) -> int:
        """How many of the jobs that are wanted may begin now."""
        if not self.held or self.paused:
            return 0
        if self.concurrency is not None:
            wanted = min(wanted, self.concurrency - self.running)
        if self.rate is not None:
            wanted = min(wanted, int(self.tokens))
        return max(0, wanted)

    def wait_seconds(self) -> float | None:
        """When it is worth to look again, if time alone can change the answer."""
        if not self.held:
            return _BUSY_SECONDS
        if self.paused or self.rate is None:
            return None
        count, seconds = self.rate
        return max(0.0, (1 - self.tokens) * seconds / count)

    @property
    def is_tight(self) -> bool:
        """Whether a job that is taken and not begun at once could be in another's way: more than
        half of the room is used, or only so many may begin in a time."""
        if not self.held or self.paused:
            return False
        is_half = self.concurrency is not None and 2 * self.running > self.concurrency
        return is_half or self.rate is not None

    def taken(self, jobs: int) -> Limit:
        tokens = self.tokens - jobs if self.rate is not None else self.tokens
        return msgspec.structs.replace(self, tokens=tokens, running=self.running + jobs)


UNLIMITED: Final = Limit(held=True)


def share(lanes: Sequence[str], limits: Mapping[str, Limit], room: int) -> dict[str, int]:
    """How many jobs each lane is asked for, of all that there is room for: the same part for every
    lane that may run, in the order of the lanes, and no more than its limit allows."""
    open_lanes = [lane for lane in lanes if limits.get(lane, UNLIMITED).room(room)]
    if not open_lanes:
        return {}
    quota, more = divmod(room, len(open_lanes))
    asked = open_lanes if quota else open_lanes[:more]
    return {
        lane: limits.get(lane, UNLIMITED).room(quota + (n < more)) for n, lane in enumerate(asked)
    }


def check_concurrency(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= COUNT_LIMIT:
        raise InvalidInput(
            f"concurrency is {shown(value)}; expected a whole number from 1 to {COUNT_LIMIT:,}, or "
            "None for no limit. To stop it altogether, pause it"
        )
    return value


def check_rate(value: Any) -> Rate | None:
    if value is None:
        return None
    match value:
        case (int(count), int() | float() as seconds) if not (
            isinstance(count, bool) or isinstance(seconds, bool)
        ):
            if 1 <= count <= COUNT_LIMIT and RATE_LEAST_SECONDS <= seconds <= RATE_LIMIT_SECONDS:
                return count, float(seconds)
    raise InvalidInput(
        f"rate is {shown(value)}; expected (count, seconds): at most that many jobs in that time, "
        f"such as (100, 60), with up to {COUNT_LIMIT:,} jobs in {RATE_LEAST_SECONDS} to "
        f"{RATE_LIMIT_SECONDS:,} seconds, or None for no limit"
    )
