"""What travels between a remote store and the server, for both of them: `camelCase` on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from oncely.model.audit import AuditEntry
from oncely.model.counter import Counter
from oncely.model.effect import ARGUMENTS_LIMIT, Source, Verb
from oncely.model.flow import COUNT_LIMIT, RATE_LEAST_SECONDS, RATE_LIMIT_SECONDS, Group, Queue
from oncely.model.health import KeyHealth
from oncely.model.job import Job
from oncely.model.keys import KEY_LIMIT
from oncely.model.outcome import ERROR_LIMIT
from oncely.model.retry import MAX_ATTEMPTS
from oncely.model.traffic import BOUNDS, Measure
from oncely.model.worker import Worker
from oncely.store.claim import Claimed
from oncely.store.deliver import Recovered
from oncely.store.remote.mirror import mirrored

LEASE_LIMIT_SECONDS: Final = 86_400.0
WAIT_LIMIT_SECONDS: Final = 20.0
CLAIM_LIMIT: Final = 100
EXCHANGE_LIMIT: Final = 1_000
DELAY_LIMIT_SECONDS: Final = 366 * 86_400
_TEXT_LIMIT: Final = 4 * ERROR_LIMIT

Name = Annotated[str, Meta(min_length=1, max_length=128)]
Key = Annotated[str, Meta(min_length=1, max_length=KEY_LIMIT)]
Text = Annotated[str, Meta(max_length=_TEXT_LIMIT)]
Small = Annotated[int, Meta(ge=0, le=32_000)]
LeaseSeconds = Annotated[
    float, Meta(ge=1, le=LEASE_LIMIT_SECONDS, description="How long the lease lasts, from now on")
]
WaitSeconds = Annotated[
    float,
    Meta(ge=0, le=WAIT_LIMIT_SECONDS, description="If there is nothing now, wait so long for it"),
]
WorkerId = Annotated[str, Meta(min_length=1, max_length=200, description="Who takes them")]
ExecutionId = Annotated[
    str, Meta(min_length=1, max_length=100, description="As the claim gave it; opaque")
]


if TYPE_CHECKING:
    ClaimedTold = Any
    JobTold = Any
    RecoveredTold = Any
    QueueTold = Any
    GroupTold = Any
    CounterTold = Any
    KeyHealthTold = Any
    WorkerTold = Any
    AuditEntryTold = Any
else:
    ClaimedTold = mirrored(Claimed)
    JobTold = mirrored(Job)
    RecoveredTold = mirrored(Recovered)
    QueueTold = mirrored(Queue)
    GroupTold = mirrored(Group)
    CounterTold = mirrored(Counter)
    KeyHealthTold = mirrored(KeyHealth)
    WorkerTold = mirrored(Worker)
    AuditEntryTold = mirrored(AuditEntry)


class Asked(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A request. An unknown field is a mistake, and told."""


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """An answer. Later versions may add fields."""


class FailureSent(Asked, frozen=True):
    """An error as it is kept."""

    type: Text
    message: Text
    traceback: Text | None = None


class RenamedSent(Asked, frozen=True):
    names: Annotated[list[Key], Meta(max_length=1_000)]
    begun: Annotated[list[Key], Meta(max_length=1_000)]


class EndSent(Asked, frozen=True):
    """How one execution ended. With neither `state` nor `outcome` it is handed back untried."""

    execution_id: ExecutionId
    attempt: Small
    state: Literal["completed", "failed", "cancelled", "in_doubt"] | None = None
    outcome: Literal["retried", "deferred", "released"] | None = None
    attempts: Small = 0
    crashes: Small = 0
    defers: Small = 0
    hand_backs: Small = 0
    delay_seconds: Annotated[float, Meta(ge=0, le=DELAY_LIMIT_SECONDS)] = 0.0
    result: Any = None
    error: FailureSent | None = None
    doubts: Annotated[list[Key], Meta(max_length=1_000)] = []
    repeats: Annotated[list[Key], Meta(max_length=1_000)] = []
    renamed: (
        Annotated[
            RenamedSent,
            Meta(description="Effects on record that it did not ask for, although it began others"),
        ]
        | UnsetType
    ) = UNSET


class Exchange(Asked, frozen=True):
    """Settle what is done and claim up to `limit` jobs, in one transaction."""

    worker_id: WorkerId
    lease_seconds: LeaseSeconds
    nonce: Annotated[
        int, Meta(ge=1, lt=2**62, description="Random, of this exchange; the same in a repeat")
    ]
    done: Annotated[list[EndSent], Meta(max_length=EXCHANGE_LIMIT)] = []
    limit: Annotated[int, Meta(ge=0, le=EXCHANGE_LIMIT)] = 0
    queues: Annotated[list[Name], Meta(max_length=EXCHANGE_LIMIT)] | None = None
    again: Annotated[bool, Meta(description="It was sent before and the answer was lost")] = False


class Exchanged(Told, frozen=True):
    """`refused` are the executions that lost their lease. `waitSeconds`: when something is due."""

    refused: list[str]
    claimed: list[ClaimedTold]
    wait_seconds: float | None
    unfinished: bool


class LeaseSent(Asked, frozen=True):
    """A lease as the claim has told it."""

    epoch: Annotated[int, Meta(ge=1, le=2**63 - 1)]
    nonce: Annotated[int, Meta(ge=0, le=2**63 - 1)]


class Renew(Asked, frozen=True):
    """The leases that the worker knows of. One that has run out is not renewed."""

    worker_id: WorkerId
    lease_seconds: LeaseSeconds
    leases: Annotated[list[LeaseSent], Meta(max_length=EXCHANGE_LIMIT)]


