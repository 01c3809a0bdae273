"""Completion together with the effect: in the transaction that the handler writes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from oncely.flow.aside import aside
from oncely.flow.effect import Effects
from oncely.flow.trace import Span, effecting
from oncely.model import payload
from oncely.model.errors import InDoubt, InvalidInput, LeaseLost
from oncely.model.outcome import Rest
from oncely.store import deliver
from oncely.store.caller import Caller, aborrow, borrow
from oncely.store.claim import Claimed
from oncely.store.engine import CommitLost, Engine
from oncely.store.plan import Plan, Statement, arun, run
from oncely.store.store_id import OtherStore, StoreId, read_store_id, refuse_other_store

MAX_RESULT_BYTES: Final = 1024 * 1024
_TWICE: Final = "the job was completed in a transaction of this execution already"


class Completion:
    """How one execution completes its job itself. `begun` once it may have."""

    def __init__(
        self, engine: Engine, store_threads: Executor, claimed: Claimed, effects: Effects
    ) -> None:
        self._engine = engine
        self._store_threads = store_threads
        self._claimed = claimed
        self._effects = effects
        self._own: Any = None
        self._said = False
        self._in_callers = False
        self.begun = False
        self.confirmed = False
        """Its commit was answered, so nobody has to ask."""
        self.store_error: BaseException | None = None
        """The error with which the store ended the transaction: not the handler's fault."""

    def complete(self, result: Any, tx: Any) -> None:
        settlement = self._settlement(result)
        caller = self._checked(borrow(tx), awaits=False)
        library = self._engine.library
        plan = self._settle(settlement, tx)
        try:
            run(plan, lambda statement: caller.ask(library, statement))
        except LeaseLost:
            if tx is not self._own:
                plan = self._refuse_other_store(self._read_store_id())
                run(plan, lambda statement: caller.ask(library, statement))
            raise

    async def acomplete(self, result: Any, tx: Any) -> None:
        settlement = self._settlement(result)
        caller = self._checked(await aborrow(tx), awaits=True)
        library = self._engine.library
        plan = self._settle(settlement, tx)
        try:
            await arun(plan, lambda statement: caller.aask(library, statement))
        except LeaseLost:
            if tx is not self._own:
                own = await aside(self._store_threads, self._read_store_id)
                plan = self._refuse_other_store(own)
                await arun(plan, lambda statement: caller.aask(library, statement))
            raise

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._refuse_second()
        if self.begun and self._arrived():
            raise InvalidInput(_TWICE)
        tx: Any = None
        try:
            with self._span(), self._engine.transactions.sync() as tx, self._inside(tx):
                yield tx
                if not self._said and not self._end_with(tx):
                    self.complete(None, tx)
        except CommitLost:
            if not self._arrived():
                raise
        except Exception:
            self.store_error = getattr(tx, "store_error", None)
            raise
        self.confirmed = True

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[Any]:
        self._refuse_second()
        if self.begun and await aside(self._store_threads, self._arrived):
            raise InvalidInput(_TWICE)
        tx: Any = None
        try:
            with self._span():
                async with self._engine.transactions.on_loop() as tx:
                    with self._inside(tx):
                        yield tx
                        if not self._said and not await self._aend_with(tx):
                            await self.acomplete(None, tx)
        except CommitLost:
            if not await aside(self._store_threads, self._arrived):
                raise
        except Exception:
            self.store_error = getattr(tx, "store_error", None)
            raise
        self.confirmed = True

    def _end_with(self, tx: Any) -> bool:
        """Complete the job and commit, in one message, if that can be done. Else the long way finds
        out why not."""
        last = self._last()
        if last is None:
            return False
        self.begun = True
        self.begun = self._engine.transactions.end_with(tx, self._engine.library, last)
        return self.begun

    async def _aend_with(self, tx: Any) -> bool:
        last = self._last()
        if last is None:
            return False
        self.begun = True
        self.begun = await self._engine.transactions.aend_with(tx, self._engine.library, last)
        return self.begun

    def _last(self) -> Statement | None:
        if self.begun:
            return None
        self._refuse_open()
        return deliver.settle_last(self._claimed)

    def _span(self) -> Span:
        return effecting("transaction", "", self._claimed.job_id)

    @property
    def is_inside(self) -> bool:
        """Whether `ctx.transaction()` is open."""
        return self._own is not None

    @contextmanager
    def _inside(self, tx: Any) -> Iterator[None]:
        """What an effect writes is not part of this transaction, and on SQLite would wait for it
        in vain."""
        self._own, self._said = tx, False
        self._effects.barred = (
            "inside ctx.transaction(): do it before, the end of the transaction is the job's"
        )
        try:
            yield
        finally:
            self._own = None
            self._effects.barred = ""

    def _arrived(self) -> bool:
        """The answer to the commit was lost: the store knows, and nobody has to guess."""
        settlement = self._settlement(None)
        return self._engine.run(lambda _: deliver.is_settled(settlement), "read")

    def _settlement(self, result: Any) -> deliver.Settlement:
        text = payload.encode(result, max_bytes=MAX_RESULT_BYTES)
        return deliver.settlement(self._claimed, Rest("completed", result=text))

    def _settle(self, settlement: deliver.Settlement, tx: Any) -> Plan[None]:
        """In the transaction. One that was rolled back before, to be repeated, does not count."""
        self._refuse_open()
        own = tx is self._own
        if self.is_inside and not own:
            raise InvalidInput("ctx.transaction() is open: complete the job in that, with tx=tx")
        if not own:
            yield from self._engine.vet()
        if self.begun and (yield from deliver.is_settled(settlement)):
            raise InvalidInput(_TWICE)
        self.begun = True
        if own:
            self._said = True
        else:
            self._in_callers = True
            # Its intent would wait for the caller's commit, which waits for this handler.
            self._effects.barred = "after ctx.complete(): do it before"
        if (yield from deliver.settle([settlement])):
            raise LeaseLost(self._claimed.job_id, self._claimed.fence.epoch)

    def _read_store_id(self) -> StoreId:
        return self._engine.run(lambda _: read_store_id(), "read")

    def _refuse_other_store(self, own: StoreId) -> Plan[None]:
        """On another store there is no lease of ours, and nothing was written: the job can still be
        completed."""
        try:
            yield from refuse_other_store(own)
        except OtherStore:
            self.begun = self._in_callers = False
            self._effects.barred = ""
            raise

    def _refuse_open(self) -> None:
        for name in self._effects.open:
            raise InDoubt(
                self._claimed.job_id, name, "this execution began it and does not know its end"
            )
        for name in self._effects.under_way:
            raise InvalidInput(f"effect {name!r} is still under way: wait for it, then complete")

    def _refuse_second(self) -> None:
        if self.is_inside:
            raise InvalidInput("ctx.transaction() is open already: one completes the job")
        if self._in_callers:
            raise InvalidInput(_TWICE)

    def _checked(self, caller: Caller, *, awaits: bool) -> Caller:
        if caller.awaits and not awaits:
            raise InvalidInput("tx is an async connection: make the handler `async def`")
        if caller.engine != self._engine.library.engine:
            raise InvalidInput(
                f"tx is a transaction on {caller.engine}, the store is on "
                f"{self._engine.library.engine}: both must be one database. For another database "
                "use the Ledger, in that database"
            )
        return caller
