"""Connections that were open before the handler ran: a child must not write through them."""

from __future__ import annotations

import gc
import sqlite3
import sys
from contextlib import suppress
from typing import Any

from oncely.prove.watch import Watch
from oncely.store.postgres.engine import PostgresEngine
from oncely.surface.base import _carried


class Inherited:
    """Looked for once, in the parent, before the first fork."""

    def __init__(self) -> None:
        alchemy: Any = sys.modules.get("sqlalchemy")
        pools = () if alchemy is None else (alchemy.engine.Engine,)
        self._connections: list[sqlite3.Connection] = []
        self._pools: list[Any] = []
        for each in gc.get_objects():
            # By its class: what stands for another object may do work when it is asked.
            if issubclass(type(each), sqlite3.Connection):
                self._connections.append(each)
            elif pools and issubclass(type(each), pools):
                self._pools.append(each)

    def leave(self, watch: Watch) -> None:
        """In the child. A pool of SQLAlchemy begins anew; any other connection is refused."""

        def used(statement: str) -> None:
            watch.refuse(
                f"a connection to SQLite that was opened before the handler ran is used by it "
                f"({statement[:40]}): it would write to the file itself, not to the copy that is "
                "under proof. Open it in the handler"
            )

        for connection in self._connections:
            with suppress(sqlite3.ProgrammingError):  # it is closed, or another thread's own
                connection.set_trace_callback(used)
        for pool in self._pools:
            pool.dispose(close=False)


def let_go() -> None:
    """Our own idle connections: a database cannot be copied while they are there."""
    for each in list(_carried):
        engine = each._engine
        if isinstance(engine, PostgresEngine):
            engine._forget_idle()
