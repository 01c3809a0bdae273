"""Pools of connections in the process that proves: idle ones are let go, and begin anew in a child.

What is done here to the private parts of psycopg_pool was tried with its version 3.3, and that to
psycopg2.pool with psycopg2 2.9.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any


def release_idle_connections() -> None:
    """To PostgreSQL: a database cannot be copied while somebody is connected to it. Each pool opens
    another connection when it needs one. That of Django to MySQL must not be used in a child."""
    for engine in instances("sqlalchemy.engine", "Engine"):
        # Those of an async engine belong to an event loop, and only that can close them.
        if engine.dialect.name == "postgresql" and not engine.dialect.is_async:
            engine.dispose()
    for pool in instances("psycopg_pool", "ConnectionPool"):
        with pool._lock:
            idle = list(pool._pool)
            pool._pool.clear()
            pool._nconns -= len(idle)
        for connection in idle:
            connection.close()
    for old_pool in instances("psycopg2.pool", "AbstractConnectionPool"):
        while old_pool._pool:
            old_pool._pool.pop().close()
    conf: Any = sys.modules.get("django.conf")
    if conf is not None and conf.settings.configured and "django.db" in sys.modules:
        for connection in sys.modules["django.db"].connections.all(initialized_only=True):
            if connection.vendor in ("postgresql", "mysql") and not connection.in_atomic_block:
                connection.close()


class PooledConnections:
    """Looked for once, in the parent, before the first fork."""

    def __init__(self) -> None:
        self._engines = instances("sqlalchemy.engine", "Engine")
        self._pools = instances("psycopg_pool", "ConnectionPool")
        self._old_pools = instances("psycopg2.pool", "AbstractConnectionPool")

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
        for old_pool in self._old_pools:
            old_pool._pool.clear()
            if hasattr(old_pool, "_lock"):
                old_pool._lock = threading.Lock()


def own_sessions() -> set[int]:
    """The process ids, at the server, of the connections that this process has open by psycopg and
    psycopg2."""
    connections = (
        *instances("psycopg", "Connection"),
        *instances("psycopg", "AsyncConnection"),
        *instances("psycopg2.extensions", "connection"),
    )
    return {each.info.backend_pid for each in connections if not each.closed}


def instances(module: str, name: str) -> list[Any]:
    found = sys.modules.get(module)
    if found is None:
        return []
    kind = getattr(found, name)
    # By its class: what stands for another object may do work when it is asked.
    return [each for each in gc.get_objects() if issubclass(type(each), kind)]
