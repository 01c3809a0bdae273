"""What a store of jobs does, in plain Python: no SQL, no concurrency, no time but whole days.

Written from the contract and not from the engines, for a test to compare them with it.
"""

from dataclasses import dataclass, field
from typing import Final

from oncely.model.transition import State
from oncely.store.sql import EngineName

KEY_DAYS: Final = 30
ACTIVE: Final = ("scheduled", "pending", "running", "in_doubt")
PRUNED: Final = ("completed", "failed", "cancelled")


@dataclass(frozen=True)
class Call:
    """An enqueue call."""

    kind: str
    queue: str
    payload: int
    key: str | None
    unique: str | None
    later: bool


@dataclass(eq=False)
class PlainJob:
    call: Call
    state: State
    attempt: int = 0
    """As shown: what has been used up, and in the end the number of the last one."""
    ended_day: int = 0
    pruned: bool = False
    ids: dict[EngineName, str] = field(default_factory=dict)
    epochs: dict[EngineName, list[int]] = field(default_factory=dict)
    settled: int = 0
    """How many of the epochs have ended."""


@dataclass(frozen=True)
class Memory:
    """An idempotency key: whose it is, and with what content it came."""

    job: PlainJob
    content: tuple[str, int]
    state: State | None = None
    expires_day: int | None = None


@dataclass(eq=False)
class PlainLease:
    jobs: list[PlainJob]
    attempts: dict[PlainJob, int]
    held: set[PlainJob]


@dataclass(frozen=True)
class Answer:
    job: PlainJob
    inserted: bool
    state: State


class Conflict(Exception):
    def __init__(self, job: PlainJob | None) -> None:
        self.job = job


class WrongState(Exception):
    pass


class Missing(Exception):
    pass


class Taken(Exception):
    def __init__(self, holder: PlainJob) -> None:
        self.holder = holder


class PlainStore:
    def __init__(self) -> None:
        self.jobs: list[PlainJob] = []
        self.keys: dict[tuple[str, str], Memory] = {}
        self.leases: list[PlainLease] = []
        self.day = 0

    @property
    def alive(self) -> list[PlainJob]:
        return [job for job in self.jobs if not job.pruned]

    def holder(self, kind: str, unique: str) -> PlainJob | None:
        for job in self.alive:
            if job.state in ACTIVE and (job.call.kind, job.call.unique) == (kind, unique):
                return job
        return None

    def expired(self, memory: Memory) -> bool:
        return memory.expires_day is not None and memory.expires_day <= self.day

    def enqueue(self, call: Call) -> Answer:
        content = (call.kind, call.payload)
        known = self.keys.get((call.queue, call.key)) if call.key else None
        if known is not None and not self.expired(known):
            if known.content != content:
                raise Conflict(known.job)
            return Answer(known.job, False, known.state or known.job.state)
        holder = self.holder(call.kind, call.unique) if call.unique else None
        job = holder or PlainJob(call, "scheduled" if call.later else "pending")
        if holder is None:
            self.jobs.append(job)
        if call.key:
            self.keys[call.queue, call.key] = Memory(job, content)
        return Answer(job, holder is None, job.state)

    def enqueue_many(self, calls: list[Call]) -> list[Answer]:
        jobs, keys = list(self.jobs), dict(self.keys)
        try:
            return [self.enqueue(call) for call in calls]
        except Conflict as conflict:
            self.jobs, self.keys = jobs, keys
            raise Conflict(conflict.job if conflict.job in jobs else None) from None

    def cancel(self, job: PlainJob) -> None:
        if job.pruned:
            raise Missing
        if job.state == "cancelled":
            return
        if job.state == "running":
            [lease] = [lease for lease in self.leases if job in lease.held]
            self.settle(lease, [job], "cancelled")
        elif job.state in ("scheduled", "pending", "in_doubt"):
            self._end(job, "cancelled")
        else:
            raise WrongState

    def claim(self, queue: str) -> PlainLease | None:
        """Everything that is due."""
        due = [job for job in self.alive if job.state == "pending" and job.call.queue == queue]
        if not due:
            return None
        for job in due:
            job.state = "running"
        lease = PlainLease(due, {job: job.attempt + 1 for job in due}, set(due))
        self.leases.append(lease)
        return lease

    def settle(self, lease: PlainLease, jobs: list[PlainJob], state: State) -> set[PlainJob]:
        """`pending` and `scheduled` are retries, now and later."""
        accepted = lease.held & set(jobs)
        lease.held -= accepted
        for job in accepted:
            job.settled += 1
            job.attempt = lease.attempts[job]
            self._end(job, state)
        return accepted

    def replay(self, job: PlainJob) -> None:
        if job.pruned:
            raise Missing
        if job.state != "failed":
            raise WrongState
        holder = self.holder(job.call.kind, job.call.unique) if job.call.unique else None
        if holder is not None:
            raise Taken(holder)
        job.state = "pending"
        job.attempt = 0

    def prune(self) -> int:
        gone = [job for job in self.alive if job.state in PRUNED]
        for place, memory in self.keys.items():
            job = memory.job
            if job in gone:
                left = self.day if job.state == "failed" else job.ended_day
                self.keys[place] = Memory(job, memory.content, job.state, left + KEY_DAYS)
        for job in gone:
            job.pruned = True
        return len(gone)

    def prune_keys(self) -> int:
        gone = [place for place, memory in self.keys.items() if self.expired(memory)]
        for place in gone:
            del self.keys[place]
        return len(gone)

    def let_days_pass(self, days: int) -> None:
        self.day += days
        for job in self.alive:
            if job.state == "scheduled":
                job.state = "pending"

    def _end(self, job: PlainJob, state: State) -> None:
        job.state = state
        job.ended_day = self.day
