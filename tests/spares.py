"""Databases with our tables in them and nothing else, used again: to make one for each test would
take a fifth of the time of all of them.

Sessions are used again too. A new one costs the server as much as twenty statements: a process, and
reading what the tables are.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.pq import TransactionStatus

from oncely import Oncely
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.postgres.wire import WireConnection
from tests.cluster import Cluster

_CONNECTED = """
select from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid() and pid <> all(%s) limit 1
"""
_TABLES_OF_THE_TEST = """
select c.oid::regclass::text from pg_class c
where c.relnamespace = 'public'::regnamespace and c.relkind = 'r'
"""
# What a test may leave behind that a new database would not have.
_FOREIGN = """
select
    (select count(*) from pg_namespace
     where nspname !~ '^pg_' and nspname not in ('information_schema', 'public', 'oncely')),
    (select count(*) from pg_class where relnamespace = 'public'::regnamespace),
    (select count(*) from pg_type where typnamespace = 'public'::regnamespace),
    (select count(*) from pg_proc where pronamespace = 'public'::regnamespace),
    (select count(*) from pg_trigger where not tgisinternal),
    (select count(*) from pg_db_role_setting s join pg_database d on d.oid = s.setdatabase
     where d.datname = current_database())
"""
_SHAPE = """
select
    (select array_agg((c.relname, c.relkind, c.reloptions)::text order by c.relname) from pg_class c
     where c.relnamespace = 'oncely'::regnamespace),
    (select count(*) from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace = 'oncely'::regnamespace and a.attnum > 0 and not a.attisdropped),
    (select count(*) from pg_constraint where connamespace = 'oncely'::regnamespace),
    (select array_agg(m::text order by m::text) from oncely.migration m),
    (select array_agg(s::text) from oncely.store s)
"""
_FILLED = """
select array_agg(c.oid::regclass::text), sum(pg_total_relation_size(c.oid)) from pg_class c
where c.relnamespace = 'oncely'::regnamespace and c.relkind = 'r'
    and c.relname not in ('migration', 'store') and pg_relation_size(c.oid) > 0
"""
"""The tables that have a page, so that there may be rows in them; and how large they are."""
_RESTART = """
select setval(c.oid, s.seqstart, false) from pg_class c join pg_sequence s on s.seqrelid = c.oid
where c.relnamespace = 'oncely'::regnamespace
"""
_TOO_LARGE_BYTES = 4 * 1024 * 1024
_ALONE_SECONDS = 0.5
"""Sessions that a test has closed end a little later. One that it left open does not end."""
_SESSIONS_KEPT = 2
_PREPARES_AFTER = 2
"""As an app's connections do, unless a test has told one otherwise."""


class Keeper:
    """A connection to a database that stays while tests come and go."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._lock = threading.Lock()
        self._connection = self._connect()

    def _connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(
            self.url, autocommit=True, prepare_threshold=0, application_name="spares"
        )

    @contextmanager
    def lent(self) -> Iterator[psycopg.Connection[tuple[Any, ...]] | None]:
        """None while another thread has it, which may wait for a lock. A test may have ended its
        session: then there is a new one."""
        if not self._lock.acquire(blocking=False):
            yield None
            return
        try:
            try:
                self._connection.execute("")
            except psycopg.OperationalError:
                self._connection = self._connect()
            yield self._connection
        finally:
            if self._connection.info.transaction_status != TransactionStatus.IDLE:
                self._connection.close()
            self._lock.release()

    def close(self) -> None:
        self._connection.close()


_keepers: dict[str, Keeper] = {}
"""By the address of their database."""


@contextmanager
def session(url: str) -> Iterator[psycopg.Connection[tuple[Any, ...]]]:
    """A session in a database: the one that is kept there, or a new one. No setting may stay in
    it."""
    keeper = _keepers.get(url)
    if keeper is not None:
        with keeper.lent() as kept:
            if kept is not None:
                yield kept
                return
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


class Spares:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: list[str] = []
        self._sessions: dict[str, list[WireConnection]] = {}
        """By the address of their database."""
        self._template = f"migrated_{uuid4().hex}"
        url = cluster.create_database(self._template)
        with Oncely(url) as app:
            app.migrate()
        with psycopg.connect(url) as connection:
            self._shape = connection.execute(_SHAPE).fetchone()

    def take(self) -> str:
        """The name of one. It has the tables, and they are empty."""
        if self._names:
            return self._names.pop()
        name = f"test_{uuid4().hex}"
        url = self._cluster.create_database(name, self._template)
        _keepers[url] = Keeper(url)
        return name

    def give_back(self, name: str) -> None:
        if self._emptied(name):
            self._names.append(name)
        else:
            self._forget(name)
            self._cluster.drop_later(name)

    def close(self) -> None:
        for name in self._names:
            self._forget(name)

    def _forget(self, name: str) -> None:
        url = self._cluster.url(name)
        _keepers.pop(url).close()
        for connection in self._sessions.pop(url, []):
            connection.close()

    @contextmanager
    def sessions_for(self, app: Oncely) -> Iterator[None]:
        """Give an app the sessions that an app before it had in this database. Its own are kept,
        unless something about them is not as it was when they were new."""
        engine = app._engine
        assert isinstance(engine, PostgresEngine)
        engine._idle += self._sessions.pop(app.url, [])
        yield
        with engine._lock:
            idle, engine._idle = engine._idle, []
        good = [connection for connection in idle if _is_as_new(connection)]
        self._sessions[app.url] = good[:_SESSIONS_KEPT]
        for connection in idle:
            if connection not in self._sessions[app.url]:
                connection.close()

    def _emptied(self, name: str) -> bool:
        url = self._cluster.url(name)
        kept = [connection.info.backend_pid for connection in self._sessions.get(url, [])]
        try:
            with _keepers[url].lent() as keeper:
                return keeper is not None and self._empty(keeper, kept)
        except psycopg.Error:
            return False

    def _empty(self, keeper: psycopg.Connection[tuple[Any, ...]], kept: list[int]) -> bool:
        if not _is_alone(keeper, kept):
            return False
        for (table,) in keeper.execute(_TABLES_OF_THE_TEST).fetchall():
            keeper.execute(f"drop table {table} cascade".encode(), prepare=False)
        if any(keeper.execute(_FOREIGN).fetchone() or ()):
            return False
        if keeper.execute(_SHAPE).fetchone() != self._shape:
            return False
        tables, size = _filled(keeper)
        if size > _TOO_LARGE_BYTES:
            return False
        emptying = [*(f"delete from {table}" for table in tables), _RESTART]
        keeper.execute(";".join(emptying).encode(), prepare=False)
        return True


def _is_as_new(connection: WireConnection) -> bool:
    if connection.closed or connection.needs_begin:
        return False
    try:
        # An answer also says that the session is still there.
        connection.execute("select pg_advisory_unlock_all()")
    except psycopg.Error:
        return False
    return (
        connection.prepare_threshold == _PREPARES_AFTER
        and connection.info.transaction_status == TransactionStatus.IDLE
    )


def _is_alone(keeper: psycopg.Connection[tuple[Any, ...]], kept: list[int]) -> bool:
    deadline = time.monotonic() + _ALONE_SECONDS
    while keeper.execute(_CONNECTED, (kept,)).fetchone() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _filled(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[list[str], int]:
    tables, size = connection.execute(_FILLED).fetchone() or (None, None)
    return tables or [], size or 0
