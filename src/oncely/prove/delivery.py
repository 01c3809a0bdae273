"""One delivery of the job, by a real worker in a forked process that ends where it is told."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NoReturn

from oncely.model.errors import InvalidInput
from oncely.prove import line_coverage, processes
from oncely.prove.clock import Clock
from oncely.prove.copies import Copies
from oncely.prove.downstream import Downstream
from oncely.prove.fresh import begin as begin_fresh
from oncely.prove.inherited import Inherited
from oncely.prove.loopback import LoopbackServer
from oncely.prove.mailbox import Mailbox
from oncely.prove.open_files import (
    copy_open_files,
    cut_connections,
    follow_mapped_files,
    mapped_files,
    written_files,
)
from oncely.prove.seams import (
    bring_in_whole,
    clocks,
    debuggers,
    install,
    lines,
    moved_clocks,
    sleeps,
)
from oncely.prove.template import Deliver, Template
from oncely.prove.watch import (
    Act,
    Hosts,
    Note,
    Watch,
    is_the_users,
    users_line,
)
from oncely.prove.world import Table, WorldItem
from oncely.surface.app import Oncely
from oncely.worker.gear import Gear
from oncely.worker.report import Reporter, SharedReporter
from oncely.worker.worker import Worker

QUEUE: Final = "oncely-prove"
_LEASE_SECONDS: Final = 60.0
"""Long, so that a worker under proof never hears by itself that it has lost a lease."""


class _OneDelivery(Worker):
    """Does nothing for all: others take back the jobs of the dead, and nobody looks at it."""

    def __init__(self, gear: Gear) -> None:
        super().__init__(gear, queues=[QUEUE], concurrency=1, lease_seconds=_LEASE_SECONDS)

    def _keepers(self, until_idle: bool) -> list[Coroutine[Any, Any, None]]:
        del until_idle
        return [self._renew()]

    def _reports(self, concurrency: int) -> Reporter:
        return SharedReporter(super()._reports(concurrency))


class Ground:
    """What all deliveries of a proof share."""

    def __init__(
        self,
        app: Oncely,
        world: Sequence[WorldItem],
        hosts: Hosts,
        *,
        shows_output: bool,
        by_line: bool,
    ) -> None:
        self.app = app
        self._servers = [each for each in world if isinstance(each, LoopbackServer)]
        # What a delivery finds in memory must be what is there when it begins.
        self._renews = any(map(_runs_code_here, world))
        self._templates: list[Template] = []
        self._current: tuple[bool, Template] | None = None
        """Whether it looks at clocks, and what deliveries are forked from."""
        self.by_line = by_line
        self.hosts = hosts
        self.shows_output = shows_output
        self.copies = Copies()
        self.clock = Clock()
        self.inherited = Inherited()
        self.mapped_files = mapped_files()
        self.looks_at_clocks = False
        bring_in_whole()
        # Once here, so that no child has to import what a worker needs.
        _OneDelivery(app._gear())

    def start(self, line: int, act: Act | None, fresh: str | None) -> tuple[Template, int]:
        """A delivery that tells on `line`: what it was forked from, and its process. `fresh`: the
        kind, if it is delivered in a fresh interpreter."""
        if fresh is not None:
            template = self._new_template(lambda control: _prepare_fresh(self, control, fresh))
            return template, template.start(line, b"")
        looks = self.looks_at_clocks
        if self._current is None or self._renews or self._current[0] is not looks:
            self._current = looks, self._new_template(lambda control: _prepare(self, control))
        template = self._current[1]
        memories = [getattr(each, each.memory) for each in self._servers]
        return template, template.start(line, pickle.dumps((act, memories)))

    def _new_template(self, prepare: Callable[[int], Deliver]) -> Template:
        template = Template(prepare)
        self._templates.append(template)
        return template

    @property
    def can_be_saved(self) -> bool:
        """Whether nothing is in the world but databases, and servers of ours."""
        return not self._renews and not self.copies.databases.mysql

    def save_memories(self) -> list[Any]:
        return [server.save() for server in self._servers]

    def load_memories(self, saved: list[Any]) -> None:
        for server, memory in zip(self._servers, saved, strict=True):
            server.load(memory)

    def recall(self, memories: list[Any]) -> None:
        """In a delivery."""
        for server, memory in zip(self._servers, memories, strict=True):
            setattr(server, server.memory, memory)

    def end_templates(self, *, if_stale: bool = False) -> None:
        """With what was forked from them. The next delivery is forked from a new one."""
        if if_stale and not self._renews:
            return
        for template in self._templates:
            template.close()
        self._templates.clear()
        self._current = None

    def close(self) -> None:
        self.end_templates()
        self.copies.close()


def _runs_code_here(item: WorldItem) -> bool:
    """Whether code of the user's runs for it in the process that proves, and may change what a
    handler finds in memory."""
    return type(item) not in (Table, Downstream, Mailbox) or getattr(item, "runs_code", False)


def _prepare(ground: Ground, control: int) -> Deliver:
    """In the template: what is the same for all deliveries."""
    gc.freeze()
    processes.begin(ground.copies.alive)
    ground.copies.enter_child()
    cut_connections(keep=control)
    watch = Watch(ground.hosts)
    failure = None
    try:
        if not ground.shows_output:
            be_quiet()
        files = written_files()
        moves_datetime = moved_clocks.install(ground.clock, ground.copies.everywhere)
        ground.inherited.leave(watch)
        install(watch, ground.copies)
        if ground.by_line:
            lines.install(watch)
        elif not ground.shows_output:  # a debugger traces too
            line_coverage.install(watch, ground.app._registry._handlers)
        if ground.looks_at_clocks and not moves_datetime:
            clocks.install(watch)
    except Exception as error:
        failure = error

    def deliver(line: int, order: int) -> NoReturn:
        gc.freeze()
        with os.fdopen(order, "rb") as pipe:
            act, memories = pickle.load(pipe)
        ground.recall(memories)
        watch.begin(line, act)
        ground.clock.begin()
        try:
            if failure is not None:
                raise failure
            if ground.shows_output:
                debuggers.install(watch)
            copy_open_files(files, watch, ground.copies.open_files)
            follow_mapped_files(watch, ground.copies.files, ground.mapped_files)
            ground.inherited.pools.begin_anew()
            asyncio.run(work(ground.app, watch, ground.copies, ground.clock))
            watch.end()
        except BaseException:
            watch.tell(Note("end", traceback.format_exc().strip().splitlines()[-1]))
            os._exit(1)
        os._exit(0)

    return deliver


def _prepare_fresh(ground: Ground, control: int, kind: str) -> Deliver:
    """In a template of its own: the delivery becomes a new interpreter, and watches for itself."""
    processes.begin(ground.copies.alive)
    cut_connections(keep=control)  # those to other templates too, which wait for their end

    def deliver(line: int, _: int) -> NoReturn:
        begin_fresh(ground, line, kind)

    return deliver


def be_quiet() -> None:
    logging.disable(logging.CRITICAL)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


async def work(app: Oncely, watch: Watch, copies: Copies, clock: Clock) -> None:
    """Delivers the job, as long as it is due."""
    sleeps.install(watch, copies, clock, asyncio.get_running_loop())
    await _OneDelivery(app._gear()).drain()
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
        watch = Watch(ground.hosts)
        watch.begin(os.open(os.devnull, os.O_WRONLY), None)
        install(watch, ground.copies)
        try:
            data = b"+" + question()
        except Exception as error:
            data = b"-" + f"{type(error).__name__}: {error}".encode()
        while data:
            data = data[os.write(child_line, data) :]
        os._exit(0)

    pid = processes.fork(answer)
    os.close(child_line)
    data = b""

    def read(seconds: float) -> bool:
        nonlocal data
        if not select.select([line], [], [], seconds)[0]:
            return False
        more = os.read(line, 65_536)
        data += more
        return not more

    has_ended = processes.await_while_moving(pid, read)
    os.close(line)
    if not has_ended:
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    processes.end_group(pid)
    if not has_ended:
        raise InvalidInput(
            f"a snapshot of the world stood still for {processes.HUNG_SECONDS:.0f} seconds: give a "
            "function that ends by itself"
        )
    if not data.startswith(b"+"):
        raise InvalidInput(f"a snapshot of the world failed: {data[1:].decode()}")
    return data[1:]
