"""SIGTERM while the store is away: the process ends when the grace time is over, and what it held
is taken over when its leases run out."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from oncely import Context, Oncely
from tests.cluster import Cluster
from tests.engine.steps import found
from tests.surface.command import environment
from tests.surface.http.server import Client, as_process
from tests.waiting import PATIENCE_SECONDS, wait_until

APP = """
import asyncio
from oncely import Oncely

app = Oncely()


@app.job("held")
async def held(ctx):
    await asyncio.sleep(3600)
"""
COMMAND = """
from oncely.surface.cli import main
from oncely.worker import line

line.LAST_ANSWER_SECONDS = 0.2
main()
"""
GAVE_UP = "the store did not answer until the worker stopped"


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with Cluster(own=True) as cluster:
        yield cluster


@contextmanager
def worker(folder: Path, url: str) -> Iterator["subprocess.Popen[str]"]:
    """`oncely worker` with a grace time of one second, and a job in its hands."""
    (folder / "jobs.py").write_text(APP)
    options = ("--grace-seconds", "1", "--lease-seconds", "2")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "worker", "jobs:app", *options],
        cwd=folder,
        env=environment(ONCELY_URL=url),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ends(process: "subprocess.Popen[str]") -> str:
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, said
    return said


def is_taken_over(url: str, job_id: str) -> None:
    with Oncely(url) as app:

        @app.job("held")
        def held(ctx: Context) -> str:
            return "taken over"

        other = app.worker(lease_seconds=2)
        thread = Thread(target=other.run)
        thread.start()
        try:
            wait_until(lambda: found(app, job_id).state == "completed", "nobody takes it over")
        finally:
            other.stop()
            thread.join(PATIENCE_SECONDS)
        outcomes = [execution.outcome for execution in found(app, job_id).executions]
        assert outcomes == ["crashed", "completed"]


def is_begun(app: Oncely, job_id: str) -> None:
    wait_until(lambda: found(app, job_id).state == "running", "the job is not begun")


def test_a_worker_ends_while_the_server_is_down(own: Cluster, tmp_path: Path) -> None:
    url = own.create_database("away")
    with Oncely(url) as app:
        app.migrate()
        job_id = app.enqueue("held").job_id
        with worker(tmp_path, url) as process:
            is_begun(app, job_id)
            own.stop("immediate")
            assert GAVE_UP in ends(process)
    own.start()
    is_taken_over(url, job_id)


def test_a_server_ends_while_its_store_is_down(own: Cluster) -> None:
    """Its pusher looks for targets in the store all the time."""
    url = own.create_database("served")
    with Oncely(url) as app:
        app.migrate()
    with as_process(url, "--grace-seconds", "1") as server, Client(server.url) as client:
        wait_until(lambda: client.get("/readyz").status_code == 200, "it does not serve")
        own.stop("immediate")
        wait_until(lambda: client.get("/readyz").status_code == 503, "it is ready")
        code, said = server.end(signal.SIGTERM)
    own.start()
    assert code == 0, said


def test_a_worker_ends_while_another_process_has_the_file_locked(
    tmp_path: Path, sqlite_url: str
) -> None:
    with Oncely(sqlite_url) as app:
        app.migrate()
        job_id = app.enqueue("held").job_id
        with worker(tmp_path, sqlite_url) as process:
            is_begun(app, job_id)
            with closing(sqlite3.connect(tmp_path / "jobs.db", isolation_level=None)) as other:
                other.execute("begin immediate")
                assert GAVE_UP in ends(process)
    is_taken_over(sqlite_url, job_id)
