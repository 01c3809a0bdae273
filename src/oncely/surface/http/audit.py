"""The audit trail over HTTP."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from oncely.model.audit import About
from oncely.model.errors import InvalidInput
from oncely.store.remote.mirror import mirror
from oncely.store.remote.wire import AuditPage
from oncely.surface.base import is_job_id
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.types import KEY, Body, Cursor, described


class AuditQuery(Body):
    about: Annotated[About | None, Meta(description="What was changed")] = None
    name: Annotated[str | None, described("The job's id, or the name of it", **KEY)] = None
    by: Annotated[str | None, described("Who changed it", **KEY)] = None
    cursor: Cursor | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000, description="So many entries at most")] = 100


async def list_audit(call: Call[None, AuditQuery]) -> Answer:
    call.enter_all()
    query = call.query
    if query.cursor is not None and not is_job_id(query.cursor):
        raise InvalidInput("cursor is not one of ours; expected nextCursor of the page before")
    found = await call.app.aaudit(
        limit=query.limit, before=query.cursor, about=query.about, name=query.name, by=query.by
    )
    last = found[-1].id if len(found) == query.limit else None
    return Answer(AuditPage([mirror(each) for each in found], last))


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/v1/audit",
        "admin",
        list_audit,
        "Who changed what, when and why, the newest first",
        answer=AuditPage,
        query=AuditQuery,
        statuses={200: "A page"},
        problems=("queue_forbidden",),
        tag="Operation",
    ),
)
