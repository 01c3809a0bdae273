"""The caller's own transaction (`tx=`): how to speak through the connection that holds it.

Nothing is imported here that the caller has not imported already: a connection is known by the
name of its class. What its driver raises passes through as it is, because the caller's own code
around the transaction (retries on a serialization failure, say) waits for exactly that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput, SchemaError
from oncely.store.plan import Params, Row, Statement
from oncely.store.sql import EngineName, Library

_ACCEPTED: Final = (
    "psycopg Connection or AsyncConnection, asyncpg Connection, sqlite3 Connection, aiosqlite "
    "Connection, SQLAlchemy Connection or Session and their async twins, or Django's connection"
)
_DIALECTS: Final[dict[str, EngineName]] = {"postgresql": "postgres", "sqlite": "sqlite"}


class Caller(msgspec.Struct, frozen=True):
    """A connection of the caller's. `execute` gives rows, or an awaitable of rows if `awaits`."""

    engine: EngineName
    placeholder: str
    awaits: bool
    execute: Callable[[str, tuple[str, ...], Params], Any]

    def ask(self, library: Library, statement: Statement) -> list[Row]:
        rows: list[Row] = []
        for prepared in library.get(statement.name, self.placeholder):
            try:
                rows = self.execute(prepared.text, prepared.names, statement.params) or rows
            except Exception as error:
                _explain(error)
                raise
        return rows

    async def aask(self, library: Library, statement: Statement) -> list[Row]:
        rows: list[Row] = []
        for prepared in library.get(statement.name, self.placeholder):
            try:
                answer = self.execute(prepared.text, prepared.names, statement.params)
                rows = (await answer if self.awaits else answer) or rows
            except Exception as error:
                _explain(error)
                raise
        return rows


def borrow(tx: Any) -> Caller:
    """The voice of a sync connection, or of an async one that needs no waiting to be known."""
    match _library(tx):
        case "sqlite3":
            return _sqlite3(tx)
        case "aiosqlite":
            return _aiosqlite(tx)
        case "psycopg":
            return _psycopg(tx, awaits=False)
        case "psycopg async":
            return _psycopg(tx, awaits=True)
        case "asyncpg":
            return _asyncpg(tx)
        case "sqlalchemy":
            return _sqlalchemy(tx.connection() if hasattr(tx, "get_bind") else tx)
        case "sqlalchemy async":
            raise InvalidInput(
                f"tx is an async {type(tx).__name__}: use `await app.aenqueue(..., tx=tx)`"
            )
        case "django":
            return _django(tx)
    raise InvalidInput(
        f"tx is {type(tx).__module__}.{type(tx).__qualname__}; expected a {_ACCEPTED}, "
        "with an open transaction"
    )


async def aborrow(tx: Any) -> Caller:
    if _library(tx) == "sqlalchemy async":
        connection = await tx.connection() if hasattr(tx, "get_bind") else tx
        return await _sqlalchemy_async(connection)
    return borrow(tx)


_CLASSES: Final = {
    ("sqlite3", "Connection"): "sqlite3",
    ("aiosqlite", "Connection"): "aiosqlite",
    ("psycopg", "Connection"): "psycopg",
    ("psycopg", "AsyncConnection"): "psycopg async",
    ("asyncpg", "Connection"): "asyncpg",
    ("asyncpg", "PoolConnectionProxy"): "asyncpg",
    ("sqlalchemy", "Connection"): "sqlalchemy",
    ("sqlalchemy", "Session"): "sqlalchemy",
    ("sqlalchemy", "scoped_session"): "sqlalchemy",
    ("sqlalchemy", "AsyncConnection"): "sqlalchemy async",
    ("sqlalchemy", "AsyncSession"): "sqlalchemy async",
    ("sqlalchemy", "async_scoped_session"): "sqlalchemy async",
    ("django", "ConnectionProxy"): "django",
    ("django", "BaseDatabaseWrapper"): "django",
}


def _library(tx: Any) -> str | None:
    for cls in type(tx).__mro__:
        found = _CLASSES.get((cls.__module__.partition(".")[0], cls.__name__))
        if found:
            return found
    return None


def _not_open(what: str) -> InvalidInput:
    return InvalidInput(
        f"tx has no open transaction ({what}), so the job would not depend on your commit: begin "
        "one first, or leave tx out"
    )


def _begin_sqlite(connection: Any) -> str | None:
    """What opens the transaction that Python's sqlite3 only opens before its first write.

    Our first statement may be a savepoint, which must not become the outermost one.
    """
    if connection.in_transaction:
        return None
    if getattr(connection, "autocommit", -1) is True or connection.isolation_level is None:
        raise _not_open("the connection is in autocommit mode")
    return f"begin {connection.isolation_level}"


