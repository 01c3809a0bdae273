"""The rows of a small PostgreSQL database, kept and put back: quicker than a new copy of it."""

from __future__ import annotations

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

    def restore(self, conninfo: str) -> bool:
        """Whether it could: tables may have come or gone, and a role may need its triggers."""
        import psycopg

        try:
            with psycopg.connect(conninfo, options="-c lock_timeout=5s") as server:
                names = [name for (name,) in server.execute(_TABLES).fetchall()]
                if set(names) != set(self._tables):
                    return False
                server.execute("set local session_replication_role = replica")
                server.execute("set local synchronous_commit = off")
                full = " union all ".join(
                    f"select {psycopg.sql.quote(name)} where exists (select from {name})"
                    for name in names
                )
                used = {name for (name,) in server.execute(full.encode()).fetchall()}
                for name, (columns, data) in self._tables.items():
                    if name in used:
                        server.execute(f"delete from {name}".encode())
                    if data:
                        with server.cursor().copy(
                            f"copy {name} ({columns}) from stdin".encode()
                        ) as rows:
                            rows.write(data)
                for name, value, called in self._sequences:
                    server.execute("select setval(%s::regclass, %s, %s)", (name, value, called))
        except psycopg.Error:
            return False
        return True
