"""`ctx.transaction()`: what the handler writes and the end of its job commit together, or not."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from oncely import (
    Context,
    InvalidInput,
    Job,
    LeaseLost,
    NewJob,
    Oncely,
    Retry,
    StoreUnavailable,
)
from oncely.store.engine import Access
from tests.cluster import Cluster
from tests.crash.proxy import Fault, Proxy, terminate_what_has_answered
from tests.engine import steps
from tests.engine.steps import engine_of, found, sql
from tests.engine.test_fork import fork, went_well
from tests.moved_clock import MovedLoop, run_on
from tests.spares import Spares
from tests.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = Retry(base=0, max_attempts=3)
Body = Callable[[Context, Any], Any]


class Stage:
    """A handler whose body runs inside `ctx.transaction()`, as `async def` or as `def`; what the
    body returns is awaited if it can be."""

    def __init__(self, app: Oncely, form: str) -> None:
        self.app = app
        self.form = form
        self.runs = 0
        self.errors: list[BaseException] = []
        sql(app, "create table written (name text unique)")

    def handler(
        self, body: Body, *, before: Callable[[Context], Any] | None = None, after: Any = None
    ) -> None:
        async def on_loop(ctx: Context) -> Any:
            self._begin(ctx, before)
            try:
                async with ctx.transaction() as tx:
                    value = body(ctx, tx)
                    value = await value if inspect.isawaitable(value) else value
            except Exception as error:
                self.errors.append(error)
                raise
            return after(ctx) if after else None

        def in_thread(ctx: Context) -> Any:
            self._begin(ctx, before)
            try:
                with ctx.transaction() as tx:
                    body(ctx, tx)
            except Exception as error:
                self.errors.append(error)
                raise
            return after(ctx) if after else None

        self.app.job("k", retry=AT_ONCE)(on_loop if self.form == "async" else in_thread)

    def _begin(self, ctx: Context, before: Callable[[Context], Any] | None) -> None:
        self.runs += 1
        if before:
            before(ctx)

    def run(self) -> Job:
        receipt = self.app.enqueue("k")
        # One at a time: what the handler makes free is not taken by its own worker.
        asyncio.run(self.app.worker(concurrency=1).drain())
        return found(self.app, receipt.job_id)

    @property
    def written(self) -> list[str]:
        return [name for (name,) in sql(self.app, "select name from written")]


@pytest.fixture(params=["async", "def"])
def stage(app: Oncely, request: pytest.FixtureRequest) -> Stage:
    return Stage(app, request.param)


@pytest.fixture(params=["async", "def"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def write(tx: Any, name: str = "row") -> Any:
    return tx.execute(f"insert into written values ('{name}')")


def test_the_write_and_the_end_of_the_job_are_there_together(stage: Stage) -> None:
    stage.handler(lambda ctx, tx: write(tx))
    job = stage.run()
    assert (job.state, stage.written, stage.runs) == ("completed", ["row"], 1)


def test_the_result_is_what_complete_was_given(stage: Stage) -> None:
    def body(ctx: Context, tx: Any) -> Any:
        if stage.form == "def":
            write(tx)
            return ctx.complete({"n": 7}, tx=tx)
        return both(write(tx), lambda: ctx.complete({"n": 7}, tx=tx))

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result, stage.written) == ("completed", {"n": 7}, ["row"])


async def both(first: Any, then: Callable[[], Any]) -> Any:
    await first
    return await then()


def test_an_error_rolls_back_both_and_the_job_is_tried_again(stage: Stage) -> None:
    def body(ctx: Context, tx: Any) -> Any:
        if stage.form == "async":
            return both(write(tx), lambda: fail_async(ctx))
        write(tx)
        fail(ctx)
        return None

    def fail(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ValueError("not yet")

    async def fail_async(ctx: Context) -> None:
        fail(ctx)

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.attempt, stage.written) == ("completed", 3, ["row"])


def test_an_error_after_the_commit_changes_nothing(stage: Stage) -> None:
    def after(_: Context) -> None:
        raise ValueError("too late")

    stage.handler(lambda ctx, tx: write(tx), after=after)
    job = stage.run()
    assert (job.state, stage.written, stage.runs) == ("completed", ["row"], 1)


def test_who_lost_the_lease_writes_nothing(app: Oncely, stage: Stage) -> None:
    others = []

    def steal_once(_: Context) -> None:
        others.append(steps.steal(app))

    stage.handler(lambda ctx, tx: write(tx), before=steal_once)
    job = stage.run()
    assert (job.state, stage.written) == ("running", [])
    assert [type(error) for error in stage.errors] == [LeaseLost]
    assert steps.end(app, others[0], "completed")


def test_a_lease_stolen_in_the_middle(postgres_url: str, form: str) -> None:
    """Where writers do not keep each other out, it can be lost inside the transaction."""
    with Oncely(postgres_url) as app:
        app.migrate()
        stage = Stage(app, form)

        def body(ctx: Context, tx: Any) -> Any:
            done = write(tx)
            steps.steal(app)
            return done

        stage.handler(body)
        job = stage.run()
        assert (job.state, stage.written) == ("running", [])
        assert [type(error) for error in stage.errors] == [LeaseLost]


def test_a_lease_that_ran_out_and_nobody_else_has_taken(app: Oncely, stage: Stage) -> None:
    """The short way of the end is refused, and the long one finds that it is still in time."""

    stage.handler(lambda ctx, tx: write(tx), before=lambda _: steps.run_out(app))
    job = stage.run()
    assert (job.state, stage.written, stage.errors) == ("completed", ["row"], [])


@pytest.fixture
def on_postgres(cluster: Cluster, spares: Spares, form: str) -> Iterator[Stage]:
    name = spares.take()
    with Oncely(cluster.url(name)) as app, spares.sessions_for(app):
        yield Stage(app, form)
    spares.give_back(name)


def test_what_the_commit_itself_refuses_leaves_nothing(on_postgres: Stage) -> None:
    stage = on_postgres
    sql(stage.app, "create table parent (id int primary key)")
    sql(
        stage.app,
        "create table child (id int references parent deferrable initially deferred)",
    )

    def body(ctx: Context, tx: Any) -> Any:
        row = 7 if ctx.attempt == 1 else None
        return tx.execute("insert into child values (%s)", (row,))

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.attempt) == ("completed", 2)
    assert [type(error) for error in stage.errors] == [psycopg.errors.ForeignKeyViolation]
    assert sql(stage.app, "select id from child") == [(None,)]


def test_a_connection_is_as_good_after_every_end(on_postgres: Stage) -> None:
    """After a commit, a rollback, and a handler that makes the session forget all names."""
    stage, fails = on_postgres, iter([False, True, False, False, False])

    def body(ctx: Context, tx: Any) -> Any:
        if next(fails):
            raise ValueError("once")
        return tx.execute("deallocate all")

    stage.handler(body)
    jobs = [stage.app.enqueue("k", n) for n in range(4)]
    asyncio.run(stage.app.worker(concurrency=1).drain())
    assert {found(stage.app, job.job_id).state for job in jobs} == {"completed"}
    assert [type(error) for error in stage.errors] == [ValueError]


def test_transactions_at_once_do_not_share_a_lease(on_postgres: Stage) -> None:
    """They would wait for each other's commits. The worker learns it from the first ones."""
    stage, shared = on_postgres, []

    def body(ctx: Context, tx: Any) -> Any:
        shared.append(ctx._claimed.of > 1)
        return write(tx, ctx.job_id)

    stage.handler(body)
    count = 200
    stage.app.enqueue_many(NewJob("k", n) for n in range(count))
    asyncio.run(stage.app.worker(concurrency=4).drain())
    assert len(stage.written) == count
    assert not any(shared[-10:])
    assert {job.state for job in stage.app.jobs()} == {"completed"}


