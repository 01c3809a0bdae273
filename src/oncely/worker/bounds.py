"""Where in the line a worker goes on claiming.

PostgreSQL leaves dead entries where jobs were claimed, and while anybody holds an old snapshot open
nothing can remove them: a claim that began at the head of the line would step over all of them,
every time. So a worker remembers how far it got. What is put in before that place (a job handed
back, a transaction that took long to commit) it finds when it looks at the whole line again, which
it does every second, or less often where that takes long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from oncely.store.claim import PLAIN, Claimed

_SLACK_SECONDS: Final = 0.5
_LATE_SECONDS: Final = 0.1
"""The store may read its clock so much later than we have asked it to: else the next job in line,
which is due at the same moment as the last one, would seem to be before the bound."""
_LOOK_SECONDS: Final = 1.0
_LOOK_SHARE: Final = 20


class Bounds:
    """When the last job that was claimed from each lane was due, on our own clock."""

    def __init__(self) -> None:
        self._due_at: dict[tuple[str, int, str], float] = {}
        self._forgot_at = -math.inf
        self.look_seconds = _LOOK_SECONDS

    def forget(self, now: float) -> None:
        """The next claim begins at the head of the line. One that was asked for before and comes
        back after it does not lead past what that one finds there."""
        self._due_at.clear()
        self._forgot_at = now

    def looked(self, seconds: float) -> None:
        """To look at everything, and to claim from the head of the line after it, took so long; it
        must stay a small part of the time."""
        self.look_seconds = max(_LOOK_SECONDS, _LOOK_SHARE * seconds)

    @property
    def look_takes_long(self) -> bool:
        return self.look_seconds > _LOOK_SECONDS

    def claimed(self, jobs: Sequence[Claimed], asked_at: float) -> None:
        """From a plain queue, in order: the last of a level counts. `asked_at` is before the store
        read its clock, so that the bound is early rather than late."""
        if asked_at < self._forgot_at:
            return
        if jobs and jobs[0].priority == jobs[-1].priority:
            jobs = jobs[-1:]
        for before, job in zip_longest(jobs, jobs[1:]):
            if job is None or job.priority != before.priority:
                self._due_at[before.queue, before.priority, PLAIN] = _due_at(before, asked_at)

    def claimed_shared(self, jobs: Sequence[Claimed], asked_at: float) -> None:
        """Those of each lane are in order: the last of them counts."""
        if asked_at < self._forgot_at:
            return
        last = {(job.queue, job.priority, job.group_key): job for job in jobs}
        for (queue, priority, _), job in last.items():
            self._due_at[queue, priority, job.lane] = _due_at(job, asked_at)

    def of(self, queue: str, now: float) -> dict[int, int]:
        """For each level, how many microseconds ago the first job without a group can have been
        due."""
        lanes = self.of_lanes(queue, now)
        return {priority: ago_us for (priority, lane), ago_us in lanes.items() if lane == PLAIN}

    def of_lanes(self, queue: str, now: float) -> dict[tuple[int, str], int]:
        return {
            (priority, lane): round(max(now - due_at + _LATE_SECONDS, _SLACK_SECONDS) * 1_000_000)
            for (name, priority, lane), due_at in self._due_at.items()
            if name == queue
        }


def _due_at(job: Claimed, asked_at: float) -> float:
    return asked_at - max(job.waited_seconds, 0.0)
