"""Steering over HTTP: cancel, replay, resolve, and the dead-letter queue as a whole."""

from __future__ import annotations

from typing import Any, Final

from oncely.model.draft import check_name
from oncely.model.errors import UniqueKeyTaken
from oncely.surface.http.endpoint import Answer, Call, Endpoint, absent
from oncely.surface.http.look import queues_of
from oncely.surface.http.problem import Detail, Refused
from oncely.surface.http.types import (
    Nothing,
    Replay,
    ReplayAll,
    Replayed,
    ReplayedAll,
    Resolve,
    Stands,
)


async def cancel_job(call: Call[Nothing, None]) -> Answer:
    job_id = await call.see(call.path["id"])
    await call.app.acancel(job_id)
    return Answer(await _stands(call, job_id))


async def replay_job(call: Call[Replay, None]) -> Answer:
    job_id = await call.see(call.path["id"])
    try:
        forgotten = await call.app.areplay(job_id, fresh_ledger=call.body.fresh_ledger)
    except UniqueKeyTaken as taken:
        if not await _may_see(call, taken.holder_id):
            detail = "Another active job holds the job's unique key. Replay it once that has ended."
            raise Refused("unique_key_taken", detail) from None
        raise
    stands = await _stands(call, job_id)
    return Answer(Replayed(stands.id, stands.state, forgotten))


async def resolve_effect(call: Call[Resolve, None]) -> Answer:
    job_id = await call.see(call.path["id"])
    body = call.body
    await call.app.aresolve(
        job_id,
        body.effect,
        happened=body.happened,
        result=body.result,
        note=body.note,
    )
    return Answer(await _stands(call, job_id))


async def replay_dlq(call: Call[ReplayAll, None]) -> Answer:
    body = call.body
    _refuse_unclear(body)
    if body.kind is not None:
        check_name(body.kind, "kind")
    count = 0
    for queue in queues_of(call, body.queue):
        left = None if body.limit is None else body.limit - count
        if left == 0:
            break
        count += await call.app.areplay_all(
            queue=queue, kind=body.kind, error=body.error, limit=left, dry_run=body.dry_run
        )
    return Answer(ReplayedAll(0 if body.dry_run else count, count))


async def _may_see(call: Call[Any, None], job_id: str) -> bool:
    job = await call.app.aget(job_id) if call.queues else None
    return not call.queues or (job is not None and job.queue in call.queues)


def _refuse_unclear(body: ReplayAll) -> None:
    """A call that names no job at all is more likely a mistake than a wish for every job."""
    filters = (body.queue, body.kind, body.error)
    is_filtered = any(each is not None for each in filters)
    if body.all and is_filtered:
        detail = "all is every failed job: leave it out, or leave out queue, kind and error."
    elif not (body.all or is_filtered or body.limit is not None or body.dry_run):
        detail = (
            "This would replay every failed job: name queue, kind, error or limit, or say "
            '{"all": true}.'
        )
    else:
        return
    raise Refused("invalid_request", detail, errors=[Detail(detail)])


async def _stands(call: Call[Any, None], job_id: str) -> Stands:
    job = await call.app.aget(job_id)
    if job is None:
        raise absent()
    return Stands(job.job_id, job.state)


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/v1/jobs/{id}/cancel",
        "admin",
        cancel_job,
        "End a job that waits, runs or is held",
        answer=Stands,
        body=Nothing,
        body_optional=True,
        statuses={200: "It is cancelled"},
        problems=("wrong_state",),
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/replay",
        "admin",
        replay_job,
        "Put a failed job back, with its id and its ledger",
        answer=Replayed,
        body=Replay,
        body_optional=True,
        statuses={200: "It is back"},
        problems=("wrong_state", "unique_key_taken", "in_doubt"),
    ),
    Endpoint(
        "POST",
        "/v1/jobs/{id}/resolve",
        "admin",
        resolve_effect,
        "Say whether an effect in doubt happened",
        answer=Stands,
        body=Resolve,
        statuses={200: "It is on record"},
        problems=("effect_not_found", "wrong_state"),
    ),
    Endpoint(
        "POST",
        "/v1/dlq/replay",
        "admin",
        replay_dlq,
        "Replay the failed jobs that match, the oldest first",
        answer=ReplayedAll,
        body=ReplayAll,
        statuses={200: "So many"},
        problems=("queue_forbidden",),
        tag="Dead-letter queue",
    ),
)
