"""Time that passes at a word: in the store, in the processes under proof, and in Redis."""

from __future__ import annotations

import mmap
import sqlite3
import struct
from contextlib import closing
from typing import Any, Final

_MOMENTS: Final = ("at", "since")
_ENDINGS: Final = ("_at", "_until")


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
        self._shared[:16] = bytes(16)

    def advance(self, seconds: float) -> None:
        self._shared[:8] = struct.pack("d", self.ahead_seconds + seconds)

    def mark_read(self) -> None:
        self._shared[8] = 1


def let_pass_on_sqlite(path: str, seconds: float) -> None:
    """As if that much time had gone by since everything that the store and the ledger know of."""
    by = round(seconds * 1_000_000)
    with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as db:
        tables = db.execute(
            "select name from sqlite_master where type = 'table' and substr(name, 1, 7) = 'oncely_'"
        ).fetchall()
        if not tables:
            return
        db.execute("begin immediate")
        for (table,) in tables:
            columns = [row[1] for row in db.execute(f"pragma table_info({table})")]
            _move(db.execute, table, [name for name in columns if _is_moment(name)], str(by))
        db.execute("commit")


def let_pass_on_postgres(conninfo: str, schema: str, seconds: float) -> None:
    import psycopg

    by = f"interval '{round(seconds * 1_000_000)} microseconds'"
    with psycopg.connect(conninfo, options="-c lock_timeout=10s") as server:
        rows = server.execute(
            "select table_name, array_agg(column_name::text) from information_schema.columns "
            "join information_schema.tables using (table_schema, table_name) "
            "where table_schema = %s and data_type = 'timestamp with time zone' "
            "and table_type = 'BASE TABLE' and table_name <> 'migration' group by table_name",
            (schema,),
        ).fetchall()
        for table, columns in rows:
            _move(lambda text: server.execute(text.encode()), f'"{schema}"."{table}"', columns, by)


def let_pass_on_mysql(run: Any, database: str, seconds: float) -> None:
    columns = run(
        "select table_name, column_name from information_schema.columns "
        "where table_schema = %s and table_name like 'oncely\\_%%' and data_type = 'datetime'",
        database,
    )
    by = f"interval {round(seconds * 1_000_000)} microsecond"
    for table in {table for table, _ in columns}:
        own = [name for found, name in columns if found == table and _is_moment(name)]
        _move(run, f"`{database}`.`{table}`", own, by)


def _is_moment(column: str) -> bool:
    return column in _MOMENTS or (column.endswith(_ENDINGS) and column != "applied_at")


def _move(execute: Any, table: str, columns: list[str], by: str) -> None:
    if columns:
        moved = ", ".join(f"{column} = {column} - {by}" for column in columns)
        execute(f"update {table} set {moved}")
