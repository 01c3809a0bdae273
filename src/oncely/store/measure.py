"""What work costs a store, counted by the store itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from oncely.store.plan import Plan, Statement

_FRAME_HEADER_BYTES: Final = 32


class Reading(msgspec.Struct, frozen=True):
    """As of now; None where this engine counts it by other means."""

    wal_bytes: int | None
    disk_bytes: int
    index_entries: int | None


def measure() -> Plan[Reading]:
    [row] = yield Statement("measure")
    return Reading(*row)


def drop_schema() -> Plan[None]:
    """Of a store that the caller has made for itself, with all that is in it."""
    yield Statement("schema_drop")


@contextmanager
def kept_log(path: Path) -> Iterator[None]:
    """Nothing of an SQLite file's log is given back: a reader that stays is in the way of every
    checkpoint, so the size of the log says how much was written."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("pragma wal_checkpoint(truncate)").fetchall()
        connection.execute("begin")
        connection.execute("select count(*) from sqlite_master").fetchall()
        yield


def log_bytes(path: Path) -> int:
    log = Path(f"{path}-wal")
    return max(0, log.stat().st_size - _FRAME_HEADER_BYTES) if log.exists() else 0


class IndexEntries:
    """Counts the entries that an SQLite store writes into its indexes, by triggers in the file: for
    a store of the caller's own making. Those of partial indexes are counted while they are there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._connected() as connection:
            connection.execute("create table bench_entries (n integer not null)")
            connection.execute("insert into bench_entries values (0)")
            self._partial = []
            for table in self._tables(connection):
                indexes = connection.execute(f"pragma index_list({table})").fetchall()
                partial = [name for _, name, _, _, is_partial in indexes if is_partial]
                for name in partial:
                    (made,) = connection.execute(
                        "select sql from sqlite_master where name = ?", (name,)
                    ).fetchone()
                    condition = made.rpartition(" where ")[2]
                    self._partial.append(f"select count(*) from {table} where {condition}")
                connection.execute(
                    f"create trigger bench_{table} after insert on {table} begin "
                    f"update bench_entries set n = n + {len(indexes) - len(partial)}; end"
                )

    def read(self) -> int:
        with self._connected() as connection:
            asked = ["select n from bench_entries", *self._partial]
            return sum(int(connection.execute(text).fetchone()[0]) for text in asked)

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=30, isolation_level=None)) as connection:
            yield connection

    def _tables(self, connection: sqlite3.Connection) -> list[str]:
        rows = connection.execute(
            "select name from sqlite_master where type = 'table' and name like 'oncely\\_%' "
            "escape '\\'"
        )
        return [name for (name,) in rows.fetchall()]
