"""Pools of connections in the process that proves: idle ones are let go, and begin anew in a child.

What is done here to the private parts of psycopg_pool was tried with its version 3.3.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any


def release_idle_connections() -> None:
    """To PostgreSQL: a database cannot be copied while somebody is connected to it. Each pool opens
    another connection when it needs one."""
    for engine in _instances("sqlalchemy.engine", "Engine"):
        # Those of an async engine belong to an event loop, and only that can close them.
        if engine.dialect.name == "postgresql" and not engine.dialect.is_async:
            engine.dispose()
    for pool in _instances("psycopg_pool", "ConnectionPool"):
        with pool._lock:
            idle = list(pool._pool)
            pool._pool.clear()
            pool._nconns -= len(idle)
        for connection in idle:
            connection.close()
    conf: Any = sys.modules.get("django.conf")
    if conf is not None and conf.settings.configured and "django.db" in sys.modules:
        for connection in sys.modules["django.db"].connections.all(initialized_only=True):
            if connection.vendor == "postgresql" and not connection.in_atomic_block:
                connection.close()


class PooledConnections:
    """Looked for once, in the parent, before the first fork."""

    def __init__(self) -> None:
        self._engines = _instances("sqlalchemy.engine", "Engine")
        self._pools = _instances("psycopg_pool", "ConnectionPool")

    def begin_anew(self) -> None:
        """In the child, which has neither the connections of its parent nor its threads."""
        for engine in self._engines:
            engine.dispose(close=False)
        for pool in self._pools:
            if not pool.closed:
                for part in (pool._pool, pool._waiting, pool._workers):
                    part.clear()
                pool._lock = threading.Lock()
                pool._nconns = 0
                pool._closed, pool._opened = True, False
                pool.open()


def own_sessions() -> set[int]:
    """The process ids, at the server, of the connections that this process has open by psycopg."""
    return {
        each.info.backend_pid
        for each in _instances("psycopg", "Connection") + _instances("psycopg", "AsyncConnection")
        if not each.closed
    }


def _instances(module: str, name: str) -> list[Any]:
    found = sys.modules.get(module)
    if found is None:
        return []
    kind = getattr(found, name)
    # By its class: what stands for another object may do work when it is asked.
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]
