"""Plans of the counters: deltas are added, folded into totals by the workers, and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncely.model.counter import KINDS_LIMIT, OTHER_KINDS, Counter, Delta, counter
from oncely.model.health import KeyHealth, Sample, examine
from oncely.store.look import moment
from oncely.store.plan import Plan, Statement, document

FOLD_LIMIT: Final = 10_000
SAMPLE: Final = 10_000
"""So many of the newest jobs show what the keys of their kinds look like."""
BOUND: Final = {"kinds_limit": KINDS_LIMIT, "other": OTHER_KINDS}


def count(deltas: Sequence[Delta]) -> Plan[None]:
    """In the transaction of what is counted. Nobody waits for anybody here."""
    yield document("count", deltas)


def fold(limit: int = FOLD_LIMIT) -> Plan[int]:
    """One step, in a transaction; how many deltas were folded."""
    [(folded,)] = yield Statement("counters_fold", {"limit": limit, **BOUND})
    return int(folded)


def counters() -> Plan[list[Counter]]:
    return [counter(*row) for row in (yield Statement("counters", BOUND))]


def key_health(sample: int = SAMPLE) -> Plan[list[KeyHealth]]:
    totals = yield from counters()
    rows = yield Statement("keys_sample", {"limit": sample})
    return examine(
        totals,
        [
            Sample(kind, idempotency_key, unique_key, moment(created))
            for kind, idempotency_key, unique_key, created in rows
        ],
    )
