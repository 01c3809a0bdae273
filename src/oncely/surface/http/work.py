"""Workers over HTTP, in any language: claim, ack, nack, defer, heartbeat.

`executionId` is the fence of a delivery: whoever shows it may end that delivery and no other.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta

from oncely.flow.aside import aside
from oncely.model import payload
from oncely.model.keys import check_key
from oncely.model.outcome import (
    Deferred,
    Ending,
    Failure,
    Raised,
    Returned,
    decide,
    kept_text,
)
from oncely.model.retry import Retry
from oncely.store import executions
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement, settlement
from oncely.store.executions import Execution, Handed, Verb, Wanted
from oncely.store.look import moment
from oncely.store.plan import Plan
from oncely.store.remote.mirror import JobId
from oncely.store.remote.wire import (
    CLAIM_LIMIT,
    DELAY_LIMIT_SECONDS,
    ExecutionId,
    LeaseSeconds,
    Text,
    WaitSeconds,
    WorkerId,
)
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.types import Body, Shown
from oncely.worker.gear import DEFAULT_RETRY, MAX_RESULT_BYTES
from oncely.worker.sleep import FIRST_POLL_SECONDS, Sleep

T = TypeVar("T")
_POLL_SECONDS: Final = 1.0
RetryAfter = Annotated[
    float, Meta(ge=0, le=DELAY_LIMIT_SECONDS, description="Seconds; not before that")
]


class ClaimJobs(Body):
    """Take jobs that are due, each under a lease of its own."""

    worker_id: WorkerId
    max: Annotated[int, Meta(ge=1, le=CLAIM_LIMIT, description="So many at most")] = 1
    lease_seconds: LeaseSeconds = 60.0
    wait_seconds: WaitSeconds = 0.0
    request_id: (
        Annotated[
            str,
            Meta(
                min_length=1,
                max_length=200,
                description="Makes the request safe to repeat: the same one gets the same claim",
            ),
        ]
        | None
    ) = None


class ClaimedJob(Shown):
    """One delivery of a job. `executionId` goes with everything that is said about it."""

    id: JobId
    execution_id: str
    epoch: int
    attempt: int
    max_attempts: int
    kind: str
    queue: str
    group_key: str | None
    payload: Any
    timeout: Annotated[float | None, Meta(description="Seconds that it may take; yours to keep")]
    traceparent: Annotated[str | None, Meta(description="The trace that it was enqueued in")]


class ClaimedJobs(Shown):
    jobs: list[ClaimedJob]


class Ack(Body):
    execution_id: ExecutionId
    result: Annotated[Any, Meta(description="Kept with the job; any JSON value")] = None


class Nack(Body):
    execution_id: ExecutionId
    retryable: Annotated[bool, Meta(description="False: the job fails at once")] = True
    reason: Text = ""
    retry_after: (
        Annotated[RetryAfter, Meta(description="Instead of the queue's backoff")] | None
    ) = None


class Defer(Body):
    execution_id: ExecutionId
    retry_after: RetryAfter
    reason: Text = ""


class Heartbeat(Body):
    execution_id: ExecutionId
    extend_seconds: LeaseSeconds = 60.0


class Settled(Shown):
    """What this execution left behind; `state` is the job's now."""

    id: JobId
    state: str


class Kept(Shown):
    id: JobId
    lease_expires_at: datetime


async def claim_jobs(call: Call[ClaimJobs, None]) -> Answer:
    body = call.body
    wanted = Wanted(
        queue=call.path["queue"],
        worker=named(call, body.worker_id),
        nonce=secrets.randbits(60) | 1,
        lease_seconds=body.lease_seconds,
        limit=body.max,
        request_id=None if body.request_id is None else check_key(body.request_id, "requestId"),
    )

    async def look() -> tuple[Handed | None, float | None]:
        found = await ask(call, lambda again: executions.claim_once(wanted, again=again))
        return (found if found.jobs or found.repeated else None), found.wait_seconds

    handed = await wait_for(call, [wanted.queue], body.wait_seconds, look)
    if handed and not handed.repeated:
        call.service.witness.claimed(handed.jobs)
    return Answer(ClaimedJobs([_shown(job) for job in handed.jobs] if handed else []))


async def ack_job(call: Call[Ack, None]) -> Answer:
    result = payload.encode(call.body.result, max_bytes=MAX_RESULT_BYTES)
    return await _end(call, "ack", Returned(result))


async def nack_job(call: Call[Nack, None]) -> Answer:
    body = call.body
    failure = Failure("Nack", kept_text(body.reason))
    return await _end(call, "nack", Raised(failure, body.retryable, body.retry_after))


