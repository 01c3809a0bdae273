"""Databases with our tables in them and nothing else, used again: to make one for each test would
take a fifth of the time of all of them."""

import time
from typing import Any
from uuid import uuid4

import psycopg

from oncely import Oncely
from tests.cluster import Cluster

_CONNECTED = """
select from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() limit 1
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
select
    (select array_agg(c.oid::regclass::text) from pg_class c
     where c.relnamespace = 'oncely'::regnamespace and c.relkind = 'r'
        and c.relname not in ('migration', 'store') and pg_relation_size(c.oid) > 0),
    (select sum(pg_total_relation_size(c.oid)) from pg_class c
     where c.relnamespace = 'oncely'::regnamespace and c.relkind = 'r')
"""
"""The tables that have a page, so that there may be rows in them; and how large they all are."""
_RESTART = """
select setval(c.oid, s.seqstart, false) from pg_class c join pg_sequence s on s.seqrelid = c.oid
where c.relnamespace = 'oncely'::regnamespace
"""
_TOO_LARGE_BYTES = 4 * 1024 * 1024
_ALONE_SECONDS = 0.5
"""Sessions that a test has closed end a little later. One that it left open does not end."""


class Spares:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: list[str] = []
        self._keepers: dict[str, psycopg.Connection[tuple[Any, ...]]] = {}
        self._template = f"migrated_{uuid4().hex}"
        url = cluster.create_database(self._template)
        with Oncely(url) as app:
            app.migrate()
        with psycopg.connect(url) as connection:
            self._shape = connection.execute(_SHAPE).fetchone()
            self._bytes = _filled(connection)[1]

    def take(self) -> str:
        """The name of one. It has the tables, and they are empty."""
        if self._names:
            return self._names.pop()
        name = f"test_{uuid4().hex}"
        self._cluster.create_database(name, self._template)
        return name

    def give_back(self, name: str) -> None:
        if self._emptied(name):
            self._names.append(name)
            return
        keeper = self._keepers.pop(name, None)
        if keeper is not None:
            keeper.close()
        self._cluster.drop_later(name)

    def close(self) -> None:
        for keeper in self._keepers.values():
            keeper.close()

    def _emptied(self, name: str) -> bool:
        try:
            keeper = self._keeper(name)
            if not _is_alone(keeper):
                return False
            for (table,) in keeper.execute(_TABLES_OF_THE_TEST).fetchall():
                keeper.execute(f"drop table {table} cascade".encode(), prepare=False)
            if any(keeper.execute(_FOREIGN).fetchone() or ()):
                return False
            if keeper.execute(_SHAPE).fetchone() != self._shape:
                return False
            tables, size = _filled(keeper)
            if size > self._bytes + _TOO_LARGE_BYTES:
                return False
            emptying = [*(f"delete from {table}" for table in tables), _RESTART]
            keeper.execute(";".join(emptying).encode(), prepare=False)
        except psycopg.Error:
            return False
        return True

    def _keeper(self, name: str) -> psycopg.Connection[tuple[Any, ...]]:
        """One that stays while tests come and go: most of what a new one takes is reading what the
        tables are. A test may have ended it."""
        keeper = self._keepers.get(name)
        if keeper is not None:
            try:
                keeper.execute("")
            except psycopg.OperationalError:
                keeper = None
        if keeper is None:
            keeper = psycopg.connect(
                self._cluster.url(name),
                autocommit=True,
                prepare_threshold=0,
                application_name="spares",
            )
            self._keepers[name] = keeper
        return keeper


def _is_alone(keeper: psycopg.Connection[tuple[Any, ...]]) -> bool:
    deadline = time.monotonic() + _ALONE_SECONDS
    while keeper.execute(_CONNECTED).fetchone() is not None:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.002)
    return True


def _filled(connection: psycopg.Connection[tuple[Any, ...]]) -> tuple[list[str], int]:
    tables, size = connection.execute(_FILLED).fetchone() or (None, None)
    return tables or [], size or 0
