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
                    with server.cursor().copy(
                        f"copy {name} ({columns}) to stdout".encode()
                    ) as rows:
                        tables[name] = (columns, b"".join(bytes(row) for row in rows))
            sequences: Any = server.execute(_SEQUENCES).fetchall()
            return cls(tables, sequences)

    def restore(self, server: Any) -> bool:
        """Whether it could: tables may have come or gone, and a role may need its triggers."""
        import psycopg

        try:
            names = [name for (name,) in server.execute(_TABLES).fetchall()]
            if set(names) != set(self._tables):
                return False
            full = " union all ".join(
                f"select {psycopg.sql.quote(name)} where exists (select from {name})"
                for name in names
            )
            used = {name for (name,) in server.execute(full.encode()).fetchall()}
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