@pytest.mark.parametrize("verb", ["step", "fence", "transaction", "enqueue"])
def test_what_is_not_part_of_the_transaction_is_refused_inside_it(
    app: Oncely, stage: Stage, verb: str
) -> None:
    def body(ctx: Context, tx: Any) -> Any:
        match verb:
            case "step":
                return ctx.step("a", print)
            case "fence":
                return ctx.fence("a", print)
            case "enqueue":
                return ctx.enqueue("child", queue="other")
        if stage.form == "async":
            return ctx.transaction().__aenter__()
        return ctx.transaction().__enter__()

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "InvalidInput")
    assert app.jobs(queue="other") == []
    assert sql(app, "select * from oncely.effect") == []


def test_children_are_enqueued_in_the_transaction(app: Oncely, stage: Stage) -> None:
    def body(ctx: Context, tx: Any) -> Any:
        if stage.form == "async":
            return in_turn(
                lambda: ctx.enqueue("child", 1, queue="other", tx=tx),
                lambda: app.aenqueue("child", 2, queue="other", tx=tx),
                lambda: fail_first_async(ctx),
            )
        ctx.enqueue("child", 1, queue="other", tx=tx)
        app.enqueue("child", 2, queue="other", tx=tx)
        return fail_first(ctx)

    def fail_first(ctx: Context) -> None:
        assert app.jobs(queue="other") == [], "seen before the commit"
        if ctx.attempt == 1:
            raise ValueError("again")

    async def fail_first_async(ctx: Context) -> None:
        fail_first(ctx)

    stage.handler(body)
    receipt = app.enqueue("k")
    asyncio.run(app.worker(queues=["default"]).drain())
    assert found(app, receipt.job_id).state == "completed"
    assert sorted(job.payload for job in app.jobs(queue="other")) == [1, 2]


