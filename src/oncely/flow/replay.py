"""Replay many: the failed jobs that match, each in a transaction of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from oncely.model.errors import UniqueKeyTaken, WrongState
from oncely.store import steer
from oncely.store.engine import Engine
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
) -> int:
    """How many were replayed or, with `dry_run`, how many match."""
    count = 0
    after = BEGINNING
    while limit is None or count < limit:
        room = _SLICE if limit is None else min(_SLICE, limit - count)
        ids = engine.run(
            lambda _, after=after, room=room: steer.failed_after(  # type: ignore[misc]
                after, kind=kind, queue=queue, error=error, limit=room
            ),
            "read",
        )
        for job_id in ids:
            count += dry_run or _replayed(engine, job_id)
        progress(count)
        if len(ids) < room:
            break
        after = ids[-1]
    return count


def _replayed(engine: Engine, job_id: str) -> bool:
    """False if somebody else was first, or holds its unique key: then it is left as it is."""
    try:
        engine.run(lambda again: steer.replay(job_id, again=again), "transaction")
    except (UniqueKeyTaken, WrongState):
        return False
    return True
