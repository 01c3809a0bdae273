"""What the Python client looks at and sets beyond the rest: limits, counters, keys, stories."""

from __future__ import annotations

from typing import Any, Final

from msgspec import UNSET

from oncely.model.errors import InvalidInput
from oncely.model.push import Push
from oncely.model.retry import Retry
from oncely.model.story import Story
from oncely.store.remote.mirror import mirror, mirrored
from oncely.store.remote.wire import (
    Counters,
    KeyHealths,
    Limits,
    LimitSent,
)
from oncely.surface.http.endpoint import Answer, Call, Endpoint


async def explain_job(call: Call[None, None]) -> Answer:
    return Answer(mirror(await call.app.aexplain(await call.see(call.path["id"]))))


async def list_counters(call: Call[None, None]) -> Answer:
    call.enter_all()
    return Answer(Counters([mirror(each) for each in await call.app.acounters()]))


async def list_key_health(call: Call[None, None]) -> Answer:
    call.enter_all()
    return Answer(KeyHealths([mirror(each) for each in await call.app.akey_health()]))


async def list_limits(call: Call[None, None]) -> Answer:
    found = await call.app.aqueues()
    queues = [
        mirror(call.shown(each)) for each in found if not call.queues or each.name in call.queues
    ]
    groups = [] if call.queues else [mirror(each) for each in await call.app.agroups()]
    return Answer(Limits(queues, groups))


async def set_limit(call: Call[LimitSent, None]) -> Answer:
    body = call.body
    given = _given(body)
    if body.scope == "queue":
        call.enter(body.name)
        paused = given.pop("paused", None)
        if given:
            await call.app.aset_queue(body.name, **given)
            call.service.forget_queue(body.name)
        if paused is not None:
            await (call.app.apause if paused else call.app.aresume)(body.name)
    else:
        call.enter_all()
        if given.keys() & {"retry", "timeout", "require_key", "push"}:
            raise InvalidInput(
                "a group has limits; retry, timeout, requireKey and push are a queue's"
            )
        paused = given.pop("paused", None)
        if given:
            await call.app.aset_group(body.name, **given)
        if paused is not None:
            await (call.app.apause if paused else call.app.aresume)(group=body.name)
    return await list_limits(call)  # type: ignore[arg-type]


def _given(body: LimitSent) -> dict[str, Any]:
    names = ("concurrency", "paused", "timeout", "require_key")
    given = {name: getattr(body, name) for name in names if getattr(body, name) is not UNSET}
    if body.rate is not UNSET:
        given["rate"] = None if body.rate is None else (body.rate.count, body.rate.seconds)
    if body.push is not UNSET:
        push = body.push
        given["push"] = push and Push(push.url, push.secret, push.mode)
    if body.retry is not UNSET:
        sent = body.retry
        given["retry"] = sent and Retry(
            max_attempts=sent.max_attempts,
            backoff=sent.backoff,
            base=sent.base,
            cap=sent.cap,
            jitter=sent.jitter,
        )
    return given


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/jobs/{id}/story",
        "read",
        explain_job,
        "What happened to the job, in order, and what it waits for",
        answer=mirrored(Story),
        statuses={200: "Its story"},
    ),
    Endpoint(
        "GET",
        "/v1/counters",
        "read",
        list_counters,
        "What was counted since the store was made",
        answer=Counters,
        statuses={200: "By name"},
        problems=("queue_forbidden",),
        tag="Operation",
    ),
    Endpoint(
        "GET",
        "/v1/keys",
        "read",
        list_key_health,
        "Of each kind: how well its keys recognise repeats",
        answer=KeyHealths,
        statuses={200: "By kind"},
        problems=("queue_forbidden",),
        tag="Operation",
    ),
    Endpoint(
        "GET",
        "/v1/limits",
        "read",
        list_limits,
        "The limits and policies of queues and groups, in full",
        answer=Limits,
        statuses={200: "As they stand"},
        tag="Queues",
    ),
    Endpoint(
        "PUT",
        "/v1/limits",
        "admin",
        set_limit,
        "Set limits of a queue or a group",
        answer=Limits,
        body=LimitSent,
        statuses={200: "As they stand now"},
        problems=("queue_forbidden", "push_target_refused"),
        tag="Queues",
    ),
)