async def in_turn(*calls: Callable[[], Any]) -> None:
    for call in calls:
        await call()


def test_completing_twice_is_refused_and_rolls_back(stage: Stage) -> None:
    def body(ctx: Context, tx: Any) -> Any:
        if stage.form == "async":
            return in_turn(
                lambda: write(tx), lambda: ctx.complete(1, tx=tx), lambda: ctx.complete(2, tx=tx)
            )
        write(tx)
        ctx.complete(1, tx=tx)
        return ctx.complete(2, tx=tx)

    stage.handler(body)
    job = stage.run()
    assert (job.state, stage.written) == ("failed", [])
    assert {type(error) for error in stage.errors} == {InvalidInput}


def test_a_second_transaction_after_a_commit_is_refused(app: Oncely) -> None:
    sql(app, "create table written (name text)")
    seen = []

    @app.job("k")
    def handle(ctx: Context) -> None:
        with ctx.transaction() as tx:
            write(tx)
        try:
            with ctx.transaction() as tx:
                write(tx)
        except InvalidInput as error:
            seen.append(error)

    app.enqueue("k")
    app.drain()
    assert len(seen) == 1
    assert sql(app, "select name from written") == [("row",)]


def test_a_second_transaction_after_a_rollback_is_allowed(app: Oncely) -> None:
    sql(app, "create table written (name text)")

    @app.job("k")
    def handle(ctx: Context) -> None:
        with suppress(ValueError), ctx.transaction() as tx:
            write(tx, "lost")
            ctx.complete("lost", tx=tx)
            raise ValueError
        with ctx.transaction() as tx:
            write(tx, "kept")
            ctx.complete("kept", tx=tx)

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).result == "kept"
    assert sql(app, "select name from written") == [("kept",)]


def test_an_open_fence_refuses_completion(app: Oncely, stage: Stage) -> None:
    def late(*_: Any) -> None:
        raise TimeoutError("no answer")

    @app.job("k2", retry=AT_ONCE)
    def handle(ctx: Context) -> None:
        with pytest.raises(TimeoutError):
            ctx.fence("welcome", late)
        with ctx.transaction() as tx:
            write(tx)

    job = app.enqueue("k2")
    app.drain()
    assert found(app, job.job_id).state == "in_doubt"
    assert stage.written == []


