"""Plans of those who run jobs one by one and from afar: claim once per request, settle, heartbeat.

Every job of such a claim has a lease of its own, so that each can be kept or let go by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from oncely.model.errors import InvalidInput, JobNotFound, LeaseLost
from oncely.model.keys import shown
from oncely.model.request import Response
from oncely.store import requests
from oncely.store.claim import Claimed, Fence, claim, claimed_before
from oncely.store.deliver import Settlement, settle
from oncely.store.lanes import Claim, Outlook, claim_shared, survey
from oncely.store.limits import hold, limit_names
from oncely.store.plan import Plan, Statement, document
from oncely.store.requests import Mark

Verb = Literal["ack", "nack", "defer"]
ENDS: Final[dict[Verb, tuple[str, ...]]] = {
    "ack": ("completed",),
    "nack": ("retried", "failed"),
    "defer": ("deferred", "failed"),
}
"""What each verb can leave behind: a repeat of it finds one of these."""
CLAIM_BYTES = 16 * 1024 * 1024
"""The answer to a claim over HTTP ends at about that size, however many jobs were asked for."""
_KEEP_US: Final = 86_400 * 1_000_000
_ID: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([1-9][0-9]{0,17})\.([0-7]?[0-9a-f]{1,15})"
)


class Execution(msgspec.Struct, frozen=True):
    """One delivery, as whoever runs it knows it."""

    job_id: str
    fence: Fence

    def params(self, **more: Any) -> dict[str, Any]:
        known = {"id": self.job_id, "epoch": self.fence.epoch, "nonce": self.fence.nonce}
        return {**known, **more}


def execution(execution_id: str, job_id: str) -> Execution:
    """From the id that the claim gave out. One of another job is refused like one that is lost."""
    parts = _ID.fullmatch(execution_id)
    if parts is None:
        raise InvalidInput(
            f"executionId is {shown(execution_id)}; expected the one that the claim gave, unchanged"
        )
    if parts[1] != job_id:
        raise LeaseLost(job_id, int(parts[2]))
    return Execution(job_id, Fence(int(parts[2]), int(parts[3], 16)))


class Wanted(msgspec.Struct, frozen=True):
    """A claim. One with a `request_id` is made once, however often it is asked for."""

    queue: str
    worker: str
    nonce: int
    lease_seconds: float
    limit: int
    request_id: str | None = None

    @property
    def mark(self) -> Mark | None:
        if self.request_id is None:
            return None
        key = msgspec.json.encode([self.worker, self.request_id]).decode()
        return Mark(f"claim {self.queue}", key, self.nonce, 0, _KEEP_US)


class Handed(msgspec.Struct, frozen=True):
    jobs: list[Claimed]
    repeated: bool = False
    wait_seconds: float | None = None
    """When something falls due by time alone."""


def claim_once(wanted: Wanted, *, again: bool = False) -> Plan[Handed]:
    """In a transaction. A repeat gives back what that claim still holds. A claim that found nothing
    leaves nothing behind."""
    mark = wanted.mark
    if mark is not None:
        seen = yield from requests.begin(mark, "claim", run_unknown=False, again=again)
        if seen is not None:
            return Handed((yield from claimed_before(wanted.worker, seen.owner)), repeated=True)
    jobs: list[Claimed] = []
    if again:
        jobs = yield from claimed_before(wanted.worker, wanted.nonce)
    outlook = Outlook()
    if not jobs:
        yield from survey(outlook, [wanted.queue])
        jobs = yield from _one_by_one(wanted, outlook)
    if mark is not None:
        if jobs:
            yield from requests.done(mark, Response(200, None, None))
        else:
            yield from requests.clear(mark)
    return Handed(jobs, wait_seconds=outlook.wait_seconds)


def _one_by_one(wanted: Wanted, outlook: Outlook) -> Plan[list[Claimed]]:
    """Up to the one whose payload goes beyond CLAIM_BYTES."""
    jobs: list[Claimed] = []
    size = 0
    while wanted.queue in outlook.due and len(jobs) < wanted.limit and size < CLAIM_BYTES:
        nonce = wanted.nonce + len(jobs)
        if wanted.queue in outlook.shared:
            lease_us = round(wanted.lease_seconds * 1_000_000)
            one = Claim(wanted.queue, wanted.worker, nonce, lease_us, 1)
            got = yield from claim_shared(outlook, one)
        else:
            got = yield from claim(
                wanted.queue,
                worker=wanted.worker,
                nonce=nonce,
                lease_seconds=wanted.lease_seconds,
                limit=1,
            )
        if not got:
            break
        jobs += got
        size += len(got[0].payload.encode())
    return jobs


def queues_of(job_ids: Iterable[str]) -> Plan[dict[str, str]]:
    """The queue of each of these jobs that there is; it never changes."""
    return dict((yield document("find_queues", [{"id": job_id} for job_id in job_ids])))


def end(one: Execution, verb: Verb, make: Callable[[Claimed], Settlement]) -> Plan[bool]:
    """Settle it, in a transaction, as `make` says after a look at the job. False: that end was
    there already, and nothing is changed. If the lease ran out and nobody has claimed the job
    since, it is accepted."""
    settlement = make((yield from _delivery(one)))
    if (yield from _ended(one)) in ENDS[verb]:
        return False
    if not (yield from settle([settlement])):
        return True
    if (yield Statement("revive", one.params(lease_us=0))) and not (
        yield from settle([settlement])
    ):
        return True
    raise LeaseLost(one.job_id, one.fence.epoch)


def keep(one: Execution, lease_seconds: float) -> Plan[int]:
    """Renew its lease, in a transaction; until when, in microseconds since 1970. One that ran out
    is revived if nobody has claimed the job since, and if its limits have room for it."""
    lease_us = round(lease_seconds * 1_000_000)
    rows = yield Statement("heartbeat", one.params(lease_us=lease_us))
    if not rows:
        job = yield from _delivery(one)
        if (yield from _has_room(job)):
            rows = yield Statement("revive", one.params(lease_us=lease_us))
    if not rows:
        raise LeaseLost(one.job_id, one.fence.epoch)
    return int(rows[0][0])


def _has_room(job: Claimed) -> Plan[bool]:
    # It was begun before, so neither a pause nor a rate is in its way.
    return all(
        limit.held and (limit.concurrency is None or limit.running < limit.concurrency)
        for limit in (yield from hold(limit_names(job.queue, job.group_key))).values()
    )


def _delivery(one: Execution) -> Plan[Claimed]:
    rows = yield Statement("delivery", {"id": one.job_id})
    if not rows:
        raise JobNotFound(one.job_id)
    job = Claimed(one.job_id, one.fence, *rows[0])
    return msgspec.structs.replace(job, is_unique=bool(job.is_unique))


def _ended(one: Execution) -> Plan[str | None]:
    rows = yield Statement("end_of", {"id": one.job_id, "epoch": one.fence.epoch})
    return rows[0][0] if rows else None
