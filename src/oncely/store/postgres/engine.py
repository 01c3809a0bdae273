"""PostgreSQL: connections of our own, made when needed, safe behind a pooler and after a fork."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from oncely.model.errors import InvalidInput, OncelyError, SchemaError, StoreError, StoreUnavailable
from oncely.model.keys import shown
from oncely.store import schema
from oncely.store.engine import Access, Finding, StoreClosed
from oncely.store.listen import Ear, Listener, Tell
from oncely.store.plan import Plan, Quick, Row, Statement, Together, Wired, run
from oncely.store.postgres.listen import PostgresSource
from oncely.store.postgres.tidy import Tidy
from oncely.store.postgres.transaction import RETRYABLE, PostgresTransactions
from oncely.store.sql import QUEUE, Library, Part
from oncely.store.store_id import StoreId, read_store_id
from oncely.store.url import EXPECTED

try:
    import psycopg
except ImportError as _error:  # the extra is not installed: said when the engine is made
    _import_error: ImportError | None = _error
else:
    from oncely.store.postgres.connecting import (
        WATCH_CLIENT,
        WATCH_NETWORK,
        connection_options,
    )
    from oncely.store.postgres.wire import WireConnection

    _import_error = None

T = TypeVar("T")
_SCHEMA: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_TRIES: Final = 5
_IDLE_LIMIT: Final = 8
_WHOLE_SECONDS: Final = 1.0
_CLOCK_WARNING_SECONDS: Final = 2.0
_READ_ONLY: Final = "25006"
_MISSING: Final = ("42P01", "3F000")
# Our statements seek by key; with small or stale statistics the planner would rather read a table.
_SETTINGS: Final = (
    "set jit = off; set enable_seqscan = off; set enable_bitmapscan = off; "
    "set plan_cache_mode = force_generic_plan; "
    # A lock must be followed by a look that sees behind it, whatever the default of the role.
    "set default_transaction_isolation = 'read committed'; "
    # A worker that stalls in the middle of a claim must not hold the limits of a queue for ever.
    "set idle_in_transaction_session_timeout = 30000"
)
_leaked: list[object] = []
"""Connections of a parent process: closing them in the child would end the parent's sessions."""


