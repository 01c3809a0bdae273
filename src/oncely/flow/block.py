"""An entry of the ledger as a part of the caller's own transaction: both are there, or neither."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from functools import partial
from types import TracebackType
from typing import Any, Final, TypeVar

import msgspec

from oncely.flow.drive import Ask, Rest
from oncely.model import payload
from oncely.model.effect import RESULT_LIMIT_BYTES
from oncely.model.errors import EffectMismatch, InProgress, InvalidInput
from oncely.store.caller import Caller, aborrow, awaits, borrow
from oncely.store.ledger import plans
from oncely.store.ledger.books import Books
from oncely.store.ledger.plans import Intent, Taken
from oncely.store.ledger.waits import is_wait_over
from oncely.store.plan import Plan, arun, run
from oncely.store.sql import Library

T = TypeVar("T")
_Steps = Generator[Ask | Rest, Any, T]
_REST_SECONDS: Final = 0.05


class LedgerEntry:
    """`fresh` if this is the first time that the key is seen: then do what belongs to it. If not,
    it was done and committed, and `result` is what was kept of it."""

    def __init__(self, key: str, *, fresh: bool, result: Any) -> None:
        self.key = key
        self.fresh = fresh
        self.result = result
        self.text: str | None = None

    def set_result(self, result: Any) -> None:
        """What repeats are to be told; a JSON value. Stored with the entry."""
        if not self.fresh:
            raise InvalidInput(
                f"set_result for key {self.key!r}, which is not fresh: it has its result already"
            )
        self.text = payload.encode(result, max_bytes=RESULT_LIMIT_BYTES)
        self.result = result


class Block:
    """`with`, or `async with`. An exception undoes what was written inside, and the entry, and
    goes on; the rest of the transaction, and its end, are the caller's."""

    def __init__(self, books: Books, intent: Intent, tx: Any, wait_seconds: float) -> None:
        self._books = books
        self._intent = intent
        self._tx = tx
        self._wait_seconds = wait_seconds
        self._caller: Caller | None = None
        self._entry: LedgerEntry | None = None

    def __enter__(self) -> LedgerEntry:
        if awaits(self._tx):
            raise InvalidInput("tx is async: use `async with ledger.transaction(...)`")
        self._borrowed(borrow(self._tx))
        return run(self._enter(), self._act)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        run(self._exit(error), self._act)

    async def __aenter__(self) -> LedgerEntry:
        self._borrowed(await aborrow(self._tx))
        return await arun(self._enter(), self._aact)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await arun(self._exit(error), self._aact)

    def _borrowed(self, caller: Caller) -> None:
        library = self._books.library
        assert library is not None
        if self._caller is not None:
            raise InvalidInput("a transaction of the ledger is entered once: make another")
        if caller.engine != library.engine:
            raise InvalidInput(
                f"tx is a transaction on {caller.engine}, the ledger is on {library.engine}: both "
                "must be one database"
            )
        point = f"oncely_{self._intent.owner}"

        def execute(text: str, params: dict[str, Any]) -> Any:
            return caller.execute(text.replace("oncely_point", point), params)

        self._caller = msgspec.structs.replace(caller, execute=execute)

    def _enter(self) -> _Steps[LedgerEntry]:
        """The database waits for whoever has the key. SQLite's wait is as long as the connection
        says, so there it may take several."""
        deadline = time.monotonic() + self._wait_seconds
        while True:
            left = deadline - time.monotonic()
            try:
                # mypy takes the default of a lambda for a parameter that Ask does not give.
                taken: Taken = yield Ask(lambda _, left=left: self._take(left))  # type: ignore[misc]
                break
            except Exception as error:
                if not is_wait_over(error):
                    raise
                if time.monotonic() + _REST_SECONDS > deadline:
                    raise InProgress(self._intent.name, self._wait_seconds) from error
            yield Rest(_REST_SECONDS)
        return self._known(taken)

    def _take(self, wait_seconds: float) -> Plan[Taken]:
        yield from self._books.vet()
        taken = yield from plans.take(self._intent, wait_seconds)
        same = (taken.verb, taken.fingerprint) == ("transaction", self._intent.fingerprint)
        if not same:
            yield from plans.undo()
            raise EffectMismatch(None, self._intent.name)
        return taken

    def _known(self, taken: Taken) -> LedgerEntry:
        result = None if taken.result is None else payload.decode(taken.result)
        self._entry = LedgerEntry(self._intent.name, fresh=taken.fresh, result=result)
        return self._entry

    def _exit(self, error: BaseException | None) -> _Steps[None]:
        assert self._entry is not None
        if error is not None:
            yield Ask(lambda _: plans.undo())
            return
        text = self._entry.text
        try:
            yield Ask(lambda _: plans.keep(self._intent, text))
        except Exception as trouble:
            if _is_over(trouble):
                raise InvalidInput(
                    "the transaction of tx= was ended inside the block: commit or roll back after "
                    "it, so that the entry and its effect end together"
                ) from trouble
            raise

    def _act(self, wanted: Ask | Rest) -> Any:
        if isinstance(wanted, Rest):
            return time.sleep(wanted.seconds)
        caller, library = self._parts()
        return run(wanted.make(False), lambda statement: caller.ask(library, statement))

    async def _aact(self, wanted: Ask | Rest) -> Any:
        if isinstance(wanted, Rest):
            return await asyncio.sleep(wanted.seconds)
        caller, library = self._parts()
        return await arun(wanted.make(False), partial(caller.aask, library))

    def _parts(self) -> tuple[Caller, Library]:
        assert self._caller is not None
        assert self._books.library is not None
        return self._caller, self._books.library


def _is_over(error: BaseException) -> bool:
    """The savepoint is gone, and with it the transaction that it was in."""
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code in ("3B001", "25P01") or "no such savepoint" in str(cause):
            return True
        # MySQL; and SQLAlchemy, whose session has given its connection back.
        if cause.args[:1] == (1305,) or type(cause).__name__ == "ResourceClosedError":
            return True
        cause = cause.__cause__
    return False
