"""Workers that run many jobs at once: settle and claim in one request, and be told of new ones."""

from __future__ import annotations

from itertools import chain
from typing import Any, Final

import msgspec

from oncely.model import payload
from oncely.model.draft import check_name
from oncely.model.effect import check_name as check_name_of_effect
from oncely.model.outcome import Failure, kept_text
from oncely.store import deliver, executions
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.effects import Renamed
from oncely.store.lanes import Outlook, survey
from oncely.store.plan import Plan
from oncely.store.remote.mirror import mirror
from oncely.store.remote.wire import (
    EndSent,
    Exchange,
    Exchanged,
    FailureSent,
    Held,
    Reclaim,
    Reclaimed,
    Renew,
    Renewed,
    Wait,
    Waited,
)
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.work import ask, named, wait_for
from oncely.worker.gear import MAX_RESULT_BYTES


async def exchange_jobs(call: Call[Exchange, None]) -> Answer:
    body = call.body
    worker = named(call, body.worker_id)
    queues = _queues(call, body.queues)
    sent = [_settlement(each) for each in body.done]
    outlook = Outlook()

    def plan(lost: bool) -> Plan[deliver.Exchanged]:
        done = (yield from _own(call, sent)) if sent and call.queues else sent
        if body.limit:
            yield from survey(outlook, queues)
        exchanged = yield from deliver.exchange(
            done,
            outlook=outlook,
            worker=worker,
            nonce=body.nonce,
            lease_seconds=body.lease_seconds,
            limit=body.limit,
            again=body.again or lost,
            limit_bytes=executions.CLAIM_BYTES,
        )
        own = {each.id for each in done}
        others = [each for each in sent if each.id not in own]
        return deliver.Exchanged([*exchanged.refused, *others], exchanged.claimed)

    exchanged = await ask(call, plan)
    return Answer(
        Exchanged(
            refused=[f"{each.id}.{each.epoch}.{each.nonce:x}" for each in exchanged.refused],
            claimed=[_told(job) for job in exchanged.claimed],
            wait_seconds=outlook.wait_seconds,
            unfinished=outlook.unfinished,
        )
    )


def _own(call: Call[Any, None], done: list[Settlement]) -> Plan[list[Settlement]]:
    """Those of the queues that the key is for. Jobs of others are like jobs that it has lost."""
    found = yield from executions.queues_of(each.id for each in done)
    return [each for each in done if found.get(each.id) in call.queues]


async def renew_leases(call: Call[Renew, None]) -> Answer:
    body = call.body
    worker = named(call, body.worker_id)
    known = [Fence(each.epoch, each.nonce) for each in body.leases]
    held = await ask(call, lambda _: deliver.renew(worker, known, body.lease_seconds))
    return Answer(Renewed([Held(fence.epoch, fence.nonce, job_id) for fence, job_id in held]))


async def reclaim_jobs(call: Call[Reclaim, None]) -> Answer:
    """Of all queues: a lease that ran out helps nobody. What a limited key may not see is not
    told."""
    jobs = await ask(call, lambda _: deliver.reclaim(call.body.limit))
    seen = [job for job in jobs if not call.queues or job.queue in call.queues]
    return Answer(Reclaimed([mirror(job) for job in seen]))


async def wait_for_jobs(call: Call[Wait, None]) -> Answer:
    queues = _queues(call, call.body.queues)

    async def look() -> tuple[bool | None, float | None]:
        outlook = Outlook()
        await ask(call, lambda _: survey(outlook, queues))
        return (True if outlook.due else None), outlook.wait_seconds

    return Answer(Waited(bool(await wait_for(call, queues, call.body.wait_seconds, look))))


def _queues(call: Call[Any, None], asked: list[str] | None) -> list[str] | None:
    """Those that are asked for; if none are named, all that the token is for."""
    if asked is None:
        return list(call.queues) or None
    for queue in asked:
        call.enter(check_name(queue, "queue"))
    return asked


def _told(job: Claimed) -> msgspec.Struct:
    # SQLite knows no truth values.
    return mirror(msgspec.structs.replace(job, is_unique=bool(job.is_unique)))


def _settlement(sent: EndSent) -> Settlement:
    one = executions.execution(sent.execution_id, sent.execution_id.partition(".")[0])
    completed = sent.state == "completed"
    renamed = sent.renamed or None
    names = (renamed.names, renamed.begun) if renamed else ()
    for name in chain(sent.doubts, sent.repeats, *names):
        check_name_of_effect(name)
    return Settlement(
        id=one.job_id,
        attempt=sent.attempt,
        state=sent.state,
        outcome=None if sent.state is not None else sent.outcome,
        attempts=sent.attempts,
        crashes=sent.crashes,
        defers=sent.defers,
        hand_backs=sent.hand_backs,
        delay_us=round(sent.delay_seconds * 1_000_000),
        result=payload.encode(sent.result, max_bytes=MAX_RESULT_BYTES) if completed else None,
        error=None if sent.error is None else _kept(sent.error),
        doubts=sent.doubts if sent.state == "in_doubt" else [],
        repeats=sent.repeats,
        renamed=renamed and Renamed(renamed.names, renamed.begun),
    ).under(one.fence)


def _kept(sent: FailureSent) -> str:
    trace = None if sent.traceback is None else kept_text(sent.traceback)
    failure = Failure(kept_text(sent.type), kept_text(sent.message), trace)
    return msgspec.json.encode(failure).decode()


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/v1/worker/exchange",
        "work",
        exchange_jobs,
        "Settle executions and claim jobs, in one transaction",
        answer=Exchanged,
        body=Exchange,
        statuses={200: "What was refused, and what was claimed"},
        problems=("queue_forbidden", "lease_lost"),
        large=True,
        tag="Work",
    ),
    Endpoint(
        "POST",
        "/v1/worker/renew",
        "work",
        renew_leases,
        "Renew the leases that a worker knows of",
        answer=Renewed,
        body=Renew,
        statuses={200: "What it still holds"},
        tag="Work",
    ),
    Endpoint(
        "POST",
        "/v1/worker/reclaim",
        "work",
        reclaim_jobs,
        "Take back the jobs of workers that are gone",
        answer=Reclaimed,
        body=Reclaim,
        statuses={200: "What was taken back"},
        tag="Work",
    ),
    Endpoint(
        "POST",
        "/v1/worker/wait",
        "work",
        wait_for_jobs,
        "Wait until a job is due",
        answer=Waited,
        body=Wait,
        statuses={200: "Whether one is"},
        problems=("queue_forbidden",),
        tag="Work",
    ),
)
