"""psycopg2, whose classes are written in C and cannot be changed: each connection and each cursor
is of a class that stands between the user's class and that of psycopg2."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from oncely.prove.seams.drivers import replace_new
from oncely.prove.seams.postgres_faults import cut
from oncely.prove.seams.statements import (
    forget_writes,
    refuse_database,
    tell_statement,
    text_of,
)
from oncely.prove.watch import Action, Watch

if TYPE_CHECKING:
    from oncely.prove.copies import Copies

    _CClass = Any
else:
    _CClass = object

_READY: Final = 1
_IN_TRANSACTION: Final = 2
"""Values of `connection.status`."""
_NO_PROOF: Final = "what it does cannot be proved. Let it be replaced by a stand-in for the proof"
_PAST_CONNECT: Final = (
    "the handler opens a connection of psycopg2 past `psycopg2.connect`: it would write to the "
    "database itself, not to the copy that is under proof"
)


def entries() -> list[Any]:
    """By which connections are opened, so that they are found where they were imported by name."""
    module: Any = sys.modules.get("psycopg2._psycopg")
    return [] if module is None else [module._connect, module.connection]


def install(watch: Watch, copies: Copies) -> None:
    if "psycopg2" not in sys.modules:
        return
    import psycopg2.extensions
    from psycopg2 import _psycopg

    connect, plain = _psycopg._connect, _psycopg.connection
    members = {
        "_oncely_watch": watch,
        "_oncely_copies": copies,
        "_oncely_plain_cursor": _psycopg.cursor,
        "_oncely_cursor_class": staticmethod(cache(lambda kind: _between(kind, cursor_class))),
    }
    connection_class: Any = type("connection", (_WatchedConnection, plain), members)
    cursor_class: Any = type("cursor", (_WatchedCursor, _psycopg.cursor), {})
    connection_class_of = cache(lambda kind: _between(kind, connection_class))

    def watched_connect(dsn: str, connection_factory: Any = None, **options: Any) -> Any:
        factory = connection_factory or plain
        if isinstance(factory, type):
            factory = connection_class_of(factory)
        if factory is None:
            watch.refuse(f"the handler uses {connection_factory.__name__} of psycopg2: {_NO_PROOF}")
        connection = connect(dsn, connection_factory=factory, **options)
        if not isinstance(connection, connection_class):
            watch.refuse(_PAST_CONNECT)
        return connection

    def new(kind: Any, *args: Any, **options: Any) -> Any:
        if not issubclass(kind, connection_class):
            watch.refuse(_PAST_CONNECT)
        return plain.__new__(kind, *args, **options)

    replace_new(plain, new, besides=connection_class)
    for module in (psycopg2, _psycopg):
        module._connect = watched_connect
    for module in (psycopg2.extensions, _psycopg):
        module.connection = connection_class
    copies.everywhere.replace(connect, watched_connect)
    copies.everywhere.replace(plain, connection_class)


def _between(kind: Any, watched: Any) -> Any:
    """The user's class, with ours before that of psycopg2; None if it has another shape in C."""
    if issubclass(watched, kind):
        return watched
    try:
        return type(kind.__name__, (kind, watched), {})
    except TypeError:
        return None


