"""Workers on a PostgreSQL with a standby: commits that wait for it, and a failover to it."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from oncely import Context, Oncely
from tests.crash.proxy import Proxy
from tests.engine.long_jobs import LongJobs
from tests.engine.steps import found, sql
from tests.standby import Replication
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture(scope="module")
def replication() -> Iterator[Replication]:
    with Replication() as replication:
        yield replication


@pytest.fixture
def app(replication: Replication) -> Iterator[Oncely]:
    """A store on the primary; every commit of a test waits for the standby."""
    replication.let_go_on()
    with Oncely(replication.primary.create_database(f"test_{uuid4().hex}")) as app:
        app.migrate()
        replication.synchronize()
        try:
            yield app
        finally:
            replication.let_go_on()
            replication.desynchronize()


def enqueue_for_the_primary_alone(app: Oncely, kind: str, group_key: str | None) -> str:
    """Its commit does not wait for the standby."""
    with psycopg.connect(app.url) as connection:
        connection.execute("set synchronous_commit = local")
        return app.enqueue(kind, tx=connection, group_key=group_key).job_id


def leases(app: Oncely) -> int:
    [(count,)] = sql(app, "select count(*) from oncely.lease")
    return int(count)


@pytest.mark.parametrize(("group_key", "leases_long"), [(None, 4), ("tenant", 0)])
def test_a_claim_that_is_carried_out_after_its_connection_was_cut_runs_out(
    replication: Replication, app: Oncely, group_key: str | None, leases_long: int
) -> None:
    """Its COMMIT waits in the server for the standby when the worker loses the connection. The
    worker looks, finds nothing, and goes on. Then, at once or after the time of several leases, the
    lease is there, in its name."""
    ran: Counter[str] = Counter()
    with Proxy(app.url) as proxy, Oncely(proxy.url) as far:

        @far.job("k")
        async def handler(ctx: Context) -> None:
            ran[ctx.job_id] += 1

        worker = far.worker(lease_seconds=1, poll_seconds=0.05)
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            wait_until(lambda: app.workers(), "the worker has not started")
            replication.hold_up()
            job_id = enqueue_for_the_primary_alone(app, "k", group_key)
            wait_until(lambda: claims_that_wait(app))
            proxy.refuse()
            proxy.seen.clear()
            proxy.relent()
            wait_until(lambda: has_looked_and_gone_on(proxy))
            time.sleep(leases_long)
            assert leases(app) == 0
            replication.let_go_on()
            wait_until(lambda: found(app, job_id).state == "completed")
        finally:
            replication.let_go_on()
            worker.stop()
            thread.join()
    assert set(ran) == {job_id}
    assert leases(app) == 0


def claims_that_wait(app: Oncely) -> int:
    [(count,)] = sql(
        app,
        "select count(*) from pg_stat_activity join pg_locks using (pid)"
        " where wait_event = 'SyncRep' and relation = 'oncely.lease'::regclass"
        " and mode = 'RowExclusiveLock'",
    )
    return int(count)


def has_looked_and_gone_on(proxy: Proxy) -> bool:
    """The worker has asked what its claim has left behind, and then for other jobs."""
    seen = list(proxy.seen)
    looked = next((n for n, text in enumerate(seen) if "l.nonce >= " in text), len(seen))
    return any("level (queue" in text for text in seen[looked:])


@pytest.mark.parametrize("held_by", ["the standby", "the handler"])
def test_a_slow_commit_of_one_job_cancels_no_other(
    replication: Replication, app: Oncely, held_by: str
) -> None:
    """The lease of that job is locked for longer than it lasts. The worker renews its others, and
    keeps running this one."""
    begun, go, completed, commit = (threading.Event() for _ in range(4))

    @app.job("pay")
    def pay(ctx: Context) -> None:
        begun.set()
        assert go.wait(PATIENCE_SECONDS)
        with psycopg.connect(app.url) as tx:
            ctx.complete("paid", tx=tx)
            completed.set()
            assert commit.wait(PATIENCE_SECONDS)

    others = [app.enqueue("k", n).job_id for n in range(3)]
    paid = app.enqueue("pay").job_id
    with LongJobs(app, lease_seconds=4) as jobs:
        jobs.run_until_begun(dict.fromkeys(others, 1))
        assert begun.wait(PATIENCE_SECONDS)
        go.set()
        assert completed.wait(PATIENCE_SECONDS)
        if held_by == "the standby":
            replication.hold_up()
            commit.set()
            wait_until(replication.waiting_commits)
        [(locked_until,)] = sql(
            app, "select expires_at from oncely.lease where :id = any (ids)", id=paid
        )
        # Others were renewed when this one had run out.
        ahead = "select max(expires_at) > :then + interval '4 s' from oncely.lease"
        wait_until(lambda: sql(app, ahead, then=locked_until) == [(True,)] or jobs.cancelled)
        assert not jobs.cancelled
        assert found(app, paid).state == "running"
        commit.set()
        replication.let_go_on()
        wait_until(lambda: found(app, paid).state == "completed")
        jobs.end_together(*((each, 0) for each in others))
        for each in others:
            wait_until(lambda each=each: found(app, each).state == "completed")  # type: ignore[misc]
        assert not jobs.cancelled
        assert [jobs.begun(each) for each in others] == [1, 1, 1]
    assert [len(found(app, each).executions) for each in (*others, paid)] == [1, 1, 1, 1]


def test_an_epoch_that_the_promoted_standby_gives_out_again_settles_nothing_else() -> None:
    """A worker runs two jobs under a lease that the standby has not received. After the failover it
    is given both again, under the same epoch. An end of the first lease comes in the same turn as
    an end of the second, under which the other job still runs."""
    with Replication() as replication:
        replication.primary.create_database("jobs")
        with Oncely(replication.url("jobs")) as app:
            app.migrate()
            replication.synchronize()
            first, second = (app.enqueue("k", n).job_id for n in range(2))
            replication.desynchronize()
            replication.disconnect()
            with LongJobs(app, one_lease=True) as jobs:
                jobs.run_until_begun({first: 1, second: 1})
                lost = sql_at(replication.primary.url("jobs"))
                replication.primary.stop("immediate")
                replication.promote()
                jobs.run_until_begun({first: 2, second: 2})
                again = sql_at(replication.standby.url("jobs"))
                assert [epoch for epoch, _ in lost] == [epoch for epoch, _ in again]
                assert lost != again
                jobs.end_together((first, 1), (first, 0))
                wait_until(lambda: found(app, first).state == "completed")
                assert found(app, second).state == "running", "completed while it still runs"
                jobs.end_together((second, 1))
                wait_until(lambda: found(app, second).state == "completed")


def sql_at(url: str) -> list[tuple[int, int]]:
    with psycopg.connect(url) as connection:
        return connection.execute("select epoch, nonce from oncely.lease").fetchall()