async def defer_job(call: Call[Defer, None]) -> Answer:
    failure = Failure("Defer", kept_text(call.body.reason))
    return await _end(call, "defer", Deferred(call.body.retry_after, failure))


async def keep_job(call: Call[Heartbeat, None]) -> Answer:
    one = await held(call, call.body.execution_id)
    until = await ask(call, lambda _: executions.keep(one, call.body.extend_seconds))
    return Answer(Kept(one.job_id, moment(until)))


async def _end(call: Call[Any, None], verb: Verb, ending: Ending) -> Answer:
    one = await held(call, call.body.execution_id)

    def made(job: Claimed) -> Settlement:
        retry = _retry(job)
        most = job.max_attempts or retry.max_attempts
        return settlement(job, decide(ending, job.standing(most), retry, random.random()))

    settled = await ask(call, lambda _: executions.end(one, verb, made))
    job = await call.app.aget(one.job_id)
    if settled and job is not None:
        call.service.witness.ended(job, one.fence)
    return Answer(Settled(one.job_id, "completed" if job is None else job.state))


def named(call: Call[Any, Any], worker_id: str) -> str:
    """The worker as the store knows it. The key that it came with is a part of its name, so that
    none can renew leases, or repeat claims, of workers with another."""
    name = check_key(worker_id, "workerId")
    return name if call.token is None else f"{name}@{call.token.token_id}"


async def held(call: Call[Any, None], execution_id: str) -> Execution:
    return executions.execution(execution_id, await call.see(call.path["id"]))


async def ask(call: Call[Any, Any], make: Callable[[bool], Plan[T]]) -> T:
    app = call.app
    return await aside(app._executor, lambda: app._engine.run(make, "transaction"))


async def wait_for(
    call: Call[Any, Any],
    queues: list[str] | None,
    seconds: float,
    look: Callable[[], Any],
) -> Any:
    """What `look` finds, looked for again whenever it may be there; None when the time is over, the
    server stops or nobody listens any more. `look` also says when something falls due by time
    alone."""
    found, due_seconds = await look()
    deadline = time.monotonic() + seconds
    if found is not None or not seconds:
        return found
    wake = asyncio.Event()
    sleep = Sleep(wake, _POLL_SECONDS)
    sleep.listen(call.app._engine, queues)
    stopping = asyncio.ensure_future(call.service.stopping.wait())
    stopping.add_done_callback(lambda _: wake.set())
    poll = FIRST_POLL_SECONDS
    try:
        while found is None and not stopping.done():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            wake.clear()
            poll = await sleep.nap(min(poll, left), min(left, due_seconds or left))
            if await call.is_gone():
                break
            found, due_seconds = await look()
    finally:
        stopping.cancel()
        sleep.close()
    return found


def _retry(job: Claimed) -> Retry:
    if job.queue_retry is None:
        return DEFAULT_RETRY
    return msgspec.json.decode(job.queue_retry, type=Retry)


def _shown(job: Claimed) -> ClaimedJob:
    return ClaimedJob(
        id=job.job_id,
        execution_id=job.execution_id,
        epoch=job.fence.epoch,
        attempt=job.attempt,
        max_attempts=job.max_attempts or _retry(job).max_attempts,
        kind=job.kind,
        queue=job.queue,
        group_key=job.group_key,
        payload=msgspec.Raw(job.payload.encode()),
        timeout=job.timeout_seconds or job.queue_timeout_seconds,
        traceparent=job.traceparent,
    )


def _verb(
    name: str, act: Callable[..., Any], body: type, answer: type, summary: str, done: str
) -> Endpoint:
    return Endpoint(
        "POST",
        f"/v1/jobs/{{id}}/{name}",
        "work",
        act,
        summary,
        answer=answer,
        body=body,
        statuses={200: done},
        problems=("lease_lost",),
        tag="Work",
    )


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/v1/queues/{queue}/claim",
        "work",
        claim_jobs,
        "Take jobs that are due, under leases; waits for some if told to",
        answer=ClaimedJobs,
        body=ClaimJobs,
        statuses={200: "The jobs, or none"},
        tag="Work",
    ),
    _verb("ack", ack_job, Ack, Settled, "It is done", "Completed; also if it was before"),
    _verb("nack", nack_job, Nack, Settled, "This attempt failed", "Back in line, or failed"),
    _verb(
        "defer", defer_job, Defer, Settled, "Not now; burns no attempt", "Back in line, for later"
    ),
    _verb("heartbeat", keep_job, Heartbeat, Kept, "It still runs: renew its lease", "Renewed"),
)
