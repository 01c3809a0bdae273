"""Jobs that are alike, as most are that come together: a quicker way in."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import msgspec
from msgspec import UNSET

from oncely.model.draft import Draft
from oncely.store.plan import Form, Quick, Row, Statement

_SHAPE: Final = attrgetter(
    "kind",
    "queue",
    "priority",
    "traceparent",
    "delay_us",
    "run_at_us",
    "unique_key",
    "group_key",
    "max_attempts",
    "timeout_seconds",
    "tags",
)
_PLAIN: Final = (0, *(None,) * 6)


class Document(dict[str, str]):
    """The drafts as one JSON document, made when it is asked for."""

    def __init__(self, drafts: Sequence[Draft]) -> None:
        self._drafts = drafts

    def __missing__(self, name: str) -> str:
        if name != "doc":
            raise KeyError(name)
        self[name] = msgspec.json.encode(self._drafts).decode()
        return self[name]


def admitting(drafts: Sequence[Draft], *, alone: bool = False) -> Statement:
    """`alone` if the plan has nothing else to do when all of them are taken in."""
    return Quick(
        "admit",
        Document(drafts),
        quicker=lambda: _alike(drafts, whole=False),
        whole=lambda: _alike(drafts, whole=True) if alone else None,
    )


def _alike(drafts: Sequence[Draft], *, whole: bool) -> Form | None:
    """The columns that differ, instead of a document with all of them for each."""
    shapes = set(map(_SHAPE, drafts))
    keys = [draft.idempotency_key for draft in drafts]
    if len(shapes) > 1 or keys.count(None) not in (0, len(keys)):
        return None
    kind, queue, priority, traceparent, *rest = shapes.pop()
    if tuple(rest) != _PLAIN:
        return None
    ids = [draft.id for draft in drafts]
    params = {
        "kind": kind,
        "queue": queue,
        "priority": priority,
        "traceparent": None if traceparent is UNSET else traceparent,
        "count": len(ids),
        "ids": msgspec.json.encode(ids).decode(),
        "payloads": f"[{','.join([draft.payload for draft in drafts])}]",
    }

    def read(rows: list[Row]) -> list[Row]:
        ((count, some),) = rows
        taken = ids if count == len(ids) else msgspec.json.decode(some or "[]")
        return [(id, False) for id in taken]

    if keys[0] is None:
        return None if whole else Form(Statement("admit_alike", params), read)
    prints = ",".join([str(draft.fingerprint) for draft in drafts])
    params |= {
        "whole": whole,
        "keys": msgspec.json.encode(keys).decode(),
        "fingerprints": f"{{{prints}}}",
    }
    return Form(Statement("admit_alike_keyed", params), read)