def test_doubt_after_a_rollback_is_not_swallowed(app: Oncely) -> None:
    """The job was completed in a transaction that came to nothing; then a fence had no answer."""

    def late(*_: Any) -> None:
        raise TimeoutError("no answer")

    @app.job("k", retry=AT_ONCE)
    def handle(ctx: Context) -> str:
        with suppress(ZeroDivisionError), ctx.transaction() as tx:
            ctx.complete(tx=tx)
            raise ZeroDivisionError
        with pytest.raises(TimeoutError):
            ctx.fence("welcome", late)
        return "all is well"

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).state == "in_doubt"


def test_a_caught_error_of_a_statement_does_not_lose_the_write(stage: Stage) -> None:
    """PostgreSQL undoes such a transaction whatever the handler says; on SQLite only the statement
    is undone. Either way the job is completed if and only if the write is there."""

    def body(ctx: Context, tx: Any) -> Any:
        if stage.form == "async":
            return in_turn(lambda: write(tx), lambda: ctx.complete(1, tx=tx), lambda: again(tx))
        write(tx)
        ctx.complete(1, tx=tx)
        with pytest.raises(Exception, match=r"(?i)unique"):
            write(tx)
        return None

    async def again(tx: Any) -> None:
        with pytest.raises(Exception, match=r"(?i)unique"):
            await write(tx)

    stage.handler(body)
    job = stage.run()
    assert (job.state == "completed") == (stage.written == ["row"])
    assert job.state in ("completed", "failed")


@pytest.mark.parametrize("how", ["commit()", "rollback()", "commit", "with", "script"])
def test_the_handler_cannot_end_the_transaction(app: Oncely, how: str) -> None:
    sql(app, "create table written (name text)")

    @app.job("k", retry=Retry(max_attempts=1))
    def handle(ctx: Context) -> None:
        with ctx.transaction() as tx:
            write(tx)
            match how:
                case "commit()":
                    tx.commit()
                case "rollback()":
                    tx.rollback()
                case "commit":
                    if engine_of(app) == "sqlite":
                        tx.execute("commit")
                case "with":
                    if engine_of(app) == "sqlite":
                        with tx:
                            write(tx)
                case "script":
                    if engine_of(app) == "sqlite":
                        tx.cursor().executescript("select 1")
            raise ValueError("in the end nothing may be there")

    job = app.enqueue("k")
    app.drain()
    assert found(app, job.job_id).state == "failed"
    assert sql(app, "select name from written") == []


