"""Transactions for the handlers of jobs: a connection of their own to the same file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any, Literal, TypeVar

from oncely.model.errors import InvalidInput
from oncely.store.sqlite.write_queue import BUSY_SECONDS, WriteQueue

T = TypeVar("T")
Params = Sequence[Any] | Mapping[str, Any]
FileId = tuple[int, int]
"""Device and inode."""


class HandlerConnection(sqlite3.Connection):
    """Its transaction is the job's: ended by the job, not by the handler, however it tries."""

    queue: WriteQueue
    file: FileId

    def begin(self) -> None:
        self.execute("pragma busy_timeout = 0")  # it waits in the queue
        try:
            self.queue.begin(self)
        finally:
            self.queue.close()
        self.execute(f"pragma busy_timeout = {round(BUSY_SECONDS * 1000)}")
        self.set_authorizer(_refuse_transactions)

    def end(self) -> None:
        self.set_authorizer(None)
        self.execute("commit")

    def commit(self) -> None:
        raise _not_yours("commit")

    def rollback(self) -> None:
        raise _not_yours("rollback")

    def executescript(self, _: str, /) -> sqlite3.Cursor:
        raise _not_yours("executescript, which commits")

    def __exit__(self, *_: object) -> Literal[False]:
        """`with tx:` would end the transaction."""
        return False


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

    def __init__(self, connection: HandlerConnection, thread: ThreadPoolExecutor) -> None:
        self.connection = connection
        self.thread = thread

    async def execute(self, sql: str, params: Params = ()) -> AsyncCursor:
        cursor = await _in(self.thread, lambda: self.connection.execute(sql, params))
        return AsyncCursor(cursor, self.thread)

    async def executemany(self, sql: str, params: Sequence[Params]) -> AsyncCursor:
        cursor = await _in(self.thread, lambda: self.connection.executemany(sql, params))
        return AsyncCursor(cursor, self.thread)


class SqliteTransactions:
    """`ours` says in our words what went wrong with what the handler did not ask for itself.
    `check_path` is asked before a commit is acknowledged, whether the path still leads to the file
    of this connection: the engine may have opened another one meanwhile."""

    def __init__(
        self,
        connect: Callable[[], HandlerConnection],
        ours: Callable[[], AbstractContextManager[None]],
        check_path: Callable[[FileId], None],
    ) -> None:
        self._connect = connect
        self._ours = ours
        self._check_path = check_path

    @contextmanager
    def sync(self) -> Iterator[HandlerConnection]:
        connection = self._connect()
        try:
            with self._ours():
                connection.begin()
            yield connection
            with self._ours():
                connection.end()
            self._check_path(connection.file)
        finally:
            # What is not committed is rolled back.
            connection.close()

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[AsyncHandlerConnection]:
        thread = ThreadPoolExecutor(1, thread_name_prefix="oncely-transaction")
        opened: list[HandlerConnection] = []

        def begin() -> None:
            opened.append(self._connect())
            opened[0].begin()

        def close() -> None:
            for connection in opened:
                connection.close()

        try:
            with self._ours():
                await _in(thread, begin)
            yield AsyncHandlerConnection(opened[0], thread)
            with self._ours():
                await _in(thread, opened[0].end)
            self._check_path(opened[0].file)
        finally:
            # In the same thread, so after whatever is under way there, also if we are cancelled.
            closing = _in(thread, close)
            thread.shutdown(wait=False)
            await asyncio.shield(closing)

    def end_with(self, *_: object) -> bool:
        """There is no wire on which a message could be saved."""
        return False

    async def aend_with(self, *_: object) -> bool:
        return False


def _refuse_transactions(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_TRANSACTION else sqlite3.SQLITE_OK


def _in(thread: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(thread, work)


def _not_yours(what: str) -> InvalidInput:
    return InvalidInput(
        f"{what} inside ctx.transaction(): it commits with the job at the end of the block, and an "
        "exception rolls it back"
    )
