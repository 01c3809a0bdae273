"""Looking over HTTP: a job, and pages of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.store import listing
from oncely.store.listing import Leaf
from oncely.store.look import FIRST
from oncely.store.plan import Plan
from oncely.store.remote.mirror import mirror
from oncely.store.remote.wire import JobTold, Page
from oncely.surface.base import is_job_id
from oncely.surface.choosing import chosen
from oncely.surface.http.endpoint import Answer, Call, Endpoint, absent
from oncely.surface.http.publishing import made_at
from oncely.surface.http.types import DlqQuery, JobsQuery


async def look_at_job(call: Call[None, None]) -> Answer:
    job_id = call.path["id"]
    job = await call.app.aget(job_id)
    if job is None or (call.queues and job.queue not in call.queues):
        raise absent()
    return Answer(shown(job))


async def list_jobs(call: Call[None, JobsQuery]) -> Answer:
    query = call.query
    wanted = chosen(
        state=query.state,
        kind=query.kind,
        group_key=query.group_key,
        tag=query.tag,
        key=query.key,
        created_from=query.created_from,
        created_until=query.created_until,
    )
    cursor = await _opened(call, query.cursor)
    return await _page(
        call,
        query,
        lambda queue: listing.page(
            msgspec.structs.replace(wanted, queue=queue), query.limit, cursor
        ),
        newest_first=True,
    )


async def list_dlq(call: Call[None, DlqQuery]) -> Answer:
    query = call.query
    cursor = await _opened(call, query.cursor)
    return await _page(
        call,
        query,
        lambda queue: listing.failed_page(
            cursor or FIRST,
            kind=query.kind,
            queue=queue,
            error=query.error,
            limit=query.limit,
        ),
        newest_first=False,
    )


async def _page(
    call: Call[None, Any],
    query: JobsQuery | DlqQuery,
    plan: Callable[[str | None], Plan[Leaf]],
    *,
    newest_first: bool,
) -> Answer:
    if query.kind is not None:
        check_name(query.kind, "kind")
    queues = queues_of(call, query.queue)
    if isinstance(query, JobsQuery) and query.key is not None and len(queues) > 1:
        # What has a key is found however old it is: one look, and what the token may not see is
        # left out, rather than a look for each queue and what lies beyond the first end left out.
        leaf = await call.service.ask(lambda _: plan(None))
        seen = [job for job in leaf.jobs if job.queue in queues]
        return await _sent(call, seen, leaf.last)
    leaves = [
        await call.service.ask(lambda _, queue=queue: plan(queue))  # type: ignore[misc]
        for queue in queues
    ]
    if len(leaves) == 1:
        return await _sent(call, leaves[0].jobs, leaves[0].last)
    found = sorted(
        (job for leaf in leaves for job in leaf.jobs),
        key=lambda job: job.job_id,
        reverse=newest_first,
    )
    # Beyond where the first of several queues stopped, the page would have gaps.
    ends = [leaf.last for leaf in leaves if leaf.last is not None]
    end = (max(ends) if newest_first else min(ends)) if ends else None
    if end is not None:
        found = [job for job in found if (job.job_id >= end if newest_first else job.job_id <= end)]
    if len(found) > query.limit:
        found = found[: query.limit]
        end = found[-1].job_id
    return await _sent(call, found, end)


async def _sent(call: Call[None, Any], jobs: Sequence[Job], last: str | None) -> Answer:
    """A page. Where it ends may be at a job that the token may not see."""
    if last is not None and call.queues:
        last = (await call.service.cursors()).seal(last)
    return Answer(Page([shown(job) for job in jobs], last))


async def _opened(call: Call[None, Any], cursor: str | None) -> str | None:
    """A cursor of ours, or the id of a job that the token may see."""
    if cursor is None:
        return None
    if is_job_id(cursor):
        return await call.see(cursor)
    job_id = (await call.service.cursors()).open(cursor)
    if job_id is None:
        raise InvalidInput("cursor is not one of ours; expected nextCursor of the page before")
    return job_id


def queues_of(call: Call[Any, Any], queue: str | None) -> Sequence[str | None]:
    """The one that is asked for, if the token may; else all that it may."""
    if queue is not None:
        call.enter(check_name(queue, "queue"))
        return [queue]
    return call.queues or [None]


def shown(job: Job) -> JobTold:
    return mirror(msgspec.structs.replace(job, created_at=made_at(job.job_id)))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/jobs/{id}",
        "read",
        look_at_job,
        "A job with its executions and effects",
        answer=JobTold,
        statuses={200: "The job"},
    ),
    Endpoint(
        "GET",
        "/v1/jobs",
        "read",
        list_jobs,
        "Jobs, the newest first, page by page",
        answer=Page,
        query=JobsQuery,
        statuses={200: "A page"},
        problems=("queue_forbidden",),
    ),
    Endpoint(
        "GET",
        "/v1/dlq",
        "read",
        list_dlq,
        "The dead-letter queue, the oldest first, page by page",
        answer=Page,
        query=DlqQuery,
        statuses={200: "A page"},
        problems=("queue_forbidden",),
        tag="Dead-letter queue",
    ),
)
