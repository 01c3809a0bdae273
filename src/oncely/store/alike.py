"""The quicker ways in: for one plain job, and for jobs that are alike."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from oncely.model.alike import Alike, found_alike, is_plain
from oncely.model.draft import Draft
from oncely.store.arrays import texts, uuids
from oncely.store.plan import Form, Quick, Row, Statement, Wired


class Document(dict[str, str | None]):
    """The drafts as one JSON document, made when it is asked for. `store` is the id of the store
    that they are for, in a transaction of the caller's."""

    def __init__(self, drafts: Sequence[Draft], store: str | None = None) -> None:
        super().__init__(store=store)
        self._drafts = drafts

    def __missing__(self, name: str) -> str:
        if name != "doc":
            raise KeyError(name)
        self[name] = made = msgspec.json.encode([*self._drafts]).decode()
        return made


def admitting(
    drafts: Sequence[Draft], *, alone: bool = False, store: str | None = None
) -> Statement:
    """`alone` if the plan has nothing else to do when all of them are taken in."""
    return Quick(
        "admit",
        Document(drafts, store),
        quicker=lambda: _quicker(drafts),
        whole=lambda: _whole(drafts) if alone else None,
    )


def _whole(drafts: Sequence[Draft]) -> Form | None:
    """All of them are new, or it fails."""
    if len(drafts) > 1:
        alike = found_alike(drafts)
        return None if alike is None else _new(alike)
    [draft] = drafts
    if draft.idempotency_key is not None or not is_plain(draft):
        # To pass over one known key costs hardly more, and leaves no error in the server's log.
        return None
    return Form(Wired("admit_one", _one(draft)), lambda _: [(draft.id, False)])


def _quicker(drafts: Sequence[Draft]) -> Form | None:
    if len(drafts) > 1 or drafts[0].idempotency_key is None:
        alike = found_alike(drafts)
        return None if alike is None else _some(alike)
    [draft] = drafts
    if not is_plain(draft):
        return None
    statement = Wired("admit_one_keyed", _one(draft))
    return Form(statement, lambda rows: [(draft.id, False)] if rows[0][0] else [])


def _one(draft: Draft) -> dict[str, str | bytes | None]:
    return {
        "kind": draft.kind,
        "queue": draft.queue,
        "priority": str(draft.priority),
        "traceparent": _trace(draft.traceparent),
        "id": draft.id,
        "payload": draft.payload,
        "key": draft.idempotency_key,
        "fingerprint": draft.fingerprint,
    }


def _new(alike: Alike) -> Form:
    """The columns that differ, instead of a document with all of them for each."""
    columns: dict[str, str | bytes | None] = {
        "kind": alike.kind,
        "queue": alike.queue,
        "priority": str(alike.priority),
        "traceparent": _trace(alike.traceparent),
        "count": str(len(alike)),
        "ids": uuids(alike.ids),
        "payloads": _payloads(alike),
    }
    if alike.keys:
        columns["keys"] = texts(alike.keys)
        columns["fingerprints"] = texts(alike.fingerprints)
    statement = Wired("admit_new_keyed" if alike.keys else "admit_new", columns)
    return Form(statement, lambda _: [(id, False) for id in alike.ids])


def _some(alike: Alike) -> Form:
    """Those of them that are new."""

    def read(rows: list[Row]) -> list[Row]:
        ((count, some),) = rows
        taken = alike.ids if count == len(alike) else msgspec.json.decode(some or "[]")
        return [(id, False) for id in taken]

    params = {
        "kind": alike.kind,
        "queue": alike.queue,
        "priority": alike.priority,
        "traceparent": _trace(alike.traceparent),
        "count": len(alike),
        "ids": msgspec.json.encode(alike.ids).decode(),
        "payloads": _payloads(alike),
    }
    if not alike.keys:
        return Form(Statement("admit_alike", params), read)
    params["keys"] = msgspec.json.encode(alike.keys).decode()
    params["fingerprints"] = f"{{{','.join(alike.fingerprints)}}}"
    return Form(Statement("admit_alike_keyed", params), read)


def _payloads(alike: Alike) -> str:
    return f"[{','.join(alike.payloads)}]"


def _trace(traceparent: str | UnsetType) -> str | None:
    return None if traceparent is UNSET else traceparent
