"""What a worker tells the store of itself: that it is there, and how long its executions took."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from typing import Final

from oncely.model.errors import StoreError
from oncely.model.job import Job
from oncely.model.traffic import Measure, buckets
from oncely.model.worker import About
from oncely.store import counters, workers
from oncely.store.claim import Claimed
from oncely.store.plan import Plan
from oncely.store.traffic import Sample
from oncely.worker.line import Line

_REPORT_SECONDS: Final = 5.0
_FULL_SECONDS: Final = 0.02
_LEAVE_SECONDS: Final = 2.0
_ROUGH_LIMIT: Final = 1_024

_Place = tuple[Measure, str, str]
_Rough = defaultdict[str, defaultdict[str, list[float]]]
"""By queue and kind."""


class Times:
    """How long jobs waited and ran. What happens to every job is one number at the end of a list;
    they are sorted into buckets later, many at a time."""

    def __init__(self) -> None:
        self._waited: _Rough = defaultdict(lambda: defaultdict(list))
        self._ran: _Rough = defaultdict(lambda: defaultdict(list))
        self._sorted: dict[_Place, Counter[int]] = {}

    def waited(self, job: Claimed | Job, seconds: float) -> None:
        self._waited[job.queue][job.kind].append(seconds)

    def ran(self, job: Claimed | Job, seconds: float) -> None:
        """Of all that has begun, so that the lists of both are short."""
        rough = self._ran[job.queue][job.kind]
        rough.append(seconds)
        if len(rough) >= _ROUGH_LIMIT:
            self._sort()

    def _sort(self) -> None:
        measures: tuple[tuple[Measure, _Rough], ...] = (
            ("waited", self._waited),
            ("ran", self._ran),
        )
        for measure, rough in measures:
            for queue, kinds in rough.items():
                for kind, seconds in kinds.items():
                    found = self._sorted.setdefault((measure, queue, kind), Counter())
                    found.update(buckets(seconds))
            rough.clear()

    def take(self) -> list[Sample]:
        """All that came since the last time."""
        self._sort()
        taken, self._sorted = self._sorted, {}
        return [Sample(*place, dict(found)) for place, found in taken.items()]


class Reporter:
    """`running` says how many executions there are now."""

    def __init__(
        self, store: Line, name: str, me: Callable[[], About | None], running: Callable[[], int]
    ) -> None:
        self._store = store
        self._name = name
        self._me = me
        self._running = running
        self._sent: asyncio.Future[int] | None = None
        self._news = asyncio.Event()
        self.times = Times()

    async def keep(self) -> None:
        """Every few seconds: also what was counted is folded, so that whoever reads it reads
        little."""
        while True:
            samples = self.times.take()
            self._sent = asyncio.ensure_future(self._store.ask(partial(self._report, samples)))
            folded = await asyncio.shield(self._sent)
            full = folded == counters.FOLD_LIMIT
            with suppress(TimeoutError):
                async with asyncio.timeout(
                    _FULL_SECONDS if full else _REPORT_SECONDS * (0.5 + random.random())
                ):
                    await self._news.wait()
            self._news.clear()

    def soon(self) -> None:
        """There is something new to say of itself."""
        self._news.set()

    def _report(self, samples: list[Sample], again: bool) -> Plan[int]:
        # Those that may have arrived are not sent again: a few are missing rather than twice there.
        return workers.report(self._name, self._me(), self._running(), [] if again else samples)

    async def leave(self) -> None:
        """At the end, if the store can be told. After what is on its way: else it would be there
        again."""
        samples = self.times.take()
        sent = self._sent
        if self._store.gave_up or (sent is None and not samples):
            return
        with suppress(StoreError, TimeoutError):
            async with asyncio.timeout(_LEAVE_SECONDS):
                if sent is not None:
                    await sent
                await self._store.ask(
                    lambda again: workers.leave(self._name, [] if again else samples)
                )


class SharedReporter(Reporter):
    """For each of several workers that report as one: their times go to the one who does."""

    def __init__(self, one: Reporter) -> None:
        self.times = one.times

    async def keep(self) -> None:
        await asyncio.Event().wait()

    async def leave(self) -> None: ...


@cache
def _version() -> str:
    """Imported and read when the first worker starts: most processes have none."""
    from importlib.metadata import version

    return version("oncely")


def about(name: str, queues: list[str] | None, concurrency: int, *, pushes: bool = False) -> About:
    return About(
        name=name,
        host=socket.gethostname(),
        pid=os.getpid(),
        queues=queues,
        concurrency=concurrency,
        version=_version(),
        pushes=pushes,
    )
