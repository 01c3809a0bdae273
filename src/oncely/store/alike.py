"""Jobs that are alike, as most are that come together: a quicker way in."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import UNSET

from oncely.model.draft import Draft
from oncely.store.arrays import texts, uuids
from oncely.store.plan import Form, Quick, Row, Statement, Wired

_OPTIONS: Final = (
    "delay_us",
    "run_at_us",
    "unique_key",
    "group_key",
    "max_attempts",
    "timeout_seconds",
    "tags",
)
_options: Final = attrgetter(*_OPTIONS)
_NO_OPTIONS: Final = (0, *(None,) * 6)
_shape: Final = attrgetter("kind", "queue", "priority", "traceparent", *_OPTIONS)


class Document(dict[str, str]):
    """The drafts as one JSON document, made when it is asked for."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        self._drafts = drafts

    def __missing__(self, name: str) -> str:
        if name != "doc":
            raise KeyError(name)
        self[name] = msgspec.json.encode(self._drafts).decode()
        return self[name]


class Common(msgspec.Struct, frozen=True):
    """What drafts share that differ in nothing but their payloads and idempotency keys, are due at
    once, and have no group and no unique key."""

    kind: str
    queue: str
    priority: int
    traceparent: str | None
    keyed: bool


def admitting(drafts: Sequence[Draft], *, alone: bool = False) -> Statement:
    """`alone` if the plan has nothing else to do when all of them are taken in."""
    return Quick(
        "admit",
        Document(drafts),
        quicker=lambda: _alike(drafts),
        whole=lambda: _new(drafts) if alone else None,
    )


def _common(drafts: Sequence[Draft]) -> Common | None:
    first = drafts[0]
    keyless = [draft.idempotency_key for draft in drafts].count(None)
    if _options(first) != _NO_OPTIONS or keyless not in (0, len(drafts)):
        return None
    if list(map(_shape, drafts)).count(_shape(first)) < len(drafts):
        return None
    return Common(first.kind, first.queue, first.priority, _trace(first), keyless == 0)


def _trace(draft: Draft) -> str | None:
    return None if draft.traceparent is UNSET else draft.traceparent


def _new(drafts: Sequence[Draft]) -> Form | None:
    """All of them are new, or it fails."""
    if len(drafts) == 1:
        return _new_one(drafts[0])
    common = _common(drafts)
    if common is None:
        return None
    columns: dict[str, str | bytes | None] = {
        "kind": common.kind,
        "queue": common.queue,
        "priority": str(common.priority),
        "traceparent": common.traceparent,
        "count": str(len(drafts)),
        "ids": uuids([draft.id for draft in drafts]),
        "payloads": _payloads(drafts),
    }
    if common.keyed:
        columns["keys"] = texts([str(draft.idempotency_key) for draft in drafts])
        columns["fingerprints"] = texts([str(draft.fingerprint) for draft in drafts])
    statement = Wired("admit_new_keyed" if common.keyed else "admit_new", columns)
    return Form(statement, lambda _: [(draft.id, False) for draft in drafts])


def _new_one(draft: Draft) -> Form | None:
    if draft.idempotency_key is not None or _options(draft) != _NO_OPTIONS:
        # To pass over one known key costs hardly more, and leaves no error in the server's log.
        return None
    return Form(Wired("admit_one", _one(draft)), lambda _: [(draft.id, False)])


def _one(draft: Draft) -> dict[str, str | bytes | None]:
    return {
        "kind": draft.kind,
        "queue": draft.queue,
        "priority": str(draft.priority),
        "traceparent": _trace(draft),
        "id": draft.id,
        "payload": draft.payload,
        "key": draft.idempotency_key,
        "fingerprint": draft.fingerprint,
    }


def _alike(drafts: Sequence[Draft]) -> Form | None:
    """The columns that differ, instead of a document with all of them for each."""
    common = _common(drafts)
    if common is None:
        return None
    ids = [draft.id for draft in drafts]
    if common.keyed and len(drafts) == 1:
        statement = Wired("admit_one_keyed", _one(drafts[0]))
        return Form(statement, lambda rows: [(ids[0], False)] if rows[0][0] else [])

    def read(rows: list[Row]) -> list[Row]:
        ((count, some),) = rows
        taken = ids if count == len(ids) else msgspec.json.decode(some or "[]")
        return [(id, False) for id in taken]

    params = {
        "kind": common.kind,
        "queue": common.queue,
        "priority": common.priority,
        "traceparent": common.traceparent,
        "count": len(ids),
        "ids": msgspec.json.encode(ids).decode(),
        "payloads": _payloads(drafts),
    }
    if not common.keyed:
        return Form(Statement("admit_alike", params), read)
    prints = ",".join([str(draft.fingerprint) for draft in drafts])
    params["keys"] = msgspec.json.encode([draft.idempotency_key for draft in drafts]).decode()
    params["fingerprints"] = f"{{{prints}}}"
    return Form(Statement("admit_alike_keyed", params), read)


def _payloads(drafts: Sequence[Draft]) -> str:
    return f"[{','.join([draft.payload for draft in drafts])}]"
