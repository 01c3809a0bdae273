"""The caller's own transaction (`tx=`): how to speak through the connection that holds it.

Nothing is imported here that the caller has not imported already: a connection is known by the
name of its class. What its driver raises passes through as it is, because the caller's own code
around the transaction (retries on a serialization failure, say) waits for exactly that.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput, SchemaError
from oncely.store.plan import Row, Statement
from oncely.store.sql import EngineName, Library, Prepared

ACCEPTED: Final = (
    "psycopg Connection or AsyncConnection, asyncpg Connection, sqlite3 Connection, aiosqlite "
    "Connection, SQLAlchemy Connection or Session and their async twins, or Django's connection"
)
_WHOLE: Final = {"stream_results": False, "yield_per": None}
"""SQLAlchemy's options for a plain cursor: a server-side one, which is a SELECT, cannot insert."""
_VENDORS: Final[dict[str, EngineName]] = {
    "postgresql": "postgres",
    "sqlite": "sqlite",
    "mysql": "mysql",
    "mariadb": "mysql",
}


class Caller(msgspec.Struct, frozen=True):
    """A connection of the caller's. `execute` gives rows, or an awaitable of rows if `awaits`."""

    engine: EngineName
    placeholder: str
    awaits: bool
    execute: Callable[[str, dict[str, Any]], Any]

    def ask(self, library: Library, statement: Statement) -> list[Row]:
        rows: list[Row] = []
        for prepared in library.get(statement.name, self.placeholder):
            try:
                answer = self.execute(prepared.text, _named(prepared, statement))
            except Exception as error:
                _explain(error, library)
                raise
            rows = _plain(answer) or rows
        return rows

    async def aask(self, library: Library, statement: Statement) -> list[Row]:
        rows: list[Row] = []
        for prepared in library.get(statement.name, self.placeholder):
            try:
                answer = self.execute(prepared.text, _named(prepared, statement))
                answer = await answer if self.awaits else answer
            except Exception as error:
                _explain(error, library)
                raise
            rows = _plain(answer) or rows
        return rows


def _named(prepared: Prepared, statement: Statement) -> dict[str, Any]:
    return {name: statement.params[name] for name in prepared.names}


def _plain(rows: Iterable[Iterable[Any]]) -> list[Row]:
    """Text as str, also where the connection reads it as bytes (`text_factory`, SQL_ASCII)."""
    return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in rows]


def borrow(tx: Any) -> Caller:
    """The voice of a sync connection, or of an async one that needs no waiting to be known."""
    match library_of(tx):
        case "sqlite3":
            return _sqlite3(tx)
        case "aiosqlite":
            return _aiosqlite(tx)
        case "psycopg":
            return _psycopg(tx)
        case "psycopg async":
            return _psycopg_async(tx)
        case "asyncpg":
            return _asyncpg(tx)
        case "sqlalchemy":
            return _sqlalchemy(tx)
        case "sqlalchemy async":
            raise InvalidInput(
                f"tx is an async {type(tx).__name__}: use `await app.aenqueue(..., tx=tx)`"
            )
        case "django":
            return _django(tx)
        case "handler":
            return _handler(tx)
    raise InvalidInput(
        f"tx is {type(tx).__module__}.{type(tx).__qualname__}; expected a {ACCEPTED}, "
        "with an open transaction"
    )


async def aborrow(tx: Any) -> Caller:
    if library_of(tx) == "sqlalchemy async":
        return await _sqlalchemy_async(tx)
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
    ("oncely", "AsyncHandlerConnection"): "handler",
    ("django", "ConnectionProxy"): "django",
    ("django", "BaseDatabaseWrapper"): "django",
}


def library_of(tx: Any) -> str | None:
    for cls in type(tx).__mro__:
        found = _CLASSES.get((cls.__module__.partition(".")[0], cls.__name__))
        if found:
            return found
    return None


def awaits(tx: Any) -> bool:
    return library_of(tx) in ("aiosqlite", "psycopg async", "asyncpg", "sqlalchemy async")


def _not_open(what: str) -> InvalidInput:
    return InvalidInput(
        f"tx has no open transaction ({what}), so the job would not depend on your commit: begin "
        "one first, or leave tx out"
    )


def _refuse_autocommit(connection: Any) -> None:
    """Outside autocommit mode Python's sqlite3 begins a transaction before the first write."""
    if connection.in_transaction:
        return
    if connection.isolation_level is None or getattr(connection, "autocommit", False) is True:
        raise _not_open("the connection is in autocommit mode")


def _sqlite3(tx: sqlite3.Connection) -> Caller:
    _refuse_autocommit(tx)

    # A cursor of our own, whatever row factory the connection has.
    def execute(text: str, params: dict[str, Any]) -> list[Row]:
        cursor = sqlite3.Cursor(tx)
        try:
            return cursor.execute(text, params).fetchall()
        finally:
            cursor.close()

    return Caller("sqlite", ":{name}", False, execute)


def _handler(tx: Any) -> Caller:
    """The connection of an async `ctx.transaction()` on SQLite."""

    async def execute(text: str, params: dict[str, Any]) -> Any:
        return await (await tx.execute(text, params)).fetchall()

    return Caller("sqlite", ":{name}", True, execute)


