"""What travels: requests and answers, `camelCase` on the wire. They validate, and they describe.

Where a rule is the model's (the form of a name, the range of a priority) it is only described here:
the model refuses, in better words.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from oncely.model.draft import (
    DELAY_LIMIT_SECONDS,
    MAX_ATTEMPTS,
    PRIORITIES,
    TAG_LIMIT,
    TIMEOUT_LIMIT_SECONDS,
)
from oncely.model.flow import COUNT_LIMIT, RATE_LEAST_SECONDS, RATE_LIMIT_SECONDS
from oncely.model.keys import KEY_LIMIT
from oncely.model.transition import State
from oncely.store.remote.mirror import JobId

BATCH_LIMIT: Final = 1_000
PAGE_LIMIT: Final = 1_000


class Body(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """A request. An unknown field is a mistake, and told."""


class Shown(msgspec.Struct, rename="camel"):
    """An answer. Later versions may add fields."""


def described(description: str, **schema: Any) -> Meta:
    """What the document says; it checks nothing."""
    return Meta(description=description, extra_json_schema=schema)


NAME: Final = {"minLength": 1, "maxLength": 128, "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,127}$"}
_WITHIN: Final = r"[^\u0000-\u001f\u007f-\u009f]"
_EDGE: Final = r"[^\u0000-\u0020\u007f-\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]"
KEY: Final = {
    "minLength": 1,
    "maxLength": KEY_LIMIT,
    "pattern": f"^{_EDGE}({_WITHIN}*{_EDGE})?$",
}
"""No control characters, and no white space at either end."""
JOB_ID: Final = {"format": "uuid"}

Kind = Annotated[str, described("Names the handler", examples=["order.charge"], **NAME)]
QueueName = Annotated[str, described("The lane that jobs wait in", examples=["payments"], **NAME)]
IdempotencyKey = Annotated[
    str,
    described("The identity of this call, per queue", examples=["order:9482:charge"], **KEY),
]
UniqueKey = Annotated[str, described("The identity of the work, per kind, while active", **KEY)]
GroupKey = Annotated[str, described("The label that limits go by", **KEY)]
Delay = Annotated[
    float,
    described("Seconds; not before that", minimum=0, maximum=DELAY_LIMIT_SECONDS),
]
Priority = Annotated[
    int, described("Higher runs first", minimum=PRIORITIES[0], maximum=PRIORITIES[-1])
]
Attempts = Annotated[
    int, described("So often it is tried at most", minimum=1, maximum=MAX_ATTEMPTS)
]
Timeout = Annotated[
    float,
    described(
        "Seconds that one execution may take", exclusiveMinimum=0, maximum=TIMEOUT_LIMIT_SECONDS
    ),
]
Tags = Annotated[
    list[Annotated[str, Meta(extra_json_schema=KEY)]], described("", maxItems=TAG_LIMIT)
]
RunAt = Annotated[datetime, described("With a time zone; not before that. Not beside `delay`")]


class Publish(Body):
    """A job to enqueue."""

    payload: Annotated[Any, Meta(description="Any JSON value, nested at most 64 levels deep")]
    kind: Annotated[Kind | None, Meta(description="If not given: the name of the queue")] = None
    idempotency_key: IdempotencyKey | None = None
    unique_key: UniqueKey | None = None
    group_key: GroupKey | None = None
    delay: Delay | None = None
    run_at: RunAt | None = None
    priority: Priority = 0
    max_attempts: Attempts | None = None
    timeout: Timeout | None = None
    tags: Tags = []


class Batch(Body):
    """Jobs to enqueue together: all of them or, if one cannot be taken, none."""

    jobs: Annotated[list[msgspec.Raw], Meta(description=f"At most {BATCH_LIMIT}")]
    atomic: Annotated[
        Literal[True], Meta(description="Always: a batch is stored whole or not at all")
    ] = True


class Published(Shown):
    """What became of one enqueue. `deduplicated`: it was recognised, and `id` is the first job."""

    id: JobId
    kind: str
    queue: str
    state: State
    created_at: Annotated[datetime, Meta(description="The moment at which its id was made")]
    deduplicated: bool


class PublishedBatch(Shown):
    """`results` are in the order of the request."""

    inserted: int
    skipped: int
    results: list[Published]


Cursor = Annotated[str, Meta(max_length=100, description="`nextCursor` of the page before")]
PageSize = Annotated[int, Meta(ge=1, le=PAGE_LIMIT, description="So many jobs at most")]


Moment = Annotated[datetime, described("With a time zone")]


class JobsQuery(Body):
    """A page may have fewer jobs than `limit`, or none, where `nextCursor` says that there is more:
    for a filter that matches rarely, so many jobs are looked at and no more."""

    state: State | None = None
    queue: QueueName | None = None
    kind: Kind | None = None
    group_key: GroupKey | None = None
    tag: Annotated[str, described("One of its tags", **KEY)] | None = None
    key: Annotated[str, described("Its idempotency key or unique key", **KEY)] | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None
    cursor: Cursor | None = None
    limit: PageSize = 100


ErrorPart = Annotated[
    str,
    # PostgreSQL has no texts with a zero character, not even to compare with.
    Meta(
        description="A part of the error's type and message",
        max_length=1_000,
        pattern=r"^[^\x00]*$",
    ),
]


class DlqQuery(Body):
    queue: QueueName | None = None
    kind: Kind | None = None
    error: ErrorPart | None = None
    cursor: Cursor | None = None
    limit: PageSize = 100


class ReplayAll(Body):
    """Which failed jobs. At least one of the fields says it; every job is `all`."""

    all: Annotated[bool, Meta(description="Every failed job, whatever its queue and kind")] = False
    queue: QueueName | None = None
    kind: Kind | None = None
    error: ErrorPart | None = None
    limit: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    dry_run: Annotated[bool, Meta(description="Change nothing; say how many match")] = False


class ReplayedAll(Shown):
    """`matching` is `replayed`, or what it would be with `dryRun`."""

    replayed: int
    matching: int


class Replay(Body):
    fresh_ledger: Annotated[
        bool, Meta(description="Forget what it has done, so that it does all of it again")
    ] = False


class Replayed(Shown):
    id: JobId
    state: State
    forgotten: Annotated[list[str], Meta(description="Effects that it has forgotten")]


class Stands(Shown):
    """The job and its state after the call."""

    id: JobId
    state: State


class Resolve(Body):
    """Whether an effect in doubt happened."""

    effect: Annotated[str, described("Its name", **KEY)]
    happened: bool
    result: Annotated[Any, Meta(description="What its function would have returned")] = None
    note: Annotated[str | None, Meta(description="How you know; kept")] = None


class Nothing(Body):
    """No fields; the body may be left out."""


class Backoff(Body):
    type: Literal["exponential", "fixed"] = "exponential"
    base: Annotated[float, described("Seconds after the first failure", minimum=0)] = 1.0
    cap: Annotated[float, described("Seconds at most", minimum=0)] = 3_600.0


class RateBody(Body):
    """So many executions begin in so many seconds."""

    count: Annotated[int, described("", minimum=1, maximum=COUNT_LIMIT)]
    seconds: Annotated[float, described("", minimum=RATE_LEAST_SECONDS, maximum=RATE_LIMIT_SECONDS)]


class PushBody(Body):
    """Where the server delivers the queue's jobs to."""

    url: Annotated[str, described("http or https, a public address", format="uri")]
    secret: Annotated[
        str | list[str] | None,
        Meta(
            description="Signs the deliveries: `whsec_` and base64; two of them while the receiver "
            "changes from one to the other. Never shown again. If not given: as it is"
        ),
    ] = None
    mode: Literal["sync", "ack"] = "sync"


