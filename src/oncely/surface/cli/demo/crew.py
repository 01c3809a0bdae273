"""The processes of the demo: started, followed, and one of them killed."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Protocol

import msgspec

from oncely.model.errors import OncelyError
from oncely.surface.cli.demo.publisher import Answer, Assignment

PUBLISHERS: Final = 4
DOOMED: Final = 1
"""The one that is killed, by its place among them."""
UNHEARD: Final = 1
"""It is killed once the store holds so many jobs of its making that it has not reported."""
POLL_SECONDS: Final = 0.002
LIMIT_SECONDS: Final = 50.0
_COMMAND: Final = (sys.executable, "-P", "-m", "oncely.surface.cli.demo.publisher")


class DemoFailed(OncelyError):
    """The demo did not come to its end, or its counts do not add up."""


class Watcher(Protocol):
    """Whoever shows what happens."""

    def started(self, name: str, publishes: int) -> None: ...

    def answered(self, name: str, answers: Sequence[Answer]) -> None: ...

    def killed(self, name: str) -> None: ...


class Record(msgspec.Struct):
    """What the publishers reported."""

    answers: list[Answer] = []
    publishers: list[str] = []
    killed: list[str] = []


class Crew:
    """`stored_by` counts the jobs in the store that the publisher of that name inserted."""

    def __init__(
        self, url: str, schema: str, watcher: Watcher, stored_by: Callable[[str], int]
    ) -> None:
        self._url = url
        self._schema = schema
        self._watcher = watcher
        self._stored_by = stored_by
        self._heard_from: Counter[str] = Counter()
        self._record = Record()

    async def publish(self, orders: Sequence[str], *, times: int) -> Record:
        """Each order `times` over, in random order, dealt to processes that run at once."""
        pile = list(orders) * times
        random.shuffle(pile)
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                await self._work([pile[place::PUBLISHERS] for place in range(PUBLISHERS)])
        except TimeoutError:
            raise DemoFailed(
                f"the publishers did not end within {LIMIT_SECONDS:.0f} seconds: is the store "
                "very slow, or locked by another program?"
            ) from None
        return self._record

    async def _work(self, hands: Sequence[list[str]]) -> None:
        start = asyncio.Barrier(len(hands))
        try:
            async with asyncio.TaskGroup() as tasks:
                for place, hand in enumerate(hands):
                    tasks.create_task(self._employ(hand, start, doomed=place == DOOMED))
        except* (DemoFailed, OSError) as failures:
            raise failures.exceptions[0] from None

    async def _employ(
        self, orders: list[str], start: asyncio.Barrier | None, *, doomed: bool = False
    ) -> None:
        name = f"publisher {len(self._record.publishers) + 1}"
        self._record.publishers.append(name)
        self._watcher.started(name, len(orders))
        process = await self._start(name, orders)
        doom = asyncio.create_task(self._doom(name, process)) if doomed else None
        try:
            half = len(orders) // 2 if doomed else None
            answered = await self._follow(name, process, start, kill_at=half)
            await process.wait()
        finally:
            if doom is not None:
                doom.cancel()
            if process.returncode is None:
                _kill(process)
                await process.wait()
        if doomed and process.returncode == -signal.SIGKILL:
            self._record.killed.append(name)
            self._watcher.killed(name)
            await self._employ(orders[answered:], None)
        elif process.returncode != 0 or answered != len(orders):
            raise DemoFailed(f"{name} failed: {await _last_words(process)}")

    async def _start(self, name: str, orders: list[str]) -> Process:
        # In a session of its own: Ctrl-C is for us, and it is we who end it.
        process = await asyncio.create_subprocess_exec(
            *_COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE, start_new_session=True
        )
        # Not as an argument: everybody on the machine can read those, and the URL has a password.
        assignment = Assignment(self._url, self._schema, name, orders)
        await _tell(process, msgspec.json.encode(assignment) + b"\n")
        return process

    async def _follow(
        self, name: str, process: Process, start: asyncio.Barrier | None, *, kill_at: int | None
    ) -> int:
        """How many publishes it answered until it ended, by itself or by us."""
        assert process.stdout is not None
        if await process.stdout.readline() and start is not None:
            await start.wait()
        answered = 0
        await _tell(process, b"\n")
        while (line := await process.stdout.readline()).endswith(b"\n"):
            answers = msgspec.json.decode(line, type=list[Answer])
            self._record.answers += answers
            self._heard_from[name] += sum(answer.inserted for answer in answers)
            self._watcher.answered(name, answers)
            answered += len(answers)
            if kill_at is not None and answered >= kill_at:
                _kill(process)
            await _tell(process, b"\n")
        return answered

    async def _doom(self, name: str, process: Process) -> None:
        """Kill it at the worst moment: its jobs are stored, and it has told nobody."""
        stored = 0
        while not (heard := self._heard_from[name]) or stored < heard + UNHEARD:
            await asyncio.sleep(POLL_SECONDS)
            stored = await asyncio.to_thread(self._stored_by, name)
        _kill(process)


async def _tell(process: Process, data: bytes) -> None:
    """It may have ended meanwhile, which shows when its output ends."""
    assert process.stdin is not None
    with suppress(ConnectionError):
        process.stdin.write(data)
        await process.stdin.drain()


async def _last_words(process: Process) -> str:
    assert process.stderr is not None
    said = (await process.stderr.read()).decode(errors="replace").strip()
    return said.splitlines()[-1] if said else f"exit code {process.returncode}"


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.kill()