class Held(Told, frozen=True):
    """A job under its lease."""

    epoch: int
    nonce: int
    id: str


class Renewed(Told, frozen=True):
    """What the worker still holds, of the leases that it has named."""

    held: list[Held]


class Reclaim(Asked, frozen=True):
    """Take back the jobs of workers that were not heard of for longer than their lease."""

    limit: Annotated[int, Meta(ge=1, le=EXCHANGE_LIMIT, description="Of so many leases")] = 100


class Reclaimed(Told, frozen=True):
    jobs: list[RecoveredTold]


class SampleSent(Asked, frozen=True):
    """How long executions took: how many there were in each bucket."""

    measure: Measure
    queue: Name
    kind: Name
    buckets: Annotated[
        dict[Annotated[int, Meta(ge=0, le=len(BOUNDS))], Annotated[int, Meta(ge=1, le=10**9)]],
        Meta(description="Of the buckets of traffic, by their number"),
    ]


class Report(Asked, frozen=True):
    """The worker is there, and says what it will of itself; or it `leaves`."""

    worker_id: WorkerId
    host: Annotated[str, Meta(max_length=200)] | None = None
    pid: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    queues: Annotated[list[Name], Meta(max_length=EXCHANGE_LIMIT)] | None = None
    concurrency: Annotated[int, Meta(ge=0, lt=2**31)] | None = None
    version: Annotated[str, Meta(max_length=100)] | None = None
    running: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    samples: Annotated[list[SampleSent], Meta(max_length=EXCHANGE_LIMIT)] = []
    leaves: bool = False


class Reported(Told, frozen=True):
    """What there is to say to it: nothing so far."""


class Wait(Asked, frozen=True):
    """Wait until something is due in one of the queues, or in any."""

    queues: Annotated[list[Name], Meta(max_length=EXCHANGE_LIMIT)] | None = None
    wait_seconds: WaitSeconds = WAIT_LIMIT_SECONDS


class Waited(Told, frozen=True):
    due: bool


class EffectAsked(Asked, frozen=True):
    """An effect of an execution, under its fence."""

    execution_id: ExecutionId
    name: Key
    verb: Literal["step", "fence"]
    fingerprint: Annotated[str, Meta(pattern="^[!-~]{1,100}$")]
    arguments: Annotated[str, Meta(max_length=ARGUMENTS_LIMIT + 1)] = "[]"


class EffectBegin(EffectAsked, frozen=True):
    was: Annotated[
        list[Key], Meta(max_length=100, description="Names that the effect had before")
    ] = []
    again: Annotated[bool, Meta(description="It was sent before and the answer was lost")] = False


class EffectDone(EffectAsked, frozen=True):
    source: Literal["returned", "unkept", "verified", "assumed"] = "returned"
    result: Any = None


class EntryTold(Told, frozen=True):
    """What the ledger knows of the effect. `result` is there if its `source` is neither `unkept`
    nor null."""

    state: Literal["begun", "in_doubt", "done"]
    verb: Verb
    fingerprint: str
    epoch: int
    age_seconds: float
    source: Source | None
    result: Any
    old_name: Annotated[str | None, Meta(description="The one of `was` that it is on record under")]


class EffectFound(Told, frozen=True):
    """`entry` is null if nothing was on record: the effect is this execution's to do. `held`:
    whether the execution still holds its job. `earlier`: of an effect that is new to the job, what
    earlier executions have on record."""

    entry: EntryTold | None
    held: bool = True
    earlier: list[str] = []


class RateSent(Asked, frozen=True):
    count: Annotated[int, Meta(ge=1, le=COUNT_LIMIT)]
    seconds: Annotated[float, Meta(ge=RATE_LEAST_SECONDS, le=RATE_LIMIT_SECONDS)]


class RetrySent(Asked, frozen=True):
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] = 10
    backoff: Literal["exponential", "fixed"] = "exponential"
    base: Annotated[float, Meta(ge=0, le=30 * 86_400)] = 1.0
    cap: Annotated[float, Meta(ge=0, le=30 * 86_400)] = 3_600.0
    jitter: bool = True


class PushSent(Asked, frozen=True):
    url: str
    secret: str | list[str] | None = None
    mode: Literal["sync", "ack"] = "sync"


class LimitSent(Asked, frozen=True):
    """A change of the limits of a queue or a group, or of the policy of a queue. What is not given
    stays as it is; null lifts it."""

    scope: Literal["queue", "group"]
    name: Key
    concurrency: Annotated[int, Meta(ge=1, le=COUNT_LIMIT)] | UnsetType | None = UNSET
    rate: RateSent | UnsetType | None = UNSET
    paused: bool | UnsetType = UNSET
    retry: RetrySent | UnsetType | None = UNSET
    timeout: Annotated[float, Meta(gt=0, le=7 * 86_400)] | UnsetType | None = UNSET
    require_key: bool | UnsetType = UNSET
    push: PushSent | UnsetType | None = UNSET


class Limits(Told, frozen=True):
    """The queues that have jobs, limits or a policy, and the groups that have a limit."""

    queues: list[QueueTold]
    groups: list[GroupTold]


class Counters(Told, frozen=True):
    counters: list[CounterTold]


class Workers(Told, frozen=True):
    workers: list[WorkerTold]


class KeyHealths(Told, frozen=True):
    kinds: list[KeyHealthTold]


class Page(Told, frozen=True):
    """`nextCursor` goes into `cursor` of the next request; null at the end."""

    jobs: list[JobTold]
    next_cursor: str | None


class AuditPage(Told, frozen=True):
    """The newest first. `nextCursor` goes into `cursor` of the next request; null at the end."""

    entries: list[AuditEntryTold]
    next_cursor: str | None
