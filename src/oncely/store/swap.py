"""The exchange of a worker whose jobs are quick: leases that are over as a whole for a new one.

It is one round trip and one commit, and it touches nothing that it does not have to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from oncely.store.claim import Claimed, Fence, claimed_rows
from oncely.store.plan import Plan, Row, Statement, Together, document

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
    """The leases that were given back; what is not here is settled one by one."""

    settled: set[Fence]
    claimed: list[Claimed]


def swap(
    leases: Sequence[Sequence[Completed]], claim: Sequence[Statement] = (), *, again: bool = False
) -> Plan[Swapped | None]:
    """Give back leases and make a claim, whose last statement takes the jobs: all of it or nothing.

    None if it was sent before and the answer was lost: then an exchange finds out what there is.
    """
    if again:
        return None
    settles = [settle_whole(leases)] if leases else []
    answers = [rows for (rows,) in (yield Together(parts=[*settles, *claim]))]
    claimed = claimed_rows(answers[-1]) if claim else []
    settled = fences(answers[0]) if leases else set()
    return Swapped(settled, claimed)


def settle_whole(leases: Sequence[Sequence[Completed]]) -> Statement:
    """Its answer is the fences of those that were given back."""
    # In order, for all of them are locked.
    whole = sorted(map(_whole, leases), key=itemgetter("epoch"))
    return document("settle_whole", whole)


def fences(rows: Iterable[Row]) -> set[Fence]:
    return {Fence(epoch, nonce) for epoch, nonce in rows}


def _whole(lease: Sequence[Completed]) -> dict[str, Any]:
    """The places of the jobs in the lease say which result is whose."""
    fence = lease[0].claimed.fence
    attempts = [attempts + 1 for attempts in map(_attempts, lease)]
    results = list(map(_result, lease))
    return {
        "epoch": fence.epoch,
        "nonce": fence.nonce,
        "size": len(lease),
        "attempts": attempts if max(attempts) > 1 else [],
        "results": results if results.count(NOTHING) < len(results) else [],
        "kinds": _counted(list(map(_kind, lease))),
        "is_unique": any(map(_is_unique, lease)),
    }


def _counted(kinds: list[str]) -> dict[str, int]:
    """Most leases are of one kind, and to find that out takes less than to count."""
    first = kinds[0]
    return {first: len(kinds)} if kinds.count(first) == len(kinds) else Counter(kinds)
