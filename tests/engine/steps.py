"""The steps of a job's life that the public API does not offer yet, for tests.

A job is claimed and settled with the plans of the store; time passes by moving every moment in
the store back.
"""

import json
import re
import secrets
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from typing import Any, Final

import psycopg

from oncely import Job, Oncely
from oncely.model.transition import State
from oncely.store import claim as claims
from oncely.store import deliver, upkeep
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.plan import Row
from oncely.store.sql import EngineName
from oncely.store.url import sqlite_path
from tests.spares import session
from tests.waiting import wait_until

TABLES: Final = (
    "job",
    "ready",
    "lease",
    "outcome",
    "execution",
    "idempotency_key",
    "unique_key",
)
_MOMENTS: Final = {
    "job": ("created_at", "due_at"),
    "ready": ("due_at",),
    "lease": ("claimed_at", "expires_at", "ack_until"),
    "outcome": ("started_at", "ended_at"),
    "execution": ("started_at", "ended_at", "due_at", "first_deferred_at"),
    "idempotency_key": ("created_at", "expires_at"),
    "schedule": ("due_at", "last_at", "seen_at", "paused_at"),
    "repeat": ("at",),
    "request": ("begun_at", "held_until", "ended_at", "expires_at"),
    "effect": ("begun_at", "ended_at", "expires_at"),
    "resolution": ("at", "expires_at"),
}
_PARAM: Final = re.compile(r"(?<!:):([a-z_]+)\b")


def engine_of(app: Oncely) -> EngineName:
    return app._engine.library.engine


class Backdoor:
    """SQL behind the app's back. Tables as `oncely.job`, parameters as `:id`."""

    def __init__(self, app: Oncely) -> None:
        self._sqlite: sqlite3.Connection | None = None
        self._postgres: psycopg.Connection[Row] | None = None
        self._closing = ExitStack()
        if engine_of(app) == "postgres":
            self._postgres = self._closing.enter_context(session(app.url))
            return
        path = sqlite_path(app.url.partition("://")[2], app.url)
        assert path is not None
        self._sqlite = sqlite3.connect(path, timeout=30, isolation_level=None)
        self._closing.callback(self._sqlite.close)

    def sql(self, text: str, **params: Any) -> list[Row]:
        if self._sqlite is not None:
            return self._sqlite.execute(text.replace("oncely.", "oncely_"), params).fetchall()
        assert self._postgres is not None
        # What is prepared would outlive the tables of a test.
        query = _PARAM.sub(r"%(\1)s", text).encode()
        cursor = self._postgres.execute(query, params, prepare=False)
        return cursor.fetchall() if cursor.description else []

    def let_days_pass(self, days: float) -> None:
        by = str(int(days * 86_400e6)) if self._sqlite else f"interval '{days} days'"
        for table, columns in _MOMENTS.items():
            moved = ", ".join(f"{column} = {column} - {by}" for column in columns)
            self.sql(f"update oncely.{table} set {moved}")

    def close(self) -> None:
        self._closing.close()


def sql(app: Oncely, text: str, **params: Any) -> list[Row]:
    with closing(Backdoor(app)) as door:
        return door.sql(text, **params)


def sessions(app: Oncely) -> set[int]:
    """Of this store's users, in the server; a store without a server has none.
    What a process that was killed has sent may be carried out until its sessions are gone."""
    if engine_of(app) == "sqlite":
        return set()
    rows = sql(
        app,
        "select pid from pg_stat_activity"
        " where datname = current_database() and application_name = 'oncely'",
    )
    return {pid for (pid,) in rows}


def counts(app: Oncely) -> dict[str, int]:
    """How many rows each table has."""
    parts = (f"select '{name}', count(*) from oncely.{name}" for name in TABLES)
    return dict(sql(app, " union all ".join(parts)))


def let_days_pass(app: Oncely, days: float) -> None:
    """As if that much time had gone by since everything that happened so far."""
    with closing(Backdoor(app)) as door:
        door.let_days_pass(days)


def claim(
    app: Oncely, queue: str = "default", *, limit: int = 1, worker: str = "worker-1"
) -> list[Claimed]:
    nonce = secrets.randbits(62)
    return app._engine.run(
        lambda _: claims.claim(queue, worker=worker, nonce=nonce, lease_seconds=60, limit=limit),
        "transaction",
    )


