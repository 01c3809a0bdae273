"""Databases with our tables in them and nothing else, used again: to make one for each test would
take a fifth of the time of all of them."""

from uuid import uuid4

import psycopg

from oncely import Oncely
from tests.cluster import Cluster

# What a test may leave behind that a new database would not have.
_FOREIGN = """
select
    (select count(*) from pg_stat_activity
     where datname = current_database() and pid <> pg_backend_pid()),
    (select count(*) from pg_namespace
     where nspname !~ '^pg_' and nspname not in ('information_schema', 'public', 'oncely')),
    (select count(*) from pg_class where relnamespace = 'public'::regnamespace),
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
    (select array_agg(m::text order by m::text) from oncely.migration m)
"""
_EMPTY = """
do $$
declare name text;
begin
    for name in select c.oid::regclass::text from pg_class c
        where c.relnamespace = 'oncely'::regnamespace and c.relkind = 'r'
            and c.relname not in ('migration', 'store')
    loop
        execute 'delete from ' || name;
    end loop;
    for name in select c.oid::regclass::text from pg_class c
        where c.relnamespace = 'oncely'::regnamespace and c.relkind = 'S'
    loop
        execute 'alter sequence ' || name || ' restart';
    end loop;
end $$
"""
_TOO_LARGE_BYTES = 4 * 1024 * 1024


class Spares:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._names: list[str] = []
        self._template = f"migrated_{uuid4().hex}"
        url = cluster.create_database(self._template)
        with Oncely(url) as app:
            app.migrate()
        with psycopg.connect(url) as connection:
            self._shape = connection.execute(_SHAPE).fetchone()
            self._bytes = _size(connection)

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
        else:
            self._cluster.drop_later(name)

    def _emptied(self, name: str) -> bool:
        try:
            with psycopg.connect(self._cluster.url(name), autocommit=True) as connection:
                if any(connection.execute(_FOREIGN).fetchone() or ()):
                    return False
                if connection.execute(_SHAPE).fetchone() != self._shape:
                    return False
                if _size(connection) > self._bytes + _TOO_LARGE_BYTES:
                    return False
                connection.execute(_EMPTY)
        except psycopg.Error:
            return False
        return True


def _size(connection: psycopg.Connection[tuple[int]]) -> int:
    row = connection.execute("select pg_database_size(current_database())").fetchone()
    return row[0] if row else 0