class PostgresEngine:
    is_parallel: Final = True

    def __init__(self, url: str, schema_name: str, part: Part = QUEUE) -> None:
        if _import_error is not None:
            raise InvalidInput(
                "PostgreSQL needs the extra: pip install 'oncely[postgres]'"
            ) from _import_error
        if not isinstance(schema_name, str) or not _SCHEMA.fullmatch(schema_name):
            raise InvalidInput(
                f"schema is {shown(schema_name)}; expected 1 to 63 lower-case letters, digits "
                "or _, with a letter or _ first"
            )
        try:
            psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            raise InvalidInput(
                f"the store's URL cannot be read ({str(error).strip()}); {EXPECTED}"
            ) from None
        self.url = url
        self.schema = schema_name
        self.library = Library("postgres", schema_name, part)
        self._options = connection_options(url)
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[WireConnection] = []
        self._checked = False
        self._vetted = False
        self._whole_after: dict[str, float] = {}
        self._listener = Listener(PostgresSource(self._connect_directly, self.library))
        self.transactions = PostgresTransactions(self.url, self._options)
        self._tidy = Tidy(self._connect_directly, self.library)

    def run(self, make: Callable[[bool], Plan[T]], access: Access) -> T:
        """A serialization failure or a deadlock is repeated too: nothing of it was written."""
        again = False
        for remaining in reversed(range(_TRIES)):
            connection: WireConnection | None = None
            try:
                connection = self._take(access)
                if not self._checked:
                    self._run_on(connection, schema.check(self.library), "read")
                    self._checked = True
                value = self._run_on(connection, make(again), access)
            except psycopg.Error as error:
                lost = connection is not None and self._is_lost(connection, error)
                if lost and not again and remaining:
                    again = True
                    continue
                if error.sqlstate in RETRYABLE and remaining:
                    continue
                raise self._trouble(error) from error
            finally:
                if connection is not None:
                    self._give_back(connection, access)
            return value
        raise AssertionError("unreachable: the last try returns or raises")

    def _is_lost(self, connection: WireConnection, error: psycopg.Error) -> bool:
        """The server was most likely restarted under all connections, or is no primary any more:
        then others may lead to one that is."""
        if error.sqlstate == _READ_ONLY:
            connection.close()
        elif not connection.broken:
            return False
        self._forget_idle()
        return True

    def _run_on(self, connection: WireConnection, plan: Plan[T], access: Access) -> T:
        try:
            first = next(plan)
            rows = self._ask_whole(connection, first)
            if rows is not None:
                plan.send(rows)  # which is the end, for it wants nothing else
                raise AssertionError("unreachable: a whole form left something to ask for")
        except StopIteration as end:
            value: T = end.value
            return value

        def ask(statement: Statement) -> list[Row]:
            return self._ask(connection, statement)

        if access != "transaction" and not connection.needs_begin:
            return run(plan, ask, first)
        with connection.transaction():
            return run(plan, ask, first)

    def _ask_whole(self, connection: WireConnection, statement: Statement) -> list[Row] | None:
        """One message instead of three, where nothing is in the way. If something was, the next
        calls are likely to meet it too."""
        if not isinstance(statement, Quick) or connection.needs_begin:
            return None
        after = self._whole_after.get(statement.name)
        if after is not None and time.monotonic() < after:
            return None
        form = statement.whole()
        if form is None:
            return None
        try:
            return form.read(self._ask(connection, form.statement))
        except (psycopg.errors.DivisionByZero, psycopg.errors.UniqueViolation):
            self._whole_after[statement.name] = time.monotonic() + _WHOLE_SECONDS
            return None

    def _ask(self, connection: WireConnection, statement: Statement) -> list[Row]:
        if isinstance(statement, Wired):
            (prepared,) = self.library.get(statement.name, "${n}")
            return [(connection.do(statement, prepared),)]
        if isinstance(statement, Together):
            return self._ask_together(connection, statement.parts)
        if isinstance(statement, Quick) and (form := statement.quicker()):
            return form.read(self._ask(connection, form.statement))
        rows: list[Row] = []
        for prepared in self.library.get(statement.name, "%({name})s"):
            cursor = connection.execute(prepared.text.encode(), statement.params)
            if _has_rows(cursor):
                rows = cursor.fetchall()
        return rows

    def _ask_together(self, connection: WireConnection, parts: Sequence[Statement]) -> list[Row]:
        """Outside of a transaction what a pipeline sends up to its end is one."""
        if connection.is_free:
            found = [self.library.get(part.name, "${n}") for part in parts]
            pairs = [(part, prepared) for part, (prepared,) in zip(parts, found, strict=True)]
            return [(rows,) for rows in connection.ask(pairs)]
        if len(parts) == 1:  # it is that by itself
            return [(self._ask(connection, parts[0]),)]
        cursors = []
        with connection.pipeline():
            for part in parts:
                (prepared,) = self.library.get(part.name, "%({name})s")
                cursors.append(connection.execute(prepared.text.encode(), part.params))
        return [(cursor.fetchall() if _has_rows(cursor) else [],) for cursor in cursors]

    def _take(self, access: Access = "transaction", *, fresh: bool = False) -> WireConnection:
        """Single statements have one end of the row, transactions the other: so what comes often
        meets a session that has planned it."""
        with self._lock:
            if self._closed:
                raise StoreClosed()
            if self._idle and not fresh:
                return self._idle.pop(0 if access == "transaction" else -1)
        return self._connect()

    def _connect(self) -> WireConnection:
        connection = WireConnection.connect(
            self.url,
            autocommit=True,
            application_name="oncely",
            client_encoding="utf8",
            **self._options,
        )
        connection.url = self.url
        # Whatever the database's default: a lock must be followed by a look that sees behind it.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        if self._pooled(connection):
            # The next transaction may run in another session, so nothing may stay in this one.
            connection.prepare_threshold = None
            default = _setting(connection, "default_transaction_isolation")
            connection.needs_begin = default != "read committed"
        else:
            connection.prepare_threshold = 2
            connection.execute(_SETTINGS)
            try:
                connection.execute(WATCH_CLIENT)
            except psycopg.errors.InvalidParameterValue:
                connection.execute(WATCH_NETWORK)
        return connection

    def _connect_directly(self) -> WireConnection | None:
        connection = self._connect()
        if self._pooled(connection):
            connection.close()
            return None
        return connection

    def _pooled(self, connection: psycopg.Connection[Row]) -> bool:
        """A pooler such as PgBouncer gives clients a process id of its own making."""
        row = connection.execute("select pg_backend_pid()").fetchone()
        return row is None or row[0] != connection.info.backend_pid

    def _give_back(self, connection: WireConnection, access: Access = "transaction") -> None:
        with self._lock:
            if not (self._closed or connection.closed) and len(self._idle) < _IDLE_LIMIT:
                self._idle.insert(0 if access == "transaction" else len(self._idle), connection)
                return
        connection.close()

    def _forget_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        self.transactions.forget_idle()

    def pause(self) -> None:
        """Nothing has to end: the child leaves the parent's connections alone."""

    def resume(self) -> None: ...

    def renew(self) -> None:
        _leaked.extend((self._idle, self._listener, self.transactions, self._tidy))
        self._begin()

    def listen(
        self, topics: Iterable[str], tell: Tell, *, every_seconds: float | None = None
    ) -> Ear:
        return self._listener.ear(topics, tell, every_seconds=every_seconds)

    def tidy(self) -> float | None:
        try:
            return self._tidy.once()
        except psycopg.Error as error:
            self._tidy.close()
            raise self._trouble(error) from error

    def vet(self) -> Plan[None]:
        if not self._vetted:
            yield from schema.check(self.library)
            self._vetted = True

    def store_id(self) -> StoreId:
        return self.run(lambda _: read_store_id(), "read")

    def migrate(self) -> list[str]:
        with self._borrowed() as connection:
            encoding = _setting(connection, "server_encoding")
            if encoding != "UTF8":
                raise SchemaError(
                    f"the database's encoding is {encoding}; oncely needs UTF8: create the "
                    "database with `encoding 'UTF8'`"
                )
            return self._run_on(connection, schema.migrate(self.library), "transaction")

    def examine(self) -> list[Finding]:
        with self._borrowed() as connection:
            return [
                Finding("store", "ok", _where(connection)),
                self._examine_schema(connection),
                _examine_pooler(self._pooled(connection)),
                _examine_durability(connection),
                _examine_clock(connection),
            ]

    def _examine_schema(self, connection: WireConnection) -> Finding:
        try:
            self._run_on(connection, schema.check(self.library), "read")
        except SchemaError as error:
            return Finding("schema", "error", str(error))
        newest = self.library.migrations[-1].label
        return Finding("schema", "ok", f"{self.schema}, up to date, migration {newest}")

    @contextmanager
    def _borrowed(self) -> Iterator[WireConnection]:
        connection: WireConnection | None = None
        try:
            # An idle one may be lost without our knowing, and what is done here is not repeated.
            connection = self._take(fresh=True)
            yield connection
        except psycopg.Error as error:
            raise self._trouble(error) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    def _trouble(self, error: psycopg.Error) -> OncelyError:
        first_line = str(error).strip().partition("\n")[0]
        if error.sqlstate in _MISSING:
            return SchemaError(
                f"the schema {self.schema!r} is missing or damaged ({first_line}): "
                f"{self.library.remedy}"
            )
        if error.sqlstate == _READ_ONLY:
            return StoreUnavailable(f"PostgreSQL is read-only at the moment: {first_line}")
        if isinstance(error, psycopg.OperationalError):
            return StoreUnavailable(f"PostgreSQL cannot serve this call: {first_line}")
        return StoreError(f"PostgreSQL refused a statement: {first_line}")

    def close(self) -> None:
        self._listener.close()
        self.transactions.close()
        self._tidy.close()
        with self._lock:
            self._closed = True
        self._forget_idle()


