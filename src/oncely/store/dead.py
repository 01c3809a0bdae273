"""Plans of the dead-letter queue as a whole: why jobs failed, and what a replay would do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncely.model.failure import Failed, WillDo
from oncely.store.look import LAST, moment
from oncely.store.plan import Plan, Row, Statement, document

LOOKED: Final = 2_000
"""So many failed jobs are put into groups, the newest of them: a million would take too long."""


def newest_failed(limit: int = LOOKED, before: str = LAST) -> Plan[list[Failed]]:
    rows = yield Statement("dead_newest", {"state": "failed", "before": before, "limit": limit})
    return [_failed(row) for row in rows]


def failed_from(after: str, limit: int) -> Plan[list[Failed]]:
    """In the order of their ids, from beyond `after` on: a job that fails again meanwhile lies
    behind."""
    rows = yield Statement("dead_after", {"state": "failed", "after": after, "limit": limit})
    return [_failed(row) for row in rows]


def will_do(ids: Sequence[str]) -> Plan[list[WillDo]]:
    """What a replay of these jobs will do, by the ledger; the first that began first."""
    rows = yield document("dead_effects", [{"id": id} for id in ids])
    return [WillDo(name, verb, done, repeated, asked) for name, verb, done, repeated, asked in rows]


def _failed(row: Row) -> Failed:
    job_id, kind, queue, error_type, message, ended = row
    return Failed(job_id, kind, queue, error_type, message, moment(ended))
