"""The store fails under a handler: the job goes back with no attempt used, so often in a row and
no more. What the handler's own code raises stays its failure."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from oncely import Context, Job, NewJob, Oncely, Retry, StoreUnavailable
from oncely.model import outcome
from tests.cluster import Cluster
from tests.engine.steps import found, let_days_pass, sql
from tests.spares import Spares
from tests.waiting import PATIENCE_SECONDS, wait_until

ONCE = Retry(max_attempts=1)
HANDLERS = "application_name = 'oncely handler' and datname = current_database()"


@pytest.fixture
def server(cluster: Cluster, spares: Spares) -> Iterator[Oncely]:
    """A store on PostgreSQL."""
    name = spares.take()
    with Oncely(cluster.url(name)) as app, spares.sessions_for(app):
        yield app
    spares.give_back(name)


def outcomes(job: Job) -> list[str]:
    return [execution.outcome for execution in job.executions]


def run_to_the_end(app: Oncely, job_id: str) -> Job:
    app.drain()
    while found(app, job_id).state == "scheduled":
        let_days_pass(app, 1)
        app.drain()
    return found(app, job_id)


def test_a_job_is_handed_back_when_the_store_fails(app: Oncely) -> None:
    failures = [StoreUnavailable("the store is away") for _ in range(3)]

    @app.job("k", retry=ONCE)
    async def handle(ctx: Context) -> int:
        if failures:
            raise failures.pop()
        return ctx.attempt

    job_id = app.enqueue("k").job_id
    job = run_to_the_end(app, job_id)
    assert (job.state, job.result) == ("completed", 1)
    assert outcomes(job) == ["released", "released", "released", "completed"]
    told = "StoreUnavailable: handed back with no attempt used, for the store failed: the store is"
    assert str(app.explain(job_id)).count(told) == 3


def test_the_number_of_hand_backs_in_a_row_is_bounded(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After that each failure of the store uses up an attempt."""
    monkeypatch.setattr(outcome, "HAND_BACK_LIMIT", 3)

    @app.job("k", retry=Retry(max_attempts=3, base=0))
    def handle(ctx: Context) -> None:
        raise StoreUnavailable("the store is away")

    job = run_to_the_end(app, app.enqueue("k").job_id)
    assert job.state == "failed"
    assert outcomes(job) == ["released"] * 3 + ["retried"] * 2 + ["failed"]
    assert job.error["message"] == "the store is away"


def test_an_ordinary_failure_begins_a_new_row_of_hand_backs(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "HAND_BACK_LIMIT", 1)
    ends: list[Exception] = [StoreUnavailable("away"), ValueError("mine"), StoreUnavailable("away")]

    @app.job("k", retry=Retry(max_attempts=2, base=0))
    def handle(ctx: Context) -> None:
        if ends:
            raise ends.pop(0)

    job = run_to_the_end(app, app.enqueue("k").job_id)
    assert outcomes(job) == ["released", "retried", "released", "completed"]


def test_an_error_of_the_handlers_own_is_its_failure(server: Oncely) -> None:
    @server.job("k", retry=ONCE)
    def handle(ctx: Context) -> None:
        with psycopg.connect(server._engine.url) as mine:  # type: ignore[attr-defined]
            mine.execute("do $$ begin raise exception using errcode = '40001'; end $$")

    job = run_to_the_end(server, server.enqueue("k").job_id)
    assert (job.state, job.error["type"]) == ("failed", "SerializationFailure")


def test_an_error_of_the_store_that_a_handler_wraps_is_its_failure(app: Oncely) -> None:
    @app.job("k", retry=ONCE)
    def handle(ctx: Context) -> None:
        try:
            raise StoreUnavailable("away")
        except StoreUnavailable as error:
            raise RuntimeError("mine") from error

    assert run_to_the_end(app, app.enqueue("k").job_id).state == "failed"


@pytest.mark.parametrize("form", ["async", "sync"])
def test_idle_connections_that_the_server_closed_use_up_no_attempt(
    server: Oncely, form: str
) -> None:
    sql(server, "create table written (n integer)")
    insert = "insert into written values (%s)"
    together, barrier = asyncio.Barrier(4), threading.Barrier(4)

    async def on_loop(ctx: Context, n: int) -> None:
        await together.wait()
        async with ctx.transaction() as tx:
            await tx.execute(insert, (n,))

    def in_thread(ctx: Context, n: int) -> None:
        barrier.wait()
        with ctx.transaction() as tx:
            tx.execute(insert, (n,))

    handler: Any = on_loop if form == "async" else in_thread
    server.job("k", retry=ONCE)(handler)

    async def run() -> None:
        worker = server.worker(concurrency=4)
        running = asyncio.create_task(worker.arun())
        for round_ in range(3):
            await server.aenqueue_many([NewJob("k", 4 * round_ + n) for n in range(4)])
            while len(await server.ajobs(state="completed")) < 4 * (round_ + 1):
                assert not await server.ajobs(state="failed")
                await asyncio.sleep(0.01)
            await asyncio.to_thread(terminate_idle_handlers, server)
        worker.stop()
        await running

    asyncio.run(run())
    jobs = server.jobs()
    assert [outcomes(found(server, job.job_id)) for job in jobs] == [["completed"]] * 12
    assert sorted(sql(server, "select n from written")) == [(n,) for n in range(12)]


def terminate_idle_handlers(app: Oncely) -> None:
    idle = f"from pg_stat_activity where {HANDLERS} and state = 'idle'"
    assert sql(app, f"select pg_terminate_backend(pid) {idle}")
    wait_until(
        lambda: not sql(app, f"select pid from pg_stat_activity where {HANDLERS}"),
        "the sessions of the handlers do not end",
    )


