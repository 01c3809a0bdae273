"""Time that passes at a word: in the store, in the processes under proof, and in Redis."""

from __future__ import annotations

import mmap
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing
from itertools import groupby
from typing import Any, Final

_MOMENTS: Final = ("at", "since")
_ENDINGS: Final = ("_at", "_until")
_SQLITE_COLUMNS: Final = """
select t.name, c.name from sqlite_master as t, pragma_table_info(t.name) as c
where t.type = 'table' and substr(t.name, 1, 7) = 'oncely_' order by 1
"""
_POSTGRES_COLUMNS: Final = """
select format('%%I.%%I', n.nspname, c.relname), format('%%I', a.attname)
from pg_attribute a join pg_class c on c.oid = a.attrelid
join pg_namespace n on n.oid = c.relnamespace
where n.nspname = %s and c.relkind in ('r', 'p') and not c.relispartition
    and c.relname <> 'migration' and a.attnum > 0 and not a.attisdropped
    and a.atttypid = 'timestamptz'::regtype
order by 1
"""


class Clock:
    """How far ahead of the real one it is, and whether a handler has read it. Processes that were
    forked since share both."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, 16)
        self.reset()
        self.begin()

    def begin(self) -> None:
        """In the process of a delivery."""
        self.began_seconds = self.ahead_seconds
        """How far ahead it was then. What has passed since is what this process has seen pass."""

    @property
    def ahead_seconds(self) -> float:
        value: float = struct.unpack("d", self._shared[:8])[0]
        return value

    @property
    def was_read(self) -> bool:
        return self._shared[8] == 1

    def reset(self) -> None:
        self.saved = bytes(16)

    @property
    def saved(self) -> bytes:
        return self._shared[:16]

    @saved.setter
    def saved(self, value: bytes) -> None:
        self._shared[:16] = value

    def advance(self, seconds: float) -> None:
        self._shared[:8] = struct.pack("d", self.ahead_seconds + seconds)

    def mark_read(self) -> None:
        self._shared[8] = 1


def let_pass_on_sqlite(path: str, seconds: float) -> None:
    """As if that much time had gone by since everything that the store and the ledger know of."""
    by = str(round(seconds * 1_000_000))
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        moments = _moments_in(db, path)
        if moments:
            db.executescript("; ".join(["begin immediate", *_moves(moments, by), "commit"]))


_found_in: Final[dict[tuple[str, str], list[tuple[str, str]]]] = {}


def _moments_in(db: sqlite3.Connection, path: str) -> list[tuple[str, str]]:
    """Looked for once for each set of tables: all of them are looked through."""
    tables = db.execute("select group_concat(sql) from sqlite_master where name like 'oncely%'")
    key = path, str(tables.fetchone()[0])
    if key not in _found_in:
        found = db.execute(_SQLITE_COLUMNS).fetchall()
        _found_in[key] = [row for row in found if _is_moment(row[1])]
    return _found_in[key]


def let_pass_on_postgres(conninfo: str, schema: str, seconds: float) -> None:
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as server:
        move_on_postgres(server, schema, seconds)


def move_on_postgres(server: Any, schema: str, seconds: float) -> None:
    by = f"interval '{round(seconds * 1_000_000)} microseconds'"
    moments = server.execute(_POSTGRES_COLUMNS, (schema,)).fetchall()
    if moments:
        text = "; ".join(["set local lock_timeout = '10s'", *_moves(moments, by)])
        server.execute(text.encode())  # one transaction, because it is one message


def let_pass_on_mysql(run: Any, database: str, seconds: float) -> None:
    columns = run(
        "select table_name, column_name from information_schema.columns "
        "where table_schema = %s and table_name like 'oncely\\_%%' and data_type = 'datetime'",
        database,
    )
    by = f"interval {round(seconds * 1_000_000)} microsecond"
    moments = sorted((f"`{database}`.`{table}`", name) for table, name in columns)
    for statement in _moves([each for each in moments if _is_moment(each[1])], by):
        run(statement)


def _is_moment(column: str) -> bool:
    return column in _MOMENTS or (column.endswith(_ENDINGS) and column != "applied_at")


def _moves(moments: Iterable[tuple[str, str]], by: str) -> list[str]:
    """Given tables and columns, in the order of the tables."""
    statements = []
    for table, columns in groupby(moments, key=lambda each: each[0]):
        moved = ", ".join(f"{column} = {column} - {by}" for _, column in columns)
        statements.append(f"update {table} set {moved}")
    return statements
