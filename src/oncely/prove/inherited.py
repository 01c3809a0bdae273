"""Connections that were open before the handler ran: a child must not write through them."""

from __future__ import annotations

import gc
import sqlite3
from contextlib import suppress

from oncely.prove.idle_pools import PooledConnections, instances, release_idle_connections
from oncely.prove.seams.postgres import INHERITED
from oncely.prove.watch import Watch
from oncely.store.postgres.engine import PostgresEngine
from oncely.surface.base import _carried


class Inherited:
    """Looked for once, in the parent, before the first fork."""

    def __init__(self) -> None:
        self.pools = PooledConnections()
        # By its class: what stands for another object may do work when it is asked.
        self._connections: list[sqlite3.Connection] = [
            each for each in gc.get_objects() if issubclass(type(each), sqlite3.Connection)
        ]
        self._of_psycopg2 = instances("psycopg2.extensions", "connection")

    def leave(self, watch: Watch) -> None:
        """In the child. A connection that is in no pool is refused."""

        def used(statement: str) -> None:
            watch.refuse(
                f"a connection to SQLite that was opened before the handler ran is used by it "
                f"({statement[:40]}): it would write to the file itself, not to the copy that is "
                "under proof. Open it in the handler"
            )

        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):  # it is closed, or another thread's own
                connection.set_trace_callback(used)
        for each in self._of_psycopg2:
            each.cursor_factory = lambda *_: watch.refuse(INHERITED)


def let_go() -> None:
    """The idle connections of this process: a database cannot be copied while they are there."""
    release_idle_connections()
    for each in list(_carried):
        engine = each._engine
        if isinstance(engine, PostgresEngine):
            engine._forget_idle()
            engine._listener.release()
            engine._tidy.close()
