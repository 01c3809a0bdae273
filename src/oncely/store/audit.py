"""Plans that read the audit trail, and forget what is old."""

from __future__ import annotations

from typing import Any

from oncely.model.audit import About, AuditEntry
from oncely.store.look import LAST, moment, value
from oncely.store.plan import Plan, Statement


def entries(
    limit: int,
    before: str | None = None,
    *,
    about: About | None = None,
    name: str | None = None,
    by: str | None = None,
) -> Plan[list[AuditEntry]]:
    """The newest first, of those before the entry `before`."""
    found = "audit_list" if name is None else "audit_of"
    params: dict[str, Any] = {
        "about": about,
        "by_whom": by,
        "before": before or LAST,
        "limit": limit,
    }
    if name is not None:
        params["name"] = name
    rows = yield Statement(found, params)
    return [
        AuditEntry(
            id=id,
            at=moment(at),
            by=by_whom,
            act=act,
            about=told,
            name=name,
            note=note,
            count=count,
            details=value(details),
        )
        for id, at, by_whom, act, told, name, note, count, details in rows
    ]


def prune(before: str, limit: int) -> Plan[int]:
    """A step through the entries before this id; how many are gone."""
    return len((yield Statement("audit_prune", {"before": before, "limit": limit})))
