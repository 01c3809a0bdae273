"""The checker itself: a healthy store passes, and each planted violation is found and named."""

import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from oncely import Oncely
from oncely.store.claim import claim
from oncely.store.deliver import Settlement, settle
from oncely.store.effects import Effect, begin
from tests.crash.checker import Violated, check, connect, look, overdue, violations
from tests.crash.publishers import work

Ids = dict[str, str]


@contextmanager
def spoiled(url: str, *statements: str) -> Iterator[list[str]]:
    """The violations that are found after statements, all of which are undone afterwards.

    The statements are in the words of PostgreSQL: `oncely.job` is `oncely_job` on SQLite.
    """
    with connect(url) as connection:
        for statement in statements:
            if isinstance(connection, sqlite3.Connection):
                connection.execute(statement.replace("oncely.", "oncely_"))
            else:
                connection.execute(statement.encode())
        yield violations(look(connection))


@pytest.fixture
def ids(app: Oncely) -> Ids:
    """A store with a job in every place, each named for the state it is in."""
    made: Ids = {}

    def enqueue(name: str, **options: Any) -> str:
        made[name] = app.enqueue(
            "kind", queue=name, idempotency_key=name, unique_key=name, **options
        ).job_id
        return made[name]

    def run(queue: str, **how: Any) -> None:
        nonce = secrets.randbits(62)
        (job,) = app._engine.run(
            lambda _: claim(queue, worker="w", nonce=nonce, lease_seconds=60, limit=1), "write"
        )
        for name in how.get("doubts", []):
            effect = Effect(job.job_id, job.fence, name, "fence", "1", "[]")
            app._engine.run(lambda _, effect=effect: begin(effect), "transaction")  # type: ignore[misc]
        if how:
            done = [Settlement(job.job_id, job.attempt, **how).under(job.fence)]
            assert app._engine.run(lambda _: settle(done), "transaction") == []

    enqueue("pending")
    enqueue("scheduled", delay=3600)
    enqueue("grouped", group_key="tenant")
    enqueue("retried")
    run("retried", outcome="retried", attempts=1)
    run("retried", outcome="retried", attempts=2)
    enqueue("running")
    run("running")
    enqueue("completed")
    assert work(app, limit=1, queue="completed")
    enqueue("failed")
    run("failed", outcome="retried", attempts=1)
    run("failed", state="failed")
    enqueue("replayed")
    run("replayed", state="failed")
    app.replay(made["replayed"])
    enqueue("cancelled")
    app.cancel(enqueue("cancelled"))
    enqueue("held")
    run("held", state="in_doubt", doubts=["charge"])
    app.enqueue("kind", queue="other", idempotency_key="lent", unique_key="pending")
    app.enqueue("kind", queue="other")
    return made


def test_a_healthy_store_passes(app: Oncely, ids: Ids) -> None:
    census = check(app.url)
    assert len(census.jobs) == len(ids) + 1
    shown = {"retried": "pending", "replayed": "pending", "held": "in_doubt", "grouped": "pending"}
    for name, id in ids.items():
        assert census.states[id] == shown.get(name, name)
    assert census.count("running") == 1


