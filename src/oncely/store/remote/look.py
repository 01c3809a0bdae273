"""Look through a server."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from oncely.model.counter import Counter
from oncely.model.health import KeyHealth
from oncely.model.job import Job
from oncely.model.story import Story
from oncely.model.transition import ENDED, State
from oncely.store import counters as counting
from oncely.store import look, steer
from oncely.store import story as stories
from oncely.store.remote import wire
from oncely.store.remote.carry import carries, model, restored
from oncely.store.remote.server import Server

PAGE_LIMIT: Final = 1_000


@carries(look.get)
def get(server: Server, job_id: str) -> Job | None:
    body = server.found(f"/v1/jobs/{job_id}")
    return None if body is None else model(Job, body)


@carries(look.jobs)
def jobs(
    server: Server, state: State | None, kind: str | None, queue: str | None, limit: int
) -> list[Job]:
    query = {"state": state, "kind": kind, "queue": queue}
    return _pages(server, "/v1/jobs", query, None, limit)


@carries(steer.failed_after)
def failed_after(
    server: Server, after: str, kind: str | None, queue: str | None, error: str | None, limit: int
) -> list[str]:
    query = {"kind": kind, "queue": queue, "error": error}
    return [job.job_id for job in _pages(server, "/v1/dlq", query, after, limit)]


def _pages(
    server: Server, path: str, query: dict[str, Any], cursor: str | None, limit: int
) -> list[Job]:
    found: list[Job] = []
    while len(found) < limit:
        part = min(limit - len(found), PAGE_LIMIT)
        body = server.get(path, {**query, "cursor": cursor, "limit": part})
        page = msgspec.json.decode(body, type=_Page)
        found += [restored(Job, told) for told in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


_Page: Any = msgspec.defstruct(
    "_Page",
    [("jobs", list[wire.mirrored(Job)]), ("next_cursor", str | None)],  # type: ignore[misc]
    rename="camel",
)


@carries(look.at_rest)
def at_rest(server: Server, ids: Sequence[str]) -> tuple[list[Job], list[str]]:
    found = {job_id: get(server, job_id) for job_id in ids}
    ended = [job for job in found.values() if job is not None and job.state in ENDED]
    return ended, [job_id for job_id, job in found.items() if job is None]


@carries(stories.story)
def story(server: Server, job_id: str) -> Story:
    return model(Story, server.get(f"/v1/jobs/{job_id}/story", job_id=job_id))


@carries(counting.counters)
def counters(server: Server) -> list[Counter]:
    told = msgspec.json.decode(server.get("/v1/counters"), type=wire.Counters)
    return [restored(Counter, each) for each in told.counters]


@carries(counting.key_health)
def key_health(server: Server) -> list[KeyHealth]:
    told = msgspec.json.decode(server.get("/v1/keys"), type=wire.KeyHealths)
    return [restored(KeyHealth, each) for each in told.kinds]
