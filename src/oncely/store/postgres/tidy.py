"""A vacuum of our own for the two small tables that every job passes through.

Autovacuum looks once a minute, and by then a busy queue has left millions of dead entries where its
claims must pass. One worker of all does this: the one that holds an advisory lock in its session.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final

from oncely.store.plan import Row
from oncely.store.sql import Library

if TYPE_CHECKING:
    import psycopg

EVERY_SECONDS: Final = 2.0
_WAIT_LIMIT_SECONDS: Final = 60.0
_OTHERS_SECONDS: Final = 10.0
_FEW: Final = 1_000
_SHARE: Final = 0.1
_VACUUM: Final = {"ready": "vacuum_ready", "lease": "vacuum_lease"}


class Tidy:
    def __init__(
        self, connect: Callable[[], psycopg.Connection[Row] | None], library: Library
    ) -> None:
        self._connect = connect
        self._library = library
        self._connection: psycopg.Connection[Row] | None = None
        self._wait_seconds = EVERY_SECONDS
        self._done_at = -math.inf
        self._lock = Lock()

    def once(self) -> float | None:
        """When to come again, in seconds; None if this cannot be done here."""
        if not self._lock.acquire(blocking=False):
            return _OTHERS_SECONDS
        try:
            # One of the workers of this process is enough, and they share the session.
            if time.monotonic() - self._done_at < self._wait_seconds / 2:
                return _OTHERS_SECONDS
            seconds = self._tidy()
            self._done_at = time.monotonic()
            return seconds
        finally:
            self._lock.release()

    def _tidy(self) -> float | None:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        if self._connection is None:
            return None
        if not self._ask("tidy_lead")[0][0]:
            self._drop()
            return _OTHERS_SECONDS
        in_vain = False
        for table, dead, live in self._ask("dead"):
            if dead > _FEW + _SHARE * live:
                self._ask(_VACUUM[table])
                in_vain = in_vain or self._dead(table) > dead / 2
        # Somebody holds a snapshot open that still sees those rows: to try harder helps nobody.
        longer = min(self._wait_seconds * 2, _WAIT_LIMIT_SECONDS)
        self._wait_seconds = longer if in_vain else EVERY_SECONDS
        return self._wait_seconds

    def _dead(self, table: str) -> int:
        return next(int(dead) for name, dead, _ in self._ask("dead") if name == table)

    def _ask(self, name: str) -> list[Row]:
        assert self._connection is not None
        (prepared,) = self._library.get(name, "%({name})s")
        cursor = self._connection.execute(prepared.text.encode())
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
