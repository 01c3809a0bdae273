"""The connection that an `async def` handler writes through waits for the server in a way of its
own: on both event loops, in whatever way a statement ends."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
import uvloop

from oncely import Oncely, Retry
from oncely.store.postgres.transaction import PostgresTransactions

SLEEP = "select pg_sleep(600)"
BIG = "x" * 20_000_000
"""More than the socket takes at once."""


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresTransactions]:
    transactions = PostgresTransactions(postgres_url)
    yield transactions
    transactions.close()


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[[Coroutine[Any, Any, Any]], Any]:
    runs: Callable[[Coroutine[Any, Any, Any]], Any] = request.param
    return runs


async def one(tx: Any, query: str = "select 1", *params: Any) -> Any:
    row = await (await tx.execute(query, params)).fetchone()
    return row[0]


def test_a_statement_that_is_cancelled_ends_on_the_server(
    store: PostgresTransactions, run: Any
) -> None:
    """And the connection is as good as before."""

    async def work() -> None:
        pids = []
        with suppress(asyncio.TimeoutError):
            async with asyncio.timeout(0.2), store.on_loop() as tx:
                pids.append(await one(tx, "select pg_backend_pid()"))
                await tx.execute(SLEEP)
        async with asyncio.timeout(20), store.on_loop() as tx:
            pids.append(await one(tx, "select pg_backend_pid()"))
            assert (
                await one(tx, "select count(*) from pg_stat_activity where query = %s", SLEEP) == 0
            )
        assert len(set(pids)) == 1

    run(work())


def test_more_than_the_socket_takes_is_sent_and_received(
    store: PostgresTransactions, run: Any
) -> None:
    async def work() -> None:
        async with asyncio.timeout(60), store.on_loop() as tx:
            assert await one(tx, "select %s::text", BIG) == BIG
            assert await one(tx) == 1

    run(work())


def test_transactions_that_go_on_at_once_each_get_their_own(
    store: PostgresTransactions, run: Any
) -> None:
    async def count(number: int) -> None:
        for n in range(20):
            async with store.on_loop() as tx:
                assert await one(tx, "select %s::int", number) == number
                with suppress(psycopg.errors.DivisionByZero):
                    async with tx.transaction():
                        await tx.execute("select 1 / 0")
                assert await one(tx, "select %s::int", n) == n

    async def work() -> None:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(count, range(8)))

    run(work())


def test_a_connection_that_ends_while_nobody_reads_is_noticed_and_does_not_busy_the_loop(
    store: PostgresTransactions, run: Any, postgres_url: str
) -> None:
    async def work() -> None:
        told = 0

        def counted() -> None:
            nonlocal told
            told += 1
            tell()

        async with asyncio.timeout(20):
            with suppress(psycopg.OperationalError):
                async with store.on_loop() as tx:
                    pid = await one(tx, "select pg_backend_pid()")
                    tx.unwatch()
                    tell, tx._tell_readable = tx._tell_readable, counted
                    await tx.execute("select 1")
                    before = told
                    with psycopg.connect(postgres_url, autocommit=True) as other:
                        other.execute("select pg_terminate_backend(%s, 5000)", (pid,))
                    await asyncio.sleep(0.2)
                    assert told - before <= 1
                    await tx.execute("select 1")
            assert tx.broken
            async with store.on_loop() as tx:
                assert await one(tx) == 1

    run(work())


def test_copy_pipeline_and_notifications_are_psycopgs(
    store: PostgresTransactions, run: Any
) -> None:
    async def work() -> None:
        async with asyncio.timeout(60), store.on_loop() as tx:
            await tx.execute("create temporary table copied (n integer)")
            async with tx.cursor().copy("copy copied (n) from stdin") as copy:
                for n in range(1000):
                    await copy.write_row((n,))
            async with tx.pipeline():
                first, second = await tx.execute("select 1"), await tx.execute("select 2")
            assert [await first.fetchone(), await second.fetchone()] == [(1,), (2,)]
            assert [n async for n in tx.notifies(timeout=0.05)] == []
            assert await one(tx, "select count(*) from copied") == 1000
            rows = [row async for row in tx.cursor().stream("select n from copied order by n")]
            assert len(rows) == 1000
            assert await one(tx) == 1

    run(work())


def test_a_handler_may_close_it(postgres_url: str) -> None:
    with Oncely(postgres_url) as app:
        app.migrate()

        @app.job("k", retry=Retry(max_attempts=1))
        async def handler(ctx: Any) -> None:
            async with ctx.transaction() as tx:
                await tx.execute("select 1")
                await tx.close()

        job = app.enqueue("k")
        uvloop.run(app.worker().drain())
        found = app.get(job.job_id)
        assert found is not None
        assert found.state == "failed"