def claim_one(app: Oncely, queue: str = "default") -> Claimed:
    [claimed] = claim(app, queue)
    return claimed


def give_out_again(app: Oncely, epoch: int) -> None:
    """As after a failover to a standby that had not received the last claims: their leases are not
    there, their jobs wait, and the first of their epochs is the next one that is given out."""
    with closing(Backdoor(app)) as door:
        door.sql("delete from oncely.lease")
        if engine_of(app) == "sqlite":
            door.sql(f"update sqlite_sequence set seq = {epoch - 1} where name = 'oncely_lease'")
        else:
            door.sql(f"alter table oncely.lease alter column epoch restart with {epoch}")
        # Last: a worker claims them from here on, and its lease must stay.
        door.sql(
            "insert into oncely.ready"
            " (queue, priority, lane, due_at, id, attempts, crashes, defers)"
            " select queue, priority, '', due_at, id, 0, 0, 0 from oncely.job"
        )


def run_out(app: Oncely) -> None:
    """All leases have run out and are taken back, by us or by a worker: each of them looks for such
    leases as well, and may be at it."""
    past = "0" if engine_of(app) == "sqlite" else "clock_timestamp()"
    with closing(Backdoor(app)) as door:
        door.sql(f"update oncely.lease set expires_at = {past}")

        def none_is_left() -> bool:
            app._engine.run(lambda _: deliver.reclaim(10), "transaction")
            return not door.sql(f"select 1 from oncely.lease where expires_at <= {past}")

        wait_until(none_is_left, "the leases are taken back")


def steal(app: Oncely, queue: str = "default") -> Claimed:
    """The lease runs out, and somebody else claims the job."""
    run_out(app)
    return claim_one(app, queue)


def settle(app: Oncely, fence: Fence, settlements: Sequence[Settlement]) -> set[str]:
    """The ids whose settlement was accepted."""
    done = [settlement.under(fence) for settlement in settlements]
    refused = app._engine.run(lambda _: deliver.settle(done), "transaction")
    return {settlement.id for settlement in done if settlement not in refused}


def end(app: Oncely, claimed: Claimed, state: State) -> bool:
    """Settle one execution in a resting state; whether that was accepted."""
    how = Settlement(claimed.job_id, claimed.attempt, state=state)
    return settle(app, claimed.fence, [how]) == {claimed.job_id}


def retry(app: Oncely, claimed: Claimed, *, delay_seconds: float = 0) -> bool:
    how = Settlement(
        claimed.job_id,
        claimed.attempt,
        outcome="retried",
        attempts=claimed.attempt,
        delay_us=round(delay_seconds * 1_000_000),
        error=json.dumps("boom"),
    )
    return settle(app, claimed.fence, [how]) == {claimed.job_id}


def bring(app: Oncely, job_id: str, to: State) -> None:
    """Move a job that waits alone in its queue to a state."""
    job = found(app, job_id)
    if to == "cancelled":
        app.cancel(job_id)
    elif to == "scheduled":
        assert job.state == "pending"
        assert retry(app, claim_one(app, job.queue), delay_seconds=3600)
    elif to == "pending":
        assert job.state == "pending"
    else:
        claimed = claim_one(app, job.queue)
        assert claimed.job_id == job_id
        if to != "running":
            assert end(app, claimed, to)
    assert found(app, job_id).state == to


def found(app: Oncely, job_id: str) -> Job:
    job = app.get(job_id)
    assert job is not None
    return job


def prune(
    app: Oncely,
    states: Iterable[State] = ("completed", "failed", "cancelled"),
    *,
    days: float = 0,
    key_days: float = 30,
) -> int:
    """Forget the jobs that ended so many days ago; how many they were."""
    retention = dict.fromkeys(states, days)
    pruned = 0
    after: str | None = upkeep.BEGINNING
    while after is not None:
        start = after
        step = app._engine.run(
            lambda _, start=start: upkeep.prune_jobs(  # type: ignore[misc]
                retention, key_retention_days=key_days, after=start, limit=100
            ),
            "transaction",
        )
        pruned += step.jobs
        after = step.after
    return pruned


def prune_keys(app: Oncely, *, limit: int = 1000) -> int:
    return app._engine.run(lambda _: upkeep.prune_keys(limit), "transaction")
