"""Transactions for the handlers of jobs: a connection of their own to the same file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from oncely.model.errors import InvalidInput

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]


class HandlerConnection(sqlite3.Connection):
    """Its transaction is the job's: ended by the job, not by the handler."""

    def commit(self) -> None:
        raise _not_yours("commit")

    def rollback(self) -> None:
        raise _not_yours("rollback")


class AsyncCursor:
    def __init__(self, cursor: sqlite3.Cursor, thread: ThreadPoolExecutor) -> None:
        self._cursor = cursor
        self._thread = thread

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    @property
    def lastrowid(self) -> int | None:
        return self._cursor.lastrowid

    @property
    def description(self) -> Any:
        return self._cursor.description

    async def fetchone(self) -> Any:
        return await _in(self._thread, self._cursor.fetchone)

    async def fetchall(self) -> list[Any]:
        return await _in(self._thread, self._cursor.fetchall)


class AsyncHandlerConnection:
    """The same `execute(sql, params)`, awaited; in a thread of its own."""

    def __init__(self, connection: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self.connection = connection
        self.thread = thread

    async def execute(self, sql: str, params: Params = ()) -> AsyncCursor:
        cursor = await _in(self.thread, lambda: self.connection.execute(sql, params))
        return AsyncCursor(cursor, self.thread)

    async def executemany(self, sql: str, params: Sequence[Params]) -> AsyncCursor:
        cursor = await _in(self.thread, lambda: self.connection.executemany(sql, params))
        return AsyncCursor(cursor, self.thread)


class SqliteTransactions:
    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect

    @contextmanager
    def sync(self) -> Iterator[sqlite3.Connection]:
        connection = self._connect()
        try:
            connection.execute("begin immediate")
            yield connection
            connection.execute("commit")
        finally:
            # What is not committed is rolled back.
            connection.close()

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[AsyncHandlerConnection]:
        thread = ThreadPoolExecutor(1, thread_name_prefix="oncely-transaction")
        try:
            connection = await _in(thread, self._connect)
            try:
                await _in(thread, lambda: connection.execute("begin immediate"))
                yield AsyncHandlerConnection(connection, thread)
                await _in(thread, lambda: connection.execute("commit"))
            finally:
                await asyncio.shield(_in(thread, connection.close))
        finally:
            thread.shutdown(wait=False)


async def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)


def _not_yours(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} inside ctx.transaction(): it commits with the job at the end of the block, and an "
        "exception rolls it back"
    )
