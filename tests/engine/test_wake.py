"""An idle worker is woken by whoever makes a job due; nobody waits for the next look.

The workers here would look again after an hour, and a test ends after two minutes: what runs was
woken. Each test lets the worker come to rest first, past its second look.
"""

import asyncio
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from types import SimpleNamespace

import psycopg
import pytest

from oncely import Context, NewJob, Oncely
from oncely.store import listen
from oncely.store.listen import ANY_QUEUE, RESULT, queue_topic
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sqlite.engine import SqliteEngine
from oncely.worker.sleep import Sleep
from tests.engine.racers import enqueue_each, race
from tests.engine.steps import Backdoor, claim_one, end, engine_of, retry, sql
from tests.engine.test_fork import fork, went_well
from tests.waiting import PATIENCE_SECONDS, wait_until

HOUR = 3600.0
_napping: dict[Sleep, float] = {}
"""For how long at most each worker waits now."""


@pytest.fixture(autouse=True)
def _naps_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    nap = Sleep.nap

    async def seen(sleep: Sleep, seconds: float, due_seconds: float | None) -> float:
        _napping[sleep] = seconds
        try:
            return await nap(sleep, seconds, due_seconds)
        finally:
            del _napping[sleep]

    monkeypatch.setattr(Sleep, "nap", seen)


def rest(app: Oncely) -> None:
    """Wait until all workers rest, sure to be told, and have looked for the last time."""
    engine = app._engine
    assert isinstance(engine, SqliteEngine | PostgresEngine)

    def resting() -> bool:
        ears = tuple(engine._listener._ears)
        naps = tuple(_napping.values())
        return (
            bool(ears)
            and all(ear.covered and ear.resting for ear in ears)
            and len(naps) == len(ears)
            and set(naps) == {HOUR}
        )

    wait_until(resting)


@contextmanager
def idle_worker(app: Oncely, queues: list[str] | None = None) -> Iterator[None]:
    worker = app.worker(queues=queues, poll_seconds=HOUR, lease_seconds=HOUR)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        rest(app)
        yield
    finally:
        worker.stop()
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()


@pytest.fixture
def ran(app: Oncely) -> list[str]:
    ran: list[str] = []

    @app.job("k")
    async def handle(ctx: Context) -> None:
        ran.append(ctx.job_id)

    return ran


@pytest.mark.parametrize("queues", [None, ["a", "default"]])
def test_an_enqueue_wakes_an_idle_worker(
    app: Oncely, ran: list[str], queues: list[str] | None
) -> None:
    with idle_worker(app, queues):
        for n in range(3):
            receipt = app.enqueue("k")
            wait_until(lambda receipt=receipt: receipt.job_id in ran)  # type: ignore[misc]
            if n:
                rest(app)
        many = app.enqueue_many([NewJob("k", queue="a"), NewJob("k", queue="a")])
        wait_until(lambda: {receipt.job_id for receipt in many.receipts} <= set(ran))


def test_an_enqueue_of_another_process_wakes_it(app: Oncely, url: str, ran: list[str]) -> None:
    with idle_worker(app):
        [[(job_id, inserted)]] = race(enqueue_each, [(url, [NewJob("k")])])
        assert inserted
        wait_until(lambda: ran == [job_id])


def test_the_callers_commit_wakes_it(app: Oncely, url: str, ran: list[str]) -> None:
    with idle_worker(app):
        if engine_of(app) == "postgres":
            with psycopg.connect(url) as tx:
                receipt = app.enqueue("k", tx=tx)
        else:
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as file, file:
                receipt = app.enqueue("k", tx=file)
        wait_until(lambda: ran == [receipt.job_id])


def test_a_job_that_goes_back_in_line_wakes_it(app: Oncely, ran: list[str]) -> None:
    receipts = [app.enqueue("k", queue=queue) for queue in ("retried", "failed")]
    retried, failed = claim_one(app, "retried"), claim_one(app, "failed")
    end(app, failed, "failed")
    with idle_worker(app):
        assert retry(app, retried)
        wait_until(lambda: receipts[0].job_id in ran)
        rest(app)
        app.replay(failed.job_id)
        wait_until(lambda: receipts[1].job_id in ran)


def test_a_store_in_memory_wakes_its_worker() -> None:
    with Oncely("sqlite:///:memory:") as app:
        done = threading.Event()

        @app.job("k")
        async def handle(ctx: Context) -> None:
            done.set()

        with idle_worker(app):
            app.enqueue("k")
            assert done.wait(PATIENCE_SECONDS)


def test_the_parent_of_a_fork_is_woken_on_and_the_child_can_listen(
    app: Oncely, ran: list[str]
) -> None:
    def child() -> None:
        told = threading.Event()
        ear = app._engine.listen([ANY_QUEUE], lambda _: told.set())
        wait_until(ear.rest)
        told.clear()
        app.enqueue("k", queue="x")
        assert told.wait(PATIENCE_SECONDS)
        app.close()

    with idle_worker(app, ["default"]):
        went_well(fork(child))
        rest(app)
        receipt = app.enqueue("k")
        wait_until(lambda: receipt.job_id in ran)


