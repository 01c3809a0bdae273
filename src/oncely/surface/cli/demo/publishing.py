"""The publishers of the demo: all at once, and one of them killed."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import msgspec

from oncely.model.job import Job
from oncely.surface.cli.demo.child import Child, child
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publisher import Answer, Assignment
from oncely.surface.cli.demo.record import DemoFailed, Record, Watcher

PUBLISHERS: Final = 4
DOOMED: Final = 1
"""The one that is killed, by its place among them."""
UNHEARD: Final = 1
"""It is killed once the store holds so many jobs of its making that it has not reported."""
POLL_SECONDS: Final = 0.002
_MODULE: Final = "oncely.surface.cli.demo.publisher"


class Publishing:
    """`look` reads the jobs of this run from the store."""

    def __init__(
        self,
        place: Place,
        record: Record,
        watcher: Watcher,
        look: Callable[[], Awaitable[list[Job]]],
    ) -> None:
        self._place = place
        self._record = record
        self._watcher = watcher
        self._look = look
        self._heard_from: Counter[str] = Counter()

    async def publish(self, orders: Sequence[int], *, times: int) -> None:
        """Each order `times` over, in random order, dealt to processes that run at once."""
        pile = list(orders) * times
        random.shuffle(pile)
        start = asyncio.Barrier(PUBLISHERS)
        async with asyncio.TaskGroup() as tasks:
            for place in range(PUBLISHERS):
                hand = pile[place::PUBLISHERS]
                tasks.create_task(self._employ(hand, start, doomed=place == DOOMED))

    async def _employ(
        self, orders: list[int], start: asyncio.Barrier | None, *, doomed: bool = False
    ) -> None:
        name = f"publisher {len(self._record.publishers) + 1}"
        self._record.publishers.append(name)
        async with child(_MODULE, Assignment(self._place, name, orders)) as process:
            doom = asyncio.create_task(self._doom(name, process)) if doomed else None
            try:
                half = len(orders) // 2 if doomed else None
                answered = await self._follow(name, process, start, kill_at=half)
                killed = doomed and await process.was_killed()
            finally:
                if doom is not None:
                    doom.cancel()
            if not killed and (await process.ended() != 0 or answered != len(orders)):
                raise DemoFailed(f"{name} failed: {await process.last_words()}")
        self._watcher.told(f"{name}: {'killed after ' if killed else ''}{answered} publishes")
        if killed:
            self._record.publishers_killed.append(name)
            await self._employ(orders[answered:], None)

    async def _follow(
        self, name: str, process: Child, start: asyncio.Barrier | None, *, kill_at: int | None
    ) -> int:
        """How many publishes it answered until it ended, by itself or by us."""
        if await process.hear() and start is not None:
            await start.wait()
        answered = 0
        await process.tell(b"\n")
        while line := await process.hear():
            answers = msgspec.json.decode(line, type=list[Answer])
            self._record.answers += answers
            self._heard_from[name] += sum(answer.inserted for answer in answers)
            answered += len(answers)
            if kill_at is not None and answered >= kill_at:
                process.kill()
            await process.tell(b"\n")
        return answered

    async def _doom(self, name: str, process: Child) -> None:
        """Kill it at the worst moment: its jobs are stored, and it has told nobody."""
        stored = 0
        while not (heard := self._heard_from[name]) or stored < heard + UNHEARD:
            await asyncio.sleep(POLL_SECONDS)
            if heard:
                stored = sum(name in job.tags for job in await self._look())
        process.kill()
