"""The verbs that look: jobs as they stand, and what happened to them."""

from __future__ import annotations

import asyncio
import inspect
import time
from datetime import datetime
from typing import Any, Final

from oncely.flow.aside import refuse_in_event_loop
from oncely.flow.events import Hook
from oncely.model.counter import Counter
from oncely.model.errors import (
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    ResultTimeout,
)
from oncely.model.health import KeyHealth
from oncely.model.job import Job
from oncely.model.keys import shown
from oncely.model.story import Story
from oncely.model.traffic import Last, Traffic, check_last
from oncely.model.transition import ENDED, State
from oncely.model.worker import Worker
from oncely.store import counters as counting
from oncely.store import listing, look
from oncely.store import traffic as traffics
from oncely.store import workers as working
from oncely.store.story import story
from oncely.surface.base import Base, is_job_id, refuse_malformed, twin
from oncely.surface.choosing import chosen

LIST_LIMIT: Final = 10_000
TIMEOUT_LIMIT_SECONDS: Final = 366 * 86_400


class Looking(Base):
    def get(self, job_id: str) -> Job | None:
        """The job as it stands now, or None."""
        if not is_job_id(job_id):
            return None
        return self._engine.run(lambda _: look.get(job_id), "read")

    def jobs(
        self,
        *,
        state: State | None = None,
        kind: str | None = None,
        queue: str | None = None,
        limit: int = 100,
        group_key: str | None = None,
        tag: str | None = None,
        key: str | None = None,
        created_from: datetime | None = None,
        created_until: datetime | None = None,
    ) -> list[Job]:
        """Jobs, the newest first, at most `limit` of them. `key` is an idempotency key or a unique
        key; `created_from` and `created_until` are moments with a time zone."""
        wanted = chosen(
            state=state,
            kind=kind,
            queue=queue,
            group_key=group_key,
            tag=tag,
            key=key,
            created_from=created_from,
            created_until=created_until,
        )
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIST_LIMIT:
            raise InvalidInput(
                f"limit is {shown(limit)}; expected a number from 1 to {LIST_LIMIT:,}"
            )
        return self._engine.run(lambda _: listing.jobs(wanted, limit), "read")

    def result(self, job_id: str, timeout: float | None = None) -> Any:
        """What the handler returned; waits until the job has come to rest.

        `JobFailed` or `JobCancelled` if it ended without a result; `ResultTimeout` after `timeout`
        seconds (None: however long it takes), and the job goes on. A job in doubt is waited for: it
        has not ended. In an event loop it raises `BlockingCall`: use `await app.aresult(...)`.
        """
        refuse_in_event_loop("app.result()", instead="await app.aresult(job_id)")
        wait = _Wait(timeout)
        job = self._found(job_id)
        if job.state in ENDED:
            return _result(job)
        waiting = self._results.of(job_id)
        try:
            return _result(waiting.result(wait.left))
        except TimeoutError:
            raise ResultTimeout(job_id, wait.seconds) from None
        finally:
            self._results.leave(job_id, waiting)

    async def aresult(self, job_id: str, timeout: float | None = None) -> Any:  # noqa: ASYNC109
        """The async twin of `result`. Any number of them can wait at once."""
        wait = _Wait(timeout)
        job = await self._afound(job_id)
        if job.state in ENDED:
            return _result(job)
        waiting = self._results.of(job_id)
        try:
            async with asyncio.timeout(wait.left):
                job = await asyncio.wrap_future(waiting)
        except TimeoutError:
            raise ResultTimeout(job_id, wait.seconds) from None
        finally:
            self._results.leave(job_id, waiting)
        return _result(job)

    def _found(self, job_id: str) -> Job:
        refuse_malformed(job_id)
        job = self.get(job_id)
        if job is None:
            raise JobNotFound(job_id)
        return job

    def explain(self, job_id: str) -> Story:
        """What happened to the job, in order, and what it waits for now; `print` shows it.

        A story has each enqueue, each repeat that was recognised (the first 100 at each boundary),
        each claim and how it ended, each effect and what was said of it.
        """
        refuse_malformed(job_id)
        return self._engine.run(lambda _: story(job_id), "read")

    def counters(self) -> list[Counter]:
        """What the store has counted since it was made, over all processes: enqueued, executions
        by outcome, deduplicated by boundary, key conflicts, effects by source, held and resolved.

        A counter never goes down, and outlives the jobs that it counted.
        """
        return self._engine.run(lambda _: counting.counters(), "read")

    def key_health(self) -> list[KeyHealth]:
        """Of each kind: how often its keys recognised a repeat, and whether they can."""
        return self._engine.run(lambda _: counting.key_health(), "read")

    def traffic(self, last: Last = "hour") -> Traffic:
        """What was counted in the last `"hour"` (by the minute), `"day"` (by 15 minutes) or
        `"month"` (by six hours), and how long jobs waited and ran.

        The counts are those of `counters`, exact. The times are told by the workers every few
        seconds: of one that is killed, the last few are missing.
        """
        checked = check_last(last)
        return self._engine.run(lambda _: traffics.traffic(checked), "read")

    def workers(self) -> list[Worker]:
        """The workers that were heard of in the last hour. One that stops is gone at once; one that
        died is not `alive` after half a minute."""
        return self._engine.run(lambda _: working.workers(), "read")

    def on_event(self, hook: Hook) -> Hook:
        """Call `hook` with an `Event` for each enqueue, deduplication, claim and settle of this app
        and its workers, once it is committed. It is called where that happened, in a thread or in
        the event loop, so it must be quick. What it raises is logged, and changes nothing.
        """
        if not callable(hook) or inspect.iscoroutinefunction(hook):
            raise InvalidInput(
                f"the hook is {shown(hook)}; expected a function with one parameter, the event, "
                "and a plain `def`: nobody waits for it"
            )
        self._events.add(hook)
        return hook

    aget = twin(get)
    aexplain = twin(explain)
    _afound = twin(_found)
    ajobs = twin(jobs)
    acounters = twin(counters)
    akey_health = twin(key_health)
    atraffic = twin(traffic)
    aworkers = twin(workers)


class _Wait:
    """How long a caller waits, counted from its call."""

    def __init__(self, seconds: Any) -> None:
        if seconds is not None and (
            isinstance(seconds, bool)
            or not isinstance(seconds, int | float)
            or not 0 <= seconds <= TIMEOUT_LIMIT_SECONDS
        ):
            raise InvalidInput(
                f"timeout is {shown(seconds)}; expected seconds from 0 to "
                f"{TIMEOUT_LIMIT_SECONDS:,}, or None to wait however long it takes"
            )
        self.seconds: float = 0.0 if seconds is None else seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds

    @property
    def left(self) -> float | None:
        return None if self._deadline is None else max(0.0, self._deadline - time.monotonic())


def _result(job: Job) -> Any:
    if job.state == "failed":
        raise JobFailed(job.job_id, job.error)
    if job.state == "cancelled":
        raise JobCancelled(job.job_id, job.error)
    return job.result
