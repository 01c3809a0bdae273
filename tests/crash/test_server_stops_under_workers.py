"""The server dies under workers that have their hands full; they wait, reconnect and go on."""

import os
import signal
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import psycopg
import pytest

from oncely import NewJob, Oncely
from tests.cluster import Cluster
from tests.crash.ends import check_ends, end, finish, wait_until_all_ended, wait_until_taken_back
from tests.crash.fleet import start
from tests.crash.load import times
from tests.crash.persistent import Publishers
from tests.crash.workers import run_worker
from tests.waiting import PATIENCE_SECONDS, wait_until

STOPS = times(5, usually=3)
WORKERS = 4
LEASE_SECONDS = 1.0


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster(own=True) as cluster:
        yield cluster


def newest_epochs(url: str) -> dict[int, int]:
    """By the process of each worker, the epoch under which it last completed a job."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "select split_part(worker, ':', 2)::int, max(epoch) from oncely.outcome"
            " where state = 'completed' group by 1"
        ).fetchall()
    return dict(rows)


def newest_epoch(url: str) -> int:
    return max(newest_epochs(url).values(), default=0)


def completed_since(url: str, epoch: int, workers: Sequence[ForkServerProcess]) -> bool:
    assert all(worker.is_alive() for worker in workers)
    return newest_epoch(url) > epoch


def test_workers_live_through_immediate_stops_of_the_server(own: Cluster) -> None:
    url = own.create_database("stopped")
    with Oncely(url) as app:
        app.migrate()
        workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(WORKERS)]
        pids = {worker.pid for worker in workers}
        publishers = Publishers(app, "work", 0.02, pause_seconds=0.02)
        try:
            for number in range(STOPS):
                wait_until(
                    partial(completed_since, url, newest_epoch(url), workers),
                    "nothing is completed",
                )
                publishers.progress(20)
                own.stop("immediate")
                publishers.wait_until_refused()
                if number % 3 == 2:
                    time.sleep(LEASE_SECONDS * 1.5)  # so long that the leases run out
                own.start()
            before = newest_epoch(url)
            publishers.progress(100)
            # Each of them, not only some: it claims, runs and settles again.
            wait_until(
                lambda: (
                    {pid for pid, epoch in newest_epochs(url).items() if epoch > before} >= pids
                ),
                f"of the workers {pids} some do nothing since the last stop",
            )
            wait_until_taken_back(app)
            publishers.finish()
            wait_until_all_ended(app)
            assert [worker.is_alive() for worker in workers] == [True] * WORKERS
            for worker in workers:
                os.kill(worker.pid or 0, signal.SIGTERM)
            for worker in workers:
                worker.join(PATIENCE_SECONDS)
            assert [worker.exitcode for worker in workers] == [0] * WORKERS
        finally:
            publishers.finish()
            end(workers)
        finish(app)
        census = check_ends(url, len([key for keys in publishers.acknowledged for key in keys]))
        publishers.check(census)
        assert census.leases == []
        recovered = sum(execution.outcome == "crashed" for execution in census.executions)
        print(f"N={STOPS} stops, {len(census.jobs)} jobs, {recovered} executions recovered")


def test_a_job_that_its_worker_let_go_while_the_server_was_down_is_run_again(
    own: Cluster, tmp_path: Path
) -> None:
    """The worker lives on and renews its leases: not that of a job that it no longer runs."""
    url = own.create_database("stopped")
    with Oncely(url) as app:
        app.migrate()
        let_go = [tmp_path / "first", tmp_path / "second"]
        app.enqueue_many(NewJob("hangs_once", str(path)) for path in let_go)
        worker = start(run_worker, url, LEASE_SECONDS)
        try:
            wait_until(lambda: len(app.jobs(state="running")) == 2, "nothing is begun")
            own.stop("immediate")
            wait_until(lambda: all(path.exists() for path in let_go), "it lets them go")
            own.start()
            wait_until_all_ended(app)
            assert worker.is_alive()
        finally:
            end([worker])
        census = check_ends(url, 2)
        # Handed back by the worker, or taken back from it: whichever came first.
        assert {execution.outcome for execution in census.executions} <= {"released", "crashed"}
        assert {execution.job_id for execution in census.executions} == census.jobs.keys()
