"""Replay many: the failed jobs that match, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from oncely.model.errors import UniqueKeyTaken, WrongState
from oncely.store import dead, steer
from oncely.store.engine import Engine
from oncely.store.steer import Many
from oncely.store.trail import Trail
from oncely.store.upkeep import BEGINNING

_SLICE: Final = 100


def replay_failed(
    engine: Engine,
    *,
    queue: str | None,
    kind: str | None,
    error: str | None,
    limit: int | None,
    dry_run: bool,
    progress: Callable[[int], None],
    trail: Trail | None = None,
) -> int:
    """How many were replayed or, with `dry_run`, how many match."""
    count = 0
    after = BEGINNING
    chosen = {"queue": queue, "kind": kind, "error": error, "limit": limit}
    many = {name: value for name, value in chosen.items() if value is not None}
    while limit is None or count < limit:
        room = _SLICE if limit is None else min(_SLICE, limit - count)
        ids = engine.run(
            lambda _, after=after, room=room: steer.failed_after(  # type: ignore[misc]
                after, kind=kind, queue=queue, error=error, limit=room
            ),
            "read",
        )
        for job_id in ids:
            count += dry_run or replayed(engine, job_id, trail, many)
        progress(count)
        if len(ids) < room:
            break
        after = ids[-1]
    return count


def replayed(engine: Engine, job_id: str, trail: Trail | None, many: Many) -> bool:
    """One of many. False if somebody else was first, or holds its unique key: then it is left as it
    is."""
    try:
        engine.run(
            lambda again: steer.replay(job_id, again=again, trail=trail, one_of=many),
            "transaction",
        )
    except (UniqueKeyTaken, WrongState):
        return False
    return True


class Step(msgspec.Struct, frozen=True):
    """A part of a long replay. `after` is where the next one goes on; None at the end."""

    replayed: int
    left: int
    """Those that stay: somebody else was first, or holds their unique key."""
    after: str | None


def replay_step(
    engine: Engine,
    group: str,
    after: str | None,
    *,
    trail: Trail | None,
    looked: int = 500,
    most: int = 100,
) -> Step:
    """Replay the failed jobs of the group with this id, the oldest first: of the next `looked`
    failed jobs, and `most` of them. All steps with one trail are one entry in the audit trail."""
    start = after or BEGINNING
    failed = engine.run(lambda _: dead.failed_from(start, looked), "read")
    count = left = 0
    for job in failed:
        reason = job.reason
        if reason.id != group:
            continue
        many = {"kind": reason.kind, "error": reason.error_type, "group": group}
        if count + left == most:
            break
        if replayed(engine, job.job_id, trail, many):
            count += 1
        else:
            left += 1
        start = job.job_id
    else:
        start = failed[-1].job_id if len(failed) == looked else ""
    return Step(count, left, start or None)
