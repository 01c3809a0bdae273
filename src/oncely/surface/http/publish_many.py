"""Enqueue over HTTP: a batch whose jobs are for several queues, and are stored together."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from oncely.flow.trace import carrying
from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput, KeyConflict
from oncely.model.job import NewJob
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.problem import Detail, Refused
from oncely.surface.http.publish import _published, _which
from oncely.surface.http.types import BATCH_LIMIT, Body, Publish, PublishedBatch, QueueName


class PublishTo(Publish, kw_only=True):
    """A job to enqueue, and where."""

    queue: QueueName


class BatchOfQueues(Body):
    """Jobs to enqueue together, each in its queue: all of them or, if one cannot be taken, none."""

    jobs: Annotated[list[PublishTo], Meta(min_length=1, max_length=BATCH_LIMIT)]
    atomic: Annotated[
        Literal[True], Meta(description="Always: a batch is stored whole or not at all")
    ] = True


async def publish_to_queues(call: Call[BatchOfQueues, None]) -> Answer:
    if "idempotency-key" in call.headers:
        raise Refused(
            "invalid_header",
            "A batch has no Idempotency-Key of its own: give each of its jobs an idempotencyKey.",
        )
    for queue in {each.queue for each in call.body.jobs}:
        call.enter(check_name(queue, "queue"))
    new = [_new_job(each) for each in call.body.jobs]
    await _insist_on_keys(call, new)
    try:
        with carrying(call.headers.get("traceparent")):
            receipts = await call.app.aenqueue_many(new)
    except KeyConflict as error:
        raise _conflict(new, error) from None
    except InvalidInput as error:
        raise _which(new, error) from None
    results = [
        await _published(call, each, receipt)
        for each, receipt in zip(new, receipts.receipts, strict=True)
    ]
    return Answer(PublishedBatch(receipts.inserted, receipts.skipped, results))


def _new_job(body: PublishTo) -> NewJob:
    fields = msgspec.structs.asdict(body)
    return NewJob(**{**fields, "kind": body.queue if body.kind is None else body.kind})


async def _insist_on_keys(call: Call[Any, None], new: list[NewJob]) -> None:
    without = [n for n, each in enumerate(new) if each.idempotency_key is None]
    strict = {
        queue: await call.service.requires_key(queue)
        for queue in {str(new[n].queue) for n in without}
    }
    missing = [n for n in without if strict[str(new[n].queue)]]
    if missing:
        queue = new[missing[0]].queue
        message = f"the queue {queue!r} takes only jobs with an idempotency key"
        raise Refused(
            "idempotency_key_missing",
            f"{message[0].upper()}{message[1:]}; nothing was stored.",
            errors=[Detail(message, index=n) for n in missing],
        )


def _conflict(new: list[NewJob], error: KeyConflict) -> Refused:
    key = (error.queue, error.key)
    places = [n for n, each in enumerate(new) if (each.queue, each.idempotency_key) == key]
    place = places[0] if error.job_id else places[-1]
    return Refused(
        "idempotency_key_mismatch",
        str(error),
        job_id=error.job_id,
        errors=[Detail(str(error), "$.idempotencyKey", place)],
    )


ENDPOINTS: Final = (
    Endpoint(
        "POST",
        "/v1/jobs/batch",
        "publish",
        publish_to_queues,
        "Enqueue up to 1,000 jobs in several queues, all or none",
        answer=PublishedBatch,
        body=BatchOfQueues,
        statuses={200: "All were stored, or recognised"},
        problems=("queue_forbidden", "idempotency_key_missing", "idempotency_key_mismatch"),
        large=True,
    ),
)
