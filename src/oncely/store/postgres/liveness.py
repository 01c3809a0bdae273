"""A server that does not answer: is it still there? Imported where psycopg is known to be there.

A primary whose host has vanished, or whose processes are frozen, never answers. TCP notices only
the first of the two, and late. So a statement that has no answer after some seconds is looked into:
a second connection to the same server asks what the session does. While the session is at work, its
answer is waited for, however long a lock, a migration or a standby takes. If nobody answers there
either, or if the session waits for us, the connection is lost.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, TypeVar

import psycopg
from psycopg.abc import PQGen

T = TypeVar("T")
Finding = Literal["at work", "waits for us", "gone", "unknown"]
ANSWER_SECONDS = 5.0
"""How long an answer may take before the server is looked for."""
PROBE_SECONDS = 5
"""How long it has to answer then."""
_LOST_ANSWER_SECONDS: Final = 1.0
"""An answer that is on its way arrives within that time."""
_INTERVAL_LIMIT_SECONDS: Final = 60.0
_STATE: Final = "select state, wait_event from pg_stat_activity where pid = %s"
_Overdue: Final = psycopg.errors._WaitTimeout
"""What the driver's `wait` raises after its `timeout`. The generator can be waited for again."""


class WatchedConnection(psycopg.Connection[Any]):
    """`url`, once it is set, is where the server is looked for."""

    url: str | None = None

    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        if self.url is None or options.get("timeout") is not None:
            return super().wait(gen, *args, **options)
        options["timeout"] = ANSWER_SECONDS
        found: Finding = "unknown"
        while True:
            try:
                return super().wait(gen, *args, **options)
            except _Overdue:
                before, found = found, _look(self.url, self)
                options["timeout"] = _next_timeout(self, options["timeout"], before, found)


class AsyncWatchedConnection(psycopg.AsyncConnection[Any]):
    url: str | None = None

    async def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        if self.url is None or options.get("timeout") is not None:
            return await super().wait(gen, *args, **options)
        options["timeout"] = ANSWER_SECONDS
        found: Finding = "unknown"
        while True:
            try:
                return await super().wait(gen, *args, **options)
            except _Overdue:
                before, found = found, await asyncio.to_thread(_look, self.url, self)
                options["timeout"] = _next_timeout(self, options["timeout"], before, found)


def _next_timeout(connection: Any, seconds: float, before: Finding, found: Finding) -> float:
    """How long to wait for the answer from now on; an error if the connection is lost."""
    if found == "gone" or found == before == "waits for us":
        connection.pgconn.finish()
        raise psycopg.OperationalError("the server does not answer: the connection is lost")
    if found == "waits for us":
        return _LOST_ANSWER_SECONDS
    return min(seconds * 2, _INTERVAL_LIMIT_SECONDS)


class _Probe(psycopg.Connection[Any]):
    def wait(self, gen: PQGen[T], *args: Any, **options: Any) -> T:
        return super().wait(gen, *args, **{**options, "timeout": PROBE_SECONDS})


def _look(url: str, connection: WatchedConnection | AsyncWatchedConnection) -> Finding:
    info = connection.info
    if info.transaction_status != psycopg.pq.TransactionStatus.ACTIVE:
        return "at work"  # nothing was asked: it is news that is waited for
    address: dict[str, Any] = {"hostaddr": info.hostaddr} if info.hostaddr else {}
    try:
        with _Probe.connect(
            url,
            autocommit=True,
            application_name="oncely",
            connect_timeout=PROBE_SECONDS,
            host=info.host,
            port=info.port,
            target_session_attrs="any",
            **address,
        ) as probe:
            row = probe.execute(_STATE, (info.backend_pid,)).fetchone()
    except (psycopg.errors.ConnectionTimeout, _Overdue):
        return "gone"
    except psycopg.Error:
        # Refused, or full: that is an answer too, and TCP will say if the host is another one.
        return "unknown"
    if connection.prepare_threshold is None:
        return "at work"  # a pooler is in between, and the process id is of its own making
    if row is None:
        return "gone"
    state, event = row
    return "waits for us" if event == "ClientRead" or str(state).startswith("idle") else "at work"
