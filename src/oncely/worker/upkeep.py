"""What any worker does for all: take back the jobs of the dead, prune what is over."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from oncely.model.retention import Retention
from oncely.store import audit, deliver, requests, traffic, workers
from oncely.store.plan import Plan
from oncely.store.upkeep import (
    BEGINNING,
    Pruned,
    ids_made_by,
    prune_effects,
    prune_jobs,
    prune_keys,
)
from oncely.worker.line import Line
from oncely.worker.told import Told

_RECLAIM_LIMIT: Final = 100
_EXPIRY_LOOK_SECONDS: Final = 1.0
_EXPIRY_SPREAD_SECONDS: Final = 0.1
_PRUNE_LIMIT: Final = 100
_PRUNE_PAUSE_SECONDS: Final = 0.02
_FORGET_SECONDS: Final = 60.0
_FORGET_FIRST_SECONDS: Final = 10.0


async def recover(store: Line, lease_seconds: float, wake: Callable[[], None], told: Told) -> None:
    """Reclaim what leases leave behind, as soon as they run out: leases of any length, made by
    whomever. Asking for the next expiry is one cheap read; only a lease that has run out costs a
    write. A lease that is made during a pause is seen after it, and a pause is short."""
    longest = min(_EXPIRY_LOOK_SECONDS, lease_seconds / 4)
    expires_in: float | None = 0.0
    while True:
        if expires_in is not None and expires_in <= 0:
            recovered = await store.ask(lambda _: deliver.reclaim(_RECLAIM_LIMIT))
            told.recovered(recovered)
            if recovered:
                wake()
                continue
        pause = longest * (0.5 + random.random() / 2)
        if expires_in is not None and 0 < expires_in < pause:
            # Not all workers at the same moment: the first one leaves nothing for the others.
            pause = expires_in + _EXPIRY_SPREAD_SECONDS * random.random()
        await asyncio.sleep(pause)
        expires_in = await store.ask(lambda _: deliver.next_expiry(), "read")


async def forget(store: Line, retention: Retention) -> None:
    """In small steps, with a pause after each, so that nobody has to wait for it. Not all at once:
    workers that start together want jobs, and each of them would look for the same."""
    await asyncio.sleep(_FORGET_FIRST_SECONDS * random.random())
    while True:
        before = ids_made_by(time.time() - min(retention.by_state.values()) * 86_400)
        after: str | None = BEGINNING
        while after is not None:
            after = (await store.ask(partial(_prune, retention, after, before))).after
            await asyncio.sleep(_PRUNE_PAUSE_SECONDS)
        keys = _PRUNE_LIMIT
        while keys == _PRUNE_LIMIT:
            keys = await store.ask(lambda _: prune_keys(_PRUNE_LIMIT))
            await asyncio.sleep(_PRUNE_PAUSE_SECONDS)
        old = ids_made_by(time.time() - retention.audit_days * 86_400)
        for prune in (prune_effects, requests.prune, partial(audit.prune, old)):
            more = True
            while more:
                more = await store.ask(lambda _, prune=prune: prune(_PRUNE_LIMIT))  # type: ignore[misc]
                await asyncio.sleep(_PRUNE_PAUSE_SECONDS)
        await store.ask(lambda _: traffic.prune())
        await store.ask(lambda _: workers.forget())
        await asyncio.sleep(_FORGET_SECONDS * (0.5 + random.random()))


async def keep_tidy(store: Line) -> None:
    while True:
        seconds = await store.tidy()
        if seconds is None:
            await asyncio.Event().wait()
        else:
            await asyncio.sleep(seconds * (0.75 + random.random() / 2))


def _prune(retention: Retention, after: str, before: str, _: bool) -> Plan[Pruned]:
    return prune_jobs(
        retention.by_state,
        key_retention_days=retention.key_days,
        after=after,
        before=before,
        limit=_PRUNE_LIMIT,
    )
