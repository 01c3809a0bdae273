"""A ledger on one connection that the user lends. What its driver raises passes as it is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from oncely.model.errors import InvalidInput
from oncely.store import schema
from oncely.store.caller import (
    ACCEPTED,
    Caller,
    aborrow,
    awaits,
    borrow,
    engine_of_vendor,
    library_of,
)
from oncely.store.engine import Access
from oncely.store.plan import Plan, Statement, arun, run
from oncely.store.sql import LEDGER, EngineName, Library

T = TypeVar("T")


class Lent:
    """Each plan is a transaction of its own on it, so there must be none open: an intent has to be
    stored before its effect, whatever becomes of the user's own writes."""

    def __init__(self, connection: Any) -> None:
        # A scoped session of SQLAlchemy's stands for another one.
        self.connection = connection() if hasattr(connection, "registry") else connection
        self.library = Library(_engine_of(self.connection), part=LEDGER)
        self._checked = False

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:  # noqa: ARG002
        with _transaction(self.connection) as caller:
            return run(
                self._checking(make(False)), lambda statement: caller.ask(self.library, statement)
            )

    async def arun(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        if not self.awaits:
            return self.run(make, access)
        async with _atransaction(self.connection) as caller:
            return await arun(
                self._checking(make(False)), lambda statement: caller.aask(self.library, statement)
            )

    @property
    def awaits(self) -> bool:
        return awaits(self.connection)

    def _checking(self, plan: Plan[T]) -> Plan[T]:
        if not self._checked:
            yield from schema.check(self.library)
            self._checked = True
        return (yield from plan)

    def vet(self) -> Plan[None]:
        if self.library.engine == "sqlite":
            # Nothing is read before the write lock is there: who has read cannot wait for it.
            yield Statement("write_lock")
        yield from self._checking(_nothing())

    def migrate(self) -> list[str]:
        if self.awaits:
            raise _not_here("amigrate")
        with _transaction(self.connection) as caller:
            plan = schema.migrate(self.library)
            return run(plan, lambda statement: caller.ask(self.library, statement))

    async def amigrate(self) -> list[str]:
        if not self.awaits:
            return self.migrate()
        async with _atransaction(self.connection) as caller:
            plan = schema.migrate(self.library)
            return await arun(plan, lambda statement: caller.aask(self.library, statement))

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def renew(self) -> None: ...

    def close(self) -> None:
        """It is the user's to close."""


def _nothing() -> Plan[None]:
    yield from ()


def _engine_of(connection: Any) -> EngineName:
    match library_of(connection):
        case "sqlite3" | "aiosqlite":
            return "sqlite"
        case "psycopg" | "psycopg async" | "asyncpg":
            return "postgres"
        case "sqlalchemy" | "sqlalchemy async":
            bound = connection.get_bind() if hasattr(connection, "get_bind") else connection
            return engine_of_vendor("SQLAlchemy", bound.dialect.name)
        case "django":
            return engine_of_vendor("Django", connection.vendor)
    raise InvalidInput(
        f"the ledger got {type(connection).__module__}.{type(connection).__qualname__}; expected "
        f"a URL, an Engine of SQLAlchemy, or a {ACCEPTED}"
    )


@contextmanager
def _transaction(connection: Any) -> Iterator[Caller]:
    match library_of(connection):
        case "sqlite3":
            _refuse_open(connection.in_transaction)
            with _sqlite_transaction(connection):
                yield borrow(connection)
        case "psycopg":
            _refuse_open(_is_busy(connection))
            with connection.transaction():
                yield borrow(connection)
        case "sqlalchemy":
            _refuse_open(connection.in_transaction())
            with connection.begin():
                yield borrow(connection)
        case "django":
            from django.db import transaction

            _refuse_open(connection.in_atomic_block)
            with transaction.atomic(using=connection.alias):
                yield borrow(connection)
        case _:
            raise _not_here("astep")


@asynccontextmanager
async def _atransaction(connection: Any) -> AsyncIterator[Caller]:
    match library_of(connection):
        case "aiosqlite":
            _refuse_open(connection.in_transaction)
            await connection.execute("begin immediate")
            try:
                yield borrow(connection)
                await connection.commit()
            except BaseException:
                await connection.rollback()
                raise
        case "psycopg async":
            _refuse_open(_is_busy(connection))
            async with connection.transaction():
                yield borrow(connection)
        case "asyncpg":
            _refuse_open(connection.is_in_transaction())
            async with connection.transaction():
                yield borrow(connection)
        case _:
            _refuse_open(connection.in_transaction())
            async with connection.begin():
                yield await aborrow(connection)


@contextmanager
def _sqlite_transaction(connection: Any) -> Iterator[None]:
    connection.execute("begin immediate")
    try:
        yield
        connection.commit()
    except BaseException:
        connection.rollback()
        raise


def _is_busy(connection: Any) -> bool:
    from psycopg.pq import TransactionStatus

    return bool(connection.info.transaction_status != TransactionStatus.IDLE)


def _refuse_open(is_open: bool) -> None:
    if is_open:
        raise InvalidInput(
            "the ledger's connection has an open transaction: an intent must be stored before its "
            "effect, in a transaction of its own. Commit first, or give the ledger a URL"
        )


def _not_here(verb: str) -> InvalidInput:
    return InvalidInput(f"the ledger's connection is async: use its async verbs, such as {verb}")
