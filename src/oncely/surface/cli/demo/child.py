"""A process of the demo: started, heard line by line, told things, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec


@asynccontextmanager
async def child(module: str, assignment: Any) -> AsyncIterator[Child]:
    """A module that runs as a program, with its assignment as the first line of its input. It
    does not outlive the `async with`; and should we die, its input ends, and so does it."""
    # In a session of its own: Ctrl-C is for us, and it is we who end it.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", module),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    made = Child(process)
    try:
        # Not as an argument: everybody on the machine can read those, and the URL has a password.
        await made.tell(msgspec.json.encode(assignment) + b"\n")
        yield made
    finally:
        made.kill()
        await process.wait()


class Child:
    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr

    async def hear(self) -> bytes:
        """Its next whole line, or nothing: it has ended. What it said before its end is heard."""
        line = await self._stdout.readline()
        return line if line.endswith(b"\n") else b""

    async def tell(self, data: bytes) -> None:
        """It may have ended meanwhile, which shows when its output ends."""
        with suppress(ConnectionError):
            self._stdin.write(data)
            await self._stdin.drain()

    def dismiss(self) -> None:
        self._stdin.close()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """It does nothing more until it is told to go on, and does not know it."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        """Past `subprocess`, which would look first whether it has ended, and so take its end away
        from whoever waits for that."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    async def ended(self) -> int:
        return await self._process.wait()

    async def was_killed(self) -> bool:
        return await self.ended() == -signal.SIGKILL

    async def last_words(self) -> str:
        said = (await self._stderr.read()).decode(errors="replace").strip()
        return said.splitlines()[-1] if said else f"exit code {await self.ended()}"
