"""Plans of the claim: take jobs that are due, under a lease."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

import msgspec

from oncely.model.outcome import Standing
from oncely.store.plan import Plan, Row, Statement

PLAIN: Final = ""
"""The lane of the jobs without a group."""
GROUPS: Final = "g:"
"""The lane of a group is this and its key."""
NO_BOUNDS: Final[Mapping[int, int]] = MappingProxyType({})
QUEUES: Final = 1_000
"""So many queues are looked at in one exchange; each has a nonce of its own."""


class Fence(msgspec.Struct, frozen=True, gc=False):
    """What every write of an execution must show."""

    epoch: int
    nonce: int


class Claimed(msgspec.Struct, frozen=True, gc=False):
    """One delivery of a job, and what its earlier deliveries have used up."""

    job_id: str
    fence: Fence
    kind: str
    queue: str
    group_key: str | None
    payload: str
    """JSON. Empty where the claim had a `payload_limit` and this is larger."""
    attempts: int
    crashes: int
    defers: int
    max_attempts: int | None
    timeout_seconds: float | None
    deferred_seconds: float
    """Time since the first defer in a row; 0 if its last delivery was not deferred."""
    queue_retry: str | None
    queue_timeout_seconds: float | None
    waited_seconds: float
    is_unique: bool = False
    """Whether it holds a unique key."""
    priority: int = 0
    traceparent: str | None = None
    """The trace that it belongs to."""
    hand_backs: int = 0
    """Number of times in a row that it went back because the store failed."""
    place: int = 0
    of: int = 1
    """It is the job at this place of a lease of so many."""

    @property
    def attempt(self) -> int:
        return self.attempts + 1

    def standing(self, max_attempts: int) -> Standing:
        return Standing(
            self.attempt,
            max_attempts,
            self.defers,
            self.deferred_seconds,
            self.crashes,
            self.hand_backs,
        )

    @property
    def lane(self) -> str:
        return PLAIN if self.group_key is None else f"{GROUPS}{self.group_key}"

    @property
    def execution_id(self) -> str:
        return f"{self.job_id}.{self.fence.epoch}.{self.fence.nonce:x}"


def claim(
    queue: str,
    *,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    started: int | None = None,
    pushes: bool = False,
    apart: bool = False,
    payload_limit: int | None = None,
) -> Plan[list[Claimed]]:
    """Due jobs without a group from a queue without limits, in order. The first `started` of them
    (all, if not said) are begun. Those of a queue with a push target are for who `pushes`. Payloads
    of more bytes than `payload_limit` are not read."""
    rows = yield claim_statement(
        queue,
        worker=worker,
        nonce=nonce,
        lease_seconds=lease_seconds,
        limit=limit,
        started=limit if started is None else started,
        pushes=pushes,
        apart=apart,
        payload_limit=payload_limit,
    )
    return claimed_rows(rows)


def claim_statement(
    queue: str,
    *,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    started: int,
    bounds: Mapping[int, int] = NO_BOUNDS,
    pushes: bool = False,
    apart: bool = False,
    payload_limit: int | None = None,
) -> Statement:
    return Statement(
        "claim",
        {
            "queue": queue,
            "worker": worker,
            "nonce": nonce,
            "lease_us": round(lease_seconds * 1_000_000),
            "limit": limit,
            "started": started,
            "pushes": pushes,
            "apart": apart,
            "payload_limit": payload_limit,
            "bounds": msgspec.json.encode(dict(bounds)).decode(),
        },
    )


def claimed_before(
    worker: str, nonce: int, *, payload_limit: int | None = None
) -> Plan[list[Claimed]]:
    """What an exchange has claimed whose answer was lost."""
    rows = yield Statement(
        "claimed",
        {
            "worker": worker,
            "nonce": nonce,
            "beyond": nonce + QUEUES,
            "payload_limit": payload_limit,
        },
    )
    return claimed_rows(rows)


def claimed_rows(rows: list[Row]) -> list[Claimed]:
    """The rows of each lease come together, in its order."""
    claimed: list[Claimed] = []
    for epoch, lease in groupby(rows, key=itemgetter(1)):
        members: list[Row] = list(lease)
        fence, of = Fence(epoch, members[0][2]), len(members)
        claimed += [
            Claimed(*(job_id, fence, *rest, place, of))
            for place, (job_id, _, _, *rest) in enumerate(members)
        ]
    return claimed
