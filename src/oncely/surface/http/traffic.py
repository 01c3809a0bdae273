"""What goes on: the workers that are there, and what was counted step by step."""

from __future__ import annotations

from typing import Final

from oncely.model.draft import check_name
from oncely.model.keys import check_part
from oncely.model.traffic import Last, Traffic
from oncely.model.worker import About
from oncely.store import traffic, workers
from oncely.store.plan import Plan
from oncely.store.remote.mirror import mirror, mirrored
from oncely.store.remote.wire import Report, Reported, Workers
from oncely.store.traffic import Sample
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.types import Body
from oncely.surface.http.work import ask, named


class TrafficQuery(Body):
    last: Last = "hour"


async def report_worker(call: Call[Report, None]) -> Answer:
    body = call.body
    name = named(call, body.worker_id)
    for queue in (*(body.queues or ()), *(each.queue for each in body.samples)):
        call.enter(check_name(queue, "queue"))
    samples = [
        Sample(each.measure, each.queue, check_name(each.kind, "kind"), each.buckets)
        for each in body.samples
    ]
    me = About(
        name=name,
        host=None if body.host is None else check_part(body.host, "host"),
        pid=body.pid,
        queues=body.queues or list(call.queues) or None,
        concurrency=body.concurrency,
        version=None if body.version is None else check_part(body.version, "version"),
    )

    def plan(lost: bool) -> Plan[None]:
        told = [] if lost else samples
        if body.leaves:
            yield from workers.leave(name, told)
        else:
            yield from workers.seen(me, body.running)
            if told:
                yield from traffic.add(told)

    await ask(call, plan)
    return Answer(Reported())


async def list_workers(call: Call[None, None]) -> Answer:
    call.enter_all()
    return Answer(Workers([mirror(each) for each in await call.app.aworkers()]))


async def look_at_traffic(call: Call[None, TrafficQuery]) -> Answer:
    call.enter_all()
    return Answer(mirror(await call.app.atraffic(call.query.last)))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/workers",
        "read",
        list_workers,
        "The workers that were heard of in the last hour",
        answer=Workers,
        statuses={200: "By host"},
        problems=("queue_forbidden",),
        tag="Operation",
    ),
    Endpoint(
        "GET",
        "/v1/traffic",
        "read",
        look_at_traffic,
        "What was counted step by step, and how long jobs waited and ran",
        answer=mirrored(Traffic),
        query=TrafficQuery,
        statuses={200: "The last hour, day or month"},
        problems=("queue_forbidden",),
        tag="Operation",
    ),
    Endpoint(
        "POST",
        "/v1/worker/report",
        "work",
        report_worker,
        "Say that a worker is there, and how long its executions took",
        answer=Reported,
        body=Report,
        statuses={200: "It is known"},
        problems=("queue_forbidden",),
        tag="Work",
    ),
)
