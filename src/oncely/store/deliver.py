"""Plans of delivery: claim under a lease, renew it, settle under its fence, recover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, Final, Literal, assert_never, cast

import msgspec

from oncely.model.event import What
from oncely.model.outcome import Back, Failure, Rest, Verdict
from oncely.model.transition import State
from oncely.store.claim import QUEUES, Claimed, Fence, claim, claimed_before
from oncely.store.effects import Renamed, hold_for
from oncely.store.lanes import Claim, Outlook, claim_shared
from oncely.store.limits import give_back, limit_names
from oncely.store.plan import Plan, Statement, document
from oncely.store.story import REPEATS
from oncely.store.swap import Completed, fences, settle_whole

CRASH_LIMIT: Final = 3
_CRASH: Final = Failure("WorkerDied", "the worker's lease ran out while it ran this job")
_HELD: Final = Failure(
    "WorkerDied", "the worker's lease ran out while it held this job, and may have begun it"
)
_POISON: Final = Failure(
    "PoisonPill",
    f"the worker died or stalled {CRASH_LIMIT} times in a row while it ran this job; it is not "
    "tried again by itself",
)


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
    hand_backs: int = 0
    delay_us: int = 0
    result: str | None = None
    error: str | None = None
    epoch: int = 0
    nonce: int = 0
    doubts: list[str] = []
    """The effects that the job is held for."""
    maybe_written: bool = False
    """Its handler may have completed the job itself, in a transaction."""
    written: bool = False
    """It has, and knows it."""
    repeats: list[str] = []
    """The effects that it found done, and did not do again."""
    renamed: Renamed | None = None

    @property
    def fence(self) -> Fence:
        return Fence(self.epoch, self.nonce)

    @property
    def execution(self) -> tuple[str, int, int]:
        """The execution that ended: the job, and the fence it ran under. After a failover or from a
        backup a store may give out an epoch again, and only the nonce is another."""
        return self.id, self.epoch, self.nonce

    @property
    def what(self) -> What:
        """How the execution ended, in one word."""
        return cast("What", self.state or self.outcome or "released")

    @property
    def has_end(self) -> bool:
        """Whether the handler came to an end. A job that is only handed back says nothing that
        could come too late."""
        return self.what != "released"

    def traces(self, *, refused: bool) -> Iterator[dict[str, Any]]:
        """What is kept of the repeats that were recognised: the effects that it found done, and
        its end if that came too late."""
        own = {"job_id": self.id, "epoch": self.epoch, "attempt": self.attempt}
        me = f"{self.epoch}.{self.nonce}"
        for n, name in enumerate(self.repeats, 1):
            yield {**own, "boundary": "effect", "id": f"{me}.{name}", "outcome": name, "n": n}
        if refused and self.has_end:
            yield {**own, "boundary": "delivery", "id": me, "outcome": self.what, "n": 1}

    def renamed_effects(self) -> Iterator[dict[str, Any]]:
        if self.renamed is not None:
            for name in self.renamed.names:
                begun = self.renamed.begun
                yield {"id": self.id, "name": name, "epoch": self.epoch, "begun": begun}

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


def renew(
    worker: str, known: Iterable[Fence], lease_seconds: float
) -> Plan[set[tuple[Fence, str]]]:
    """Renew the leases that a worker knows of, unless they have run out; the jobs that it still
    holds, each under the fence of its lease. One that was cancelled is missing from a lease that
    goes on."""
    leases = [{"epoch": fence.epoch, "nonce": fence.nonce} for fence in known]
    rows = yield document("renew", leases, worker=worker, lease_us=_microseconds(lease_seconds))
    return {
        (Fence(epoch, nonce), id) for epoch, nonce, ids in rows for id in msgspec.json.decode(ids)
    }


def settle(settlements: Sequence[Settlement], *, again: bool = False) -> Plan[list[Settlement]]:
    """Settle, in a transaction; the settlements that were refused, because the lease is lost.

    An execution whose lease ran out may still end its job if nobody else has claimed it since.
    `again` says that these were sent before and the answer was lost: what is there is accepted.
    """
    accepted = {s.execution for s in settlements if s.written}

    def refused() -> list[Settlement]:
        return [s for s in settlements if s.execution not in accepted]

    if asked := [s for s in refused() if again or s.maybe_written]:
        accepted.update((yield document("settled", asked)))
    if waiting := refused():
        accepted.update((yield document("settle", waiting)))
    if late := [s for s in refused() if s.state is not None]:
        accepted.update((yield document("settle_late", late)))
    for held in settlements:
        if held.doubts and held.execution in accepted:
            yield from hold_for(held.id, held.doubts)
    traces = [trace for s in settlements for trace in s.traces(refused=s.execution not in accepted)]
    if traces:
        yield document("keep_recognised", traces, limit=REPEATS)
    renamed = [record for s in settlements for record in s.renamed_effects()]
    if renamed:
        yield document("effects_renamed", renamed)
    return refused()


def settle_last(claimed: Claimed) -> Statement | None:
    """Complete it, with nothing to tell, if it has its lease for itself and holds no unique key."""
    if claimed.of > 1 or claimed.is_unique:
        return None
    return Statement(
        "settle_last",
        {
            "id": claimed.job_id,
            "epoch": claimed.fence.epoch,
            "nonce": claimed.fence.nonce,
            "attempt": claimed.attempt,
            "kind": claimed.kind,
        },
    )


def is_settled(settlement: Settlement) -> Plan[bool]:
    """Whether an end of this execution was written."""
    return bool((yield document("settled", [settlement])))


class Exchanged(msgspec.Struct, frozen=True):
    refused: list[Settlement]
    claimed: list[Claimed]


def exchange(
    done: Sequence[Settlement],
    *,
    over: Sequence[Sequence[Completed]] = (),
    outlook: Outlook,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    begun: int | None = None,
    again: bool,
    pushes: bool = False,
    apart: bool = False,
    bounds: Callable[[str], Mapping[tuple[int, str], int]] = lambda _: {},
    limit_bytes: int | None = None,
) -> Plan[Exchanged]:
    """Settle the leases that are `over` and what else is done, and claim up to `limit` jobs where
    the outlook says that some are due, in one transaction. The first `begun` of them (all, if not
    said) begin at once; `apart`: each has a lease of its own; `bounds` of a queue: see Claim.
    The payloads of all jobs have about `limit_bytes` at most; jobs beyond that are handed back."""
    if over:
        given_back = set() if again else fences((yield settle_whole(over)))
        kept = [lease for lease in over if lease[0].claimed.fence not in given_back]
        done = [*done, *(completed(end) for lease in kept for end in lease)]
    refused = (yield from settle(done, again=again)) if done else []
    claimed: list[Claimed] = []
    payload_limit = limit_bytes // limit if limit_bytes is not None and limit else None
    if limit and again:
        claimed = yield from claimed_before(worker, nonce, payload_limit=payload_limit)
    if limit and not claimed:
        names = sorted(outlook.due)
        first = nonce % len(names) if names else 0
        wanted = Claim("", worker, nonce, _microseconds(lease_seconds), limit, begun, apart)
        wanted = msgspec.structs.replace(wanted, payload_limit=payload_limit)
        for n, queue in enumerate([*names[first:], *names[:first]][:QUEUES]):
            if len(claimed) == limit:
                break
            left = msgspec.structs.replace(wanted.after(claimed), queue=queue, nonce=nonce + n)
            if queue in outlook.shared:
                left = msgspec.structs.replace(left, bounds=bounds(queue))
                claimed += yield from claim_shared(outlook, left)
            else:
                claimed += yield from claim(
                    queue,
                    worker=worker,
                    nonce=left.nonce,
                    lease_seconds=lease_seconds,
                    limit=left.limit,
                    started=left.begun,
                    pushes=pushes,
                    apart=apart,
                    payload_limit=payload_limit,
                )
    if limit_bytes is not None:
        # What was claimed before did fit, in whatever order it comes back.
        claimed = yield from _within_bytes(claimed, limit_bytes * (2 if again else 1))
    return Exchanged(refused, claimed)


def _within_bytes(claimed: list[Claimed], limit_bytes: int) -> Plan[list[Claimed]]:
    """The jobs of a claim with a `payload_limit`, up to the one whose payload goes beyond
    `limit_bytes`, and all their payloads. The others are handed back untried. Of each queue the
    highest priority is kept first, and then the job that has waited longest: in the order of the
    claim the same groups would always come last."""
    if all(job.payload for job in claimed):
        return claimed
    sizes: dict[str, int] = dict((yield document("look_sizes", _ids(claimed))))
    queues = list(dict.fromkeys(job.queue for job in claimed))
    kept: set[str] = set()
    total = 0
    for job in sorted(
        claimed, key=lambda job: (queues.index(job.queue), -job.priority, -job.waited_seconds)
    ):
        if total < limit_bytes:
            kept.add(job.job_id)
            total += sizes[job.job_id]
    beyond = [job for job in claimed if job.job_id not in kept]
    if beyond:
        yield from settle([handed_back(job, tried=False) for job in beyond])
        yield from give_back(
            Counter(name for job in beyond for name in limit_names(job.queue, job.group_key))
        )
    unread = [job for job in claimed if job.job_id in kept and not job.payload]
    payloads: dict[str, str] = dict((yield document("payloads", _ids(unread))))
    of = Counter(job.fence for job in claimed if job.job_id in kept)
    places = {fence: count() for fence in of}
    return [
        msgspec.structs.replace(
            job,
            payload=job.payload or payloads[job.job_id],
            place=next(places[job.fence]),
            of=of[job.fence],
        )
        for job in claimed
        if job.job_id in kept
    ]


def _ids(jobs: Iterable[Claimed]) -> list[dict[str, str]]:
    return [{"id": job.job_id} for job in jobs]


def settlement(claimed: Claimed, verdict: Verdict) -> Settlement:
    """The verdict on an execution in the form in which the store takes it."""
    failure = None
    if verdict.failure is not None:
        failure = msgspec.json.encode(verdict.failure).decode()
    base = Settlement(id=claimed.job_id, attempt=claimed.attempt, error=failure).under(
        claimed.fence
    )
    match verdict:
        case Rest(state, result, _, doubts):
            return msgspec.structs.replace(base, state=state, result=result, doubts=doubts)
        case Back(outcome, delay_seconds, attempts, defers, _, crashes, hand_backs):
            return msgspec.structs.replace(
                base,
                outcome=outcome,
                delay_us=_microseconds(delay_seconds),
                attempts=attempts,
                defers=defers,
                crashes=crashes,
                hand_backs=hand_backs,
            )
        case _:
            assert_never(verdict)


def completed(end: Completed) -> Settlement:
    """A plain return in the form in which it is settled by itself."""
    claimed = end.claimed
    return Settlement(
        id=claimed.job_id,
        attempt=claimed.attempt,
        state="completed",
        result=end.result,
        epoch=claimed.fence.epoch,
        nonce=claimed.fence.nonce,
    )


def handed_back(claimed: Claimed, *, tried: bool) -> Settlement:
    """Back in line at once, with nothing used up."""
    return Settlement(
        id=claimed.job_id,
        attempt=claimed.attempt,
        outcome="released" if tried else None,
        attempts=claimed.attempts,
        crashes=claimed.crashes,
        defers=claimed.defers,
        hand_backs=claimed.hand_backs,
    ).under(claimed.fence)


def reclaim(limit: int) -> Plan[list[Recovered]]:
    """Take back the jobs of up to `limit` leases that have run out."""
    rows = yield Statement(
        "reclaim",
        {
            "limit": limit,
            "crash_limit": CRASH_LIMIT,
            "crash": msgspec.json.encode(_CRASH).decode(),
            "held": msgspec.json.encode(_HELD).decode(),
            "poison": msgspec.json.encode(_POISON).decode(),
        },
    )
    return [Recovered(*row) for row in rows]


def next_expiry() -> Plan[float | None]:
    """In how many seconds the next lease runs out, 0 or less if one has; None without leases."""
    [(microseconds,)] = yield Statement("next_expiry")
    return None if microseconds is None else microseconds / 1_000_000


def _microseconds(seconds: float) -> int:
    return round(seconds * 1_000_000)
