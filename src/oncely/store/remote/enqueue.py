"""Enqueue through a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from oncely.model.draft import Draft
from oncely.model.errors import InvalidInput, KeyConflict
from oncely.model.job import Receipt
from oncely.model.transition import State
from oncely.store import admit as admitting
from oncely.store.remote.carry import carries
from oncely.store.remote.server import Server

BATCH_LIMIT: Final = 1_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@carries(admitting.admit)
def admit(server: Server, drafts: Sequence[Draft]) -> list[Receipt]:
    """Of several callers, who need not be stored together."""
    if len(drafts) == 1:
        return [_publish(server, drafts[0])]
    parts: dict[Any, list[Draft]] = {}
    for draft in drafts:
        parts.setdefault((draft.queue, draft.traceparent), []).append(draft)
    found: dict[str, Receipt] = {}
    for (queue, _), part in parts.items():
        receipts = _publish_all(server, queue, part)
        found.update((draft.id, receipt) for draft, receipt in zip(part, receipts, strict=True))
    return [found[draft.id] for draft in drafts]


@carries(admitting.admit_all)
def admit_all(server: Server, drafts: Sequence[Draft]) -> list[Receipt]:
    queues = {draft.queue for draft in drafts}
    if len(queues) > 1 or len(drafts) > BATCH_LIMIT:
        raise InvalidInput(
            f"these are {len(drafts):,} jobs for {len(queues)} queues; over HTTP all or none is "
            f"kept for up to {BATCH_LIMIT:,} jobs of one queue: make a call for each such part, "
            "with idempotency keys. Nothing was stored"
        )
    return _publish_all(server, queues.pop(), drafts) if drafts else []


def _publish(server: Server, draft: Draft) -> Receipt:
    body = server.post(
        f"/v1/queues/{draft.queue}/jobs",
        _item(draft),
        queue=draft.queue,
        key=draft.idempotency_key,
        job_id=None,
        traceparent=draft.traceparent,
    )
    return _receipt(draft, msgspec.json.decode(body, type=_Published))


def _publish_all(server: Server, queue: str, drafts: Sequence[Draft]) -> list[Receipt]:
    try:
        body = server.post(
            f"/v1/queues/{queue}/jobs/batch",
            {"jobs": [_item(draft) for draft in drafts]},
            traceparent=drafts[0].traceparent,
        )
    except KeyConflict as error:
        # Which of the keys it is the words say; the first that is in them is the one.
        keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key]
        named = [key for key in keys if repr(key) in str(error)]
        error.queue, error.key = queue, max(named or keys, key=len)
        error.job_id = getattr(error, "job_id", None)
        raise
    results = msgspec.json.decode(body, type=_PublishedBatch).results
    return [_receipt(draft, told) for draft, told in zip(drafts, results, strict=True)]


class _Published(msgspec.Struct):
    id: str
    state: State
    deduplicated: bool


class _PublishedBatch(msgspec.Struct):
    results: list[_Published]


def _receipt(draft: Draft, told: _Published) -> Receipt:
    # With a key that was made for this one call, what it finds is what it stored itself.
    own = draft.idempotency_key is None and draft.unique_key is None
    return Receipt(told.id, own or not told.deduplicated, told.state)


def _item(draft: Draft) -> dict[str, Any]:
    """The id of the draft is fresh in every call, and the same in every try of it: without a key of
    the caller's it makes one."""
    run_at = draft.run_at_us
    item = {
        "kind": draft.kind,
        "idempotencyKey": draft.idempotency_key or f"call:{draft.id}",
        "uniqueKey": draft.unique_key,
        "groupKey": draft.group_key,
        "delay": draft.delay_us / 1_000_000 if draft.delay_us else None,
        "runAt": None if run_at is None else _EPOCH + timedelta(microseconds=run_at),
        "priority": draft.priority or None,
        "maxAttempts": draft.max_attempts,
        "timeout": draft.timeout_seconds,
        "tags": None if draft.tags is None else msgspec.Raw(draft.tags.encode()),
    }
    given = {name: value for name, value in item.items() if value is not None}
    return {**given, "payload": msgspec.Raw(draft.payload.encode())}
