"""What a worker tells of its deliveries."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import msgspec

from oncely.flow.events import Events
from oncely.model.event import Event
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Recovered, Settlement, completed
from oncely.store.swap import Completed


class Told:
    """It keeps each delivery until its end is settled: a settlement does not say what it ends."""

    def __init__(self, events: Events, worker: str) -> None:
        self._events = events
        self._worker = worker
        self._open: dict[tuple[str, Fence], tuple[Claimed, float]] = {}

    def exchanged(
        self,
        over: Sequence[Sequence[Completed]],
        singles: Sequence[Settlement],
        refused: Sequence[Settlement],
        claimed: Sequence[Claimed],
    ) -> None:
        """After an exchange with the store has been committed."""
        wanted = self._events.wanted("worker")
        if wanted is None:
            self._open.clear()
            return
        settled = [*singles, *(completed(end) for lease in over for end in lease)]
        now = time.monotonic()
        events: list[Event] = []
        late = {settlement.execution for settlement in refused}
        for settlement in settled:
            known = self._open.pop((settlement.id, settlement.fence), None)
            refused_end = settlement.execution in late
            if known is None:
                continue
            if wanted("deduplicated"):
                events += (self._found(known[0], name) for name in settlement.repeats)
            if refused_end and not settlement.has_end:
                continue
            if wanted("deduplicated" if refused_end else settlement.what):
                job, begun = known
                events.append(self._end(job, settlement, now - begun, late=refused_end))
        for job in claimed:
            self._open[job.job_id, job.fence] = (job, now)
            if wanted("claimed"):
                events.append(self._claim(job))
        self._events.tell("worker", events)

    def left(self, claimed: Claimed) -> None:
        """It goes on elsewhere: somebody else settles it."""
        self._open.pop((claimed.job_id, claimed.fence), None)

    def recovered(self, jobs: Iterable[Recovered]) -> None:
        """Ends that dead workers could not tell themselves."""
        if self._events.wanted("worker") is not None:
            self._events.tell("worker", [_crash(job) for job in jobs if job.fate != "untried"])

    def _claim(self, job: Claimed) -> Event:
        return Event(
            what="claimed",
            job_id=job.job_id,
            kind=job.kind,
            queue=job.queue,
            epoch=job.fence.epoch,
            attempt=job.attempt,
            worker=self._worker,
            waited_seconds=job.waited_seconds,
        )

    def _found(self, job: Claimed, effect: str) -> Event:
        return Event(
            what="deduplicated",
            job_id=job.job_id,
            kind=job.kind,
            queue=job.queue,
            boundary="effect",
            effect=effect,
            epoch=job.fence.epoch,
            attempt=job.attempt,
            worker=self._worker,
        )

    def _end(self, job: Claimed, settlement: Settlement, ran: float, *, late: bool) -> Event:
        return Event(
            what="deduplicated" if late else settlement.what,
            job_id=job.job_id,
            kind=job.kind,
            queue=job.queue,
            boundary="delivery" if late else None,
            refused=settlement.what if late else None,
            epoch=job.fence.epoch,
            attempt=job.attempt,
            worker=self._worker,
            error=None if settlement.error is None else msgspec.json.decode(settlement.error),
            ran_seconds=ran,
        )


def _crash(job: Recovered) -> Event:
    return Event(
        what="failed" if job.fate == "poisoned" else "crashed",
        job_id=job.job_id,
        kind=job.kind,
        queue=job.queue,
        epoch=job.epoch,
        worker=job.worker,
    )