def _sqlite3(tx: sqlite3.Connection) -> Caller:
    begin = _begin_sqlite(tx)
    if begin:
        tx.execute(begin)

    def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        cursor = sqlite3.Cursor(tx)
        cursor.row_factory = None
        cursor.execute(text, {name: params[name] for name in names})
        return cursor.fetchall()

    return Caller("sqlite", ":{name}", False, execute)


def _aiosqlite(tx: Any) -> Caller:
    begin = _begin_sqlite(tx)

    async def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        nonlocal begin
        if begin:
            await tx.execute(begin)
            begin = None
        async with tx.execute(text, {name: params[name] for name in names}) as cursor:
            cursor.row_factory = None
            return [tuple(row) for row in await cursor.fetchall()]

    return Caller("sqlite", ":{name}", True, execute)


def _psycopg(tx: Any, *, awaits: bool) -> Caller:
    import psycopg
    from psycopg.pq import TransactionStatus
    from psycopg.rows import tuple_row

    if tx.autocommit and tx.info.transaction_status == TransactionStatus.IDLE:
        raise _not_open("the connection is in autocommit mode")

    # Cursors of our own, whatever row and cursor factories the connection has.
    def execute(text: str, _: tuple[str, ...], params: Params) -> list[Row]:
        with psycopg.Cursor(tx, row_factory=tuple_row) as cursor:
            cursor.execute(text.encode(), params)
            return cursor.fetchall() if cursor.description else []

    async def aexecute(text: str, _: tuple[str, ...], params: Params) -> list[Row]:
        async with psycopg.AsyncCursor(tx, row_factory=tuple_row) as cursor:
            await cursor.execute(text.encode(), params)
            return await cursor.fetchall() if cursor.description else []

    return Caller("postgres", "%({name})s", awaits, aexecute if awaits else execute)


def _asyncpg(tx: Any) -> Caller:
    if not tx.is_in_transaction():
        raise _not_open("use `async with connection.transaction():`")

    async def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        return [tuple(row) for row in await tx.fetch(text, *(params[name] for name in names))]

    return Caller("postgres", "${n}", True, execute)


def _sqlalchemy(connection: Any) -> Caller:
    from sqlalchemy import text as clause

    engine = _dialect(connection)
    if engine == "sqlite":
        begin = _begin_sqlite(connection.connection.driver_connection)
        if begin:
            connection.exec_driver_sql(begin)

    def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        result = connection.execute(clause(text), {name: params[name] for name in names})
        return [tuple(row) for row in result] if result.returns_rows else []

    return Caller(engine, ":{name}", False, execute)


async def _sqlalchemy_async(connection: Any) -> Caller:
    from sqlalchemy import text as clause

    engine = _dialect(connection.sync_connection)
    if engine == "sqlite":
        raw = await connection.get_raw_connection()
        begin = _begin_sqlite(raw.driver_connection)
        if begin:
            await connection.exec_driver_sql(begin)

    async def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        result = await connection.execute(clause(text), {name: params[name] for name in names})
        return [tuple(row) for row in result] if result.returns_rows else []

    return Caller(engine, ":{name}", True, execute)


def _dialect(connection: Any) -> EngineName:
    engine = _DIALECTS.get(connection.dialect.name)
    if engine is None:
        raise InvalidInput(
            f"tx is a SQLAlchemy connection to {connection.dialect.name}; expected PostgreSQL or "
            "SQLite, where the store is"
        )
    level = connection.get_execution_options().get(
        "isolation_level", getattr(connection.dialect, "_on_connect_isolation_level", None)
    )
    if level == "AUTOCOMMIT":
        raise _not_open("its isolation level is AUTOCOMMIT")
    return engine


def _django(tx: Any) -> Caller:
    engine = _DIALECTS.get(tx.vendor)
    if engine is None:
        raise InvalidInput(
            f"tx is a Django connection to {tx.vendor}; expected PostgreSQL or SQLite, "
            "where the store is"
        )
    if not tx.in_atomic_block and tx.get_autocommit():
        raise _not_open("use `with transaction.atomic():`")

    def execute(text: str, names: tuple[str, ...], params: Params) -> list[Row]:
        with tx.cursor() as cursor:
            cursor.execute(text, {name: params[name] for name in names})
            return [tuple(row) for row in cursor.fetchall()] if cursor.description else []

    return Caller(engine, "%({name})s", False, execute)


def _explain(error: BaseException) -> None:
    """A missing table is our word, not the driver's: the caller connected to another database."""
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        if code in ("42P01", "3F000") or "no such table: oncely_" in str(cause):
            raise SchemaError(
                "the database of tx= has no oncely tables: open the transaction on the database "
                "of the store, or run `oncely migrate` there"
            ) from error
        cause = cause.__cause__
