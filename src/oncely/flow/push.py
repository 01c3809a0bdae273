"""Push one job: the signed request to its receiver, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from math import inf
from typing import Final

import msgspec

from oncely.flow.context import Context
from oncely.flow.push_wire import NotSent, Unanswered, Wire
from oncely.flow.trace import current
from oncely.model.outcome import Ending, Failure, Raised, kept_text
from oncely.model.push import NOT_SENT, UNANSWERED, Previous, answered, sign

DEFAULT_SECONDS: Final = 30.0
_MARGIN_SECONDS: Final = 0.1


async def push(
    wire: Wire,
    secrets: Sequence[bytes],
    context: Context,
    payload: msgspec.Raw,
    before: Previous,
    limit_seconds: float = inf,
) -> Ending:
    """`limit_seconds` is for the answer, where the execution has more time than that."""
    body = msgspec.json.encode(
        {
            "id": context.job_id,
            "executionId": context.execution_id,
            "epoch": context.epoch,
            "attempt": context.attempt,
            "kind": context.kind,
            "queue": context.queue,
            "payload": payload,
        }
    )
    now = int(time.time())
    headers = (
        ("webhook-id", context.job_id),
        ("webhook-timestamp", str(now)),
        ("webhook-signature", sign(secrets, context.job_id, now, body)),
        ("Idempotency-Key", context.job_id),
        ("Oncely-Execution-Id", context.execution_id),
        ("Oncely-Attempt", str(context.attempt)),
        ("Oncely-Previous", before),
        *((("traceparent", traceparent),) if (traceparent := current()) else ()),
    )
    try:
        answer = await wire.post(headers, body, _seconds(context, limit_seconds))
    except NotSent as error:
        return Raised(Failure(NOT_SENT, kept_text(str(error))))
    except Unanswered as error:
        return Raised(Failure(UNANSWERED, kept_text(str(error))))
    return answered(answer.status, answer.retry_after, datetime.now(UTC))


def _seconds(context: Context, limit_seconds: float) -> float:
    """A little less than the execution has: then it is known how far the request had come."""
    if context.deadline is None:
        return min(limit_seconds, DEFAULT_SECONDS)
    left = context.deadline - time.monotonic()
    return min(limit_seconds, max(left / 2, left - _MARGIN_SECONDS))
