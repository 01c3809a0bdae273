"""`ctx.complete(result, tx=…)`: in the caller's own transaction, with every library."""

import asyncio
import inspect
import sqlite3
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from oncely import Context, InvalidInput, Job, LeaseLost, Oncely, Retry, SchemaError
from tests.engine import steps
from tests.engine.steps import found, sql
from tests.engine.tx_party import Kit
from tests.engine.tx_scene import Scene, everywhere, on_postgres

pytest_plugins = ["tests.engine.tx_fixtures"]
AT_ONCE = Retry(base=0, max_attempts=2)


class Stage:
    """A handler that writes an order with the library and completes its job in the same
    transaction. What happens in between is a generator that yields what an async one awaits."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.kind = scene.fresh("k").replace(":", ".")
        self.order = scene.fresh("order")
        self.runs = 0
        self.errors: list[BaseException] = []

    def handler(self, body: Callable[[Context, Kit], Any]) -> None:
        def play(ctx: Context) -> Any:
            self.runs += 1
            kit = self.scene.kit(self.scene.url)
            yield kit.open()
            try:
                yield kit.begin()
                yield kit.execute(f"insert into orders values ('{self.order}')")
                return (yield from body(ctx, kit))
            except Exception as error:
                self.errors.append(error)
                yield kit.rollback()
                raise
            finally:
                yield kit.close()

        async def on_loop(ctx: Context) -> Any:
            return await _aplay(play(ctx))

        def in_thread(ctx: Context) -> Any:
            return _play(play(ctx))

        function = on_loop if self.scene.kit.awaits else in_thread
        self.scene.app.job(self.kind, queue=self.kind, retry=AT_ONCE)(function)

    def run(self) -> Job:
        receipt = self.scene.app.enqueue(self.kind)
        # One at a time: what the handler makes free is not taken by its own worker.
        asyncio.run(self.scene.app.worker(queues=[self.kind], concurrency=1).drain())
        return found(self.scene.app, receipt.job_id)

    @property
    def has_order(self) -> bool:
        return self.scene.has_order(self.order)


def _play(acts: Any) -> Any:
    value = None
    try:
        while True:
            value = acts.send(value)
    except StopIteration as end:
        return end.value


async def _aplay(acts: Any) -> Any:
    value: Any = None
    error: Exception | None = None
    try:
        while True:
            wanted = acts.throw(error) if error else acts.send(value)
            error = None
            try:
                value = await wanted if inspect.isawaitable(wanted) else wanted
            except Exception as raised:
                error = raised
    except StopIteration as end:
        return end.value


@pytest.fixture
def stage(scene: Scene) -> Stage:
    return Stage(scene)


@everywhere
def test_commit_keeps_the_write_and_completes_the_job(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete({"n": 7}, tx=kit.tx)
        yield kit.commit()
        return "what is returned after it does not count"

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result, stage.has_order) == ("completed", {"n": 7}, True)


@everywhere
def test_an_error_rolls_back_both(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete(tx=kit.tx)
        if ctx.attempt == 1:
            raise ValueError("again")
        yield kit.commit()

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.attempt, stage.runs, stage.has_order) == ("completed", 2, 2, True)


@everywhere
def test_after_a_rollback_the_job_ends_as_its_handler_does(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete("in the transaction", tx=kit.tx)
        yield kit.rollback()
        yield kit.begin()
        return "by itself"

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result, stage.has_order) == ("completed", "by itself", False)


@everywhere
def test_after_a_rollback_the_transaction_can_be_repeated(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete("first", tx=kit.tx)
        yield kit.rollback()
        yield kit.begin()
        yield kit.execute(f"insert into orders values ('{stage.order}')")
        yield ctx.complete("second", tx=kit.tx)
        yield kit.commit()

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result, stage.has_order) == ("completed", "second", True)


@everywhere
def test_who_lost_the_lease_is_refused(scene: Scene, stage: Stage) -> None:
    others = []

    def body(ctx: Context, kit: Kit) -> Any:
        yield kit.rollback()  # on SQLite nobody else could write
        others.append(steps.steal(scene.app, stage.kind))
        yield kit.begin()
        yield kit.execute(f"insert into orders values ('{stage.order}')")
        yield ctx.complete(tx=kit.tx)
        yield kit.commit()

    stage.handler(body)
    job = stage.run()
    assert (job.state, stage.has_order) == ("running", False)
    assert [type(error) for error in stage.errors] == [LeaseLost]
    assert steps.end(scene.app, others[0], "completed")


@everywhere
def test_completing_twice_is_refused(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete(1, tx=kit.tx)
        yield ctx.complete(2, tx=kit.tx)
        yield kit.commit()

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.error["type"], stage.has_order) == ("failed", "InvalidInput", False)


@everywhere
def test_an_effect_after_it_is_refused_and_does_not_hang(stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield ctx.complete(1, tx=kit.tx)
        yield ctx.step("late", print)

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.error["type"], stage.has_order) == ("failed", "InvalidInput", False)


@everywhere
def test_without_a_transaction_it_is_refused(scene: Scene, stage: Stage) -> None:
    def body(ctx: Context, kit: Kit) -> Any:
        yield kit.rollback()
        yield kit.close()
        yield kit.open_autocommit()
        try:
            yield ctx.complete(tx=kit.tx)
        finally:
            yield kit.close()
            yield kit.open()
            yield kit.begin()

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.error["type"]) == ("failed", "InvalidInput")


@on_postgres
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_a_strict_transaction_gets_its_own_error_and_can_be_repeated(
    scene: Scene, stage: Stage, level: str
) -> None:
    """The lease is renewed after the snapshot was taken: the library's own error comes, and the
    loop around the transaction that every such caller has goes on."""

    def body(ctx: Context, kit: Kit) -> Any:
        yield kit.rollback()
        for n in range(2):
            yield kit.begin()
            yield kit.execute(f"set transaction isolation level {level}")
            yield kit.execute(f"insert into orders values ('{stage.order}')")
            if n == 0:
                sql(scene.app, "update oncely.lease set expires_at = expires_at")
            try:
                yield ctx.complete(n, tx=kit.tx)
            except kit.serialization_error:
                stage.runs += 10
                yield kit.rollback()
                continue
            yield kit.commit()
            return

    stage.handler(body)
    job = stage.run()
    assert (job.state, job.result, stage.has_order) == ("completed", 1, True)
    assert stage.runs == 11


def test_another_database_is_refused(postgres_url: str, tx_empty: str, tx_sqlite: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()
        seen: list[type[BaseException]] = []

        @app.job("k", retry=Retry(max_attempts=1))
        def handle(ctx: Context) -> None:
            for kit in (_psycopg(tx_empty), _sqlite(tx_sqlite)):
                try:
                    ctx.complete(tx=kit)
                except (InvalidInput, SchemaError) as error:
                    seen.append(type(error))
                finally:
                    kit.close()

        app.enqueue("k")
        app.drain()
        assert seen == [SchemaError, InvalidInput]


def _psycopg(url: str) -> Any:
    return psycopg.connect(url)


def _sqlite(url: str) -> Any:
    return sqlite3.connect(url.removeprefix("sqlite:///"))


@pytest.mark.parametrize(
    "library",
    [
        "postgres-psycopg",
        "postgres-psycopg-async",
        "postgres-asyncpg",
        "postgres-sqlalchemy-session",
    ],
)
def test_a_database_with_another_store_is_refused_by_name(
    stage: Stage, tx_other_store: str
) -> None:
    """Nothing was written there, and the job can still be completed in its own store."""

    def body(ctx: Context, kit: Kit) -> Any:
        lost = stage.scene.kit(tx_other_store)
        yield lost.open()
        yield lost.begin()
        try:
            yield ctx.complete(tx=lost.tx)
        except InvalidInput as error:
            stage.errors.append(error)
        yield lost.execute(f"insert into orders values ('{stage.order}')")
        yield lost.commit()
        yield lost.close()
        yield ctx.complete("here", tx=kit.tx)
        yield kit.commit()

    stage.handler(body)
    job = stage.run()
    [refusal] = stage.errors
    assert "on another store (database other_" in str(refusal)
    assert (job.state, job.result, stage.has_order) == ("completed", "here", True)
    with psycopg.connect(tx_other_store) as other:
        written = other.execute("select 1 from orders where name = %s", (stage.order,)).fetchone()
    assert written, "the transaction went on"
