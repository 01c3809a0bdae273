"""SQLite: every statement of every connection that is not the store's own, by its trace."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, unquote
from weakref import WeakSet

from oncely.prove.copies import Copies
from oncely.prove.seams.clocks import clock_in
from oncely.prove.seams.inserts import given_columns
from oncely.prove.seams.names import (
    begins_one,
    ends_one,
    first_words,
    reads,
    written_tables,
)
from oncely.prove.seams.sqlite_clock import SqliteClock
from oncely.prove.seams.sqlite_faults import FaultyConnection, with_faults
from oncely.prove.watch import Action, Watch, known
from oncely.store.sqlite.transaction import HandlerConnection

_OF_THE_STORE: Final = "oncely.store.sqlite.engine"
_QUIET: Final = re.compile(r"\s*(--|pragma\b|explain\b|attach\b|detach\b)", re.IGNORECASE)
_IN_MEMORY: Final = re.compile(r"|:memory:|file:.*mode=memory.*")


def install(watch: Watch, copies: Copies) -> None:
    real: Any = sqlite3.connect
    sessions: WeakSet[_Session] = WeakSet()
    allowed: set[str] = set()
    clock = SqliteClock(real)
    watch.open_transactions.append(lambda: any(each.in_transaction for each in list(sessions)))

    def connect(database: Any, *args: Any, **options: Any) -> Any:
        database = _redirected(database, copies, uri=bool(options.get("uri")))
        allowed.add(str(database))
        ours = sys._getframe(1).f_globals.get("__name__") == _OF_THE_STORE
        if watch.may_strike("fail", "lose") and (
            not ours or options.get("factory") is HandlerConnection
        ):
            args, options = with_faults(args, options)
        connection = real(database, *args, **options)
        if not ours or isinstance(connection, HandlerConnection):
            session = _Session(watch, moves_clock=clock.move(connection))
            sessions.add(session)
            trace: Callable[[str], None] = session.trace
            if isinstance(connection, FaultyConnection):
                trace = connection.oncely_watched(trace)
                session.strike = connection.oncely_strike
            connection.set_trace_callback(trace)
            connection.set_authorizer(_allow(watch))
        return connection

    def hook(event: str, args: Any) -> None:
        if event != "sqlite3.connect" or known.get():
            return
        if str(args[0]) not in allowed | {":memory:", ""}:
            watch.refuse(
                f"a connection to {args[0]} was opened past `sqlite3.connect`: it would write to "
                "the file itself, not to the copy that is under proof"
            )

    sys.addaudithook(hook)
    copies.everywhere.replace(real, connect)


class _Session:
    """Lives as long as its connection is open."""

    def __init__(self, watch: Watch, *, moves_clock: bool) -> None:
        self._watch = watch
        self._moves_clock = moves_clock
        self.in_transaction = False
        self.strike: Callable[[Action], None] | None = None

    def trace(self, statement: str) -> None:
        if _QUIET.match(statement):
            return
        is_moved = self._moves_clock and "strftime" not in statement.lower()
        if not is_moved and (clock := clock_in(statement)):
            self._watch.note("clock", "SQL", [clock])
        for table in written_tables(statement):
            self._watch.note("written", table)
        for given in given_columns(statement):
            self._watch.note("given", given)
        begins, ends = begins_one(statement), ends_one(statement)
        action = self._watch.pass_by(
            "sqlite",
            first_words(statement),
            repeatable=reads(statement),
            inside=begins or (self.in_transaction and not ends),
        )
        self.in_transaction = begins or (self.in_transaction and not ends)
        if action is not None and self.strike is not None:
            self.strike(action)


def _allow(watch: Watch) -> Callable[..., int]:
    def allow(action: int, file: str | None, *_: str | None) -> int:
        """`ATTACH` and `VACUUM INTO` name their file themselves, and no copy can stand for it."""
        if action == sqlite3.SQLITE_ATTACH and (file is None or not _IN_MEMORY.fullmatch(file)):
            watch.refuse(
                f"the handler attaches {file or 'a database'} to a connection, or copies into it: "
                "it would write to that file itself, and no copy can stand for it. Open the file "
                "by `sqlite3.connect`"
            )
        return sqlite3.SQLITE_OK

    return allow


def _redirected(database: Any, copies: Copies, *, uri: bool) -> Any:
    if isinstance(database, bytes):
        database = database.decode()
    text = str(database)
    if uri and text.startswith("file:"):
        path, mark, query = text.removeprefix("file:").partition("?")
        if "mode=memory" in query or not path.strip("/"):
            return database
        found = "/" + unquote(path).lstrip("/") if path.startswith("/") else unquote(path)
        return f"file:{quote(copies.file(found))}{mark}{query}"
    if text in ("", ":memory:"):
        return database
    return copies.file(text)
