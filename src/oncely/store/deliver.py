"""Plans of delivery: claim under a lease, renew it, settle under its fence, recover."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, assert_never

import msgspec

from oncely.model.outcome import Back, Failure, Rest, Verdict
from oncely.model.transition import State
from oncely.store.plan import Plan, Row, Statement, document

CRASH_LIMIT: Final = 3
QUEUES: Final = 1_000
"""So many queues are looked at in one exchange; each has a nonce of its own."""
_CRASH: Final = Failure("WorkerDied", "the worker's lease ran out while it ran this job")
_POISON: Final = Failure(
    "PoisonPill",
    f"the worker died or stalled {CRASH_LIMIT} times in a row while it ran this job; it is not "
    "tried again by itself",
)


class Fence(msgspec.Struct, frozen=True):
    """What every write of an execution must show."""

    epoch: int
    nonce: int


class Claimed(msgspec.Struct, frozen=True):
    """One delivery of a job, and what its earlier deliveries have used up."""

    job_id: str
    fence: Fence
    kind: str
    queue: str
    payload: str
    attempts: int
    crashes: int
    defers: int
    max_attempts: int | None
    timeout_seconds: float | None
    age_seconds: float

    @property
    def attempt(self) -> int:
        return self.attempts + 1

    @property
    def execution_id(self) -> str:
        return f"{self.job_id}.{self.fence.epoch}.{self.fence.nonce:x}"


class Settlement(msgspec.Struct, frozen=True):
    """How one execution ended: in a resting `state`; or back in the line after `delay_us`, with
    the `outcome` told; or, with neither, handed back untried."""

    id: str
    attempt: int
    state: State | None = None
    outcome: Literal["retried", "deferred", "released"] | None = None
    attempts: int = 0
    crashes: int = 0
    defers: int = 0
    delay_us: int = 0
    result: str | None = None
    error: str | None = None
    epoch: int = 0
    nonce: int = 0

    def under(self, fence: Fence) -> Settlement:
        """With what it must show; without it, it is refused."""
        return msgspec.structs.replace(self, epoch=fence.epoch, nonce=fence.nonce)


class Recovered(msgspec.Struct, frozen=True):
    """A job that a dead worker held."""

    job_id: str
    epoch: int
    kind: str
    queue: str
    worker: str
    fate: Literal["untried", "crashed", "poisoned"]


def claim(
    queue: str,
    *,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    started: int | None = None,
) -> Plan[list[Claimed]]:
    """Jobs that are due, in order. The first `started` of them (all, if not said) are begun."""
    rows = yield Statement(
        "claim",
        {
            "queue": queue,
            "worker": worker,
            "nonce": nonce,
            "lease_us": round(lease_seconds * 1_000_000),
            "limit": limit,
            "started": limit if started is None else started,
        },
    )
    return [_claimed(row) for row in rows]


def _claimed(row: Row) -> Claimed:
    job_id, epoch, nonce, *rest = row
    return Claimed(job_id, Fence(epoch, nonce), *rest)


def waiting_queues() -> Plan[list[str]]:
    """The queues in which something waits, due or not."""
    rows = yield Statement("queues_waiting")
    return [row[0] for row in rows]


def renew(worker: str, lease_seconds: float) -> Plan[set[int]]:
    """Renew all leases of a worker; the epochs that it still holds."""
    rows = yield Statement(
        "renew", {"worker": worker, "lease_us": round(lease_seconds * 1_000_000)}
    )
    return {row[0] for row in rows}


def claimed_before(worker: str, nonce: int) -> Plan[list[Claimed]]:
    """What an exchange has claimed whose answer was lost."""
    rows = yield Statement("claimed", {"worker": worker, "nonce": nonce, "beyond": nonce + QUEUES})
    return [_claimed(row) for row in rows]


def settle(settlements: Sequence[Settlement], *, again: bool = False) -> Plan[list[Settlement]]:
    """Settle, in a transaction; the settlements that were refused, because the lease is lost.

    An execution whose lease ran out may still end its job if nobody else has claimed it since.
    `again` says that these were sent before and the answer was lost: what is there is accepted.
    """
    accepted: set[tuple[str, int]] = set()

    def refused() -> list[Settlement]:
        return [s for s in settlements if (s.id, s.epoch) not in accepted]

    if again:
        accepted.update((yield document("settled", settlements)))
    if waiting := refused():
        accepted.update((yield document("settle", waiting)))
    if late := [s for s in refused() if s.state is not None]:
        accepted.update((yield document("settle_late", late)))
    return refused()


def exchange(
    done: Sequence[Settlement],
    *,
    queues: Sequence[str] | None,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    again: bool,
) -> Plan[tuple[list[Settlement], list[Claimed]]]:
    """Settle what is done and claim up to `limit` jobs, in one transaction: the settlements that
    were refused, and the jobs."""
    lost = (yield from settle(done, again=again)) if done else []
    claimed: list[Claimed] = []
    if limit and again:
        claimed = yield from claimed_before(worker, nonce)
    if limit and not claimed:
        names = queues if queues is not None else (yield from waiting_queues())
        first = nonce % len(names) if names else 0
        for n, queue in enumerate([*names[first:], *names[:first]][:QUEUES]):
            if len(claimed) < limit:
                claimed += yield from claim(
                    queue,
                    worker=worker,
                    nonce=nonce + n,
                    lease_seconds=lease_seconds,
                    limit=limit - len(claimed),
                )
    return lost, claimed


def settlement(claimed: Claimed, verdict: Verdict) -> Settlement:
    """The verdict on an execution in the form in which the store takes it."""
    failure = None
    if verdict.failure is not None:
        failure = msgspec.json.encode(verdict.failure).decode()
    base = Settlement(id=claimed.job_id, attempt=claimed.attempt, error=failure).under(
        claimed.fence
    )
    match verdict:
        case Rest(state, result):
            return msgspec.structs.replace(base, state=state, result=result)
        case Back(outcome, delay_seconds, attempts, defers):
            return msgspec.structs.replace(
                base,
                outcome=outcome,
                delay_us=round(delay_seconds * 1_000_000),
                attempts=attempts,
                defers=defers,
            )
        case _:
            assert_never(verdict)


def handed_back(claimed: Claimed, *, tried: bool) -> Settlement:
    """Back in line at once, with nothing used up."""
    return Settlement(
        id=claimed.job_id,
        attempt=claimed.attempt,
        outcome="released" if tried else None,
        attempts=claimed.attempts,
        crashes=claimed.crashes,
        defers=claimed.defers,
    ).under(claimed.fence)


def reclaim(limit: int) -> Plan[list[Recovered]]:
    """Take back the jobs of up to `limit` leases that have run out."""
    rows = yield Statement(
        "reclaim",
        {
            "limit": limit,
            "crash_limit": CRASH_LIMIT,
            "crash": msgspec.json.encode(_CRASH).decode(),
            "poison": msgspec.json.encode(_POISON).decode(),
        },
    )
    return [Recovered(*row) for row in rows]
