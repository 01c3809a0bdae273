"""The hands of a worker: what was claimed is begun, runs, and ends.

Handlers that wait for something have a task of their own. Handlers that end without waiting run one
after another in one task, for a task costs as much as all the rest of a job that does nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from types import coroutine
from typing import Any, ClassVar, Final

import msgspec

from oncely.flow.context import Context
from oncely.flow.events import log
from oncely.flow.execute import with_doubt
from oncely.model.event import Event
from oncely.model.outcome import Ending, Returned
from oncely.store import deliver
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.swap import Completed
from oncely.worker.care import ALONE_SECONDS, Care
from oncely.worker.ends import Ends
from oncely.worker.execution import Execution
from oncely.worker.gear import Gear
from oncely.worker.pace import LINGER_SECONDS, Pace
from oncely.worker.report import Times

_TURN_SECONDS: Final = 0.001
"""So long handlers that do not wait may keep the loop from everything else."""
_NO_PLACE_SECONDS: Final = 5.0
"""A handler that is only a little late may still give its place back."""
_IN_TASKS: Final = 50
"""So many jobs of a kind have a task of their own, after one of them has waited."""


class Hands:
    _pushes: ClassVar[bool] = False
    """Whether it serves the queues whose jobs are pushed to a URL, or all others."""
    _threads: Executor
    _grace_seconds: float

    def __init__(self, gear: Gear, concurrency: int, times: Times) -> None:
        self._gear = gear
        self._concurrency = concurrency
        self._times = times
        self.executions = 0
        self._hand: deque[tuple[float, Claimed]] = deque()
        self._running: dict[asyncio.Task[None], Execution] = {}
        self._row: asyncio.Task[None] | None = None
        self._in_tasks: dict[str, int] = {}
        self._unhandled: Counter[str] = Counter()
        """By kind: executions that were deferred for want of a handler."""
        self._care = Care()
        self._stuck: list[Execution] = []
        """Executions whose `def` handlers go on after their end: each keeps its place."""
        self._has_no_place = False
        """All places are kept so, and none came free for a while: the worker must end."""
        self._giving_up: asyncio.TimerHandle | None = None
        self._ends = Ends()
        self._pace = Pace(concurrency)
        self._low = 0
        """With no more than that in hand it is time to claim."""
        self._lingers = False
        self._wake = asyncio.Event()
        self._lease_over = asyncio.Event()
        self._lease_locked = asyncio.Event()

    def _room(self) -> int:
        """So many more jobs may be begun now."""
        if self._care.alone is not None:
            return 0
        return self._concurrency - len(self._running) - len(self._stuck)

    def _take_in(self, claimed: Sequence[Claimed]) -> None:
        now = time.monotonic()
        self._ends.expect(claimed)
        self._hand.extend((now, job) for job in claimed)
        singly = self._care.is_singly
        if self._care.met(claimed):
            self._begin_next()
        if self._care.is_wary and self._hand:
            self._hand_back()
            self._wake.set()
        if claimed and singly:  # there may be room for more
            self._wake.set()

    def _begin_next(self) -> None:
        """Unless those that do not wait are at it: they go on with what is in hand."""
        if self._row is not None and not self._care.is_wary:
            return
        room = min(self._room(), len(self._hand))
        while room > 0 and self._care.alone is None:
            if self._may_run_in_row(self._hand[0][1]):
                self._row = asyncio.get_running_loop().create_task(self._run_in_row())
                self._row.add_done_callback(self._ended)
                return
            claimed_at, claimed = self._hand.popleft()
            self._begin(claimed, claimed_at)
            room -= 1

    def _made(self, claimed: Claimed, claimed_at: float) -> Execution:
        execution = Execution(claimed, self._gear)
        self.executions += 1
        if execution.handler is None:
            self._tell_unhandled(claimed.kind)
        in_hand_seconds = execution.context.begun - claimed_at
        self._times.waited(claimed, claimed.waited_seconds + in_hand_seconds)
        return execution

    def _tell_unhandled(self, kind: str) -> None:
        """Once for each kind."""
        if kind not in self._unhandled:
            log(
                "no handler for this kind: its jobs wait for a worker that has one",
                level=logging.WARNING,
                kind=kind,
            )
        self._unhandled[kind] += 1

    def _begin(self, claimed: Claimed, claimed_at: float) -> None:
        """In a task of its own."""
        loop = asyncio.get_running_loop()
        execution = self._made(claimed, claimed_at)
        task = loop.create_task(self._execute(execution))
        self._running[task] = execution
        task.add_done_callback(self._ended)
        if self._care.begun(claimed, task):
            loop.call_later(ALONE_SECONDS, self._not_alone, task)

    async def _execute(self, execution: Execution) -> None:
        self._end(execution, await execution.run(self._threads))

    def _may_run_in_row(self, claimed: Claimed) -> bool:
        if self._pushes or self._care.is_wary or claimed.traceparent is not None:
            return False
        left = self._in_tasks.get(claimed.kind, 0)
        if left:
            self._in_tasks[claimed.kind] = left - 1
        return not left

    async def _run_in_row(self) -> None:
        """One after another, each up to where it waits for something: from there on the task is
        its own, and the others have a new one. So have they if it leaves context variables behind,
        which the next must not see."""
        task = asyncio.current_task()
        assert task is not None
        clean, turn, room = copy_context(), time.monotonic(), self._room()
        while self._hand and room > 0:
            claimed_at, claimed = self._hand.popleft()
            if not self._may_run_in_row(claimed):
                self._begin(claimed, claimed_at)
                room = self._room()
                continue
            execution = self._made(claimed, claimed_at)
            run = execution.run(self._threads)
            try:
                waits_for = run.send(None)
            except StopIteration as end:
                self._end(execution, end.value, in_row=True)
            except BaseException:
                self._running[task] = execution
                raise
            else:
                self._running[task] = execution
                self._in_tasks[claimed.kind] = _IN_TASKS
                self._row = None
                clean.run(self._begin_next)
                self._end(execution, await _go_on(run, waits_for))
                return
            if copy_context() != clean:
                self._in_tasks[claimed.kind] = _IN_TASKS
                return
            if execution.context.begun - turn > _TURN_SECONDS:
                self._look_after_ends()
                await asyncio.sleep(0)
                turn, room = time.monotonic(), self._room()

    def _end(self, execution: Execution, ending: Ending, *, in_row: bool = False) -> None:
        claimed, context = execution.claimed, execution.context
        has_effects = context.has_effects
        if has_effects:
            ending = with_doubt(ending, context)
        now = time.monotonic()
        ran_seconds = now - context.begun
        if execution.handler is not None:
            self._times.ran(claimed, ran_seconds)
            self._draw(execution, ending)
        self._pace.ended(
            # Those in a row take turns: together they are no faster than one of them.
            ran_seconds * self._concurrency if in_row else ran_seconds,
            by_itself=has_effects and context.is_completed,
        )
        told = has_effects and not context.only_returned
        if isinstance(ending, Returned) and not told and not self._pushes:
            self._ends.add(claimed, Completed(claimed, ending.result), now)
        else:
            self._settle(claimed, execution.settlement(ending), context)

    def _draw(self, execution: Execution, ending: Ending) -> None:
        """It ended so, and will be settled."""

    def _settle(self, claimed: Claimed, settlement: Settlement, context: Context) -> None:
        """With the next exchange. A handler that completed its job itself has done it before us,
        unless its transaction was rolled back."""
        effects = context.effects if context.has_effects else None
        renamed = effects and effects.renamed
        if renamed:
            self._gear.events.warn(
                Event(
                    what="effect_renamed",
                    job_id=claimed.job_id,
                    kind=claimed.kind,
                    queue=claimed.queue,
                    epoch=claimed.fence.epoch,
                    attempt=claimed.attempt,
                    effect=name,
                    begun=renamed.begun,
                )
                for name in renamed.names
            )
        told = msgspec.structs.replace(
            settlement,
            maybe_written=context.may_be_completed,
            written=context.is_completed,
            repeats=list(effects.repeats) if effects else [],
            renamed=renamed,
        )
        self._ends.add(claimed, told, 0.0)

    def _not_alone(self, task: asyncio.Task[None]) -> None:
        if self._care.ended(task):
            self._wake.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if self._row is task:
            self._row = None
        execution = self._running.pop(task, None)
        if execution is not None:
            self._let_go(task, execution)
        if self._hand:
            self._begin_next()
        self._look_after_ends()

    def _look_after_ends(self) -> None:
        """While there is enough in hand, the store can wait until a lease is over."""
        if len(self._hand) <= self._low or self._ends.urgent:
            self._wake.set()
            self._lease_over.set()
        else:
            self._linger()

    def _let_go(self, task: asyncio.Task[None], execution: Execution) -> None:
        context = execution.context
        self._not_alone(task)
        if task.cancelled():
            # Somebody else runs it from the beginning. Also if the lease was lost: where the
            # store only did not answer it may still be ours, and nobody else would run the job
            # before the lease has run out.
            claimed = execution.claimed
            self._settle(claimed, deliver.handed_back(claimed, tried=True), context)
        thread = context.thread
        if thread is not None and not thread.done():
            self._keep_place(thread, execution)

    def _keep_place(self, thread: Future[Any], execution: Execution) -> None:
        """A thread cannot be ended from outside, so its handler goes on taking up a place."""
        self._stuck.append(execution)
        self._log_stuck("handler does not return", logging.WARNING, execution)
        loop = asyncio.get_running_loop()
        if len(self._stuck) >= self._concurrency:
            patience = min(_NO_PLACE_SECONDS, self._grace_seconds)
            self._giving_up = loop.call_later(patience, self._give_up)
        thread.add_done_callback(lambda _: tell(loop, partial(self._unstick, execution)))

    def _unstick(self, execution: Execution) -> None:
        self._stuck.remove(execution)
        if self._giving_up is not None:
            self._giving_up.cancel()
            self._giving_up = None
        self._log_stuck("handler has returned late", logging.INFO, execution)
        self._wake.set()

    def _give_up(self) -> None:
        self._has_no_place = True
        self._wake.set()

    def _log_stuck(self, event: str, level: int, execution: Execution) -> None:
        log(
            event,
            level=level,
            kind=execution.claimed.kind,
            job_id=execution.claimed.job_id,
            ran_seconds=round(time.monotonic() - execution.context.begun, 3),
            stuck=len(self._stuck),
            concurrency=self._concurrency,
        )

    def _locked_leases(self) -> set[Fence]:
        """The leases that transactions of handlers may have locked. What is settled under one of
        them waits for the end of its transaction, and so does all that is sent with it."""
        executions = (*self._running.values(), *self._stuck)
        return {each.claimed.fence for each in executions if each.context.may_hold_lease}

    def _linger(self) -> None:
        since = self._ends.since
        if since is not None and not self._lingers:
            self._lingers = True
            seconds = since + LINGER_SECONDS - time.monotonic()
            asyncio.get_running_loop().call_later(max(0.0, seconds), self._linger_over)

    def _linger_over(self) -> None:
        """What it was begun for may be settled long since, and others wait by now."""
        self._lingers = False
        since = self._ends.since
        if since is not None and time.monotonic() - since >= LINGER_SECONDS:
            self._wake.set()
        else:
            self._linger()

    def _hand_back_stale(self) -> None:
        if self._hand and time.monotonic() - self._hand[0][0] > self._pace.hand_seconds:
            self._hand_back()

    def _hand_back(self) -> None:
        """What was fetched ahead and is not begun."""
        while self._hand:
            _, claimed = self._hand.popleft()
            self._ends.add(claimed, deliver.handed_back(claimed, tried=False), 0.0)

    @staticmethod
    def _is_held(claimed: Claimed, known: set[Fence], held: set[tuple[Fence, str]]) -> bool:
        """Whether a renewal of the `known` leases has found the job under its lease. A job whose
        lease was not asked for was claimed since."""
        return claimed.fence not in known or (claimed.fence, claimed.job_id) in held

    def _keep_in_hand(self, known: set[Fence], held: set[tuple[Fence, str]]) -> None:
        """What was cancelled, or lost with its lease, is not begun. It is handed back all the same:
        where the store only did not answer it may still be ours, and nobody else would run it
        before the lease has run out."""
        hand, self._hand = self._hand, deque()
        for at, claimed in hand:
            if self._is_held(claimed, known, held):
                self._hand.append((at, claimed))
            else:
                self._ends.add(claimed, deliver.handed_back(claimed, tried=False), 0.0)
                self._wake.set()


@coroutine
def _go_on(run: Coroutine[Any, Any, Ending], waits_for: Any) -> Generator[Any, Any, Ending]:
    """Go on with what was begun by hand and waits for something."""
    try:
        while True:
            try:
                answer = yield waits_for
            except BaseException as error:
                waits_for = run.throw(error)
            else:
                waits_for = run.send(answer)
    except StopIteration as end:
        ending: Ending = end.value
        return ending


def tell(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(what)
