"""Plans of delivery: claim under a lease, settle under its fence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from oncely.model.transition import State
from oncely.store.plan import Plan, Statement, document


class Fence(msgspec.Struct, frozen=True):
    """What every write of an execution must show."""

    epoch: int
    nonce: int


class Claimed(msgspec.Struct, frozen=True):
    job_id: str
    fence: Fence
    attempt: int
    kind: str
    queue: str
    payload: str


class Settlement(msgspec.Struct, frozen=True):
    """How one execution ended: in a resting `state`, or back in the line after `delay_us`."""

    id: str
    attempt: int
    state: State | None = None
    outcome: Literal["retried"] | None = None
    attempts: int = 0
    delay_us: int = 0
    result: str | None = None
    error: str | None = None


def claim(
    queue: str, *, worker: str, nonce: int, lease_seconds: float, limit: int
) -> Plan[list[Claimed]]:
    rows = yield Statement(
        "claim",
        {
            "queue": queue,
            "worker": worker,
            "nonce": nonce,
            "lease_us": round(lease_seconds * 1_000_000),
            "limit": limit,
        },
    )
    return [
        Claimed(job_id, Fence(epoch, nonce), attempt, kind, lane, payload)
        for epoch, job_id, attempt, kind, lane, payload in rows
    ]


def settle(fence: Fence, settlements: Sequence[Settlement]) -> Plan[set[str]]:
    """The ids whose settlement was accepted; for the others the lease is lost."""
    rows = yield document("settle", settlements, epoch=fence.epoch, nonce=fence.nonce)
    return {row[0] for row in rows}