def test_a_long_transaction_on_sqlite_does_not_lose_the_lease(
    sqlite_url: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It keeps all other writers out, the renewal of its own lease among them: that waits."""
    loop, renewing = MovedLoop(), threading.Event()
    with Oncely(sqlite_url) as app:
        stage = Stage(app, form)
        run = app._engine.run

        def watch(make: Callable[[bool], Any], access: Access) -> Any:
            plan = make(False)
            if plan.__name__ == "renew":
                renewing.set()
            return run(lambda _: plan, access)

        def hold() -> None:
            loop.move(20)
            assert renewing.wait(PATIENCE_SECONDS)
            time.sleep(1)  # it waits for as long as this

        def body(ctx: Context, tx: Any) -> Any:
            if form == "async":
                return in_turn(lambda: write(tx), lambda: asyncio.to_thread(hold))
            write(tx)
            hold()
            return None

        stage.handler(body)
        receipt = app.enqueue("k")
        monkeypatch.setattr(app._engine, "run", watch)
        run_on(loop, app.worker(lease_seconds=60).drain())
        assert found(app, receipt.job_id).state == "completed"
        assert (stage.runs, stage.written) == (1, ["row"])


def test_a_store_in_memory_says_that_it_cannot(form: str) -> None:
    with Oncely("sqlite:///:memory:") as app:

        @app.job("k", retry=Retry(max_attempts=1))
        def handle(ctx: Context) -> None:
            with ctx.transaction():
                pass

        job = app.enqueue("k")
        app.drain()
        assert "use a file" in found(app, job.job_id).error["message"]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_a_fork_has_connections_of_its_own(stage: Stage) -> None:
    stage.handler(lambda ctx, tx: write(tx, f"row {ctx.job_id}"))
    assert stage.run().state == "completed"
    went_well(fork(lambda: _completed(stage)))
    _completed(stage)
    assert len(stage.written) == 3


def _completed(stage: Stage) -> None:
    assert stage.run().state == "completed"


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    with Oncely(postgres_url) as app:
        app.migrate()
    with Proxy(postgres_url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Oncely]:
    with Oncely(proxy.url) as app:
        yield app


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_to_the_commit_is_settled_by_reading(
    proxy: Proxy, far: Oncely, form: str, when: Any
) -> None:
    stage = Stage(far, form)
    went_on = []

    def body(ctx: Context, tx: Any) -> Any:
        if stage.runs == 1:
            proxy.arm(Fault("COMMIT", when))
        return write(tx, f"by run {stage.runs}")

    stage.handler(body, after=lambda ctx: went_on.append(stage.runs))
    job = stage.run()
    assert proxy.pending == 0
    assert (job.state, job.attempt) == ("completed", 1)
    # The worker commits too, and it may be that one which was cut: then the first run stands.
    assert went_on in ([[1]] if when == "after" else [[1], [2]])
    assert stage.written == [f"by run {went_on[0]}"]
    assert all(isinstance(error, StoreUnavailable) for error in stage.errors)


@pytest.mark.parametrize(
    ("text", "when", "counts"),
    [("oncely_last", "unsynced", True), ("select 1 / count", "unsent", False)],
    ids=["after the commit", "before the commit"],
)
def test_a_session_that_ends_inside_the_last_message_is_lost(
    postgres_url: str, proxy: Proxy, far: Oncely, form: str, text: str, when: Any, counts: bool
) -> None:
    """It has answered statements of that message; the commit is among them or not."""
    stage = Stage(far, form)
    fault = Fault(
        text, when, hook=lambda: terminate_what_has_answered(postgres_url), stays_open=True
    )

    def body(ctx: Context, tx: Any) -> Any:
        if stage.runs == 1:
            proxy.arm(fault)
        return write(tx, f"run {stage.runs}")

    stage.handler(body)
    job = stage.run()
    assert fault.happened.wait(PATIENCE_SECONDS)
    assert (job.state, stage.written) == ("completed", ["run 1" if counts else "run 2"])
    assert stage.runs == (1 if counts else 2)
    assert all(isinstance(error, StoreUnavailable) for error in stage.errors)


def test_a_commit_that_arrives_late_counts(postgres_url: str, proxy: Proxy, far: Oncely) -> None:
    """The store is asked before the commit is there, and says no. Then it comes after all."""
    stage = Stage(far, "def")

    def wait_until_somebody_waits() -> None:
        """For the lease, which the late transaction has locked."""
        with psycopg.connect(postgres_url, autocommit=True) as watcher:
            waiting = "select from pg_stat_activity where wait_event_type = 'Lock'"
            wait_until(lambda: watcher.execute(waiting).fetchall(), "somebody waits")

    def body(ctx: Context, tx: Any) -> Any:
        proxy.arm(Fault("COMMIT", "late", hook=wait_until_somebody_waits))
        return write(tx)

    stage.handler(body)
    job = stage.run()
    assert (job.state, stage.runs, stage.written) == ("completed", 1, ["row"])


def test_a_connection_that_the_server_ended_is_not_used_again(postgres_url: str, form: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        stage = Stage(app, form)
        stage.handler(lambda ctx, tx: write(tx, ctx.job_id))
        for _ in range(2):
            receipt = app.enqueue("k")
            asyncio.run(_drain_twice(app))
            job = found(app, receipt.job_id)
            assert (job.state, job.attempt) == ("completed", 1)


async def _drain_twice(app: Oncely) -> None:
    """On one loop, whose connection is kept, and then ended by the server."""
    await app.adrain()
    sql(
        app,
        "select pg_terminate_backend(pid) from pg_stat_activity "
        "where application_name = 'oncely handler'",
    )
    app.enqueue("k")
    await app.adrain()
