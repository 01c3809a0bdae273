"""Transactions for the handlers of jobs, on connections with the settings of the server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final

from oncely.model.errors import StoreUnavailable
from oncely.store.engine import CommitLost, StoreClosed
from oncely.store.plan import Statement
from oncely.store.sql import Library, Prepared

try:
    import psycopg
except ImportError:
    pass  # said when the engine is made

RETRYABLE: Final = ("40001", "40P01")
"""A serialization failure and a deadlock: nothing was written, and it may be repeated."""
_IDLE_LIMIT: Final = 64
"""As many as handlers run at once: to connect takes longer than most transactions."""
_OPTIONS: Final[dict[str, Any]] = {"autocommit": True, "application_name": "oncely handler"}


class PostgresTransactions:
    """`with` and `async with` a connection in a transaction. What the handler's own statements
    raise passes through as it is."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self._url = url
        self._options = {**options, **_OPTIONS}
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._loops: dict[asyncio.AbstractEventLoop, list[Any]] = {}
        self._closed = False

    @contextmanager
    def sync(self) -> Iterator[Any]:
        connection = self._begin()
        try:
            with _store_failed(connection):
                try:
                    yield connection
                    if not connection.is_ended:
                        _refuse_aborted(connection)
                        connection.end()
                except BaseException:
                    with suppress(psycopg.Error):
                        connection.give_up()
                    raise
        finally:
            if self._closed or connection.broken or not self._keep(self._idle, connection):
                connection.close()

    @asynccontextmanager
    async def on_loop(self) -> AsyncIterator[Any]:
        connection = await self._begin_on_loop(idle := self._idle_of_loop())
        try:
            with _store_failed(connection):
                try:
                    yield connection
                    if not connection.is_ended:
                        _refuse_aborted(connection)
                        await connection.end()
                except BaseException:
                    with suppress(psycopg.Error):
                        await connection.give_up()
                    raise
        finally:
            if self._closed or connection.broken or not self._keep(idle, connection):
                await connection.close()

    def _begin(self) -> Any:
        """On an idle connection if one is left. The server may have closed it, which shows only
        when it is used: then nothing was begun, and the next one is tried."""
        while (connection := self._take(self._idle)) is not None:
            try:
                connection.begin()
            except BaseException as error:
                connection.close()
                if not isinstance(error, psycopg.OperationalError):
                    raise
            else:
                return connection
        with _unreachable():
            connection = _handler().JobConnection.connect(self._url, **self._options)
            connection.url = self._url
            try:
                connection.meet()
                connection.begin()
            except BaseException:
                connection.close()
                raise
            return connection

    async def _begin_on_loop(self, idle: list[Any]) -> Any:
        while (connection := self._take(idle)) is not None:
            try:
                await connection.begin()
            except BaseException as error:
                await connection.close()
                if not isinstance(error, psycopg.OperationalError):
                    raise
            else:
                return connection
        with _unreachable():
            connect = _handler().AsyncJobConnection.connect
            connection = await connect(self._url, **self._options)
            connection.url = self._url
            try:
                await connection.meet()
                await connection.begin()
            except BaseException:
                await connection.close()
                raise
            return connection

    def end_with(self, tx: Any, library: Library, last: Statement) -> bool:
        ended: bool = tx.end_with(*_text_of(library, last))
        return ended

    async def aend_with(self, tx: Any, library: Library, last: Statement) -> bool:
        ended: bool = await tx.end_with(*_text_of(library, last))
        return ended

    def _take(self, idle: list[Any]) -> Any | None:
        with self._lock:
            if self._closed:
                raise StoreClosed()
            while idle:
                connection = idle.pop()
                if not _is_gone(connection):
                    return connection
                connection.pgconn.finish()
        return None

    def _idle_of_loop(self) -> list[Any]:
        """A connection belongs to its loop. What is left of a loop that is over goes with it."""
        with self._lock:
            for loop in [loop for loop in self._loops if loop.is_closed()]:
                _finish(self._loops.pop(loop))
            return self._loops.setdefault(asyncio.get_running_loop(), [])

    def _keep(self, idle: list[Any], connection: Any) -> bool:
        with self._lock:
            status = connection.info.transaction_status
            if len(idle) >= _IDLE_LIMIT or status != psycopg.pq.TransactionStatus.IDLE:
                return False
            idle.append(connection)
            return True

    def forget_idle(self) -> None:
        with self._lock:
            for idle in (self._idle, *self._loops.values()):
                _finish(idle)

    def close(self) -> None:
        self._closed = True
        self.forget_idle()


def _finish(idle: list[Any]) -> None:
    """Sync and async alike; the loop of an async one may be over."""
    while idle:
        connection = idle.pop()
        connection.pgconn.finish()


def _is_gone(connection: Any) -> bool:
    """The server may have been restarted since: then there is something to read, its farewell."""
    try:
        connection.pgconn.consume_input()
    except psycopg.Error:
        return True
    return bool(connection.pgconn.status != psycopg.pq.ConnStatus.OK)


def _refuse_aborted(connection: Any) -> None:
    """The server answers the commit of such a transaction with a rollback, and without an error."""
    if connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
        raise psycopg.errors.InFailedSqlTransaction(
            "a statement failed in ctx.transaction() and its error was caught: nothing of the "
            "transaction can be committed. Use `tx.transaction()` around what may fail"
        )


@contextmanager
def _unreachable() -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        told = str(error).strip().partition("\n")[0]
        raise StoreUnavailable(f"PostgreSQL cannot be reached: {told}") from error


@contextmanager
def _store_failed(connection: Any) -> Iterator[None]:
    """If the connection broke after the last statement, the commit may have arrived or not. If it
    broke before that, or the server wants the transaction repeated, the handler is not to blame:
    its error stays as it is, and the connection remembers it. A server that cannot be written is no
    primary any more, and the connection is not kept."""
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction as error:
        connection.pgconn.finish()
        raise StoreUnavailable(f"PostgreSQL is read-only at the moment: {error}") from error
    except psycopg.Error as error:
        if connection.may_be_ended and connection.broken:
            raise CommitLost(str(error)) from error
        if connection.broken or error.sqlstate in RETRYABLE:
            connection.store_error = error
        raise


def _text_of(library: Library, last: Statement) -> tuple[Prepared, list[bytes]]:
    (prepared,) = library.get(last.name, "${n}")
    return prepared, [str(last.params[name]).encode() for name in prepared.names]


def _handler() -> Any:
    """An extra: who comes here has it."""
    from oncely.store.postgres import handler

    return handler