@pytest.mark.parametrize("form", ["async", "sync"])
def test_a_transaction_whose_connection_is_lost_uses_up_no_attempt(
    server: Oncely, form: str
) -> None:
    """Its error reaches the handler as the driver raises it."""
    seen: list[BaseException] = []
    kill = "select pg_terminate_backend(pg_backend_pid())"

    async def on_loop(ctx: Context) -> None:
        try:
            async with ctx.transaction() as tx:
                if not seen:
                    await tx.execute(kill)
        except psycopg.OperationalError as error:
            seen.append(error)
            raise

    def in_thread(ctx: Context) -> None:
        try:
            with ctx.transaction() as tx:
                if not seen:
                    tx.execute(kill)
        except psycopg.OperationalError as error:
            seen.append(error)
            raise

    handler: Any = on_loop if form == "async" else in_thread
    server.job("k", retry=ONCE)(handler)
    job = run_to_the_end(server, server.enqueue("k").job_id)
    assert outcomes(job) == ["released", "completed"]
    assert [type(error) for error in seen] == [psycopg.errors.AdminShutdown]


def test_a_transaction_that_the_server_wants_repeated_uses_up_no_attempt(server: Oncely) -> None:
    turns: list[int] = []

    @server.job("k", retry=ONCE)
    def handle(ctx: Context) -> None:
        with ctx.transaction() as tx:
            turns.append(1)
            if len(turns) == 1:
                tx.execute("do $$ begin raise exception using errcode = '40P01'; end $$")

    job = run_to_the_end(server, server.enqueue("k").job_id)
    assert outcomes(job) == ["released", "completed"]


def test_a_serializable_default_is_not_ours(server: Oncely) -> None:
    """Enqueues, claims, settles and effects say their isolation, and so does ctx.transaction();
    its first statement may ask for more."""
    [(database,)] = sql(server, "select current_database()")
    sql(server, f'alter database "{database}" set default_transaction_isolation = serializable')
    isolation = "select current_setting('transaction_isolation')"
    stricter = "set transaction isolation level serializable"
    seen: list[Any] = []
    with Oncely(server._engine.url) as app:  # type: ignore[attr-defined]

        @app.job("k", retry=ONCE)
        async def handle(ctx: Context, n: int) -> None:
            await ctx.step("step", lambda: None)
            await ctx.enqueue("child", n)
            async with ctx.transaction() as tx:
                if n == 0:
                    await tx.execute(stricter)
                seen.append(await (await tx.execute(isolation)).fetchone())

        app.job("child", retry=ONCE)(lambda ctx: None)

        def publish(part: int) -> None:
            for n in range(part, 90, 3):
                app.enqueue("k", n + 1, unique_key=f"job {n}", idempotency_key=f"job {n}")

        publishers = [threading.Thread(target=publish, args=(part,)) for part in range(3)]
        for publisher in publishers:
            publisher.start()

        async def run() -> None:
            workers = [app.worker(concurrency=8) for _ in range(2)]
            running = [asyncio.create_task(worker.arun()) for worker in workers]
            while len(await app.ajobs(state="completed", limit=1_000)) < 180:
                assert not await app.ajobs(state="failed")
                await asyncio.sleep(0.01)
            for worker in workers:
                worker.stop()
            await asyncio.gather(*running)

        asyncio.run(run())
        assert set(seen) == {("read committed",)}
        assert sql(server, "select count(*) from oncely.execution") == [(0,)]
        app.enqueue("k", 0)
        app.drain()
        assert seen[-1] == ("serializable",)


@pytest.mark.parametrize("form", ["async", "sync"])
def test_a_store_that_is_away_uses_up_no_attempt(form: str) -> None:
    """It is stopped before the verb. A step waits for it; other verbs hand the job back."""
    calls: list[str] = []
    reached, stopped = threading.Semaphore(0), threading.Event()

    def until_stopped() -> None:
        reached.release()
        stopped.wait()

    async def on_loop(ctx: Context) -> None:
        await asyncio.to_thread(until_stopped)
        if ctx.kind == "step":
            await ctx.step("one", calls.append, "one")
            await ctx.step("two", calls.append, "two")
        else:
            await ctx.enqueue("child")

    def in_thread(ctx: Context) -> None:
        until_stopped()
        if ctx.kind == "step":
            ctx.step("one", calls.append, "one")
            ctx.step("two", calls.append, "two")
        else:
            ctx.enqueue("child")

    handler: Any = on_loop if form == "async" else in_thread
    with Cluster(own=True) as cluster, Oncely(cluster.create_database("away")) as app:
        app.migrate()
        app.job("step", retry=ONCE)(handler)
        app.job("enqueue", retry=ONCE)(handler)
        app.job("child", retry=ONCE)(lambda ctx: calls.append(ctx.kind))
        ids = [app.enqueue(kind).job_id for kind in ("step", "enqueue") for _ in range(3)]
        draining = threading.Thread(target=app.drain)
        draining.start()
        for _ in ids:
            assert reached.acquire(timeout=PATIENCE_SECONDS)
        cluster.stop("immediate")
        stopped.set()
        cluster.start()
        draining.join()
        jobs = [run_to_the_end(app, job_id) for job_id in ids]
        assert [(job.state, job.attempt) for job in jobs] == [("completed", 1)] * 6
        assert [outcomes(job) for job in jobs[:3]] == [["completed"]] * 3
        app.drain()
    assert sorted(calls) == ["child"] * 3 + ["one"] * 3 + ["two"] * 3