JOB = "kind, queue, payload, priority, created_at, due_at"
COPY = f"insert into oncely.job (id, {JOB}, idempotency_key, unique_key) select '{{other}}', {JOB}"
READY = "queue, priority, lane, due_at, id, attempts"
PLANTED: dict[str, tuple[list[str], str]] = {
    "job in no place": (
        ["delete from oncely.ready where id = '{pending}'"],
        "job {pending} is orphaned",
    ),
    "held without a doubt": (
        ["update oncely.effect set state = 'done' where job_id = '{held}'"],
        "job {held} is held, and nothing of it is in doubt",
    ),
    "in doubt and not held": (
        ["update oncely.outcome set state = 'completed' where job_id = '{held}'"],
        "effect 'charge' of job {held} is in doubt, and its job is completed",
    ),
    "a ledger that is forgotten too early": (
        ["update oncely.effect set expires_at = begun_at"],
        "effect 'charge' of job {held} expires, and its job is there",
    ),
    "a ledger that is never forgotten": (
        ["update oncely.effect set job_id = '{other}'"],
        "effect 'charge' of job {other} has no job, and does not expire",
    ),
    "job waits and rests": (
        [
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts) "
            "select queue, priority, '', due_at, id, 1 from oncely.job where id = '{completed}'"
        ],
        "job {completed} is in ready and outcome",
    ),
    "job waits and runs": (
        [
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts) "
            "select queue, priority, '', due_at, id, 0 from oncely.job where id = '{running}'"
        ],
        "job {running} is in ready and lease",
    ),
    "job waits twice": (
        [
            f"insert into oncely.ready ({READY}) select queue, 7, lane, due_at, id, attempts "
            "from oncely.ready where id = '{pending}'"
        ],
        "job {pending} is in ready and ready",
    ),
    "ready without job": (
        ["delete from oncely.job where id = '{pending}'"],
        "ready has job {pending}, which does not exist",
    ),
    "lease without job": (
        ["delete from oncely.job where id = '{running}'"],
        "has job {running}, which does not exist",
    ),
    "outcome without job": (
        ["delete from oncely.job where id = '{failed}'"],
        "outcome has job {failed}, which does not exist",
    ),
    "execution without job": (
        ["delete from oncely.job where id = '{retried}'"],
        "execution has job {retried}, which does not exist",
    ),
    "empty lease": (["update oncely.lease set ids = {empty}"], "holds no job"),
    "lost lease": (["delete from oncely.lease"], "job {running} is orphaned"),
    "ready due at another time": (
        ["update oncely.ready set due_at = {later} where id = '{retried}'"],
        "of job {retried}; it is",
    ),
    "ready with other attempts": (
        ["update oncely.ready set attempts = 5 where id = '{retried}'"],
        "ready says attempts 5 of job {retried}; it is 2",
    ),
    "ready in another queue": (
        ["update oncely.ready set queue = 'wrong' where id = '{pending}'"],
        "ready says queue wrong of job {pending}; it is pending",
    ),
    "ready with another priority": (
        ["update oncely.ready set priority = 3 where id = '{pending}'"],
        "ready says priority 3 of job {pending}; it is 0",
    ),
    "ready in the lane of a group that it is not of": (
        ["update oncely.ready set lane = 'g:x' where id = '{pending}'"],
        "ready says lane g:x of job {pending}; it is ''",
    ),
    "job of a group among those without": (
        ["update oncely.ready set lane = '' where id = '{grouped}'"],
        "ready says lane  of job {grouped}; it is 'later' or 'g:tenant'",
    ),
    "unknown outcome": (
        ["{unchecked}", "update oncely.outcome set state = 'odd' where job_id = '{completed}'"],
        "job {completed} came to rest in state odd",
    ),
    "two outcomes": (
        [
            "{keyless outcome}",
            "insert into oncely.outcome select * from oncely.outcome where job_id = '{completed}'",
        ],
        "job {completed} has 2 outcomes",
    ),
    "unique key of no job": (
        ["insert into oncely.unique_key (kind, key, job_id) values ('kind', 'x', '{other}')"],
        "unique key 'x' of kind 'kind' is held by job {other}, which does not exist",
    ),
    "unique key of an ended job": (
        [
            "insert into oncely.unique_key (kind, key, job_id) "
            "values ('kind', 'completed', '{completed}')"
        ],
        "is held by job {completed}, which is completed",
    ),
    "unique key of a job that has another": (
        ["update oncely.unique_key set key = 'x' where key = 'pending'"],
        "unique key 'x' of kind 'kind' is held by job {pending}, which has 'pending'",
    ),
    "active job without its unique key": (
        ["delete from oncely.unique_key where key = 'held'"],
        "job {held} is active and does not hold its unique key 'held'",
    ),
    "unique key twice": (
        [
            "{keyless unique_key}",
            "insert into oncely.unique_key select * from oncely.unique_key where key = 'running'",
        ],
        "unique key 'running' of kind 'kind' has 2 rows",
    ),
    "two active jobs with one unique key": (
        [
            COPY + ", null, unique_key from oncely.job where id = '{pending}'",
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts) "
            "select queue, priority, '', due_at, id, 0 from oncely.job where id = '{other}'",
        ],
        "2 active jobs have unique key 'pending' of kind 'kind'",
    ),
    "two jobs with one idempotency key": (
        [
            COPY + ", idempotency_key, null from oncely.job where id = '{completed}'",
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts) "
            "select queue, priority, '', due_at, id, 0 from oncely.job where id = '{other}'",
        ],
        "2 jobs have idempotency key 'completed' in queue 'completed'",
    ),
    "idempotency key of no job": (
        [
            "update oncely.idempotency_key set job_id = '{other}' where key = 'lent'",
        ],
        "idempotency key 'lent' in queue 'other' leads to job {other}, which does not exist",
    ),
    "idempotency key of a job that has another": (
        ["update oncely.idempotency_key set key = 'x' where key = 'pending'"],
        "idempotency key 'x' in queue 'pending' leads to job {pending}, which has 'pending'",
    ),
    "job without its idempotency key": (
        ["delete from oncely.idempotency_key where key = 'failed'"],
        "idempotency key 'failed' does not lead to its job {failed}",
    ),
    "idempotency key twice": (
        [
            "{keyless idempotency_key}",
            "insert into oncely.idempotency_key "
            "select * from oncely.idempotency_key where key = 'running'",
        ],
        "idempotency key 'running' in queue 'running' has 2 rows",
    ),
    "expiring key without the state of its job": (
        ["update oncely.idempotency_key set expires_at = {later} where key = 'pending'"],
        "idempotency key 'pending' in queue 'pending' has state None and expires at",
    ),
    "epochs that fall": (
        [
            "update oncely.execution set epoch = 1000, ended_at = {early} "
            "where job_id = '{retried}' "
            "and epoch = (select min(epoch) from oncely.execution where job_id = '{retried}')"
        ],
        "the epochs of job {retried} do not rise: [1000, ",
    ),
    "epoch of the outcome below an earlier one": (
        ["update oncely.outcome set epoch = 1 where job_id = '{failed}'"],
        "the epochs of job {failed} do not rise",
    ),
    "epoch of the lease used before": (
        [
            "insert into oncely.execution (job_id, epoch, outcome, attempt, ended_at, due_at, "
            "attempts) select '{running}', epoch, 'retried', 1, {later}, {later}, 1 "
            "from oncely.lease"
        ],
        "the epochs of job {running} do not rise",
    ),
}


