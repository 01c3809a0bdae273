"""Plans that list jobs, the newest first, by whatever filter.

No index is kept for that. Ids are in the order of time, so a span of time is a range of ids, and a
filter that matches rarely looks at so many jobs for a page and then says how far back it came.
"""

from __future__ import annotations

import math
from typing import Any, Final

import msgspec

from oncely.model.job import Brief, Job
from oncely.model.transition import State
from oncely.store.look import FIRST, LAST, look_at, moment_of, shared
from oncely.store.plan import Plan, Row, Statement, document
from oncely.store.steer import failed_after

LOOKED: Final = 20_000
LOOKED_JOINED: Final = 5_000
"""So many jobs are looked at for a page, of those that the filter is to choose from: more where one
row tells enough, fewer where others have to be found for it."""
FEW: Final = 10_000
"""So many that wait are read whole, in whatever order they wait."""
PAGE_BYTES = 16 * 1024 * 1024
"""A page ends at about that size, however many jobs were asked for."""
_FEW_ON_A_PAGE: Final = 16
_KEY_LIMIT: Final = 100
_RESTING: Final = ("failed", "cancelled", "in_doubt")
_WAITING: Final = ("scheduled", "pending")


class Wanted(msgspec.Struct, frozen=True):
    """Which jobs. `since` and `until` are ids: from the one on, and before the other. `key` is an
    idempotency key or a unique key."""

    state: State | None = None
    kind: str | None = None
    queue: str | None = None
    group_key: str | None = None
    tag: str | None = None
    key: str | None = None
    since: str = FIRST
    until: str = LAST

    @property
    def is_picky(self) -> bool:
        """Whether not every job that is looked at is one of them."""
        return any((self.kind, self.queue, self.group_key, self.tag, self.key))

    def has(self, job: Brief) -> bool:
        return (
            self.state in (None, job.state)
            and self.kind in (None, job.kind)
            and self.queue in (None, job.queue)
            and self.group_key in (None, job.group_key)
            and (self.tag is None or self.tag in job.tags)
            and self.since <= job.job_id < self.until
        )


class Place(msgspec.Struct, frozen=True):
    """Ids of a page, and where the next one goes on from; None if there is none."""

    ids: list[str]
    last: str | None


class Leaf(msgspec.Struct, frozen=True):
    """A page of jobs. `last` is where the next one goes on from; None if there is none."""

    jobs: list[Job]
    last: str | None


class BriefLeaf(msgspec.Struct, frozen=True):
    jobs: list[Brief]
    last: str | None


def jobs(wanted: Wanted, limit: int) -> Plan[list[Job]]:
    """As many as there are up to `limit`, however far back they lie."""
    found: list[Job] = []
    before: str | None = None
    while len(found) < limit:
        leaf = yield from page(wanted, limit - len(found), before)
        found += leaf.jobs
        if leaf.last is None:
            break
        before = leaf.last
    return found


def page(wanted: Wanted, limit: int, before: str | None = None) -> Plan[Leaf]:
    """Of those before `before`. A job that moves on while it is being read is left out; one that
    matches rarely may make a page short, or empty, and still there is a next one."""
    place = yield from _place(wanted, limit, before)
    found, cut = yield from _look_within(place.ids, math.inf if wanted.key else PAGE_BYTES)
    return Leaf([job for job in found if wanted.state in (None, job.state)], cut or place.last)


def _look_within(ids: list[str], limit_bytes: float) -> Plan[tuple[list[Job], str | None]]:
    """The jobs, up to about so many bytes, and the id that the page was cut after, if it was."""
    kept = yield from _fitting(ids, limit_bytes)
    found = yield from look_at(kept)
    return found, kept[-1] if len(kept) < len(ids) else None


def _fitting(ids: list[str], limit_bytes: float) -> Plan[list[str]]:
    """The first of them, up to the one that goes beyond. A few fit in any case."""
    if len(ids) <= _FEW_ON_A_PAGE:
        return ids
    rows = yield document("look_sizes", [{"id": id} for id in ids])
    sizes: dict[str, int] = dict(rows)
    total = 0
    for number, id in enumerate(ids, 1):
        total += sizes.get(id, 0)
        if total >= limit_bytes:
            return ids[:number]
    return ids


