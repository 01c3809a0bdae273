"""Whether a paused delivery is in its successor's way: by what the system and the servers say."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from oncely.prove.mysql_databases import MysqlDatabase

_LOCKS: Final = Path("/proc/locks")
_BLOCKED: Final = """
select from pg_stat_activity
where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0 limit 1
"""


def is_in_the_way(
    paused: int, conninfos: Iterable[str], mysql: Iterable[MysqlDatabase] = ()
) -> bool:
    """`paused` is a process. On the copies of databases only it and its successor are at work."""
    return (
        _holds_a_file(paused)
        or any(map(_is_blocked, conninfos))
        or any(each.is_blocked() for each in mysql)
    )


def _holds_a_file(process: int) -> bool:
    """SQLite asks for a lock again and again, and nothing shows that it waits. But a lock that is
    held is shown. Where the system shows none, it may be held."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return True
    return any(
        fields[-5:-3] == ["WRITE", str(process)] and "->" not in fields
        for fields in map(str.split, lines)
    )


def _is_blocked(conninfo: str) -> bool:
    import psycopg

    with psycopg.connect(conninfo, autocommit=True) as server:
        return server.execute(_BLOCKED).fetchone() is not None
