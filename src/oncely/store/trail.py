"""An entry in the audit trail: it is part of the transaction that makes the change."""

from __future__ import annotations

from typing import Any

import msgspec

from oncely.model.audit import About
from oncely.store.plan import Plan, Statement


class Trail(msgspec.Struct, frozen=True):
    """Who is about to change something, and why. The id is made before the change: whatever is sent
    twice is told once. Entries are in the order of their ids, which are those of jobs."""

    id: str
    by: str
    note: str | None = None


def write(
    trail: Trail | None,
    act: str,
    about: About,
    name: str,
    *,
    details: Any = None,
    count: int | None = None,
) -> Plan[None]:
    """In the transaction of the change. Without a trail it is no operator who changes. An act that
    is done in many transactions adds its `count` to the one entry."""
    if trail is None:
        return
    yield Statement(
        "audit_write",
        {
            "id": trail.id,
            "by_whom": trail.by,
            "note": trail.note,
            "act": act,
            "about": about,
            "name": name,
            "count": count,
            "details": None if details is None else msgspec.json.encode(details).decode(),
        },
    )
