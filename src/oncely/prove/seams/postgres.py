"""PostgreSQL: psycopg by its generators, which its sync and async sides share; asyncpg by the few
methods that everything goes through. SQLAlchemy and Django come through these."""

from __future__ import annotations

import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.seams.postgres_faults import asocket, awith_fault, cut, with_fault
from oncely.prove.seams.statements import (
    follow_transactions,
    refuse_database,
    tell_statement,
    text_of,
)
from oncely.prove.watch import Action, Watch, knowing, known

_OF_THE_STORE: Final = ("oncely.store.postgres.engine", "oncely.store.postgres.listen")
INHERITED: Final = (
    "a connection to PostgreSQL that was opened before the handler ran is used by it: the child "
    "cannot share it with its parent. Open it in the handler, or in a pool that the handler makes"
)


def install(watch: Watch, copies: Copies) -> None:
    follow_transactions(watch)
    if "psycopg" in sys.modules:
        _psycopg(watch, copies)
    if "asyncpg" in sys.modules:
        _asyncpg(watch, copies)


def _psycopg(watch: Watch, copies: Copies) -> None:
    from psycopg._connection_base import BaseConnection
    from psycopg._cursor_base import BaseCursor

    from oncely.store.postgres import handler

    connection_class: Any = BaseConnection
    cursor_class: Any = BaseCursor
    connect = connection_class._connect_gen.__func__
    command = connection_class._exec_command
    ours: dict[int, bool] = {}

    def is_ours(connection: Any) -> bool:
        """Whether it is the store's own, whose operations are told as such."""
        if id(connection) not in ours:
            watch.refuse(INHERITED)
        return ours[id(connection)]

    def connect_gen(cls: Any, /, conninfo: str = "", **options: Any) -> Any:
        own = _asked_by_the_store()
        redirected = copies.conninfo(conninfo)
        if redirected is None:
            refuse_database(watch, "PostgreSQL")
        connection = yield from connect(cls, redirected, **options)
        ours[id(connection)] = own
        _kept.append(connection)
        return connection

    def exec_command(self: Any, text: Any, *args: Any, **options: Any) -> Any:
        action = None
        if not is_ours(self):
            told = text_of(text, self)
            if not told.lower().startswith(("select", "set ", "deallocate")):
                action = tell_statement(
                    watch, "postgres", self, told, in_transaction=_in_transaction(self)
                )
        return (yield from with_fault(action, self, command(self, text, *args, **options)))

    end = handler.end_together

    def end_together(connection: Any, *args: Any) -> Any:
        action = tell_statement(watch, "postgres", connection, "COMMIT", in_transaction=True)
        return (yield from with_fault(action, connection, end(connection, *args)))

    handler.end_together = end_together  # type: ignore[assignment]
    connection_class._connect_gen = classmethod(connect_gen)
    connection_class._exec_command = exec_command
    for name in ("_maybe_prepare_gen", "_stream_send_gen", "_start_copy_gen"):
        _watch_cursor(watch, cursor_class, name, is_ours)


_kept: list[object] = []
"""So that no address is given to another connection."""


def _watch_cursor(watch: Watch, cursor_class: Any, name: str, is_ours: Any) -> None:
    real = getattr(cursor_class, name)

    def watched(self: Any, query: Any, *args: Any, **options: Any) -> Any:
        action = None
        if not is_ours(self._conn):
            told = text_of(getattr(query, "query", query), self._conn)
            action = tell_statement(
                watch, "postgres", self._conn, told, in_transaction=_in_transaction(self._conn)
            )
        return (yield from with_fault(action, self._conn, real(self, query, *args, **options)))

    setattr(cursor_class, name, watched)


def _in_transaction(connection: Any) -> bool:
    return bool(connection.pgconn.transaction_status != 0)  # 0: idle


def _asked_by_the_store() -> bool:
    frame = sys._getframe(2)
    for _ in range(8):
        if frame.f_globals.get("__name__") in _OF_THE_STORE:
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _asyncpg(watch: Watch, copies: Copies) -> None:
    import asyncpg
    from asyncpg import connect_utils
    from asyncpg.prepared_stmt import PreparedStatement

    connect = connect_utils._connect_addr

    async def connect_addr(*, addr: Any, params: Any, **options: Any) -> Any:
        port = addr[1] if isinstance(addr, tuple) else None
        database = copies.database(port, params.database)
        if database is None:
            refuse_database(watch, "PostgreSQL", params.database)
        with knowing():
            return await connect(addr=addr, params=params._replace(database=database), **options)

    connect_utils._connect_addr = connect_addr
    for name in ("execute", "_execute", "executemany"):
        _watch_asyncpg(watch, asyncpg.Connection, name)
    for name in ("copy_to_table", "copy_records_to_table"):
        _watch_asyncpg(watch, asyncpg.Connection, name, "copy ")
    for name in ("fetch", "fetchrow", "fetchval", "fetchmany", "executemany"):
        _watch_prepared(watch, PreparedStatement, name)
    _watch_cursors(watch, asyncpg.Connection, PreparedStatement)


def _watch_asyncpg(watch: Watch, connection_class: Any, name: str, before: str = "") -> None:
    real = getattr(connection_class, name)

    async def watched(self: Any, query: str, *args: Any, **options: Any) -> Any:
        action = None
        if not known.get():
            told = f"{before}{query}"
            action = tell_statement(
                watch, "postgres", self, told, in_transaction=self.is_in_transaction()
            )
        with knowing():
            return await awith_fault(action, self, real(self, query, *args, **options))

    setattr(connection_class, name, watched)


_prepared: dict[int, tuple[Any, Any]] = {}
"""Each prepared statement with its connection: kept, so that no address is given to another."""


def _watch_prepared(watch: Watch, statement_class: Any, name: str) -> None:
    real = getattr(statement_class, name)

    async def watched(self: Any, *args: Any, **options: Any) -> Any:
        action = None if known.get() else _say_prepared(watch, self)
        with knowing():
            connection = _prepared[id(self)][1]
            return await awith_fault(action, connection, real(self, *args, **options))

    setattr(statement_class, name, watched)


def _say_prepared(watch: Watch, statement: Any) -> Action | None:
    _, connection = _prepared[id(statement)]
    told = statement.get_query()
    return tell_statement(
        watch, "postgres", connection, told, in_transaction=connection.is_in_transaction()
    )


def _watch_cursors(watch: Watch, connection_class: Any, statement_class: Any) -> None:
    """Told when they are made: what comes after only reads on."""
    prepare, cursor = connection_class.prepare, connection_class.cursor
    of_statement = statement_class.cursor

    async def watched_prepare(self: Any, *args: Any, **options: Any) -> Any:
        with knowing():
            statement = await prepare(self, *args, **options)
        _prepared[id(statement)] = statement, self
        return statement

    def watched_cursor(self: Any, query: str, *args: Any, **options: Any) -> Any:
        if (
            tell_statement(watch, "postgres", self, query, in_transaction=self.is_in_transaction())
            == "fail"
        ):
            cut(asocket(self))
        return cursor(self, query, *args, **options)

    def watched_cursor_of_statement(self: Any, *args: Any, **options: Any) -> Any:
        if _say_prepared(watch, self) == "fail":
            cut(asocket(_prepared[id(self)][1]))
        return of_statement(self, *args, **options)

    connection_class.prepare, connection_class.cursor = watched_prepare, watched_cursor
    statement_class.cursor = watched_cursor_of_statement
