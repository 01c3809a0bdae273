"""Enqueue over HTTP: a batch whose jobs are for several queues, and are stored together."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from oncely.model.draft import check_name
from oncely.model.job import NewJob
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.publishing import publish_together, refuse_key_of_batch
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
    refuse_key_of_batch(call)
    for queue in {each.queue for each in call.body.jobs}:
        call.enter(check_name(queue, "queue"))
    return await publish_together(call, [_new_job(call, each) for each in call.body.jobs])


def _new_job(call: Call[BatchOfQueues, None], body: PublishTo) -> NewJob:
    fields = msgspec.structs.asdict(body)
    fields["kind"] = body.queue if body.kind is None else body.kind
    fields["unique_key"] = call.scoped(body.unique_key, body.queue)
    return NewJob(**fields)


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
