"""A drill: the handler of a job that is completed runs once more, and changes nothing of it.

The verbs answer from the ledger. What the ledger does not know is refused as it is to any execution
that has lost its job, and is told as what a real repeat would have done again.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Generator, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

from oncely.flow.aside import aside
from oncely.flow.complete import Completion
from oncely.flow.context import Context, Tools
from oncely.flow.drive import Ask, Steps
from oncely.flow.effect import EffectDoing, Effects
from oncely.flow.enqueue import Enqueuer, watched
from oncely.flow.once import once
from oncely.flow.protocol import Terms
from oncely.flow.writes import Writes
from oncely.model.drill import Drilled, Found, judge
from oncely.model.effect import Entry
from oncely.model.errors import EffectMismatch, KeyConflict, LeaseLost
from oncely.model.job import NewJob, Receipt
from oncely.model.outcome import Ending
from oncely.store import deliver, effects
from oncely.store.claim import Claimed, Fence
from oncely.store.plan import Plan


class DrillContext(Context):
    """`claimed` has a fence that no lease has, so that the store refuses what gets past here."""

    is_drill: ClassVar[bool] = True

    def __init__(
        self,
        claimed: Claimed,
        *,
        max_attempts: int,
        deadline: float | None,
        tools: Tools,
        enqueuer: Enqueuer,
        is_async: bool,
    ) -> None:
        self.found = Found()
        self._jobs: list[str] = []
        super().__init__(
            claimed,
            max_attempts=max_attempts,
            deadline=deadline,
            tools=Tools(
                engine=tools.engine,
                store_threads=tools.store_threads,
                enqueuer=_Children(self, enqueuer, tools.store_threads),
                writes=tools.writes,
            ),
            is_async=is_async,
        )

    @once
    def effects(self) -> Effects:
        return _Effects(self.job_id, self._claimed.fence, self._tools.writes, self.found)

    @once
    def completion(self) -> Completion:
        tools = self._tools
        made = _Completion(tools.engine, tools.store_threads, self._claimed, self.effects)
        made.found = self.found
        return made

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        plain = super().log
        return logging.LoggerAdapter(plain.logger, {**(plain.extra or {}), "drill": True})

    @property
    def is_inside(self) -> bool:
        return self.has_effects and self.completion.is_inside

    def watch(self) -> None:
        """In the handler's task: jobs that it puts in past `ctx.enqueue` are seen."""
        watched.set(self._jobs)

    def judged(self, ending: Ending, result: str | None) -> Drilled:
        self.found.repeated += [f"enqueue {kind!r} past ctx.enqueue" for kind in self._jobs]
        return judge(self.found, ending, result)


class _Effects(Effects):
    def __init__(self, job_id: str, fence: Fence, writes: Writes, found: Found) -> None:
        super().__init__(job_id, fence, writes)
        self._found = found

    def _make(self, terms: Terms) -> EffectDoing:
        made = _Rehearsed(self._job_id, self._fence, terms, self._writes)
        made.found = self._found
        return made


class _Rehearsed(EffectDoing):
    found: Found

    def begin(self) -> Steps[Entry | None]:
        entry: Entry | None = yield Ask(lambda _: effects.look(self._effect), "read")
        if entry is not None:
            self.take_over(entry)
        told = f"{self.terms.verb} {self.name!r}"
        if self.found.stopped:
            raise self._refusal()
        if entry is None or entry.state != "done":
            self.found.repeated.append(told)
            raise self._refusal()
        try:
            self.refuse_other(entry)
        except EffectMismatch:
            self.found.repeated.append(f"{told} with other arguments")
            raise
        self.found.recognised.append(told)
        return entry

    def _refusal(self) -> LeaseLost:
        return LeaseLost(self._effect.id, self._effect.fence.epoch)


class _Completion(Completion):
    """What is written in its transaction is rolled back: the job is completed already."""

    found: Found

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._seen()
        with super().transaction() as tx:
            yield tx

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[Any]:
        self._seen()
        async with super().atransaction() as tx:
            yield tx

    def _settle(self, settlement: deliver.Settlement, tx: Any) -> Plan[None]:
        if tx is not self._own:
            self._seen()
            yield from self._engine.vet()
        raise LeaseLost(settlement.id, settlement.epoch)

    def _seen(self) -> None:
        if not self.found.undone:
            self.found.recognised.append("transaction")
            self.found.undone = True


class _Children:
    """Children that are known are found. Others are not made."""

    def __init__(self, context: DrillContext, enqueuer: Enqueuer, store_threads: Executor) -> None:
        self._context = context
        self._enqueuer = enqueuer
        self._store_threads = store_threads

    def one(self, new: NewJob, tx: Any) -> Receipt:
        with self._judged(new) as answer:
            if tx is None:
                answer.append(self._enqueuer.rehearse(new))
            else:
                answer.append(self._enqueuer.one(new, tx))
        return answer[0]

    async def aone(self, new: NewJob, tx: Any) -> Receipt:
        with self._judged(new) as answer:
            if tx is None:
                answer.append(await aside(self._store_threads, self._enqueuer.rehearse, new))
            else:
                answer.append(await self._enqueuer.aone(new, tx))
        return answer[0]

    @contextmanager
    def _judged(self, new: NewJob) -> Generator[list[Receipt]]:
        found = self._context.found
        if found.stopped:
            raise self._refusal()
        told = f"enqueue {new.kind!r}"
        answer: list[Receipt] = []
        token = watched.set(None)
        try:
            yield answer
        except KeyConflict:
            found.repeated.append(f"{told} with another payload")
            raise
        finally:
            watched.reset(token)
        if not answer[0].inserted:
            found.recognised.append(told)
        elif not self._context.is_inside:
            # In a transaction of the caller's this error is what rolls it back.
            found.repeated.append(told)
            raise self._refusal()

    def _refusal(self) -> LeaseLost:
        return LeaseLost(self._context.job_id, self._context.epoch)
