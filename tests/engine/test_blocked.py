"""Jobs that may not run now cost those that may nothing: work is counted, not time."""

import re
import secrets
import sqlite3
from contextlib import closing

import pytest

from oncely import NewJob, Oncely
from oncely.store.lanes import Claim, Outlook, claim_shared, survey
from oncely.store.plan import Plan, Row, Statement, Together, run
from oncely.store.postgres.engine import PostgresEngine
from tests.engine.steps import engine_of, sql

BLOCKED = 20_000


@pytest.mark.parametrize("how", ["full", "paused", "later"])
def test_blocked_jobs_in_front_cost_the_others_nothing(app: Oncely, how: str) -> None:
    app.enqueue_many(NewJob("k", n, group_key="free") for n in range(20))
    app.enqueue_many(NewJob("k", n) for n in range(20))
    app.enqueue_many(NewJob("k", group_key="blocked", queue=queue) for queue in ("default", "busy"))
    if how == "full":
        app.set_group("blocked", concurrency=1)
        assert app._engine.run(lambda _: _claim("busy"), "transaction") == 1
    else:
        app.pause(group="blocked")
    alone = work(app)
    block(app, "later" if how == "later" else "g:blocked")
    assert work(app) < alone * 2 + 100


def block(app: Oncely, lane: str) -> None:
    """Many rows in front, as they are after an enqueue; their jobs are never looked at."""
    count = "generate_series(1, :count) n"
    id, past = "gen_random_uuid()", "timestamptz 'epoch'"
    if lane == "later":
        past = "now() + interval '1 day'"
    if engine_of(app) == "sqlite":
        count = (
            "(with recursive s(n) as (select 1 union all select n + 1 from s where n < :count)"
            " select n from s)"
        )
        id, past = "lower(hex(randomblob(16)))", "1" if lane != "later" else "9e15"
    sql(
        app,
        "insert into oncely.ready (queue, priority, lane, due_at, id, attempts) "
        f"select 'default', 0, :lane, {past}, {id}, 0 from {count}",
        count=BLOCKED,
        lane=lane,
    )
    if engine_of(app) == "postgres":
        sql(app, "vacuum analyze oncely.ready")


def work(app: Oncely) -> int:
    """How much the database does for a look and a claim of ten jobs, which is then undone."""
    if engine_of(app) == "sqlite":
        return _in_sqlite(app)
    return _in_postgres(app)


def _claim(queue: str) -> Plan[int]:
    outlook = Outlook()
    yield from survey(outlook, None)
    jobs = yield from claim_shared(outlook, Claim(queue, "w", secrets.randbits(60), 10**9, 10))
    return len(jobs)


def _in_sqlite(app: Oncely) -> int:
    steps = 0

    def count() -> int:
        nonlocal steps
        steps += 1
        return 0

    with closing(sqlite3.connect(app.url.removeprefix("sqlite:///"), isolation_level=None)) as db:
        db.set_progress_handler(count, 10)
        db.execute("begin immediate")

        def ask(statement: Statement) -> list[Row]:
            if isinstance(statement, Together):
                return [(ask(part),) for part in statement.parts]
            rows: list[Row] = []
            for prepared in app._engine.library.get(statement.name, ":{name}"):
                cursor = db.execute(prepared.text, statement.params)
                rows = cursor.fetchall() if cursor.description else rows
            return rows

        assert run(_claim("default"), ask) == 10
        db.execute("rollback")
    return steps


def _in_postgres(app: Oncely) -> int:
    buffers = 0
    with PostgresEngine(app.url, "oncely")._connect() as db:

        def ask(statement: Statement) -> list[Row]:
            nonlocal buffers
            if isinstance(statement, Together):
                return [(ask(part),) for part in statement.parts]
            [prepared] = app._engine.library.get(statement.name, "%({name})s")
            db.execute("savepoint s")
            text = f"explain (analyze, buffers) {prepared.text}".encode()
            plan = "\n".join(row[0] for row in db.execute(text, statement.params))
            # The first line that counts buffers is that of the whole statement.
            found = re.search(r"Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?", plan)
            buffers += sum(int(part or 0) for part in found.groups()) if found else 0
            db.execute("rollback to s")
            cursor = db.execute(prepared.text.encode(), statement.params)
            return cursor.fetchall() if cursor.description else []

        db.execute("begin")
        assert run(_claim("default"), ask) == 10
        db.execute("rollback")
    return buffers
