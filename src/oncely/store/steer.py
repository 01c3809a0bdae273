"""Plans of those who steer jobs from outside: cancel, replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from oncely.model.errors import JobNotFound, StoreUnavailable, UniqueKeyTaken, WrongState
from oncely.model.transition import State, states_before
from oncely.store.effects import forget
from oncely.store.plan import Plan, Statement, document
from oncely.store.trail import Trail, write

CANCELLABLE: Final = states_before("cancel")
_ROUNDS: Final = 10
Many = Mapping[str, Any]
"""By what filter many were chosen, as the audit trail keeps it."""


def cancel(job_id: str, *, trail: Trail | None = None) -> Plan[None]:
    """End a job that waits, runs or is held, and free its unique key in the same breath.

    A running one is taken out of its lease: whatever its execution still writes is refused. Of one
    that is held the ledger stays as it is.
    """
    for _ in range(_ROUNDS):
        for way in ("cancel", "cancel_running", "cancel_held"):
            if (yield Statement(way, {"id": job_id})):
                yield from write(trail, "cancel", "job", job_id)
                return
        state = yield from _state(job_id)
        if state == "cancelled":
            return
        if state not in CANCELLABLE:
            raise WrongState(job_id, state, "cancelled", CANCELLABLE)
    raise StoreUnavailable(f"job {job_id} kept moving while it was cancelled: repeat the call")


def replay(
    job_id: str,
    *,
    forgotten_by: str | None = None,
    again: bool = False,
    trail: Trail | None = None,
    one_of: Many | None = None,
) -> Plan[list[str]]:
    """Put a failed job back; with `forgotten_by`, without its ledger: the names of the effects
    that it has forgotten. To be run in a transaction: an error undoes what went before.

    `again` says that this was sent before and the answer was lost: a job that is on its way was
    put back by that. `one_of` says that it is one of many, which have one entry in the audit trail.
    """
    yield from _hold_again(job_id)
    if not (yield Statement("replay", {"id": job_id})):
        state = yield from _state(job_id)
        if again and state in ("pending", "running"):
            return (yield from _forgotten(job_id)) if forgotten_by is not None else []
        raise WrongState(job_id, state, "replayed", states_before("replay"))
    if one_of is not None:
        yield from write(trail, "replay_all", "dlq", "dlq", details=one_of, count=1)
    forgotten = [] if forgotten_by is None else (yield from forget(job_id, forgotten_by))
    if one_of is None:
        details = {"forgotten": forgotten} if forgotten else None
        yield from write(trail, "replay", "job", job_id, details=details)
    return forgotten


def _forgotten(job_id: str) -> Plan[list[str]]:
    rows = yield document("look_resolutions", [{"id": job_id}])
    return sorted({name for _, name, *_, forgotten in rows if forgotten})


def failed_after(
    after: str, *, kind: str | None, queue: str | None, error: str | None, limit: int
) -> Plan[list[str]]:
    """Failed jobs in the order of their ids, from beyond `after` on."""
    rows = yield Statement(
        "list_failed",
        {"after": after, "kind": kind, "queue": queue, "error": error, "limit": limit},
    )
    return [row[0] for row in rows]


def _hold_again(job_id: str) -> Plan[None]:
    """The failed job's unique key is its own again, if it has one."""
    for _ in range(_ROUNDS):
        yield Statement("replay_hold", {"id": job_id})
        for holder_id, kind, key in (yield Statement("replay_holder", {"id": job_id})):
            if holder_id is None:
                break  # whoever held it ended between the two statements
            if holder_id != job_id:
                raise UniqueKeyTaken(job_id, kind, key, holder_id)
        else:
            return
    raise StoreUnavailable(f"the unique key of job {job_id} kept changing hands: repeat the call")


def _state(job_id: str) -> Plan[State]:
    rows = yield document("find_jobs", [{"id": job_id}])
    if not rows:
        raise JobNotFound(job_id)
    state: State = rows[0][1]
    return state
