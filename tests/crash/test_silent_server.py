"""A server that does not answer, and does not say that it is gone: its processes are frozen, or the
network drops every packet. Nobody hangs, and whoever names the promoted standby goes on there."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import psycopg
import pytest

from oncely import Context, Oncely, Receipt, StoreUnavailable
from oncely.store.postgres import liveness
from oncely.store.postgres.connecting import connection_options
from tests.crash.checker import check
from tests.crash.fleet import thread
from tests.crash.proxy import Fault, Proxy
from tests.engine.steps import found
from tests.standby import Replication
from tests.waiting import PATIENCE_SECONDS, wait_until


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(liveness, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(liveness, "PROBE_SECONDS", 2)


@pytest.fixture
def direct(postgres_url: str, migrated: None) -> Iterator[Oncely]:
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


@pytest.fixture
def proxy(direct: Oncely) -> Iterator[Proxy]:
    with Proxy(direct.url) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Oncely]:
    with Oncely(proxy.url + "?connect_timeout=2") as app:
        app.jobs()
        yield app


def has_ended(url: str) -> bool:
    with psycopg.connect(url) as connection:
        return connection.execute("select from oncely.outcome").fetchone() is not None


def publish(app: Oncely, idempotency_key: str) -> Receipt:
    """As a publisher does that repeats what it is not sure of."""
    while True:
        with suppress(StoreUnavailable):
            return app.enqueue("k", idempotency_key=idempotency_key)


def test_publishers_and_workers_go_on_at_the_promoted_standby() -> None:
    with Replication() as replication:
        with Oncely(replication.primary.create_database("jobs")) as app:
            app.migrate()
            first = app.enqueue("k").job_id
        with Oncely(replication.url("jobs").partition("?")[0]) as app:

            @app.job("k")
            def handle(ctx: Context) -> None:
                with ctx.transaction() as tx:
                    tx.execute("select 1")

            def completes(job_id: str) -> None:
                wait_until(lambda: found(app, job_id).state == "completed", "it is not completed")

            worker = app.worker(poll_seconds=0.05)
            running = Thread(target=worker.run)
            running.start()
            try:
                completes(first)
                wait_until(
                    lambda: has_ended(replication.standby.url("jobs")), "the standby is behind"
                )
                replication.primary.freeze()
                enqueued = thread(lambda: publish(app, "while frozen"))
                replication.promote()
                completes(enqueued.result(PATIENCE_SECONDS).job_id)
            finally:
                worker.stop()
                running.join(PATIENCE_SECONDS)
            assert not running.is_alive()


def test_a_publisher_does_not_hang_while_packets_are_dropped(
    direct: Oncely, proxy: Proxy, far: Oncely
) -> None:
    proxy.fall_silent()
    with pytest.raises(StoreUnavailable):
        far.enqueue("k", idempotency_key="one")
    proxy.speak()
    far.enqueue("k", idempotency_key="one")
    assert len(check(direct.url).jobs) == 1


@pytest.mark.parametrize("form", ["def", "async"])
def test_a_handler_does_not_hang_while_packets_are_dropped(
    proxy: Proxy, far: Oncely, form: str
) -> None:
    async def on_loop() -> None:
        async with far._engine.transactions.on_loop() as tx:
            proxy.fall_silent()
            await tx.execute("select 1")

    def in_thread() -> None:
        with far._engine.transactions.sync() as tx:
            proxy.fall_silent()
            tx.execute("select 1")

    with pytest.raises(psycopg.OperationalError, match="does not answer"):
        asyncio.run(on_loop()) if form == "async" else in_thread()


def test_an_answer_that_does_not_arrive_is_lost_though_the_server_answers_others(
    direct: Oncely, proxy: Proxy, far: Oncely
) -> None:
    done = Event()

    def hold() -> None:
        done.wait(PATIENCE_SECONDS)

    proxy.arm(Fault("insert into", "hold", hook=hold))
    receipt = far.enqueue("k")
    done.set()
    assert list(check(direct.url).jobs) == [receipt.job_id]


def test_a_session_that_is_at_work_is_waited_for(direct: Oncely, proxy: Proxy, far: Oncely) -> None:
    with psycopg.connect(direct.url) as other:
        holder = direct.enqueue("k", unique_key="u", tx=other)
        connections = proxy.connections
        waiting: Any = thread(lambda: far.enqueue("k", unique_key="u"))
        wait_until(lambda: proxy.connections >= connections + 2, "nobody looks for the server")
        assert not waiting.done()
    receipt = waiting.result(PATIENCE_SECONDS)
    assert (receipt.inserted, receipt.job_id) == (False, holder.job_id)


def test_sessions_notice_that_their_client_is_gone(direct: Oncely) -> None:
    setting = "select current_setting('client_connection_check_interval')"
    with direct._engine.transactions.sync() as tx:
        assert tx.execute(setting).fetchone() == ("2s",)
    with direct._engine._borrowed() as connection:  # type: ignore[attr-defined]
        assert connection.execute(setting).fetchone() == ("2s",)


def test_what_the_url_says_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PGHOST", raising=False)
    alone = connection_options("postgresql://one/db")
    assert alone["connect_timeout"] > connection_options("host=one,two")["connect_timeout"]
    assert "target_session_attrs" not in alone
    several = "postgresql://one,two/db"
    assert connection_options(several)["target_session_attrs"] == "read-write"
    given = {"connect_timeout": 7, "target_session_attrs": "any", "tcp_user_timeout": 1}
    url = f"{several}?{'&'.join(f'{name}={value}' for name, value in given.items())}"
    assert not given.keys() & connection_options(url).keys()
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "7")
    assert "connect_timeout" not in connection_options(several)