class _WatchedConnection(_CClass):  # type: ignore[misc]
    _oncely_watch: Watch
    _oncely_copies: Copies
    _oncely_plain_cursor: Any
    _oncely_cursor_class: Any
    _oncely_is_block = False
    """Whether it is in `with`, where a transaction begins also in autocommit."""
    autocommit: bool
    cursor_factory: Any
    fileno: Callable[[], int]
    info: Any
    status: int

    def __init__(self, dsn: str, *args: Any, **options: Any) -> None:
        if any(args) or any(options.values()):
            self._oncely_watch.refuse(
                f"the handler opens an asynchronous connection of psycopg2: {_NO_PROOF}"
            )
        redirected = self._oncely_copies.conninfo(dsn)
        if redirected is None:
            refuse_database(self._oncely_watch, "PostgreSQL")
        super().__init__(redirected)

    def __enter__(self) -> Any:
        self._oncely_is_block = True
        return super().__enter__()

    def __exit__(self, *error: Any) -> Any:
        self._oncely_is_block = False
        return super().__exit__(*error)

    def cursor(self, name: Any = None, cursor_factory: Any = None, **options: Any) -> Any:
        factory = cursor_factory or self.cursor_factory or self._oncely_plain_cursor
        watched = self._oncely_cursor_class(factory) if isinstance(factory, type) else None
        if watched is None:
            self._oncely_watch.refuse(
                f"the cursor_factory {factory!r} of the handler is no class of cursors: {_NO_PROOF}"
            )
        return super().cursor(name, watched, **options)

    def commit(self) -> None:
        self._oncely_end("COMMIT", super().commit)

    def rollback(self) -> None:
        self._oncely_end("ROLLBACK", super().rollback)

    def reset(self) -> None:
        self._oncely_end("ROLLBACK", super().reset)

    def set_isolation_level(self, level: Any) -> None:
        change = super().set_isolation_level
        self._oncely_end("ROLLBACK", lambda: change(level))

    def close(self) -> None:
        forget_writes(self)
        super().close()

    def tpc_begin(self, xid: Any) -> None:
        self._oncely_watch.refuse(f"the handler commits in two phases ({xid}): {_NO_PROOF}")

    def lobject(self, *_: Any, **options: Any) -> Any:
        del options
        self._oncely_watch.refuse(f"the handler uses large objects of PostgreSQL: {_NO_PROOF}")

    def _oncely_end(self, words: str, end: Callable[[], None]) -> None:
        action = None
        if self.status == _IN_TRANSACTION:
            action = self._oncely_tell(words, in_transaction=True)
        end()
        self.oncely_lose(action)

    def oncely_send(self, statement: str) -> Action | None:
        """Before a statement is sent, and the BEGIN before it."""
        begins = self.status == _READY and (self._oncely_is_block or not self.autocommit)
        if begins:
            self._oncely_tell("BEGIN", in_transaction=False)
        in_transaction = begins or bool(self.info.transaction_status)
        return self._oncely_tell(statement, in_transaction=in_transaction)

    def _oncely_tell(self, statement: str, *, in_transaction: bool) -> Action | None:
        action = tell_statement(
            self._oncely_watch, "postgres", self, statement, in_transaction=in_transaction
        )
        if action == "fail":
            cut(self.fileno())
        return action

    def oncely_lose(self, action: Action | None) -> None:
        """After a statement. If its answer is to be lost, this raises what psycopg2 raises."""
        if action == "lose":
            cut(self.fileno())
            self._oncely_plain_cursor(self).execute("select 1")


class _WatchedCursor(_CClass):  # type: ignore[misc]
    connection: _WatchedConnection

    def execute(self, query: Any, vars: Any = None) -> None:
        run = super().execute
        self._oncely_run(query, lambda: run(query, vars))

    def executemany(self, query: Any, vars_list: Iterable[Any]) -> None:
        super().executemany(query, self._oncely_each(query, vars_list))

    def callproc(self, procname: str, *args: Any) -> Any:
        run = super().callproc
        return self._oncely_run(f"call {procname}", lambda: run(procname, *args))

    def copy_from(self, file: Any, table: str, *args: Any, **options: Any) -> None:
        run = super().copy_from
        self._oncely_run(f"copy {table} from stdin", lambda: run(file, table, *args, **options))

    def copy_to(self, file: Any, table: str, *args: Any, **options: Any) -> None:
        run = super().copy_to
        self._oncely_run(f"copy {table} to stdout", lambda: run(file, table, *args, **options))

    def copy_expert(self, sql: Any, file: Any, *args: Any, **options: Any) -> None:
        run = super().copy_expert
        self._oncely_run(sql, lambda: run(sql, file, *args, **options))

    def _oncely_run(self, query: Any, run: Callable[[], Any]) -> Any:
        action = self.connection.oncely_send(text_of(query, self.connection))
        value = run()
        self.connection.oncely_lose(action)
        return value

    def _oncely_each(self, query: Any, rows: Iterable[Any]) -> Iterator[Any]:
        """psycopg2 sends a statement for each row that it gets from here."""
        text = text_of(query, self.connection)
        for row in rows:
            action = self.connection.oncely_send(text)
            yield row
            self.connection.oncely_lose(action)
