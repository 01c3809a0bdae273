"""The processes under torture: publishers that are killed, workers that are killed, or stopped past
their lease and continued; then some that are left in peace, until every job has ended."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from oncely.model.errors import OncelyError
from oncely.model.job import Job
from oncely.model.transition import ACTIVE
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.child import Child, child
from oncely.surface.cli.demo.crew import first_of, payment_service
from oncely.surface.cli.demo.gate import Left, Stop
from oncely.surface.cli.demo.operator import Operator
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publisher import GROUP, Answer
from oncely.surface.cli.demo.publisher import Assignment as Orders
from oncely.surface.cli.demo.record import Record
from oncely.surface.cli.demo.screen import Silence
from oncely.surface.cli.torture.worker import Assignment
from oncely.surface.looking import LIST_LIMIT

LEASE_SECONDS: Final = 1.0
STOP_SECONDS: Final = (1.5, 2.5)
CALM_LEASE_SECONDS: Final = 30.0
REST_SECONDS: Final = 120.0
"""After the last fault every job comes to its end: so long at most after the one before it."""
BEHIND: Final = 100
"""No more is published while so many jobs have not ended."""
_BLOCK: Final = 2 * GROUP
MOST: Final = LIST_LIMIT - _BLOCK
EVERY_SECONDS: Final = 1.5
"""So often, on average, a worker is struck."""
_KILLS: Final = 2 / 3
"""The share of strikes that kill."""
_PUBLISHERS: Final = 2
_PUBLISHER: Final = "oncely.surface.cli.demo.publisher"
_WORKER: Final = "oncely.surface.cli.torture.worker"
_LOOK_SECONDS: Final = 0.2


class TortureFailed(OncelyError):
    """The run did not come to its end, or what is left is not as it must be."""


class Ordeal(msgspec.Struct):
    """What was done to them, and what they told."""

    record: Record
    killed: int = 0
    stopped: int = 0
    replayed: int = 0
    ended: int = 0
    """Jobs that had ended when it was looked last."""
    unended: int = 0
    """Jobs that had not ended long after the last fault."""


class Crew:
    """`orders` are odd numbers: the demo's handler asks after the receipts of even ones, and a
    sender that is stopped inside its call and wakes up may send after it was asked for. That is
    declared, and no fault; so these ones are held for a person instead."""

    def __init__(
        self, app: Oncely, place: Place, book: Path, *, seconds: float, workers: int
    ) -> None:
        self._app = app
        self._place = place
        self._book = book
        self._workers = workers
        self._seconds = seconds
        self._until = -math.inf
        self._published: set[int] = set()
        self.ordeal = Ordeal(Record())

    async def run(self, look: Callable[[Ordeal], None]) -> Ordeal:
        try:
            await self._suffer(look)
            await self._rest(look)
        except BaseExceptionGroup as group:
            raise first_of(group) from None
        return self.ordeal

    @property
    def orders(self) -> list[int]:
        return sorted(self._published)

    def is_sending(self, order: int) -> bool:
        """Nobody is, when it is asked: those who were killed or stopped are gone by then."""
        del order
        return False

    @property
    def _is_on(self) -> bool:
        return time.monotonic() < self._until

    async def _suffer(self, look: Callable[[Ordeal], None]) -> None:
        async with payment_service(self._book) as port, asyncio.TaskGroup() as tasks:
            self._until = time.monotonic() + self._seconds
            for _ in range(_PUBLISHERS):
                tasks.create_task(self._publish())
            assignment = Assignment(self._place, port, LEASE_SECONDS)
            for _ in range(self._workers):
                tasks.create_task(self._employ(assignment))
            while self._is_on:
                await asyncio.sleep(_LOOK_SECONDS)
                await self._count()
                look(self.ordeal)

    async def _rest(self, look: Callable[[Ordeal], None]) -> None:
        """No more faults. The service is another process, so that nothing is on its way to it."""
        deadline = time.monotonic() + REST_SECONDS
        operator = Operator(self._app, self._book, self, self.ordeal.record, Silence())
        over = asyncio.Event()
        async with payment_service(self._book) as port, asyncio.TaskGroup() as tasks:
            assignment = Assignment(self._place, port, CALM_LEASE_SECONDS)
            for _ in range(self._workers):
                tasks.create_task(self._leave_in_peace(assignment, over))
            jobs, before = await self._jobs(), -1
            while any(job.state != "completed" for job in jobs) and time.monotonic() < deadline:
                await operator.attend(jobs)
                for job in jobs:
                    if job.state == "failed":
                        await self._app.areplay(job.job_id)
                        self.ordeal.replayed += 1
                await asyncio.sleep(_LOOK_SECONDS)
                jobs = await self._jobs()
                self.ordeal.ended = sum(job.state not in ACTIVE for job in jobs)
                if self.ordeal.ended != before:
                    before = self.ordeal.ended
                    deadline = time.monotonic() + REST_SECONDS
                look(self.ordeal)
            self.ordeal.unended = sum(job.state in ACTIVE for job in jobs)
            over.set()

    async def _jobs(self) -> list[Job]:
        return await self._app.ajobs(queue=self._place.queue, limit=LIST_LIMIT)

    async def _count(self) -> None:
        totals = await self._app.acounters()
        named = [each for each in totals if each.name == "oncely_executions_total"]
        ends = ("completed", "failed", "in_doubt")
        self.ordeal.ended = sum(each.value for each in named if each.labels["outcome"] in ends)

    async def _publish(self) -> None:
        """Every publisher has every order, so that they race; some are killed, and others go on."""
        place = 0
        while self._is_on and place < MOST:
            if place - self.ordeal.ended > BEHIND:
                await asyncio.sleep(_LOOK_SECONDS)
                continue
            orders = [2 * order + 1 for order in range(place, place + _BLOCK)]
            self._published.update(orders)
            await self._publish_all(orders)
            place += len(orders)

    async def _publish_all(self, orders: Sequence[int]) -> None:
        record = self.ordeal.record
        while orders:
            name = f"publisher {len(record.publishers) + 1}"
            record.publishers.append(name)
            async with child(_PUBLISHER, Orders(self._place, name, list(orders))) as process:
                doom = None
                if random.random() < 0.5 and self._is_on:
                    delay = random.uniform(0.2, 1.0)
                    doom = asyncio.get_running_loop().call_later(delay, process.kill)
                answered = await _answers(process)
                if doom is not None:
                    doom.cancel()
                record.answers += answered
                if await process.was_killed():
                    record.publishers_killed.append(name)
                elif len(answered) < len(orders):
                    raise TortureFailed(f"{name} failed: {await process.last_words()}")
            orders = orders[len(answered) :]

    async def _employ(self, assignment: Assignment) -> None:
        """One place in the crew: whoever is killed in it is replaced."""
        record = self.ordeal.record
        while self._is_on:
            record.workers.append(f"worker {len(record.workers) + 1}")
            async with child(_WORKER, assignment) as process:
                end = asyncio.get_running_loop().call_later(
                    max(0.0, self._until - time.monotonic()), process.kill
                )
                await self._follow(process, strikes=True)
                end.cancel()
                if not await process.was_killed():
                    raise TortureFailed(f"a worker failed: {await process.last_words()}")
                self.ordeal.killed += 1

    async def _leave_in_peace(self, assignment: Assignment, over: asyncio.Event) -> None:
        self.ordeal.record.workers.append("calm")
        async with child(_WORKER, assignment) as process:
            following = asyncio.create_task(self._follow(process, strikes=False))
            waiting = asyncio.create_task(over.wait())
            await asyncio.wait([following, waiting], return_when=asyncio.FIRST_COMPLETED)
            if not over.is_set():
                raise TortureFailed(f"a worker failed: {await process.last_words()}")
            process.dismiss()
            await following

    async def _follow(self, process: Child, *, strikes: bool) -> None:
        """Let its handlers on where they stop, or strike it there."""
        record = self.ordeal.record
        due = time.monotonic() + random.expovariate(1 / EVERY_SECONDS)
        while line := await process.hear():
            said = msgspec.json.decode(line, type=Stop | Left)
            record.executions.add(said.execution_id)
            if isinstance(said, Left):
                continue
            if strikes and self._is_on and time.monotonic() > due:
                if random.random() < _KILLS:
                    process.kill()
                    continue
                self.ordeal.stopped += 1
                process.stop()
                await asyncio.sleep(random.uniform(*STOP_SECONDS))
                process.go_on()
                due = time.monotonic() + random.expovariate(1 / EVERY_SECONDS)
            await process.tell(b"%d\n" % said.ticket)


async def _answers(process: Child) -> list[Answer]:
    found: list[Answer] = []
    if await process.hear():
        await process.tell(b"\n")
    while line := await process.hear():
        found += msgspec.json.decode(line, type=list[Answer])
        await process.tell(b"\n")
    return found
