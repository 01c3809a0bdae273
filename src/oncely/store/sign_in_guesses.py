"""Plans of the guesses of passwords: reserved before they are checked, and counted in the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from oncely.store.plan import Plan, Statement

WINDOW_SECONDS: Final = 300
_WINDOW: Final = {"window_us": WINDOW_SECONDS * 1_000_000}


class Place(msgspec.Struct, frozen=True):
    """Where guesses are counted, and how many of them are taken in `WINDOW_SECONDS`."""

    digest: str
    limit: int


def reserve(places: Sequence[Place]) -> Plan[int]:
    """In a transaction. 0: the guess may be checked. Otherwise the seconds until the next one is
    taken; in the places after the one that is full nothing was counted."""
    yield Statement("guess_prune")
    for place in places:
        values = {"place": place.digest, **_WINDOW}
        [(guesses, left_us)] = yield Statement("guess_reserve", values)
        if guesses > place.limit:
            return max(1, -(-int(left_us) // 1_000_000))
    return 0


def release(places: Sequence[Place]) -> Plan[None]:
    """In a transaction: the guess was right, and does not count."""
    for place in places:
        yield Statement("guess_release", {"place": place.digest})
