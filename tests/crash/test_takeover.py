"""A lease that has run out is found soon, however long the leases of those are who look for it."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from oncely import Context, Oncely
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.workers import run_worker
from tests.standby import Replication
from tests.surface.http.server import Client, in_thread
from tests.waiting import wait_until

SHORT_LEASE_SECONDS = 1.0
LONG_LEASE_SECONDS = 3600.0
"""A sweep at a part of this would come long after the test has given up."""


@contextmanager
def working(app: Oncely, *, others: int) -> Iterator[None]:
    """A worker with a long lease, beside others that were there before."""
    worker = app.worker(lease_seconds=LONG_LEASE_SECONDS)
    thread = threading.Thread(target=lambda: asyncio.run(worker.arun()))
    thread.start()
    try:
        wait_until(lambda: len(app.workers()) == others + 1)
        yield
    finally:
        worker.stop()
        thread.join()


def taken_over(app: Oncely, job_id: str) -> bool:
    job = app.get(job_id)
    assert job is not None
    return job.state == "completed"


def outcomes(app: Oncely, job_id: str) -> list[str]:
    job = app.get(job_id)
    assert job is not None
    return [execution.outcome for execution in job.executions]


def test_a_worker_with_a_long_lease_takes_over_from_one_with_a_short_lease(app: Oncely) -> None:
    @app.job("work")
    async def work(ctx: Context) -> None: ...

    job_id = app.enqueue("work", 3600).job_id
    killed = start(run_worker, app.url, SHORT_LEASE_SECONDS)
    try:
        wait_until(lambda: app.jobs(state="running") and app.workers())
        with working(app, others=1):
            end([killed])
            wait_until(lambda: taken_over(app, job_id))
    finally:
        end([killed])
    assert outcomes(app, job_id) == ["crashed", "completed"]


def test_a_worker_takes_over_at_the_promoted_standby() -> None:
    """The primary is lost together with the worker that held the lease."""
    with Replication() as replication:
        replication.primary.create_database("jobs")
        with Oncely(replication.url("jobs")) as app:
            app.migrate()
            replication.synchronize()

            @app.job("work")
            async def work(ctx: Context) -> None: ...

            job_id = app.enqueue("work", 3600).job_id
            killed = start(run_worker, app.url, SHORT_LEASE_SECONDS)
            try:
                wait_until(lambda: app.jobs(state="running") and app.workers())
                with working(app, others=1):
                    end([killed])
                    replication.primary.stop("immediate")
                    replication.promote()
                    wait_until(lambda: taken_over(app, job_id))
            finally:
                end([killed])
            assert outcomes(app, job_id) == ["crashed", "completed"]


@pytest.fixture
def long_leases(app: Oncely, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a server keeps in order, it does with leases that are long."""
    pusher = app.pusher
    long = partial(pusher, lease_seconds=LONG_LEASE_SECONDS)
    monkeypatch.setattr(app, "pusher", long)


@pytest.mark.usefixtures("long_leases")
def test_a_long_poll_gets_a_job_whose_lease_has_run_out(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    with in_thread(app) as url, Client(url) as client:

        def claimed(**fields: object) -> list[int]:
            answer = client.post("/v1/queues/default/claim", json={"workerId": "w", **fields})
            assert answer.status_code == 200, answer.text
            assert all(job["id"] == job_id for job in answer.json()["jobs"])
            return [job["epoch"] for job in answer.json()["jobs"]]

        epochs = claimed(leaseSeconds=SHORT_LEASE_SECONDS)

        def claimed_again() -> bool:
            epochs.extend(claimed(waitSeconds=20))
            return len(epochs) == 2

        wait_until(claimed_again)
    assert epochs[0] < epochs[1]
    assert outcomes(app, job_id) == ["crashed"]


@pytest.mark.usefixtures("long_leases")
def test_a_worker_behind_a_server_takes_over_too(app: Oncely) -> None:
    job_id = app.enqueue("work", 3600).job_id
    with in_thread(app) as url, Oncely(url) as remote:

        @remote.job("work")
        async def work(ctx: Context) -> None: ...

        killed = start(run_worker, url, SHORT_LEASE_SECONDS)
        try:
            wait_until(lambda: app.jobs(state="running") and app.workers())
            with working(remote, others=1):
                end([killed])
                wait_until(lambda: taken_over(app, job_id))
        finally:
            end([killed])
    assert outcomes(app, job_id) == ["crashed", "completed"]
