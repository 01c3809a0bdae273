"""For those who operate the server: is it alive, can it work, what has it counted."""

from __future__ import annotations

from typing import Final

from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.metrics import exposition
from oncely.surface.http.problem import Refused
from oncely.surface.http.types import Health

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


async def healthz(_: Call[None, None]) -> Answer:
    """The process answers. It says nothing of the store: to start it again would not mend that."""
    return Answer(Health("ok"))


async def readyz(call: Call[None, None]) -> Answer:
    """The store answers, has the right schema and can be written, and the server is not about to
    stop."""
    if call.service.stopping.is_set():
        raise Refused("store_unavailable", "The server is about to stop.")
    await call.service.check()
    return Answer(Health("ok"))


async def metrics(call: Call[None, None]) -> Answer:
    if call.queues:
        raise Refused("queue_forbidden", "The metrics are of all queues, and this key is not.")
    return Answer(await exposition(call.service))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/healthz",
        None,
        healthz,
        "Whether the process answers",
        answer=Health,
        statuses={200: "It does"},
        tag="Operation",
    ),
    Endpoint(
        "GET",
        "/readyz",
        None,
        readyz,
        "Whether it can work: the store answers and can be written",
        answer=Health,
        statuses={200: "It can"},
        tag="Operation",
    ),
    Endpoint(
        "GET",
        "/metrics",
        "read",
        metrics,
        "What was counted, for Prometheus",
        answer=str,
        statuses={200: "In the text format of Prometheus"},
        problems=("queue_forbidden",),
        media_type=METRICS_TYPE,
        tag="Operation",
    ),
)
