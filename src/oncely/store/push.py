"""Plans of push: what is known of earlier deliveries, and jobs that a receiver has accepted and not
ended yet."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from oncely.model.outcome import Failure, Raised, Verdict, decide
from oncely.model.push import NOT_SENT, UNACKNOWLEDGED, Previous, previous
from oncely.model.retry import Retry
from oncely.store.claim import Claimed, Fence, claimed_before
from oncely.store.deliver import settle, settlement
from oncely.store.plan import Plan, Statement, document

_BEYOND_SECONDS: Final = 120.0
_LATE: Final = Failure(
    UNACKNOWLEDGED, "the receiver accepted the job and did not say in time how it ended"
)


def known_before(job_ids: Sequence[str]) -> Plan[dict[str, Previous]]:
    """What is known of the last delivery of these jobs; one that had none is missing."""
    rows = yield document("push_previous", job_ids, not_sent=NOT_SENT)
    return {id: previous(outcome, kind, any_before=True) for id, outcome, kind in rows}


def accept(job_id: str, fence: Fence, ack_seconds: float, *, again: bool) -> Plan[bool]:
    """The receiver has it; False if the job is not this execution's any more. `again` says that
    this was sent before and the answer was lost."""
    mine = {"id": job_id, "epoch": fence.epoch, "nonce": fence.nonce}
    if again and (yield Statement("push_accepted", mine)):
        return True
    waits = {"ack_us": _microseconds(ack_seconds), "beyond_us": _microseconds(_BEYOND_SECONDS)}
    return bool((yield Statement("push_accept", {**mine, **waits})))


def fail_overdue(
    limit: int, retry_of: Callable[[Claimed], Retry], chance: Callable[[], float]
) -> Plan[list[str]]:
    """A failed attempt for each job that was accepted and not ended in time, in a transaction."""
    jobs: list[Claimed] = []
    for worker, epoch, nonce in (yield Statement("push_overdue", {"limit": limit})):
        found = yield from claimed_before(worker, nonce)
        jobs += [job for job in found if job.fence == Fence(epoch, nonce)]
    if not jobs:
        return []
    ends = [settlement(job, _verdict(job, retry_of(job), chance())) for job in jobs]
    yield from settle(ends)
    kept = [{"id": end.id, "epoch": end.epoch, "nonce": end.nonce} for end in ends]
    yield document("push_keep_fence", kept)
    return [job.job_id for job in jobs]


def _verdict(job: Claimed, retry: Retry, chance: float) -> Verdict:
    most = job.max_attempts or retry.max_attempts
    return decide(Raised(_LATE), job.standing(most), retry, chance)


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
