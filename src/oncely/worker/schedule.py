"""The loop that fires the ticks of schedules: in every worker, for there is no leader."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from oncely.flow.events import log
from oncely.flow.schedule import LOOK_SECONDS, Schedules
from oncely.worker.line import Line

_SPREAD_SECONDS: Final = 0.2


async def keep_schedules(store: Line, schedules: Schedules, wake: Callable[[], None]) -> None:
    """Looks at each tick that is known, and every few seconds for what has changed. Not all
    workers look at once: the first fires a tick, the others find it done."""
    told: set[str] = set()
    while True:
        wait_seconds = LOOK_SECONDS
        if schedules:
            look = await store.ask(lambda _: schedules.look())
            for tick in look.fired:
                log(
                    "schedule fired" if tick.inserted else "schedule deduplicated",
                    schedule=tick.schedule,
                    tick=tick.at.isoformat(),
                    job_id=tick.job_id,
                )
            if look.fired:
                wake()
            for name in set(look.elsewhere) - told:
                log(
                    "schedule differs: other workers declare it in another form, which stays in "
                    "force until they are gone",
                    level=logging.WARNING,
                    schedule=name,
                )
            told = set(look.elsewhere)
            wait_seconds = look.wait_seconds
        await asyncio.sleep(max(0.0, wait_seconds) + _SPREAD_SECONDS * random.random())
