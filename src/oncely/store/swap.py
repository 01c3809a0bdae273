"""The exchange of a worker whose jobs are quick: leases that are over as a whole for a new one.

It is one round trip and one commit, and it touches nothing that it does not have to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter

import msgspec

from oncely.store.claim import NO_BOUNDS, Claimed, claim_statement, claimed_rows
from oncely.store.plan import Plan, Statement, Together

NOTHING = "null"
_attempts = attrgetter("claimed.attempts")
_kind = attrgetter("claimed.kind")
_is_unique = attrgetter("claimed.is_unique")
_result = attrgetter("result")


class Completed(msgspec.Struct, frozen=True, gc=False):
    """An execution that returned, and has nothing else to tell."""

    claimed: Claimed
    result: str


class Swapped(msgspec.Struct, frozen=True):
    """The epochs of the leases that were given back; what is not here is settled one by one."""

    settled: set[int]
    claimed: list[Claimed]


def swap(
    leases: Sequence[Sequence[Completed]],
    *,
    queue: str | None,
    worker: str,
    nonce: int,
    lease_seconds: float,
    limit: int,
    started: int,
    bounds: Mapping[int, int] = NO_BOUNDS,
    pushes: bool = False,
    apart: bool = False,
    again: bool = False,
) -> Plan[Swapped | None]:
    """Give back leases and claim from `queue`, if one is named: all of it, or nothing.

    None if it was sent before and the answer was lost: then an exchange finds out what there is.
    """
    if again:
        return None
    wanted = [_settle(lease) for lease in leases]
    if queue is not None:
        wanted.append(
            claim_statement(
                queue,
                worker=worker,
                nonce=nonce,
                lease_seconds=lease_seconds,
                limit=limit,
                started=started,
                bounds=bounds,
                pushes=pushes,
                apart=apart,
            )
        )
    answers = [rows for (rows,) in (yield Together(parts=wanted))]
    claimed = claimed_rows(answers.pop()) if queue is not None else []
    return Swapped({epoch for rows in answers for (epoch,) in rows}, claimed)


def _settle(lease: Sequence[Completed]) -> Statement:
    """The places of the jobs in the lease say which result is whose."""
    fence = lease[0].claimed.fence
    attempts = [attempts + 1 for attempts in map(_attempts, lease)]
    results = list(map(_result, lease))
    return Statement(
        "settle_whole",
        {
            "epoch": fence.epoch,
            "nonce": fence.nonce,
            "size": len(lease),
            "attempts": _json(attempts if max(attempts) > 1 else []),
            "results": _json(results if results.count(NOTHING) < len(results) else []),
            "kinds": _json(Counter(map(_kind, lease))),
            "is_unique": any(map(_is_unique, lease)),
        },
    )


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
