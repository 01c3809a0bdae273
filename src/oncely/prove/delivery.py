"""One delivery of the job, by a real worker in a forked process that ends where it is told."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import select
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from typing import Final, Literal, NoReturn

from oncely.model.errors import InvalidInput
from oncely.prove import line_coverage, processes
from oncely.prove.clock import Clock
from oncely.prove.copies import Copies
from oncely.prove.inherited import Inherited
from oncely.prove.open_files import copy_open_files, cut_connections
from oncely.prove.seams import bring_in, bring_in_whole, clocks, install, lines
from oncely.prove.watch import (
    CRASHED,
    IMPORTS,
    REFUSED,
    Act,
    Boundary,
    Hosts,
    Message,
    Note,
    Watch,
    is_the_users,
    read_message,
    users_line,
)
from oncely.surface.app import Oncely
from oncely.worker.worker import Worker

QUEUE: Final = "oncely-prove"
_LEASE_SECONDS: Final = 60.0
"""Long, so that a worker under proof never hears by itself that it has lost a lease."""
_ENDLESS_TIMES: Final = 10
"""A delivery that makes progress may take this many times the patience."""
End = Literal["done", "crashed", "paused", "imports"]
"""`imports`: it asked for a library that was not watched, and must be begun anew."""


class Ground:
    """What all deliveries of a proof share."""

    def __init__(self, app: Oncely, hosts: Hosts, *, shows_output: bool, by_line: bool) -> None:
        self.app = app
        self.by_line = by_line
        self.hosts = hosts
        self.shows_output = shows_output
        self.copies = Copies()
        self.clock = Clock()
        self.inherited = Inherited()
        self.looks_at_clocks = False
        bring_in_whole()
        # Once here, so that no child has to import and read what a worker needs.
        app.worker(queues=[QUEUE])


class Child:
    """A process that delivers; what it told so far."""

    def __init__(self, ground: Ground, act: Act | None) -> None:
        self.act = act
        self.messages: list[Message] = []
        self.began = time.monotonic()
        self.went_on = 0.0
        self.resumed_at: int | None = None
        """How many messages had come by then."""
        self._buffer = b""
        self._line, child_line = os.pipe()
        self._pid = _fork(lambda: _deliver(ground, child_line, act))
        os.close(child_line)
        self._code: int | None = None

    @property
    def boundaries(self) -> list[Boundary]:
        return [each for each in self.messages if isinstance(each, Boundary)]

    @property
    def was_struck(self) -> bool:
        return self._has_told("struck")

    @property
    def has_started_processes(self) -> bool:
        return self._has_told("process")

    def _has_told(self, what: str) -> bool:
        return any(isinstance(each, Note) and each.what == what for each in self.messages)

    def wait(self, seconds: float | None) -> End | None:
        """Until it ends or stops; None if it stands still for `seconds`, or moves and comes to no
        end. A machine that is busy makes it slow, and that is not the same."""
        began = moved_at = time.monotonic()
        progress = self._progress()
        while True:
            self._read(0.005 if self._code is None else 0)
            if self._code is None:
                self._look()
            if self._code is not None:
                self._read_rest()
                return self._end(self._code)
            if self._stopped:
                return "paused"
            now = time.monotonic()
            before, progress = progress, self._progress()
            if progress != before:
                moved_at = now
            if seconds is not None and (
                now - moved_at > seconds or now - began > _ENDLESS_TIMES * seconds
            ):
                return None

    def _progress(self) -> tuple[int, list[bytes]]:
        """What it has told, and the processor time that it has used, where the system says that."""
        try:
            with open(f"/proc/{self._pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            fields = []
        return len(self.messages), fields[11:13]

    _stopped = False

    def _look(self) -> None:
        pid, status = os.waitpid(self._pid, os.WNOHANG | os.WUNTRACED)
        if pid == 0:
            return
        if os.WIFSTOPPED(status):
            self._stopped = True
        else:
            self._code = os.waitstatus_to_exitcode(status)

    def _read(self, seconds: float) -> None:
        ready, _, _ = select.select([self._line], [], [], seconds)
        if not ready:
            return
        data = os.read(self._line, 65_536)
        if data:
            self._take(data)
        elif self._code is None:
            # Its end of the line is closed: it is over, or will be in a moment.
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read_rest(self) -> None:
        os.set_blocking(self._line, False)
        try:
            while data := os.read(self._line, 65_536):
                self._take(data)
        except BlockingIOError:
            pass  # a grandchild holds the other end
        os.close(self._line)
        self._line = -1

    def _take(self, data: bytes) -> None:
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        self.messages += [read_message(line) for line in lines]

    def _end(self, code: int) -> End:
        if code == REFUSED:
            raise InvalidInput(f"this cannot be proved: {_last(self.messages, 'refused')}")
        if code == IMPORTS:
            bring_in(_last(self.messages, "imports"))
            return "imports"
        if code == CRASHED:
            return "crashed"
        if code != 0:
            told = _last(self.messages, "end") or f"it ended with {code}"
            raise InvalidInput(f"a delivery under proof came to no end of its own: {told}")
        return "done"

    def resume(self) -> None:
        self._stopped = False
        self.resumed_at = len(self.messages)
        self.went_on = time.monotonic()
        os.kill(self._pid, signal.SIGCONT)

    def kill(self) -> None:
        """With all that it has started."""
        if self._code is None:
            os.kill(self._pid, signal.SIGKILL)
        processes.end_group(self._pid)
        if self._code is None:
            os.waitpid(self._pid, 0)
            self._code = -signal.SIGKILL
        if self._line >= 0:
            os.close(self._line)
            self._line = -1


def _last(messages: list[Message], what: str) -> str:
    found = [each.text for each in messages if isinstance(each, Note) and each.what == what]
    return found[-1] if found else ""


def _fork(work: Callable[[], NoReturn]) -> int:
    with warnings.catch_warnings():
        # Other threads may run here; the child touches nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(1)
    return pid


def _deliver(ground: Ground, line: int, act: Act | None) -> NoReturn:
    gc.freeze()
    processes.begin(ground.copies.alive)
    ground.copies.enter_child()
    cut_connections(keep=line)
    watch = Watch(line, act, ground.hosts)
    try:
        if not ground.shows_output:
            logging.disable(logging.CRITICAL)
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        copy_open_files(watch, ground.copies.open_files)
        ground.clock.install(ground.copies.everywhere)
        ground.inherited.leave(watch)
        install(watch, ground.copies)
        if ground.by_line:
            lines.install(watch)
        elif not ground.shows_output:  # a debugger traces too
            line_coverage.install(watch, ground.app._registry._handlers)
        if ground.looks_at_clocks:
            clocks.install(watch)
        worker = ground.app.worker(queues=[QUEUE], concurrency=1, lease_seconds=_LEASE_SECONDS)
        asyncio.run(_drain(worker, watch))
        watch.end()
    except BaseException:
        watch.tell(Note("end", traceback.format_exc().strip().splitlines()[-1]))
        os._exit(1)
    os._exit(0)


async def _drain(worker: Worker, watch: Watch) -> None:
    await worker.drain()
    for task in asyncio.all_tasks():
        code = getattr(task.get_coro(), "cr_code", None)
        if code is not None and is_the_users(code.co_filename):
            watch.note("unobserved", f"the task {code.co_qualname}, which ran on at the end")
    frames = sys._current_frames()
    for thread in threading.enumerate():
        if thread is threading.current_thread() or thread.ident is None:
            continue
        where = users_line(frames.get(thread.ident))
        if where is not None:
            watch.note("unobserved", f"the thread at {where}, which ran on at the end")


def ask_in_child(ground: Ground, question: Callable[[], bytes]) -> bytes:
    """The answer of a function that sees the copies where it thinks it sees the originals."""
    line, child_line = os.pipe()

    def answer() -> NoReturn:
        gc.freeze()
        processes.begin(ground.copies.alive)
        ground.copies.enter_child()
        cut_connections(keep=child_line)
        told = os.open(os.devnull, os.O_WRONLY)
        install(Watch(told, None, ground.hosts), ground.copies)
        try:
            data = b"+" + question()
        except Exception as error:
            data = b"-" + f"{type(error).__name__}: {error}".encode()
        while data:
            data = data[os.write(child_line, data) :]
        os._exit(0)

    pid = _fork(answer)
    os.close(child_line)
    with os.fdopen(line, "rb") as file:
        data = file.read()
    os.waitpid(pid, 0)
    processes.end_group(pid)
    if not data.startswith(b"+"):
        raise InvalidInput(f"a snapshot of the world failed: {data[1:].decode()}")
    return data[1:]
