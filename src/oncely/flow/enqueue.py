"""Enqueue: check the new jobs, then take them in, on our own connection or in the caller's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from time import time
from typing import Any, Final

from msgspec import UNSET, UnsetType

from oncely.flow.aside import aside
from oncely.flow.company import Company
from oncely.flow.conflicts import Conflicts
from oncely.flow.events import Events
from oncely.flow.identity import new_job_ids
from oncely.flow.trace import current, enqueueing
from oncely.model.alike import Alike, draft_alike
from oncely.model.draft import Draft, draft
from oncely.model.errors import InvalidInput, KeyConflict, KeyWarning, OncelyError
from oncely.model.event import Event
from oncely.model.job import NewJob, Receipt, Receipts
from oncely.model.keys import shown, suspicion
from oncely.store.admit import (
    Answer,
    Conflict,
    Repeat,
    admit,
    admit_all,
    needs_savepoint,
    needs_transaction,
)
from oncely.store.caller import Caller, aborrow, borrow
from oncely.store.engine import Access, Engine, StoreClosed
from oncely.store.gather import Gather
from oncely.store.plan import Plan, Statement, arun, run
from oncely.store.store_id import OtherStore, StoreId

watched: Final[ContextVar[list[str] | None]] = ContextVar("oncely_watched", default=None)
"""In a drill: the kinds of the jobs that were put in meanwhile."""

_LOOKS: Final = 100
"""So many jobs of one call are looked at for keys that are a mistake: a look costs as much as all
other checks together, and one way of making keys shows soon what it is."""


class Enqueuer:
    """The front door of one store."""

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        events: Events,
        *,
        queue_of: Callable[[str], str],
        max_payload_bytes: int,
    ) -> None:
        self._engine = engine
        self._executor = executor
        self._events = events
        self._queue_of = queue_of
        self._max_payload_bytes = max_payload_bytes
        self._gather: Gather[Draft, Answer | OncelyError] = Gather(self._admit, executor)
        self._company: Company[Draft, Answer | OncelyError] = Company(self._admit, executor)
        self._warned: set[str] = set()
        self._store_id: StoreId | None = None
        self._conflicts = Conflicts(engine, executor)
        self._closed = False

    def close(self) -> None:
        self._closed = True
        self._gather.close()
        self._company.close()

    def one(self, new: NewJob, tx: Any) -> Receipt:
        with enqueueing(new.kind) as span:
            drafts = [self._draft(new)]
            if tx is not None:
                receipts = self._in_callers(drafts, tx)
            else:
                receipts = self._told(drafts, [self._receipt(self._gather.put(drafts[0]))])
            span.enqueued(receipts)
            return receipts[0]

    async def aone(self, new: NewJob, tx: Any) -> Receipt:
        with enqueueing(new.kind) as span:
            drafts = [self._draft(new)]
            if tx is not None:
                receipts = await self._ain_callers(drafts, tx)
            else:
                answer = await self._company.put(drafts[0])
                receipts = self._told(drafts, [self._receipt(answer)])
            span.enqueued(receipts)
            return receipts[0]

    def rehearse(self, new: NewJob) -> Receipt:
        """What it would be answered. Nothing is stored."""
        return self._engine.run(partial(_undone, [self._draft(new)]), "transaction")

    def many(self, new: Iterable[NewJob], tx: Any) -> Receipts:
        with enqueueing() as span:
            drafts = self._drafts(new)
            if tx is not None:
                receipts = self._in_callers(drafts, tx)
            else:
                receipts = self._told(drafts, self._admit_all(drafts))
            span.enqueued(receipts)
            return _receipts(receipts)

    async def amany(self, new: Iterable[NewJob], tx: Any) -> Receipts:
        with enqueueing() as span:
            drafts = self._drafts(new)
            if tx is not None:
                receipts = await self._ain_callers(drafts, tx)
            else:
                admitted = await aside(self._executor, self._admit_all, drafts)
                receipts = self._told(drafts, admitted)
            span.enqueued(receipts)
            return _receipts(receipts)

    def _draft(self, new: NewJob) -> Draft:
        [job_id] = new_job_ids(1)
        made = self._made(new, job_id, current() or UNSET)
        if made.idempotency_key is not None or made.unique_key is not None:
            self._warn_of_keys([made])
        return made

    def _made(self, new: NewJob, job_id: str, trace: str | UnsetType) -> Draft:
        return draft(
            new,
            job_id,
            queue_of=self._queue_of,
            max_payload_bytes=self._max_payload_bytes,
            traceparent=trace,
        )

    def _drafts(self, new: Iterable[NewJob]) -> Sequence[Draft]:
        """All are checked before any is stored; the error says which one it was."""
        if not isinstance(new, Iterable):
            raise InvalidInput(
                f"jobs is {shown(new)}; expected a list, or any iterable, of NewJob(kind, ...)"
            )
        jobs = list(new)
        for index, job in enumerate(jobs):
            if not isinstance(job, NewJob):
                raise InvalidInput(
                    f"item {index} is {type(job).__name__}; expected NewJob(kind, payload, ...)"
                )
        ids = new_job_ids(len(jobs))
        trace = current() or UNSET
        found: Sequence[Draft] | None = draft_alike(
            jobs,
            ids,
            queue_of=self._queue_of,
            max_payload_bytes=self._max_payload_bytes,
            traceparent=trace,
        )
        if found is None:
            found = self._one_by_one(jobs, ids, trace)
        self._warn_of_keys(found)
        return found

    def _one_by_one(
        self, jobs: Sequence[NewJob], ids: Sequence[str], trace: str | UnsetType
    ) -> list[Draft]:
        found: list[Draft] = []
        try:
            found.extend(
                self._made(job, job_id, trace) for job, job_id in zip(jobs, ids, strict=True)
            )
        except InvalidInput as error:
            if len(jobs) == 1:
                raise
            raise InvalidInput(f"item {len(found)}: {error}") from None
        return found

    def _warn_of_keys(self, drafts: Sequence[Draft]) -> None:
        now = time()
        for kind, option, key in _keys_of(drafts):
            if key is None or kind in self._warned:
                continue
            reason = suspicion(key, now)
            if reason:
                self._warned.add(kind)
                warnings.warn(
                    f"{option} {key!r} of kind {kind!r} {reason}: a retry would come with "
                    "another key, and its repeat would not be recognised. Name what should "
                    "happen at most once, such as key('order', order_id, 'charge')",
                    KeyWarning,
                    stacklevel=5,
                )

    def _admit(self, drafts: Sequence[Draft]) -> Sequence[Answer | OncelyError]:
        """An error is what a server says of one draft alone."""
        access: Access = "transaction" if needs_transaction(drafts) else "write"
        self._conflicts.write_down()
        return self._engine.run(lambda again: admit(drafts, again=again), access)

    def _receipt(self, answer: Answer | OncelyError) -> Receipt:
        if isinstance(answer, OncelyError):
            raise answer
        if isinstance(answer, Conflict):
            self._conflicts.note(answer.draft.kind, in_callers=False)
            raise answer.error()
        return answer

    def _admit_all(self, drafts: Sequence[Draft]) -> list[Receipt]:
        if not drafts:
            return []
        with self._noted(drafts, in_callers=False):
            access: Access = "transaction" if needs_savepoint(drafts) else "write"
            return self._engine.run(lambda again: admit_all(drafts, again=again), access)

    @contextmanager
    def _noted(self, drafts: Sequence[Draft], *, in_callers: bool) -> Iterator[None]:
        try:
            yield
        except KeyConflict as error:
            key = (error.queue, error.key)
            kinds = (d.kind for d in drafts if (d.queue, d.idempotency_key) == key)
            self._conflicts.note(next(kinds), in_callers=in_callers)
            raise

    def _in_callers(self, drafts: Sequence[Draft], tx: Any) -> list[Receipt]:
        caller = self._checked(borrow(tx))
        if caller.awaits:
            raise InvalidInput(
                f"tx is an async {type(tx).__module__.partition('.')[0]} connection: "
                "use `await app.aenqueue(..., tx=tx)`"
            )
        library = self._engine.library

        def admitted() -> list[Receipt]:
            return run(self._vetted(drafts), lambda statement: caller.ask(library, statement))

        with self._noted(drafts, in_callers=True):
            self._store_id = self._store_id or self._engine.store_id()
            try:
                receipts = admitted()
            except OtherStore as error:
                # The store may have been made anew since its id was read.
                self._store_id = self._engine.store_id()
                if self._store_id == error.own:
                    raise
                receipts = admitted()
        return self._told(drafts, receipts, uncommitted=True)

    async def _ain_callers(self, drafts: Sequence[Draft], tx: Any) -> list[Receipt]:
        caller = self._checked(await aborrow(tx))
        library = self._engine.library

        async def admitted() -> list[Receipt]:
            plan = self._vetted(drafts)
            return await arun(plan, lambda statement: caller.aask(library, statement))

        async def read() -> StoreId | None:
            return await aside(self._executor, self._engine.store_id)

        with self._noted(drafts, in_callers=True):
            self._store_id = self._store_id or await read()
            try:
                receipts = await admitted()
            except OtherStore as error:
                self._store_id = await read()
                if self._store_id == error.own:
                    raise
                receipts = await admitted()
        return self._told(drafts, receipts, uncommitted=True)

    def _vetted(self, drafts: Sequence[Draft]) -> Plan[list[Receipt]]:
        yield from self._engine.vet()
        one = self._engine.library.is_one_statement("admit")
        savepoint = not one or needs_savepoint(drafts)
        return (yield from admit_all(drafts, savepoint=savepoint, store=self._store_id))

    def _told(
        self, drafts: Sequence[Draft], receipts: Sequence[Receipt], *, uncommitted: bool = False
    ) -> list[Receipt]:
        if (kinds := watched.get()) is not None:
            pairs = zip(drafts, receipts, strict=True)
            kinds += [job.kind for job, receipt in pairs if receipt.inserted]
        wanted = self._events.wanted("enqueue")
        if wanted is not None:
            every = wanted("enqueued")
            events = (
                _event(job, each, uncommitted=uncommitted)
                for job, each in zip(drafts, receipts, strict=True)
                if every or isinstance(each, Repeat)
            )
            self._events.tell("enqueue", (event for event in events if wanted(event.what)))
        return [one.plain() if isinstance(one, Repeat) else one for one in receipts]

    def _checked(self, caller: Caller) -> Caller:
        if self._closed:
            raise StoreClosed
        if caller.engine != self._engine.library.engine:
            raise InvalidInput(
                f"tx is a transaction on {caller.engine}, the store is on "
                f"{self._engine.library.engine}: both must be one database"
            )
        return caller


def _keys_of(drafts: Sequence[Draft]) -> Iterator[tuple[str, str, str | None]]:
    if type(drafts) is Alike:
        yield from ((drafts.kind, "idempotency_key", key) for key in drafts.keys[:_LOOKS])
        return
    for job in drafts[:_LOOKS]:
        yield job.kind, "idempotency_key", job.idempotency_key
        yield job.kind, "unique_key", job.unique_key


def _undone(drafts: Sequence[Draft], again: bool) -> Plan[Receipt]:
    """Undone by a statement, and not by an error: an engine may commit a plan's first statement
    with it, if it takes that for all there is."""
    yield Statement("savepoint")
    [receipt] = yield from admit_all(drafts, again=again)
    yield Statement("savepoint_undo")
    return receipt.plain() if isinstance(receipt, Repeat) else receipt


def _event(job: Draft, receipt: Receipt, *, uncommitted: bool) -> Event:
    key = receipt.key if isinstance(receipt, Repeat) else None
    return Event(
        what="deduplicated" if key else "enqueued",
        job_id=receipt.job_id,
        kind=job.kind,
        queue=job.queue,
        boundary="enqueue" if key else None,
        key=key,
        idempotency_key=job.idempotency_key,
        unique_key=job.unique_key,
        uncommitted=uncommitted,
    )


def _receipts(receipts: list[Receipt]) -> Receipts:
    inserted = sum(receipt.inserted for receipt in receipts)
    return Receipts(inserted, len(receipts) - inserted, receipts)
