"""Look through a server."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from oncely.model.audit import AuditEntry
from oncely.model.counter import Counter
from oncely.model.health import KeyHealth
from oncely.model.job import Job
from oncely.model.story import Story
from oncely.model.traffic import Last, Traffic
from oncely.model.transition import ENDED
from oncely.model.worker import Worker
from oncely.store import audit as audits
from oncely.store import counters as counting
from oncely.store import listing, look, steer
from oncely.store import story as stories
from oncely.store import traffic as traffics
from oncely.store import workers as working
from oncely.store.listing import Wanted
from oncely.store.remote import wire
from oncely.store.remote.carry import carries, model, restored
from oncely.store.remote.server import Server

PAGE_LIMIT: Final = 1_000


@carries(look.get)
def get(server: Server, job_id: str) -> Job | None:
    body = server.found(f"/v1/jobs/{job_id}")
    return None if body is None else model(Job, body)


@carries(listing.jobs)
def jobs(server: Server, wanted: Wanted, limit: int) -> list[Job]:
    query = {
        "state": wanted.state,
        "kind": wanted.kind,
        "queue": wanted.queue,
        "groupKey": wanted.group_key,
        "tag": wanted.tag,
        "key": wanted.key,
        "createdFrom": None if wanted.since == look.FIRST else _moment(wanted.since),
        "createdUntil": None if wanted.until == look.LAST else _moment(wanted.until),
    }
    return _pages(server, "/v1/jobs", query, None, limit)


def _moment(job_id: str) -> str:
    milliseconds = int(job_id[:8] + job_id[9:13], 16)
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()


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
        page = msgspec.json.decode(body, type=wire.Page)
        found += [restored(Job, told) for told in page.jobs]
        cursor = page.next_cursor
        if cursor is None:
            break
    return found


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


@carries(audits.entries)
def entries(
    server: Server,
    limit: int,
    before: str | None,
    about: str | None,
    name: str | None,
    by: str | None,
) -> list[AuditEntry]:
    query = {"limit": limit, "cursor": before, "about": about, "name": name, "by": by}
    told = msgspec.json.decode(server.get("/v1/audit", query), type=wire.AuditPage)
    return [restored(AuditEntry, each) for each in told.entries]


@carries(counting.key_health)
def key_health(server: Server) -> list[KeyHealth]:
    told = msgspec.json.decode(server.get("/v1/keys"), type=wire.KeyHealths)
    return [restored(KeyHealth, each) for each in told.kinds]


@carries(working.workers)
def workers(server: Server) -> list[Worker]:
    told = msgspec.json.decode(server.get("/v1/workers"), type=wire.Workers)
    return [restored(Worker, each) for each in told.workers]


@carries(traffics.traffic)
def traffic(server: Server, last: Last) -> Traffic:
    return model(Traffic, server.get("/v1/traffic", {"last": last}))
