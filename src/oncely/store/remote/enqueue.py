"""Enqueue through a server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from oncely.model.draft import Draft
from oncely.model.errors import InvalidInput, KeyConflict, OncelyError, StoreUnavailable
from oncely.model.job import Receipt
from oncely.model.transition import State
from oncely.store import admit as admitting
from oncely.store.remote.carry import carries
from oncely.store.remote.server import Lost, Server

BATCH_LIMIT: Final = 1_000
_BATCH_BYTES: Final = 8 * 1024 * 1024
"""A server takes twice as much unless it is told otherwise."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@carries(admitting.admit)
def admit(server: Server, drafts: Sequence[Draft]) -> list[Receipt | OncelyError]:
    """Of several callers, who need not be stored together."""
    lots: dict[Any, list[Draft]] = {}
    for draft in drafts:
        lots.setdefault((draft.queue, draft.traceparent), []).append(draft)
    found: dict[str, Receipt | OncelyError] = {}
    for lot in lots.values():
        for part in _parts(lot):
            answers = _each(server, part)
            found.update((draft.id, answer) for draft, answer in zip(part, answers, strict=True))
    return [found[draft.id] for draft in drafts]


def _each(server: Server, drafts: Sequence[Draft]) -> Sequence[Receipt | OncelyError]:
    """An answer to each. A batch is refused as a whole, so those who had to do with the reason are
    found by halving it, and the others are stored."""
    try:
        return server.insist(lambda _: _publish(server, drafts))
    except StoreUnavailable as error:
        return [StoreUnavailable(str(error)) for _ in drafts]
    except OncelyError as error:
        if len(drafts) == 1:
            return [error]
    middle = len(drafts) // 2
    return [*_each(server, drafts[:middle]), *_each(server, drafts[middle:])]


@carries(admitting.admit_all)
def admit_all(server: Server, drafts: Sequence[Draft]) -> list[Receipt]:
    """One request is stored whole or not at all. More than that takes several: only with keys of
    the caller's, since then the call can be repeated if it ends in the middle."""
    parts = list(_parts(drafts))
    if len(parts) > 1 and not all(draft.idempotency_key for draft in drafts):
        raise InvalidInput(
            f"these are {len(drafts):,} jobs, more than one request takes ({BATCH_LIMIT:,} jobs or "
            f"{_BATCH_BYTES >> 20} MiB), and not all of them have an idempotency key: give each "
            "one, so that the call can be sent in parts and repeated, or make smaller calls. "
            "Nothing was stored"
        )
    receipts: list[Receipt] = []
    for part in parts:
        try:
            receipts += server.insist(lambda _, part=part: _publish(server, part))  # type: ignore[misc]
        except OncelyError as error:
            if receipts:
                error.args = (_partly(len(receipts), error),)
            if isinstance(error, Lost):
                raise StoreUnavailable(*error.args) from error  # insisted on already
            raise
    return receipts


def _partly(stored: int, error: OncelyError) -> str:
    return (
        f"the first {stored:,} jobs of this call are stored, and not the rest. Repeat it with the "
        f"same keys when this is mended: {error}"
    )


def _parts(drafts: Sequence[Draft]) -> Iterator[Sequence[Draft]]:
    start = size = 0
    for end, draft in enumerate(drafts):
        size += len(draft.payload)
        if end > start and (end - start == BATCH_LIMIT or size > _BATCH_BYTES):
            yield drafts[start:end]
            start, size = end, len(draft.payload)
    if drafts:
        yield drafts[start:]


def _publish(server: Server, drafts: Sequence[Draft]) -> list[Receipt]:
    """One request: all of them or none."""
    queues = {draft.queue for draft in drafts}
    try:
        if len(drafts) == 1:
            content: dict[str, Any] = _item(drafts[0])
            path = f"/v1/queues/{drafts[0].queue}/jobs"
        elif len(queues) == 1:
            content = {"jobs": [_item(draft) for draft in drafts]}
            path = f"/v1/queues/{drafts[0].queue}/jobs/batch"
        else:
            content = {"jobs": [{"queue": draft.queue, **_item(draft)} for draft in drafts]}
            path = "/v1/jobs/batch"
        body = server.post(path, content, traceparent=drafts[0].traceparent)
    except KeyConflict as error:
        _name(error, drafts)
        raise
    if len(drafts) == 1:
        results = [msgspec.json.decode(body, type=_Published)]
    else:
        results = msgspec.json.decode(body, type=_PublishedBatch).results
    return [_receipt(draft, told) for draft, told in zip(drafts, results, strict=True)]


def _name(error: KeyConflict, drafts: Sequence[Draft]) -> None:
    """Which of the keys it is the words say."""
    keyed = [draft for draft in drafts if draft.idempotency_key]
    words = str(error)
    named = [
        draft for draft in keyed if f"{draft.idempotency_key!r} in queue {draft.queue!r}" in words
    ]
    one = (named or keyed)[0]
    error.queue, error.key = one.queue, str(one.idempotency_key)
    error.job_id = getattr(error, "job_id", None)


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
