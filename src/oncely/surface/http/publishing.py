"""What the calls that enqueue have in common: the refusals, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from oncely.flow.trace import carrying
from oncely.model.errors import InvalidInput, KeyConflict
from oncely.model.job import NewJob, Receipt
from oncely.surface.http.endpoint import Answer, Call
from oncely.surface.http.problem import Detail, Refused, named
from oncely.surface.http.types import Published, PublishedBatch


async def publish_together(call: Call[Any, None], new: list[NewJob]) -> Answer:
    """All of them or none, each in its queue."""
    await _insist_on_keys(call, new)
    try:
        with carrying(call.headers.get("traceparent")):
            receipts = await call.app.aenqueue_many(new)
    except KeyConflict as error:
        raise _conflict(new, error) from None
    except InvalidInput as error:
        raise _which(new, error) from None
    results = [
        await published(call, each, receipt)
        for each, receipt in zip(new, receipts.receipts, strict=True)
    ]
    return Answer(PublishedBatch(receipts.inserted, receipts.skipped, results))


async def published(call: Call[Any, None], new: NewJob, receipt: Receipt) -> Published:
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


def refuse_key_of_batch(call: Call[Any, None]) -> None:
    if "idempotency-key" in call.headers:
        raise Refused(
            "invalid_header",
            "A batch has no Idempotency-Key of its own: give each of its jobs an idempotencyKey.",
        )


def key_missing(queue: str, places: Sequence[int] = ()) -> Refused:
    message = f"the queue {queue!r} takes only jobs with an idempotency key"
    return Refused(
        "idempotency_key_missing",
        f"{message[0].upper()}{message[1:]}: send one that is the same whenever you repeat the "
        "request, and another for every other one.",
        errors=[Detail(message, index=index) for index in places],
    )


def wrong(details: list[Detail]) -> Refused:
    count = len(details)
    items = "1 job of the batch is" if count == 1 else f"{count} jobs of the batch are"
    return Refused(
        "invalid_request", f"{items} not as expected; nothing was stored.", errors=details
    )


async def _insist_on_keys(call: Call[Any, None], new: list[NewJob]) -> None:
    without: dict[str, list[int]] = {}
    for index, each in enumerate(new):
        if each.idempotency_key is None:
            without.setdefault(str(each.queue), []).append(index)
    for queue, places in without.items():
        if await call.service.requires_key(queue):
            raise key_missing(queue, places)


def _which(new: list[NewJob], error: InvalidInput) -> Refused:
    """The model stops at the first that is wrong, and names it: `item 3: …`."""
    head, _, rest = str(error).partition(": ")
    number = head.removeprefix("item ")
    if len(new) > 1 and head != number and number.isdigit():
        return wrong([Detail(named(rest), index=int(number))])
    return wrong([Detail(named(str(error)), index=0)])


def _conflict(new: list[NewJob], error: KeyConflict) -> Refused:
    key = (error.queue, error.key)
    places = [n for n, each in enumerate(new) if (each.queue, each.idempotency_key) == key]
    # If the first was stored earlier any of them can be meant; in one call it is the last.
    place = places[0] if error.job_id else places[-1]
    return Refused(
        "idempotency_key_mismatch",
        str(error),
        job_id=error.job_id,
        errors=[Detail(str(error), "$.idempotencyKey", place)],
    )
