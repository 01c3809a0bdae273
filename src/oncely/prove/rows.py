"""The rows of a small PostgreSQL database, kept and put back: quicker than a new copy of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

_SMALL_BYTES: Final = 64 * 1024 * 1024
_TABLES: Final = """
select format('%I.%I', schemaname, tablename) from pg_tables
where schemaname not in ('pg_catalog', 'information_schema') order by 1
"""
_SEQUENCES: Final = """
select format('%I.%I', schemaname, sequencename), coalesce(last_value, start_value),
    last_value is not null
from pg_sequences
"""
_COLUMNS: Final = """
select string_agg(format('%%I', attname), ', ' order by attnum) from pg_attribute
where attrelid = %s::regclass and attnum > 0 and not attisdropped and attgenerated = ''
"""


_SETTINGS: Final = (
    "set local lock_timeout = '5s'",
    "set local session_replication_role = replica",
    "set local synchronous_commit = off",
)


class Rows:
    def __init__(
        self, tables: dict[str, tuple[str, bytes]], sequences: list[tuple[str, int, bool]]
    ) -> None:
        self._tables = tables
        self._sequences = sequences

    @classmethod
    def of(cls, conninfo: str) -> Rows | None:
        """None if there is too much of it to be kept here."""
        import psycopg

        with psycopg.connect(conninfo) as server:
            size = server.execute("select pg_database_size(current_database())").fetchone()
            if size is None or size[0] > _SMALL_BYTES:
                return None
            tables = {}
            for (name,) in server.execute(_TABLES).fetchall():
                found = server.execute(_COLUMNS, (name,)).fetchone()
                columns = found[0] if found else None
                if columns:
                    tables[name] = (columns, _read(server, name, columns))
            sequences: Any = server.execute(_SEQUENCES).fetchall()
            return cls(tables, sequences)

    @property
    def size(self) -> int:
        return sum(len(data) for _, data in self._tables.values())

    def read_again(self, server: Any) -> Rows | None:
        """What is committed by now. None if tables have come or gone, or are locked whole."""
        import psycopg

        try:
            if not self._are_the_same_tables(server):
                return None
            used = self._used(server)
            with server.transaction():
                server.execute(_SETTINGS[0])
                tables = {
                    name: (columns, _read(server, name, columns) if name in used else b"")
                    for name, (columns, _) in self._tables.items()
                }
                return Rows(tables, server.execute(_SEQUENCES).fetchall())
        except psycopg.Error:
            return None

    def _are_the_same_tables(self, server: Any) -> bool:
        return {name for (name,) in server.execute(_TABLES).fetchall()} == set(self._tables)

    def _used(self, server: Any) -> set[str]:
        """The tables that are not empty."""
        from psycopg.sql import quote

        full = " union all ".join(
            f"select {quote(name)} where exists (select from {name})" for name in self._tables
        )
        return {name for (name,) in server.execute(full.encode()).fetchall()}

    def restore(self, server: Any) -> bool:
        """Whether it could: tables may have come or gone, and a role may need its triggers."""
        import psycopg

        try:
            if not self._are_the_same_tables(server):
                return False
            used = self._used(server)
            with server.transaction():
                # In one message: each answer that is waited for costs as much as the work.
                server.execute("; ".join([*_SETTINGS, *self._emptied(used)]).encode())
                for name, (columns, data) in self._tables.items():
                    if data:
                        with server.cursor().copy(
                            f"copy {name} ({columns}) from stdin".encode()
                        ) as rows:
                            rows.write(data)
        except psycopg.Error:
            return False
        return True

    def _emptied(self, used: set[str]) -> Iterator[str]:
        from psycopg.sql import quote

        for name in self._tables:
            if name in used:
                yield f"delete from {name}"
        for name, value, called in self._sequences:
            yield f"select setval({quote(name)}::regclass, {value}, {called})"


def _read(server: Any, table: str, columns: str) -> bytes:
    with server.cursor().copy(f"copy {table} ({columns}) to stdout".encode()) as rows:
        return b"".join(map(bytes, rows))