def test_two_workers_share_one_listener_and_both_are_woken(app: Oncely, ran: list[str]) -> None:
    begun: set[str] = set()

    @app.job("which")
    async def which(ctx: Context) -> None:
        begun.add(ctx.queue)

    with idle_worker(app, ["a"]), idle_worker(app, ["b"]):
        listeners = [t for t in threading.enumerate() if t.name == "oncely-listen"]
        assert len(listeners) == 1
        app.enqueue("which", queue="b")
        app.enqueue("which", queue="a")
        wait_until(lambda: begun == {"a", "b"})


def test_an_app_can_be_closed_while_somebody_rests(app: Oncely) -> None:
    ear = app._engine.listen([ANY_QUEUE], lambda _: None)
    wait_until(ear.rest)
    app.close()
    assert not [t for t in threading.enumerate() if t.name == "oncely-listen"]
    assert not ear.rest()


def test_nobody_is_left_listening_after_a_worker_has_stopped(app: Oncely, ran: list[str]) -> None:
    with idle_worker(app):
        pass
    if engine_of(app) == "postgres":
        held = "select 1 from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
        wait_until(lambda: not sql(app, held))
    engine = app._engine
    assert isinstance(engine, SqliteEngine | PostgresEngine)
    assert not engine._listener._ears


class Postgres:
    """What others see of a listener on PostgreSQL."""

    @pytest.fixture
    def app(self, postgres_url: str) -> Iterator[Oncely]:
        with Oncely(postgres_url) as app:
            app.migrate()
            yield app


class TestNotify(Postgres):
    def test_is_sent_only_while_somebody_listens(self, app: Oncely, ran: list[str]) -> None:
        def wakes(queue: str) -> bool:
            [[woke]] = sql(app, "select oncely.wake(:queue)", queue=queue)
            return bool(woke)

        assert not wakes("default")
        with idle_worker(app, ["default"]):
            assert wakes("default")
            assert not wakes("other")
        wait_until(lambda: not wakes("default"))
        with idle_worker(app):
            assert wakes("default")
            assert wakes("other")
        wait_until(lambda: not wakes("other"))

    def test_leaves_no_lock_behind_also_where_the_statement_fails(self, app: Oncely) -> None:
        with psycopg.connect(app.url) as tx:
            app.enqueue("k", tx=tx)
            with pytest.raises(psycopg.errors.DivisionByZero):
                tx.execute("select 1 / (oncely.wake('a')::int * 0)")
            held = "select count(*) from pg_locks where locktype = 'advisory'"
            assert sql(app, held) == [(0,)]

    def test_does_not_reach_another_schema(self, app: Oncely) -> None:
        told: list[str] = []
        with Oncely(app.url, schema="other") as other:
            other.migrate()
            ears = [
                other._engine.listen([ANY_QUEUE, RESULT], told.append),
                other._engine.listen([queue_topic("default")], told.append),
            ]
            for ear in ears:
                wait_until(ear.rest)
            told.clear()
            assert sql(app, "select oncely.wake('default')") == [(False,)]
            app.enqueue("k")
            assert sql(app, "select other.wake('default')") == [(True,)]
            wait_until(lambda: len(told) == 2)

    def test_a_worker_that_dies_leaves_nothing(self, app: Oncely) -> None:
        def child() -> None:
            ear = app._engine.listen([ANY_QUEUE], lambda _: None)
            wait_until(ear.rest)

        went_well(fork(child))
        wait_until(lambda: sql(app, "select oncely.wake('default')") == [(False,)])

    def test_a_flood_is_not_listened_to(self, app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
        """Commits that notify stand in line: many of them would slow down those who enqueue. All
        of these come in one moment, however long it takes."""
        told: list[str] = []
        ear = app._engine.listen([ANY_QUEUE], told.append)
        wait_until(ear.rest)
        clock = SimpleNamespace(monotonic=time.monotonic)
        monkeypatch.setattr(listen, "time", clock)
        now = time.monotonic()
        clock.monotonic = lambda: now
        with closing(Backdoor(app)) as door:
            wait_until(lambda: door.sql("select oncely.wake('default')") == [(False,)])
            assert len(told) >= 200
            assert not ear.covered
            now += 1
            wait_until(lambda: ear.covered)
            assert door.sql("select oncely.wake('default')") == [(True,)]

    def test_ids_that_do_not_fit_are_left_out(self, app: Oncely) -> None:
        told: list[str] = []
        ear = app._engine.listen([RESULT], told.append)
        wait_until(ear.rest)
        told.clear()
        ids = "array(select gen_random_uuid() from generate_series(1, :n))"
        for n, count in ((200, 200), (201, 0)):
            assert sql(app, f"select oncely.tell_waiters({ids})", n=n) == [(True,)]
            wait_until(lambda: told)
            assert [len(detail.split()) for detail in told] == [count]
            told.clear()
        for nobody in ("null", "'{}'"):
            assert sql(app, f"select oncely.tell_waiters({nobody})") == [(False,)]


def test_draining_listens_to_nothing(app: Oncely, ran: list[str]) -> None:
    app.enqueue("k")
    asyncio.run(app.adrain())
    assert len(ran) == 1
    assert not [t for t in threading.enumerate() if t.name == "oncely-listen"]