def _has_rows(cursor: psycopg.Cursor[Row]) -> bool:
    """Its description says the same, and costs as much as all the rest."""
    return cursor.pgresult is not None and cursor.pgresult.nfields > 0


def _where(connection: psycopg.Connection[Row]) -> str:
    info = connection.info
    version = divmod(info.server_version, 10_000)
    return (
        f"PostgreSQL {version[0]}.{version[1]} at {info.host}:{info.port}, "
        f"database {info.dbname}, user {info.user}"
    )


def _examine_pooler(pooled: bool) -> Finding:
    if pooled:
        return Finding(
            "pooler",
            "warning",
            "a pooler such as PgBouncer is in between: prepared statements are off, and workers "
            "poll instead of listening. Give workers a direct connection where you can",
        )
    return Finding("pooler", "ok", "none, a direct connection")


def _examine_durability(connection: psycopg.Connection[Row]) -> Finding:
    names = ("fsync", "synchronous_commit", "full_page_writes")
    off = [name for name in names if _setting(connection, name) == "off"]
    if off:
        return Finding(
            "durability", "warning", f"{', '.join(off)} off: a crash of the server can lose jobs"
        )
    return Finding("durability", "ok", "fsync and synchronous_commit are on")


def _setting(connection: psycopg.Connection[Row], name: str) -> Any:
    row = connection.execute("select current_setting(%s)", (name,)).fetchone()
    return row and row[0]


def _examine_clock(connection: psycopg.Connection[Row]) -> Finding:
    row = connection.execute("select extract(epoch from clock_timestamp())::float8").fetchone()
    ahead = (row[0] if row else 0.0) - time.time()
    if abs(ahead) > _CLOCK_WARNING_SECONDS:
        return Finding(
            "clock",
            "warning",
            f"the server's clock is {ahead:+.1f} seconds from this machine's. oncely goes by the "
            "server's; log lines of this machine will not match it",
        )
    return Finding("clock", "ok", "the server's clock agrees with this machine's")