def brief_page(wanted: Wanted, limit: int, before: str | None = None) -> Plan[BriefLeaf]:
    """The same, without what may be large."""
    place = yield from _place(wanted, limit, before)
    found = yield from briefs(place.ids)
    return BriefLeaf([job for job in found if wanted.state in (None, job.state)], place.last)


def failed_page(
    after: str, *, kind: str | None, queue: str | None, error: str | None, limit: int
) -> Plan[Leaf]:
    """The dead-letter queue, the oldest first, of those after `after`."""
    ids = yield from failed_after(after, kind=kind, queue=queue, error=error, limit=limit)
    found, cut = yield from _look_within(ids, PAGE_BYTES)
    last = ids[-1] if len(ids) == limit else None
    return Leaf([job for job in found if job.state == "failed"], cut or last)


def briefs(ids: list[str]) -> Plan[list[Brief]]:
    if not ids:
        return []
    rows = yield document("look_brief", [{"id": id} for id in ids])
    found = {row[0]: _brief(row) for row in rows}
    return [found[id] for id in ids if id in found]


def _place(wanted: Wanted, limit: int, before: str | None) -> Plan[Place]:
    first = before is None
    before = min(before or LAST, wanted.until)
    known: list[str] = []
    if wanted.key is not None:
        # These are found however old they are, on the first page; looking back finds the jobs that
        # had it as their unique key once.
        known = [job.job_id for job in (yield from _with_key(wanted.key)) if wanted.has(job)]
    source = yield from _source(wanted)
    floor = None
    if wanted.is_picky or source == "list_standing" or source == "list_completed":
        floor = yield from _reach(wanted, source, before)
    rows = yield Statement(source, _params(wanted, limit, before, floor or wanted.since))
    ids = [id for (id,) in rows]
    last = ids[-1] if len(ids) == limit else floor
    ids = [id for id in ids if id not in known]
    return Place(sorted([*known, *ids], reverse=True) if first else ids, last)


def _source(wanted: Wanted) -> Plan[str]:
    """The statement that has these jobs, and few others."""
    if wanted.state in _RESTING:
        return "list_resting"
    if wanted.state == "running":
        return "list_running"
    if wanted.state == "completed":
        return "list_completed"
    if wanted.state is None:
        return "list_any"
    [(much,)] = yield Statement("waiting_is_much", {"few": FEW})
    return "list_standing" if much else "list_waiting"


def _reach(wanted: Wanted, source: str, before: str) -> Plan[str | None]:
    """The last of the jobs that are looked at; None if that is all of them."""
    if source in ("list_running", "list_waiting"):
        return None
    looked = LOOKED if source == "list_any" else LOOKED_JOINED
    params: dict[str, Any] = {"before": before, "lowest": wanted.since, "looked": looked - 1}
    if source == "list_resting":
        rows = yield Statement("reach_resting", {**params, "state": wanted.state})
    else:
        rows = yield Statement("reach_any", params)
    return rows[0][0] if rows else None


def _params(wanted: Wanted, limit: int, before: str, lowest: str) -> dict[str, Any]:
    return {
        "state": wanted.state,
        "kind": wanted.kind,
        "queue": wanted.queue,
        "group_key": wanted.group_key,
        "tag": wanted.tag,
        "key": wanted.key,
        "before": before,
        "lowest": lowest,
        "limit": limit,
    }


def _with_key(key: str) -> Plan[list[Brief]]:
    rows = yield Statement("find_key", {"key": key, "limit": _KEY_LIMIT})
    return (yield from briefs([id for (id,) in rows]))


def _brief(row: Row) -> Brief:
    same, (started, error_type, error_message) = shared(row)
    return Brief(
        **same,
        started_at=moment_of(started),
        error_type=error_type,
        error_message=error_message,
    )
