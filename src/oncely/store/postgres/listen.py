"""What PostgreSQL tells by NOTIFY, on one direct connection.

Who rests holds a shared advisory lock for each topic; `oncely.is_awaited` sees from it whether
NOTIFY is worth its price. The locks end with the session, so a dead listener leaves nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from oncely.model.errors import StoreUnavailable
from oncely.store.listen import ready
from oncely.store.plan import Row
from oncely.store.sql import Library

if TYPE_CHECKING:
    import psycopg

_UNUSED_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 15.0
_NEWS_PER_SECOND: Final = 200.0
"""Commits that notify go one after another, each with its own sync to disk."""


class PostgresSource:
    """`connect` gives a connection, or None if a pooler is in between: what is heard and held by a
    session behind one may be another's the next moment."""

    def __init__(
        self, connect: Callable[[], psycopg.Connection[Row] | None], library: Library
    ) -> None:
        self.news_per_second = _NEWS_PER_SECOND
        self._connect = connect
        self._library = library
        self._connection: psycopg.Connection[Row] | None = None
        self._held: frozenset[str] = frozenset()
        self._heard: list[tuple[str, str]] = []
        self._checked_at = -math.inf

    def hold(self, topics: frozenset[str]) -> bool:
        with _translated():
            if self._connection is None:
                return not topics or self._begin(topics)
            self._change(self._connection, "listen_hold", topics - self._held)
            self._change(self._connection, "listen_release", self._held - topics)
            self._held = topics
            return True

    def _begin(self, topics: frozenset[str]) -> bool:
        self._connection = self._connect()
        if self._connection is None:
            return False
        self._connection.add_notify_handler(lambda notify: self._hear(notify.payload))
        [[channel]] = self._run(self._connection, "listen_channel", {})
        self._change(self._connection, "listen_hold", topics)
        self._connection.execute(f"listen {channel}".encode())
        self._held = topics
        self._checked_at = time.monotonic()
        return True

    def _change(
        self, connection: psycopg.Connection[Row], name: str, topics: frozenset[str]
    ) -> None:
        if topics:
            self._run(connection, name, {"topics": sorted(topics)})

    def _run(
        self, connection: psycopg.Connection[Row], name: str, params: dict[str, Any]
    ) -> list[Row]:
        (prepared,) = self._library.get(name, "%({name})s")
        return connection.execute(prepared.text.encode(), params).fetchall()

    def _hear(self, payload: str) -> None:
        topic, _, detail = payload.partition(" ")
        self._heard.append((topic, detail))

    def wait(self, seconds: float | None, alarm: int) -> Iterable[tuple[str, str]]:
        with _translated():
            if self._connection is None:
                ready([alarm], seconds)
                return []
            if not self._heard:
                unused = not self._held and seconds is None
                longest = _UNUSED_SECONDS if unused else _CHECK_SECONDS
                limit = longest if seconds is None else min(seconds, longest)
                if not ready([alarm, self._connection.fileno()], limit) and unused:
                    self.drop()
                    return []
                self._check(self._connection)
                self._consume(self._connection)
            heard, self._heard = self._heard, []
            return heard

    def _check(self, connection: psycopg.Connection[Row]) -> None:
        """A server whose processes are frozen does not say so: it is asked from time to time."""
        now = time.monotonic()
        if now - self._checked_at > _CHECK_SECONDS:
            connection.execute("select 1")
            self._checked_at = now

    def _consume(self, connection: psycopg.Connection[Row]) -> None:
        connection.pgconn.consume_input()
        while notify := connection.pgconn.notifies():
            self._hear(notify.extra.decode())

    def drop(self) -> None:
        connection, self._connection = self._connection, None
        self._held, self._heard = frozenset(), []
        if connection is not None:
            connection.close()


@contextmanager
def _translated() -> Iterator[None]:
    import psycopg

    try:
        yield
    except psycopg.Error as error:
        raise StoreUnavailable(f"PostgreSQL cannot be listened to: {error}") from error
