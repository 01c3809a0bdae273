"""SQLite, where a statement fails or the answer to a commit is lost.

A trace cannot raise out of its statement. It interrupts it, and the cursor raises what the database
would have raised. Such connections are opened only for a schedule that has one of these faults.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from oncely.prove.seams.names import begins_one, commits, ends_one, reads
from oncely.prove.watch import Action
from oncely.store.sqlite.transaction import HandlerConnection

_FACTORY_AT: Final = 4
"""Its place among the arguments of `sqlite3.connect` after the name of the database."""
_LOCKS: Final = re.compile(r"\s*begin\s+(immediate|exclusive)", re.IGNORECASE)


def with_faults(args: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The arguments of `sqlite3.connect` for a connection on which the fault can strike."""
    if len(args) > _FACTORY_AT:
        before, factory, after = args[:_FACTORY_AT], args[_FACTORY_AT], args[_FACTORY_AT + 1 :]
        return (*before, _faulty_connection(factory), *after), options
    factory = options.get("factory") or sqlite3.Connection
    return args, {**options, "factory": _faulty_connection(factory)}


@cache
def _faulty_connection(base: Any) -> Any:
    if not isinstance(base, type):
        return base
    # The connection of `ctx.transaction()` ends by a statement of its own.
    ours = FaultyConnection if issubclass(base, HandlerConnection) else _Committing
    return type(base.__name__, (ours, base), {})


@cache
def _faulty_cursor(base: Any) -> Any:
    return type(base.__name__, (_FaultyCursor, base), {}) if isinstance(base, type) else base


class FaultyConnection(sqlite3.Connection):
    _oncely_trace: Callable[[str], None]
    _oncely_fault: Action | None = None
    _oncely_holds = False
    """Whether it has locked the database, so that nobody else can have."""
    _oncely_is_told = False
    """Whether the end of the transaction was told before it ran."""

    def oncely_watched(self, trace: Callable[[str], None]) -> Callable[[str], None]:
        """The trace to set, for what is to be told of a statement."""

        def traced(statement: str) -> None:
            if self._oncely_is_told and ends_one(statement):
                return
            trace(statement)
            if begins_one(statement) or ends_one(statement):
                self._oncely_holds = bool(_LOCKS.match(statement))
            elif self.in_transaction and not reads(statement):
                self._oncely_holds = True

        self._oncely_trace = traced
        return traced

    def oncely_strike(self, action: Action) -> None:
        self._oncely_fault = action
        if action == "fail":
            self.interrupt()

    def cursor(self, factory: Any = None) -> Any:
        return super().cursor(_faulty_cursor(factory or sqlite3.Cursor))

    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)

    def oncely_run(self, call: Callable[[], Any], *, is_commit: bool) -> Any:
        if is_commit:
            # Not every SQLite can interrupt a commit: whether it fails is decided before it runs.
            self._oncely_trace("COMMIT")
            if self._oncely_fault == "fail":
                raise self._oncely_failed()
        self._oncely_is_told = is_commit
        try:
            value = call()
        except sqlite3.OperationalError:
            if self._oncely_fault != "fail":
                raise
            raise self._oncely_failed() from None
        finally:
            self._oncely_is_told = False
        if self._oncely_fault == "lose":
            self._oncely_fault = None
            raise _error("disk I/O error", "SQLITE_IOERR")
        return value

    def _oncely_failed(self) -> sqlite3.OperationalError:
        """An error of the disk undoes the transaction. A database that another has locked only
        refuses the statement, and an interrupt has undone the rest already."""
        self._oncely_fault = None
        if not self._oncely_holds:
            return _error("database is locked", "SQLITE_BUSY")
        self._oncely_is_told = True
        self.set_authorizer(None)
        sqlite3.Connection.rollback(self)
        self._oncely_is_told = False
        return _error("disk I/O error", "SQLITE_IOERR")


class _Committing(FaultyConnection):
    def executescript(self, script: str) -> Any:
        return self.cursor().executescript(script)

    def commit(self) -> None:
        self.oncely_run(super().commit, is_commit=self.in_transaction)

    def __exit__(self, kind: Any, value: Any, trace: Any) -> Any:
        leave = super().__exit__
        return self.oncely_run(
            lambda: leave(kind, value, trace), is_commit=kind is None and self.in_transaction
        )


class _FaultyCursor(sqlite3.Cursor):
    connection: FaultyConnection

    def execute(self, sql: str, *args: Any) -> Any:
        run = super().execute
        is_commit = commits(sql) and self.connection.in_transaction
        return self.connection.oncely_run(lambda: run(sql, *args), is_commit=is_commit)

    def executemany(self, sql: str, *args: Any) -> Any:
        run = super().executemany
        return self.connection.oncely_run(lambda: run(sql, *args), is_commit=False)

    def executescript(self, script: str) -> Any:
        run = super().executescript
        return self.connection.oncely_run(lambda: run(script), is_commit=False)


def _error(message: str, name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    error.sqlite_errorcode = getattr(sqlite3, name)
    return error
