"""Queues over HTTP: their policy, and whether they are paused."""

from __future__ import annotations

from typing import Any, Final

import msgspec
from msgspec import UNSET

from oncely.model.flow import Queue
from oncely.model.push import Push
from oncely.model.retry import Retry
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.types import (
    BackoffShown,
    Nothing,
    PushShown,
    QueuePolicy,
    Queues,
    QueueShown,
    RateShown,
)


async def list_queues(call: Call[None, None]) -> Answer:
    found = await call.app.aqueues()
    seen = [each for each in found if not call.queues or each.name in call.queues]
    return Answer(Queues([_shown(call.shown(each)) for each in seen]))


async def look_at_queue(call: Call[None, None]) -> Answer:
    return Answer(await _stands(call))


async def set_queue(call: Call[QueuePolicy, None]) -> Answer:
    changes = _changes(await _find(call), call.body)
    if changes:
        await call.app.aset_queue(call.path["queue"], **changes)
        call.service.forget_queue(call.path["queue"])
    return Answer(await _stands(call))


async def pause_queue(call: Call[Nothing, None]) -> Answer:
    await call.app.apause(call.path["queue"])
    return Answer(await _stands(call))


async def resume_queue(call: Call[Nothing, None]) -> Answer:
    await call.app.aresume(call.path["queue"])
    return Answer(await _stands(call))


async def _find(call: Call[Any, None]) -> Queue:
    """A queue that has no jobs and no policy is one all the same: it needs no making."""
    name = call.path["queue"]
    found = [each for each in await call.app.aqueues() if each.name == name]
    return found[0] if found else Queue(name, False, None, None, None, None, 0, 0)


async def _stands(call: Call[Any, None]) -> QueueShown:
    return _shown(call.shown(await _find(call)))


def _changes(queue: Queue, body: QueuePolicy) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if body.max_attempts is not UNSET or body.backoff is not UNSET:
        changes["retry"] = _retry(queue.retry, body)
    if body.ack_timeout is not UNSET:
        changes["timeout"] = body.ack_timeout
    if body.concurrency is not UNSET:
        changes["concurrency"] = body.concurrency
    if body.rate is not UNSET:
        changes["rate"] = None if body.rate is None else (body.rate.count, body.rate.seconds)
    if body.push is not UNSET:
        push = body.push
        changes["push"] = None if push is None else Push(push.url, push.secret, push.mode)
    if body.require_key is not UNSET:
        changes["require_key"] = body.require_key
    return changes


def _retry(before: Retry | None, body: QueuePolicy) -> Retry | None:
    """One of the two may be given alone; both lifted is no policy."""
    fields = msgspec.structs.asdict(before or Retry())
    if body.max_attempts is None:
        fields["max_attempts"] = Retry().max_attempts
    elif body.max_attempts is not UNSET:
        fields["max_attempts"] = body.max_attempts
    if body.backoff is None:
        plain = Retry()
        fields |= {"backoff": plain.backoff, "base": plain.base, "cap": plain.cap}
    elif body.backoff is not UNSET:
        fields |= {
            "backoff": body.backoff.type,
            "base": body.backoff.base,
            "cap": body.backoff.cap,
        }
    made = Retry(**fields)
    lifted = body.max_attempts is None or body.backoff is None
    return None if lifted and made == Retry() else made


def _shown(queue: Queue) -> QueueShown:
    retry, rate = queue.retry, queue.rate
    push = queue.push
    return QueueShown(
        name=queue.name,
        paused=queue.paused,
        max_attempts=None if retry is None else retry.max_attempts,
        backoff=None if retry is None else BackoffShown(retry.backoff, retry.base, retry.cap),
        ack_timeout=queue.timeout,
        concurrency=queue.concurrency,
        rate=None if rate is None else RateShown(*rate),
        push=None if push is None else PushShown(push.url, push.mode),
        require_key=queue.require_key,
        waiting=queue.waiting,
        running=queue.running,
    )


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/queues",
        "read",
        list_queues,
        "The queues that have jobs or a policy",
        answer=Queues,
        statuses={200: "By name"},
        tag="Queues",
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}",
        "read",
        look_at_queue,
        "A queue and its policy",
        answer=QueueShown,
        statuses={200: "As it stands"},
        tag="Queues",
    ),
    Endpoint(
        "PUT",
        "/v1/queues/{queue}",
        "admin",
        set_queue,
        "Set the policy of a queue",
        answer=QueueShown,
        body=QueuePolicy,
        statuses={200: "As it stands now"},
        problems=("push_target_refused",),
        tag="Queues",
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/pause",
        "admin",
        pause_queue,
        "Begin no more of its jobs",
        answer=QueueShown,
        body=Nothing,
        body_optional=True,
        statuses={200: "It is paused"},
        tag="Queues",
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/resume",
        "admin",
        resume_queue,
        "Undo a pause",
        answer=QueueShown,
        body=Nothing,
        body_optional=True,
        statuses={200: "It goes on"},
        tag="Queues",
    ),
)