def test_planted_violations_are_found(app: Oncely, ids: Ids) -> None:
    check(app.url)
    sqlite = app.url.startswith("sqlite")
    words = {
        **ids,
        "other": "00000000-0000-7000-8000-000000000000",
        "early": "0" if sqlite else "timestamptz 'epoch'",
        "later": "4102444800000000" if sqlite else "timestamptz '2100-01-01'",
        "empty": "'[]'" if sqlite else "'{}'",
        "unchecked": "pragma ignore_check_constraints = on"
        if sqlite
        else "alter table oncely.outcome drop constraint outcome_state_check",
    }
    for table in ("outcome", "unique_key", "idempotency_key"):
        words[f"keyless {table}"] = (
            f"create table copied as select * from oncely_{table}; drop table oncely_{table}; "
            f"pragma legacy_alter_table = on; alter table copied rename to oncely_{table}"
            if sqlite
            else f"alter table oncely.{table} drop constraint {table}_pkey"
        )
    missed = []
    for name, (statements, expected) in PLANTED.items():
        parts = [part for text in statements for part in text.format_map(words).split("; ")]
        with spoiled(app.url, *parts) as found:
            if not any(expected.format_map(words) in violation for violation in found):
                missed.append(f"{name}: {found}")
    assert not missed, f"{len(missed)} of N={len(PLANTED)} missed:\n" + "\n".join(missed)
    check(app.url)


def test_a_lease_that_nobody_takes_back_is_found(app: Oncely, ids: Ids) -> None:
    assert check(app.url, sweep_seconds=1).count("running") == 1
    moment = "expires_at - 3700 * 1000000" if "sqlite" in app.url else "now() - interval '100 s'"
    with connect(app.url) as connection:
        table = "oncely_lease" if isinstance(connection, sqlite3.Connection) else "oncely.lease"
        connection.execute(f"update {table} set expires_at = {moment}")
        census = look(connection)
    assert violations(census) == []
    assert overdue(census, sweep_seconds=10_000) == []
    [found] = overdue(census, sweep_seconds=1)
    assert found.startswith(f"lease {census.leases[0].epoch} of worker w ran out ")
    assert "more than two sweeps of 1 s, and still holds 1 jobs" in found


def test_all_violations_are_listed(app: Oncely, ids: Ids) -> None:
    with spoiled(app.url, "delete from oncely.ready", "delete from oncely.unique_key") as found:
        text = str(Violated(found, len(ids)))
    waiting = ("pending", "scheduled", "grouped", "retried", "replayed")
    assert all(f"job {ids[name]} is orphaned" in text for name in waiting)
    assert all(f"job {ids[name]} is active" in text for name in (*waiting, "held", "running"))


def test_another_schema(postgres_url: str) -> None:
    with Oncely(postgres_url, schema="mine") as app:
        app.migrate()
        app.enqueue("kind", unique_key="u")
        assert len(check(postgres_url, "mine").jobs) == 1
        with psycopg.connect(postgres_url) as connection:
            connection.execute("delete from mine.ready")
        with pytest.raises(Violated, match="1 violations in a store of 1 jobs"):
            check(postgres_url, "mine")
