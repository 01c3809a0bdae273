"""A store that answers and cannot be written: a primary that was demoted, or a proxy that still
leads to it; a file without the right to write. It is not available, and is waited for."""

import logging
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from threading import Thread

import psycopg
import pytest

from oncely import Context, Oncely, StoreUnavailable
from oncely.store import schema
from tests.cluster import Cluster
from tests.engine.steps import found
from tests.engine.test_fork import fork, went_well
from tests.surface.http.server import Client, in_thread
from tests.waiting import PATIENCE_SECONDS, wait_until


@contextmanager
def read_only(cluster: Cluster, url: str) -> Iterator[None]:
    """New sessions cannot write, and there are no others. Afterwards new sessions can write again;
    those from before still cannot."""
    database = url.rpartition("/")[2]
    with psycopg.connect(cluster.url(), autocommit=True) as admin:
        setting = f'alter database "{database}" set default_transaction_read_only'
        admin.execute(f"{setting} = on".encode())
        admin.execute(
            "select pg_terminate_backend(pid, 60000) from pg_stat_activity where datname = %s",
            (database,),
        )
        yield
        admin.execute(f"{setting} = off".encode())


@pytest.fixture
def app(postgres_url: str) -> Iterator[Oncely]:
    with Oncely(postgres_url) as app:
        app.migrate()
        yield app


def test_a_worker_waits_for_a_read_only_primary_and_goes_on(
    cluster: Cluster, app: Oncely, caplog: pytest.LogCaptureFixture
) -> None:
    @app.job("k")
    def handle(ctx: Context) -> None:
        with ctx.transaction() as tx:
            tx.execute("select 1")

    def completes(job_id: str) -> None:
        wait_until(lambda: found(app, job_id).state == "completed", "the job is not completed")

    worker = app.worker(poll_seconds=0.05)
    thread = Thread(target=worker.run)
    thread.start()
    try:
        completes(app.enqueue("k").job_id)
        with caplog.at_level(logging.WARNING), read_only(cluster, app.url):
            with pytest.raises(StoreUnavailable, match="read-only"):
                app.enqueue("k")
            with (
                pytest.raises(StoreUnavailable, match="read-only"),
                app._engine.transactions.sync() as tx,
            ):
                tx.execute("create table t (n int)")
            wait_until(lambda: "does not answer" in caplog.text, "the worker does not wait")
            assert thread.is_alive()
        completes(app.enqueue("k").job_id)
        with app._engine.transactions.sync() as tx:
            tx.execute("create table t (n int)")
    finally:
        worker.stop()
        thread.join(PATIENCE_SECONDS)
    assert not thread.is_alive()


def test_readiness_asks_whether_the_store_can_be_written(cluster: Cluster, app: Oncely) -> None:
    with in_thread(app) as url, Client(url) as client:
        assert client.get("/readyz").status_code == 200
        with read_only(cluster, app.url):
            wait_until(lambda: client.get("/readyz").status_code == 503, "it is ready")
            assert client.get("/healthz").status_code == 200
        wait_until(lambda: client.get("/readyz").status_code == 200, "it is not ready")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_file_that_cannot_be_written_is_not_ready() -> None:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/jobs.db"
        with Oncely(url) as app:
            app.migrate()
        os.chmod(folder, 0o777)
        os.chmod(f"{folder}/jobs.db", 0o444)
        went_well(fork(lambda: _can_read_only(url)))


def _can_read_only(url: str) -> None:
    if os.geteuid() == 0:  # to whom the rights of a file mean nothing
        os.setuid(pwd.getpwnam("nobody").pw_uid)
    with Oncely(url) as app:
        assert app.jobs() == []
        with pytest.raises(StoreUnavailable, match="cannot be written"):
            app._engine.run(lambda _: schema.check_writable(), "write")
