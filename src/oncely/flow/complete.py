"""Completion together with the effect: in the transaction that the handler writes in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from oncely.flow.aside import aside
from oncely.flow.effect import Effects
from oncely.model import payload
from oncely.model.errors import InDoubt, InvalidInput, LeaseLost
from oncely.model.outcome import Rest
from oncely.store import deliver
from oncely.store.caller import Caller, aborrow, borrow
from oncely.store.claim import Claimed
from oncely.store.engine import CommitLost, Engine
from oncely.store.plan import Plan, arun, run

MAX_RESULT_BYTES = 1024 * 1024


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
        self.begun = False

    def complete(self, result: Any, tx: Any) -> None:
        settlement = self._settlement(result)
        caller = self._checked(borrow(tx), awaits=False)
        library = self._engine.library
        plan = self._settle(settlement, vetted=tx is self._own)
        run(plan, lambda statement: caller.ask(library, statement))
        self._own = None

    async def acomplete(self, result: Any, tx: Any) -> None:
        settlement = self._settlement(result)
        caller = self._checked(await aborrow(tx), awaits=True)
        library = self._engine.library
        plan = self._settle(settlement, vetted=tx is self._own)
        await arun(plan, lambda statement: caller.aask(library, statement))
        self._own = None

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        self._refuse_twice()
        try:
            with self._engine.transactions.sync() as tx:
                self._own = tx
                yield tx
                if self._own is not None:
                    self.complete(None, tx)
        except CommitLost:
            if not self._arrived():
                raise
        finally:
            self._own = None

    @asynccontextmanager
    async def atransaction(self) -> AsyncIterator[Any]:
        self._refuse_twice()
        try:
            async with self._engine.transactions.on_loop() as tx:
                self._own = tx
                yield tx
                if self._own is not None:
                    await self.acomplete(None, tx)
        except CommitLost:
            if not await aside(self._store_threads, self._arrived):
                raise
        finally:
            self._own = None

    def _arrived(self) -> bool:
        """The answer to the commit was lost: the store knows, and nobody has to guess."""
        settlement = self._settlement(None)
        return self._engine.run(lambda _: deliver.is_settled(settlement), "read")

    def _settlement(self, result: Any) -> deliver.Settlement:
        text = payload.encode(result, max_bytes=MAX_RESULT_BYTES)
        return deliver.settlement(self._claimed, Rest("completed", result=text))

    def _settle(self, settlement: deliver.Settlement, *, vetted: bool) -> Plan[None]:
        for name in self._effects.open:
            raise InDoubt(
                self._claimed.job_id, name, "this execution began it and does not know its end"
            )
        if not vetted:
            yield from self._engine.vet()
        self.begun = True
        if (yield from deliver.settle([settlement])):
            raise LeaseLost(self._claimed.job_id, self._claimed.fence.epoch)

    def _refuse_twice(self) -> None:
        if self.begun:
            raise InvalidInput("the job was completed in a transaction of this execution already")

    def _checked(self, caller: Caller, *, awaits: bool) -> Caller:
        self._refuse_twice()
        if caller.awaits and not awaits:
            raise InvalidInput("tx is an async connection: make the handler `async def`")
        if caller.engine != self._engine.library.engine:
            raise InvalidInput(
                f"tx is a transaction on {caller.engine}, the store is on "
                f"{self._engine.library.engine}: both must be one database. For another database "
                "use the Ledger, in that database"
            )
        return caller
