"""The database drivers themselves, as their documentation shows them."""

import sqlite3
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import aiosqlite
import asyncpg
import psycopg

from tests.engine.tx_party import Kit


class Sqlite3(Kit):
    serialization_error = sqlite3.OperationalError

    def open(self) -> None:
        self.tx = sqlite3.connect(self.path)

    def open_autocommit(self) -> None:
        self.tx = sqlite3.connect(self.path, isolation_level=None)

    def execute(self, sql: str) -> Any:
        return self.tx.execute(sql).fetchall()

    def commit(self) -> None:
        self.tx.commit()

    def rollback(self) -> None:
        self.tx.rollback()

    def nest(self) -> None:
        self.tx.execute("savepoint mine")

    def unnest(self, *, keep: bool) -> None:
        if not keep:
            self.tx.execute("rollback to mine")
        self.tx.execute("release mine")

    def trace(self, hear: Callable[[str], None]) -> None:
        self.tx.set_trace_callback(hear)

    def close(self) -> None:
        self.tx.close()


class Aiosqlite(Kit):
    awaits = True
    serialization_error = sqlite3.OperationalError

    async def open(self) -> None:
        self.tx = await aiosqlite.connect(self.path)

    async def open_autocommit(self) -> None:
        self.tx = await aiosqlite.connect(self.path, isolation_level=None)

    async def execute(self, sql: str) -> Any:
        return [tuple(row) for row in await self.tx.execute_fetchall(sql)]

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def nest(self) -> None:
        await self.tx.execute("savepoint mine")

    async def unnest(self, *, keep: bool) -> None:
        if not keep:
            await self.tx.execute("rollback to mine")
        await self.tx.execute("release mine")

    async def trace(self, hear: Callable[[str], None]) -> None:
        await self.tx.set_trace_callback(hear)

    async def close(self) -> None:
        await self.tx.close()


class Psycopg(Kit):
    serialization_error = psycopg.errors.SerializationFailure

    def open(self, **options: Any) -> None:
        self.tx = psycopg.connect(self.url, **options)

    def open_autocommit(self) -> None:
        self.open(autocommit=True)

    def execute(self, sql: str) -> Any:
        cursor = self.tx.execute(sql)
        return cursor.fetchall() if cursor.description else []

    def commit(self) -> None:
        self.tx.commit()

    def rollback(self) -> None:
        self.tx.rollback()

    def nest(self) -> None:
        self._nested = ExitStack()
        self._nested.enter_context(self.tx.transaction())

    def unnest(self, *, keep: bool) -> None:
        if keep:
            self._nested.close()
        else:
            self._nested.__exit__(psycopg.Rollback, psycopg.Rollback(), None)

    def close(self) -> None:
        self.tx.close()


class PsycopgAsync(Kit):
    awaits = True
    serialization_error = psycopg.errors.SerializationFailure

    async def open(self) -> None:
        self.tx = await psycopg.AsyncConnection.connect(self.url)

    async def open_autocommit(self) -> None:
        self.tx = await psycopg.AsyncConnection.connect(self.url, autocommit=True)

    async def execute(self, sql: str) -> Any:
        cursor = await self.tx.execute(sql)
        return await cursor.fetchall() if cursor.description else []

    async def commit(self) -> None:
        await self.tx.commit()

    async def rollback(self) -> None:
        await self.tx.rollback()

    async def nest(self) -> None:
        self._nested = AsyncExitStack()
        await self._nested.enter_async_context(self.tx.transaction())

    async def unnest(self, *, keep: bool) -> None:
        if keep:
            await self._nested.aclose()
        else:
            await self._nested.__aexit__(psycopg.Rollback, psycopg.Rollback(), None)

    async def close(self) -> None:
        await self.tx.close()


class Asyncpg(Kit):
    awaits = True
    begins = False
    serialization_error = asyncpg.exceptions.SerializationError

    async def open(self) -> None:
        self.tx = await asyncpg.connect(self.url)

    async def open_autocommit(self) -> None:
        await self.open()

    async def begin(self) -> None:
        self._transactions = [self.tx.transaction()]
        await self._transactions[0].start()

    async def execute(self, sql: str) -> Any:
        return [tuple(row) for row in await self.tx.fetch(sql)]

    async def commit(self) -> None:
        await self._transactions.pop().commit()

    async def rollback(self) -> None:
        await self._transactions.pop().rollback()

    async def nest(self) -> None:
        self._transactions.append(self.tx.transaction())
        await self._transactions[-1].start()

    async def unnest(self, *, keep: bool) -> None:
        await (self.commit() if keep else self.rollback())

    async def close(self) -> None:
        await self.tx.close()


class AsyncpgPool(Asyncpg):
    """A connection that a pool lends is a stand-in for the real one."""

    async def open(self) -> None:
        self._pool = await asyncpg.create_pool(self.url, min_size=1, max_size=1)
        self.tx = await self._pool.acquire()

    async def close(self) -> None:
        await self._pool.release(self.tx)
        await self._pool.close()
