"""Plans that forget: jobs whose retention is over, and later the keys and the ledger that outlived
them."""

from __future__ import annotations

from typing import Final

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.transition import ENDED, State
from oncely.store.plan import Plan, Statement, document

BEGINNING: Final = "00000000-0000-0000-0000-000000000000"
END: Final = "ffffffff-ffff-ffff-ffff-ffffffffffff"
_DAY_US: Final = 86_400 * 1_000_000


class Pruned(msgspec.Struct, frozen=True):
    jobs: int
    after: str | None
    """Where the next step goes on; None if this one reached the end."""


def prune_jobs(
    retention_days: dict[State, float],
    *,
    key_retention_days: float,
    after: str,
    limit: int,
    before: str = END,
) -> Plan[Pruned]:
    """One small step, in a transaction. A state that is not named is kept for ever.

    The key of a pruned job stays until `key_retention_days` after the job ended, its ledger for as
    long from now on.
    """
    if key_retention_days < 0:
        raise InvalidInput(
            f"key_retention_days is {key_retention_days}; expected 0 or more: keys and ledger "
            "outlive their job"
        )
    active = [state for state in retention_days if state not in ENDED]
    if active:
        raise InvalidInput(
            f"jobs in state {', '.join(active)} cannot be pruned: only jobs that have ended"
        )
    retention = {state: round(days * _DAY_US) for state, days in retention_days.items()}
    rows = yield Statement(
        "prune_look",
        {
            "after": after,
            "before": before,
            "limit": limit,
            "retention_us": msgspec.json.encode(retention).decode(),
        },
    )
    old = [{"id": id} for id, over in rows if over]
    if old:
        yield document("prune_drop", old, key_us=round(key_retention_days * _DAY_US))
    return Pruned(len(old), rows[-1][0] if len(rows) == limit else None)


def ids_made_by(seconds: float) -> str:
    """The ids of jobs made before that moment are below this one. A job made later than its
    retention ago cannot have ended before, so a pass need not look at it."""
    text = f"{max(0, round(seconds * 1000)):012x}"
    return f"{text[:8]}-{text[8:]}-0000-0000-000000000000"


def prune_effects(limit: int) -> Plan[bool]:
    """A step through the ledgers of jobs that are gone; whether there may be more."""
    [gone] = yield Statement("prune_effects", {"limit": limit})
    return limit in gone


def prune_keys(limit: int) -> Plan[int]:
    rows = yield Statement("prune_keys", {"limit": limit})
    return len(rows)
