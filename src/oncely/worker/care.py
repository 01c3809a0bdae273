"""How a worker goes about jobs whose earlier workers died: the job that killed them is to be found
soon, and no other to be taken for it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from oncely.store.claim import Claimed
from oncely.store.deliver import CRASH_LIMIT
from oncely.worker.pace import AHEAD_LIMIT

ALONE_SECONDS: Final = 1.0
"""So long a job that was running in two workers that died runs alone: what is begun beside it would
count as well, if it is a poison pill."""


class Care:
    """What killed a worker was in one of its leases, but need not be among the jobs that the store
    knew to be begun. So all of them count a crash, and whoever claims one of them begins all that
    it claims: the next time the store knows what was begun."""

    def __init__(self) -> None:
        self._wary = 0
        self._singly = 0
        self.alone: asyncio.Task[None] | None = None

    def met(self, claimed: Sequence[Claimed]) -> bool:
        """Whether they may be begun. If not, they are claimed again one by one: for the store, all
        that is claimed together is begun together."""
        self._wary = max(0, self._wary - len(claimed))
        self._singly = max(0, self._singly - len(claimed))
        if not any(job.crashes for job in claimed):
            return True
        self._wary = AHEAD_LIMIT
        if any(_is_suspect(job) and job.of > 1 for job in claimed):
            self._singly = len(claimed)
            return False
        return True

    @property
    def is_wary(self) -> bool:
        """Nothing is fetched ahead: what is claimed is begun."""
        return self._wary > 0

    @property
    def is_singly(self) -> bool:
        return self._singly > 0

    def begun(self, claimed: Claimed, task: asyncio.Task[None]) -> bool:
        """Whether it runs alone now."""
        if _is_suspect(claimed):
            self.alone = task
        return self.alone is task

    def ended(self, task: asyncio.Task[None]) -> bool:
        """Whether it ran alone till now."""
        if self.alone is not task:
            return False
        self.alone = None
        return True


def _is_suspect(claimed: Claimed) -> bool:
    """One more worker that dies of it, and it is a poison pill."""
    return claimed.crashes >= CRASH_LIMIT - 1
