"""Enqueue over HTTP: one job, or a batch.

Requests that come while a write is under way share the next one: that is the store's group commit,
which serves every caller of `aenqueue` alike.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from oncely.flow.trace import carrying
from oncely.model.errors import InvalidInput, KeyConflict
from oncely.model.job import NewJob, Receipt
from oncely.model.request import parse_key
from oncely.surface.http.decode import told
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.problem import Detail, Refused, named
from oncely.surface.http.types import BATCH_LIMIT, Batch, Publish, Published, PublishedBatch

_REPLAYED: Final = {"idempotent-replayed": "true"}
_item: Final = msgspec.json.Decoder(Publish)


async def publish(call: Call[Publish, None]) -> Answer:
    new = _new_job(call, call.body, _agreed_key(call))
    if new.idempotency_key is None and await call.service.requires_key(call.path["queue"]):
        raise _key_missing([])
    traceparent = call.headers.get("traceparent")
    if traceparent is None:
        receipt = await call.app._enqueuer.aone(new, None)
    else:
        with carrying(traceparent):
            receipt = await call.app._enqueuer.aone(new, None)
    answer = await _published(call, new, receipt)
    if answer.deduplicated:
        return Answer(answer, 200, _REPLAYED)
    return Answer(answer, 201, {"location": f"/v1/jobs/{answer.id}"})


async def publish_batch(call: Call[Batch, None]) -> Answer:
    if "idempotency-key" in call.headers:
        raise Refused(
            "invalid_header",
            "A batch has no Idempotency-Key of its own: give each of its jobs an idempotencyKey.",
        )
    new = _new_jobs(call)
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


def _new_jobs(call: Call[Batch, None]) -> list[NewJob]:
    """Every item is looked at, so that all that is wrong can be told at once."""
    items = call.body.jobs
    if not 1 <= len(items) <= BATCH_LIMIT:
        message = f"jobs has {len(items)} items; expected 1 to {BATCH_LIMIT:,}"
        raise Refused("invalid_request", message, errors=[Detail(message, "$.jobs")])
    new, wrong = [], []
    for index, item in enumerate(items):
        try:
            body = _item.decode(item)
            new.append(_new_job(call, body, body.idempotency_key))
        except (msgspec.DecodeError, RecursionError) as error:
            wrong.append(told(error, index))
    if wrong:
        raise _wrong(wrong)
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
        unique_key=body.unique_key,
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


async def _insist_on_keys(call: Call[Any, None], new: list[NewJob]) -> None:
    without = [index for index, each in enumerate(new) if each.idempotency_key is None]
    if not without or not await call.service.requires_key(call.path["queue"]):
        return
    raise _key_missing(without if len(new) > 1 else [])


def _key_missing(places: list[int]) -> Refused:
    message = "this queue takes only jobs with an idempotency key"
    return Refused(
        "idempotency_key_missing",
        f"{message[0].upper()}{message[1:]}: send one that is the same whenever you repeat the "
        "request, and another for every other one.",
        errors=[Detail(message, index=index) for index in places],
    )


async def _published(call: Call[Any, None], new: NewJob, receipt: Receipt) -> Published:
    queue = str(new.queue)
    if not receipt.inserted and new.unique_key is not None:
        # Who holds a unique key may wait in another queue.
        holder = await call.app.aget(receipt.job_id)
        queue = queue if holder is None else holder.queue
    return Published(
        id=receipt.job_id,
        kind=new.kind,
        queue=queue,
        state=receipt.state,
        created_at=made_at(receipt.job_id),
        deduplicated=not receipt.inserted,
    )


def made_at(job_id: str) -> datetime:
    """The moment in an id: it needs no look at the store, and outlives the job."""
    milliseconds = int(job_id[:8] + job_id[9:13], 16)
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def _wrong(details: list[Detail]) -> Refused:
    count = len(details)
    items = "1 job of the batch is" if count == 1 else f"{count} jobs of the batch are"
    return Refused(
        "invalid_request", f"{items} not as expected; nothing was stored.", errors=details
    )


def _which(new: list[NewJob], error: InvalidInput) -> Refused:
    """The model stops at the first that is wrong, and names it: `item 3: …`."""
    head, _, rest = str(error).partition(": ")
    number = head.removeprefix("item ")
    if len(new) > 1 and head != number and number.isdigit():
        return _wrong([Detail(named(rest), index=int(number))])
    return _wrong([Detail(named(str(error)), index=0)])


def _conflict(new: list[NewJob], error: KeyConflict) -> Refused:
    places = [n for n, each in enumerate(new) if each.idempotency_key == error.key]
    # If the first was stored earlier any of them can be meant; in one call it is the last.
    place = places[0] if error.job_id else places[-1]
    return Refused(
        "idempotency_key_mismatch",
        str(error),
        job_id=error.job_id,
        errors=[Detail(str(error), "$.idempotencyKey", place)],
    )


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