class QueuePolicy(Body):
    """What is not given stays as it is; null lifts it."""

    max_attempts: Attempts | UnsetType | None = UNSET
    backoff: Backoff | UnsetType | None = UNSET
    ack_timeout: Timeout | UnsetType | None = UNSET
    concurrency: (
        Annotated[int, described("So many run at once", minimum=1, maximum=COUNT_LIMIT)]
        | UnsetType
        | None
    ) = UNSET
    rate: RateBody | UnsetType | None = UNSET
    push: PushBody | UnsetType | None = UNSET
    require_key: (
        Annotated[bool, Meta(description="Refuse to publish without an idempotency key")]
        | UnsetType
    ) = UNSET


class BackoffShown(Shown):
    type: Literal["exponential", "fixed"]
    base: float
    cap: float


class RateShown(Shown):
    count: int
    seconds: float


class PushShown(Shown):
    url: str
    mode: Literal["sync", "ack"]


class QueueShown(Shown):
    """A queue as it stands. `waiting` is counted up to 10,000, and said to be 10,001 above that."""

    name: str
    paused: bool
    max_attempts: int | None
    backoff: BackoffShown | None
    ack_timeout: float | None
    concurrency: int | None
    rate: RateShown | None
    push: PushShown | None
    require_key: bool
    waiting: int
    running: int


class Queues(Shown):
    queues: list[QueueShown]


class Health(Shown):
    status: Literal["ok"]
