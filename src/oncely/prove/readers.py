"""Connections that read the databases under proof: as they are, and as a schedule finds them."""

from __future__ import annotations

import os
import sqlite3
from contextlib import ExitStack, closing
from typing import Any, Final, Literal, Self

from oncely.prove.copies import Copies

_POSTGRES_TABLES: Final = """
select case when n.nspname = 'public' then c.relname else n.nspname || '.' || c.relname end
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p') and not c.relispartition
    and n.nspname not in ('pg_catalog', 'information_schema', 'oncely', %s)
    and n.nspname not like 'pg\\_t%%'
order by 1
"""
_SQLITE_TABLES: Final = """
select name from sqlite_master as t
where type = 'table' and sql not like 'create virtual%'
    and name not like 'sqlite\\_%' escape '\\' and name not like 'oncely\\_%' escape '\\'
    and not exists (
        select 1 from sqlite_master as v
        where v.sql like 'create virtual%' and t.name like v.name || '\\_%' escape '\\'
    )
order by 1
"""
_MYSQL_TABLES: Final = """
select table_name from information_schema.tables
where table_schema = database() and table_type = 'BASE TABLE' and table_name not like 'oncely\\_%'
order by 1
"""
_MYSQL_TABLE: Final = """
select 1 from information_schema.tables where table_schema = database() and table_name = %s
"""
DatabaseEngine = Literal["sqlite", "postgres", "mysql"]


class DatabaseReader:
    """One database, by one connection."""

    def __init__(self, connection: Any, key: str, engine: DatabaseEngine) -> None:
        self._connection = connection
        self.key = key
        """Which database it is, also where it is read as it was before."""
        self.engine = engine

    def query(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        return list(self.cursor(sql, *values).fetchall())

    def cursor(self, sql: str, *values: Any) -> Any:
        if self.engine == "sqlite":
            return self._connection.execute(sql, values)
        if self.engine == "postgres":
            return self._connection.execute(sql.encode(), values or None)
        cursor = self._connection.cursor()
        cursor.execute(sql, values or None)
        return cursor

    def has(self, table: str) -> bool:
        if self.engine == "sqlite":
            return bool(self.query("select 1 from sqlite_master where name = ?", table))
        if self.engine == "mysql":
            return bool(self.query(_MYSQL_TABLE, table))
        return self.query("select to_regclass(%s)", quoted(table)) != [(None,)]

    def tables(self, schema: str) -> list[str]:
        """Those that are not ours. `schema` is that of the store, on PostgreSQL."""
        if self.engine == "sqlite":
            found = self.query(_SQLITE_TABLES)
        elif self.engine == "mysql":
            found = self.query(_MYSQL_TABLES)
        else:
            found = self.query(_POSTGRES_TABLES, schema)
        return [name for (name,) in found]


class Readers:
    """Each database is connected to once, when it is first asked for."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._open: dict[tuple[str, bool], DatabaseReader] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def file(self, path: str, *, first: bool = False) -> DatabaseReader:
        """An SQLite file; one that was not there before is empty."""
        key = os.path.realpath(path)
        if (key, first) not in self._open:
            copy = self._copies.file(path)
            if first:
                copy = self._copies.first_file(copy)
            place = copy if os.path.exists(copy) else ":memory:"
            db = self._stack.enter_context(closing(sqlite3.connect(place, timeout=30)))
            self._open[key, first] = DatabaseReader(db, key, "sqlite")
        return self._open[key, first]

    def server(self, url: str, *, first: bool = False) -> DatabaseReader:
        """A database of PostgreSQL or MySQL."""
        database = self._copies.databases.add_server(url)
        key = database.key
        if (key, first) not in self._open:
            db = self._stack.enter_context(database.open_reader(first=first))
            self._open[key, first] = DatabaseReader(db, key, database.engine)
        return self._open[key, first]


def quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in name.split("."))
