"""Steering over HTTP: cancel, replay, resolve, and the dead-letter queue as a whole."""

from __future__ import annotations

from typing import Any, Final

from oncely.model.draft import check_name
from oncely.surface.http.endpoint import Answer, Call, Endpoint, absent
from oncely.surface.http.look import queues_of
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
    forgotten = await call.app.areplay(job_id, fresh_ledger=call.body.fresh_ledger)
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