def _aiosqlite(tx: Any) -> Caller:
    _refuse_autocommit(tx)

    async def execute(text: str, params: dict[str, Any]) -> Any:
        async with tx.execute(text, params) as cursor:
            cursor.row_factory = None
            return await cursor.fetchall()

    return Caller("sqlite", ":{name}", True, execute)


def _psycopg(tx: Any) -> Caller:
    from psycopg import Cursor
    from psycopg.rows import tuple_row

    _refuse_idle(tx)

    # A cursor of our own, whatever row and cursor factories the connection has.
    def execute(text: str, params: dict[str, Any]) -> list[Row]:
        with Cursor(tx, row_factory=tuple_row) as cursor:
            cursor.execute(text.encode(), params)
            if tx.pgconn.pipeline_status:  # the answer is not here yet
                with tx.pipeline() as pipeline:
                    pipeline.sync()
            return cursor.fetchall() if cursor.description else []

    return Caller("postgres", "%({name})s", False, execute)


def _psycopg_async(tx: Any) -> Caller:
    from psycopg import AsyncCursor
    from psycopg.rows import tuple_row

    _refuse_idle(tx)

    async def execute(text: str, params: dict[str, Any]) -> list[Row]:
        async with AsyncCursor(tx, row_factory=tuple_row) as cursor:
            await cursor.execute(text.encode(), params)
            if tx.pgconn.pipeline_status:
                async with tx.pipeline() as pipeline:
                    await pipeline.sync()
            return await cursor.fetchall() if cursor.description else []

    return Caller("postgres", "%({name})s", True, execute)


def _refuse_idle(tx: Any) -> None:
    """Outside autocommit mode psycopg begins a transaction before the first statement."""
    from psycopg.pq import TransactionStatus

    if tx.autocommit and tx.info.transaction_status == TransactionStatus.IDLE:
        raise _not_open("the connection is in autocommit mode")


def _asyncpg(tx: Any) -> Caller:
    if not tx.is_in_transaction():
        raise _not_open("use `async with connection.transaction():`")

    async def execute(text: str, params: dict[str, Any]) -> Any:
        return await tx.fetch(text, *params.values())

    return Caller("postgres", "${n}", True, execute)


def _sqlalchemy(tx: Any) -> Caller:
    from sqlalchemy import text as clause

    connection = tx.connection() if hasattr(tx, "get_bind") else tx
    engine = engine_of_vendor("SQLAlchemy", connection.dialect.name)
    _begin_sqlalchemy(connection, engine)

    def execute(text: str, params: dict[str, Any]) -> Any:
        result = connection.execute(clause(text), params, execution_options=_WHOLE)
        return result.all() if result.returns_rows else []

    return Caller(engine, ":{name}", False, execute)


async def _sqlalchemy_async(tx: Any) -> Caller:
    connection = await tx.connection() if hasattr(tx, "get_bind") else tx
    caller: Caller = await connection.run_sync(_sqlalchemy)

    async def execute(text: str, params: dict[str, Any]) -> Any:
        return await connection.run_sync(lambda _: caller.execute(text, params))

    return Caller(caller.engine, caller.placeholder, True, execute)


def _begin_sqlalchemy(connection: Any, engine: EngineName) -> None:
    """What its first statement would do, so that we see what kind of transaction it makes."""
    begun = None if connection.in_transaction() else connection.begin()
    try:
        if engine == "sqlite":
            _refuse_autocommit(connection.connection.driver_connection)
        elif _commits_by_itself(connection.connection.dbapi_connection):
            raise _not_open("its isolation level is AUTOCOMMIT")
    except InvalidInput:
        if begun is not None:
            begun.rollback()
        raise


def _commits_by_itself(connection: Any) -> bool:
    asked = getattr(connection, "get_autocommit", None)
    return bool(asked() if asked else getattr(connection, "autocommit", False))


def _django(tx: Any) -> Caller:
    engine = engine_of_vendor("Django", tx.vendor)
    if not tx.in_atomic_block and tx.get_autocommit():
        raise _not_open("use `with transaction.atomic():`")

    def execute(text: str, params: dict[str, Any]) -> Any:
        with tx.cursor() as cursor:
            cursor.execute(text, params)
            return cursor.fetchall() if cursor.description else []

    return Caller(engine, "%({name})s", False, execute)


def engine_of_vendor(library: str, vendor: str) -> EngineName:
    engine = _VENDORS.get(vendor)
    if engine is None:
        raise InvalidInput(
            f"tx is a {library} connection to {vendor}; expected PostgreSQL or SQLite, where the "
            "store is, or for a Ledger MySQL or MariaDB"
        )
    return engine


def _explain(error: BaseException, library: Library) -> None:
    """A missing table is our word, not the driver's: the caller connected to another database."""
    cause: BaseException | None = error
    while cause is not None:
        code = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        missing = cause.args[:1] == (1146,) and "oncely_" in str(cause)  # MySQL, MariaDB
        if missing or code in ("42P01", "3F000") or "no such table: oncely_" in str(cause):
            raise SchemaError(
                "the database of tx= has no oncely tables: open the transaction on the database "
                f"of the store, or {library.remedy} there"
            ) from error
        cause = cause.__cause__
