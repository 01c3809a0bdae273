"""Enqueue over HTTP: one job, or a batch.

Requests that come while a write is under way share the next one: that is the store's group commit,
which serves every caller of `aenqueue` alike.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncely.flow.trace import carrying
from oncely.model.errors import InvalidInput
from oncely.model.job import NewJob
from oncely.model.request import parse_key
from oncely.surface.http.decode import told
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.problem import Detail, Refused
from oncely.surface.http.publishing import (
    key_missing,
    publish_together,
    published,
    refuse_key_of_batch,
    wrong,
)
from oncely.surface.http.types import BATCH_LIMIT, Batch, Publish, Published, PublishedBatch

_REPLAYED: Final = {"idempotent-replayed": "true"}
_item: Final = msgspec.json.Decoder(Publish)


async def publish(call: Call[Publish, None]) -> Answer:
    new = _new_job(call, call.body, _agreed_key(call))
    queue = call.path["queue"]
    if new.idempotency_key is None and await call.service.requires_key(queue):
        raise key_missing(queue)
    traceparent = call.headers.get("traceparent")
    if traceparent is None:
        receipt = await call.app._enqueuer.aone(new, None)
    else:
        with carrying(traceparent):
            receipt = await call.app._enqueuer.aone(new, None)
    answer = await published(call, new, receipt)
    if answer.deduplicated:
        return Answer(answer, 200, _REPLAYED)
    return Answer(answer, 201, {"location": f"/v1/jobs/{answer.id}"})


async def publish_batch(call: Call[Batch, None]) -> Answer:
    refuse_key_of_batch(call)
    return await publish_together(call, _new_jobs(call))


def _new_jobs(call: Call[Batch, None]) -> list[NewJob]:
    """Every item is looked at, so that all that is wrong can be told at once."""
    items = call.body.jobs
    if not 1 <= len(items) <= BATCH_LIMIT:
        message = f"jobs has {len(items)} items; expected 1 to {BATCH_LIMIT:,}"
        raise Refused("invalid_request", message, errors=[Detail(message, "$.jobs")])
    new, refused = [], []
    for index, item in enumerate(items):
        try:
            body = _item.decode(item)
            new.append(_new_job(call, body, body.idempotency_key))
        except (msgspec.DecodeError, RecursionError) as error:
            refused.append(told(error, index))
    if refused:
        raise wrong(refused)
    return new


def _new_job(call: Call[Any, None], body: Publish, key: str | None) -> NewJob:
    queue = call.path["queue"]
    return NewJob(
        kind=queue if body.kind is None else body.kind,
        payload=body.payload,
        queue=queue,
        priority=body.priority,
        delay=body.delay,
        run_at=body.run_at,
        unique_key=call.scoped(body.unique_key, queue),
        idempotency_key=key,
        group_key=body.group_key,
        max_attempts=body.max_attempts,
        timeout=body.timeout,
        tags=body.tags or (),
    )


def _agreed_key(call: Call[Publish, None]) -> str | None:
    """Of the header and the body: one is enough, and both must be the same."""
    header, written = call.headers.get("idempotency-key"), call.body.idempotency_key
    try:
        sent = None if header is None else parse_key([header.encode("latin-1")])
    except InvalidInput as error:
        raise Refused("invalid_header", f"Idempotency-Key: {error}.") from None
    if sent is not None and written is not None and sent != written:
        raise Refused(
            "idempotency_key_differs",
            "The Idempotency-Key header and idempotencyKey in the body are different: send one of "
            "them, or the same in both.",
        )
    return written if sent is None else sent


_PROBLEMS: Final = ("idempotency_key_missing", "idempotency_key_mismatch")
ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/v1/queues/{queue}/jobs",
        "publish",
        publish,
        "Enqueue a job",
        answer=Published,
        body=Publish,
        statuses={201: "The job was stored", 200: "A repeat: the first job"},
        headers={
            "Idempotent-Replayed": "`true` if this was a repeat",
            "Location": "Where the job can be looked at",
        },
        problems=(*_PROBLEMS, "idempotency_key_differs"),
        links={"job": "look_at_job", "cancel": "cancel_job"},
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/jobs/batch",
        "publish",
        publish_batch,
        "Enqueue up to 1,000 jobs, all or none",
        answer=PublishedBatch,
        body=Batch,
        statuses={200: "All were stored, or recognised"},
        problems=_PROBLEMS,
        large=True,
    ),
)
