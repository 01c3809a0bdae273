"""PostgreSQL: psycopg by its generators, which its sync and async sides share; asyncpg by the few
methods that everything goes through. SQLAlchemy and Django come through these."""

from __future__ import annotations

import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.seams.clocks import clock_in
from oncely.prove.seams.inserts import given_columns
from oncely.prove.seams.names import begins_one, ends_one, first_words, reads, written_tables
from oncely.prove.seams.postgres_faults import asocket, awith_fault, cut, with_fault
from oncely.prove.watch import Action, Watch, knowing, known

_OF_THE_STORE: Final = ("oncely.store.postgres.engine", "oncely.store.postgres.listen")
_INHERITED: Final = (
    "a connection to PostgreSQL that was opened before the handler ran is used by it: the child "
    "cannot share it with its parent. Open it in the handler, or in a pool that the handler makes"
)


_writing: set[int] = set()
"""The connections in whose transaction something was written: others may wait for it."""


def install(watch: Watch, copies: Copies) -> None:
    watch.open_transactions.append(lambda: bool(_writing))
    if "psycopg" in sys.modules:
        _psycopg(watch, copies)
    if "asyncpg" in sys.modules:
        _asyncpg(watch, copies)


def _say(watch: Watch, connection: Any, statement: str, *, in_transaction: bool) -> Action | None:
    """Before it is sent. What comes back is a fault for the caller to make."""
    if clock := clock_in(statement):
        watch.note("clock", "SQL", [clock])
    for table in written_tables(statement):
        watch.note("written", table)
    for given in given_columns(statement):
        watch.note("given", given)
    begins, ends = begins_one(statement), ends_one(statement)
    action = watch.pass_by(
        "postgres",
        first_words(statement),
        repeatable=reads(statement),
        inside=begins or (in_transaction and not ends),
    )
    if ends or action == "fail":
        _writing.discard(id(connection))
    elif in_transaction and not reads(statement):
        _writing.add(id(connection))
    return action


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
            watch.refuse(_INHERITED)
        return ours[id(connection)]

    def connect_gen(cls: Any, /, conninfo: str = "", **options: Any) -> Any:
        own = _asked_by_the_store()
        redirected = copies.conninfo(conninfo)
        if redirected is None:
            watch.refuse(
                "the handler connects to a PostgreSQL database that is not under proof: give a "
                "Table of it in world=, so that a copy of it is made"
            )
        connection = yield from connect(cls, redirected, **options)
        ours[id(connection)] = own
        _kept.append(connection)
        return connection

    def exec_command(self: Any, text: Any, *args: Any, **options: Any) -> Any:
        action = None
        if not is_ours(self):
            told = text if isinstance(text, str) else _text(self, text)
            if not told.lower().startswith(("select", "set ", "deallocate")):
                action = _say(watch, self, told, in_transaction=_in_transaction(self))
        return (yield from with_fault(action, self, command(self, text, *args, **options)))

    end = handler.end_together

    def end_together(connection: Any, *args: Any) -> Any:
        action = _say(watch, connection, "COMMIT", in_transaction=True)
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
            told = _text(self._conn, getattr(query, "query", query))
            action = _say(watch, self._conn, told, in_transaction=_in_transaction(self._conn))
        return (yield from with_fault(action, self._conn, real(self, query, *args, **options)))

    setattr(cursor_class, name, watched)


def _in_transaction(connection: Any) -> bool:
    return bool(connection.pgconn.transaction_status != 0)  # 0: idle


def _text(connection: Any, query: Any) -> str:
    if isinstance(query, bytes):
        return query.decode(errors="replace")
    as_string = getattr(query, "as_string", None)
    return str(as_string(connection)) if as_string else str(query)


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
            watch.refuse(
                f"the handler connects to the PostgreSQL database {params.database}, which is not "
                "under proof: give a Table of it in world=, so that a copy of it is made"
            )
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
            action = _say(watch, self, told, in_transaction=self.is_in_transaction())
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
    return _say(watch, connection, told, in_transaction=connection.is_in_transaction())


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
        if _say(watch, self, query, in_transaction=self.is_in_transaction()) == "fail":
            cut(asocket(self))
        return cursor(self, query, *args, **options)

    def watched_cursor_of_statement(self: Any, *args: Any, **options: Any) -> Any:
        if _say_prepared(watch, self) == "fail":
            cut(asocket(_prepared[id(self)][1]))
        return of_statement(self, *args, **options)

    connection_class.prepare, connection_class.cursor = watched_prepare, watched_cursor
    statement_class.cursor = watched_cursor_of_statement
