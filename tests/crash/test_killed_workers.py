"""Workers that are killed, stalled and woken up late: every job ends once, and stays ended."""

import os
import random
import signal
import time
from itertools import count
from multiprocessing.context import ForkServerProcess

from oncely import NewJob, Oncely
from tests.crash.checker import check
from tests.crash.ends import (
    PATIENCE_SECONDS,
    SWEEP_SECONDS,
    check_ends,
    end,
    poisoned,
    wait_until_all_ended,
)
from tests.crash.fleet import start
from tests.crash.load import times
from tests.crash.workers import make_app, run_worker
from tests.engine.steps import sql

LEASE_SECONDS = 0.6
WORKERS = 4


def fill(app: Oncely, count: int) -> None:
    app.enqueue_many(
        NewJob(
            "threaded" if n % 10 == 0 else "work",
            0.02,
            idempotency_key=f"job:{n}",
            unique_key=f"unique:{n}" if n % 3 == 0 else None,
        )
        for n in range(count)
    )


_tops = count()


def top_up(app: Oncely) -> int:
    """There must be something to hit; how many jobs were added."""
    if app.jobs(state="pending", limit=1):
        return 0
    number = next(_tops)
    jobs = [NewJob("work", 0.02, idempotency_key=f"more:{number}:{n}") for n in range(200)]
    return app.enqueue_many(jobs).inserted


def wait_until_busy(app: Oncely, worker: ForkServerProcess) -> int:
    """However slowly it starts, it has jobs in hand; how many had to be added for that."""
    added = 0
    deadline = time.monotonic() + PATIENCE_SECONDS
    held = "select 1 from oncely.lease where worker like :one limit 1"
    while not sql(app, held, one=f"%:{worker.pid}:%"):
        assert time.monotonic() < deadline, "the worker takes no job"
        added += top_up(app)
        time.sleep(0.002)
    return added


def finish(app: Oncely, url: str) -> None:
    """The faults are over: two workers bring everything to its end, what was poisoned too."""
    workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(2)]
    try:
        wait_until_all_ended(app)
        for job in poisoned(app):
            app.replay(job.job_id)
        wait_until_all_ended(app)
    finally:
        end(workers)


def test_workers_killed_many_times_under_load_lose_and_double_nothing(url: str) -> None:
    kills, jobs = times(60), times(1_500)
    with make_app(url) as app:
        app.migrate()
        fill(app, jobs)
        workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(WORKERS)]
        try:
            for number in range(kills):
                time.sleep(random.uniform(0.02, 0.08))
                place = random.randrange(WORKERS)
                if number % 10 == 0:
                    jobs += wait_until_busy(app, workers[place])
                workers[place].kill()
                workers[place].join()
                workers[place] = start(run_worker, url, LEASE_SECONDS)
                if number % 20 == 19:
                    jobs += top_up(app)
                    check(url, sweep_seconds=SWEEP_SECONDS)
        finally:
            end(workers)
        finish(app, url)
        census = check_ends(url, jobs)
        crashed = sum(execution.outcome == "crashed" for execution in census.executions)
        assert crashed, f"{kills} kills hit nothing: the test showed nothing"
        print(f"N={kills} kills, {jobs} jobs, {crashed} executions recovered")


def test_workers_stalled_past_their_lease_settle_nothing_late(url: str) -> None:
    stalls, jobs = times(12), times(800)
    with make_app(url) as app:
        app.migrate()
        fill(app, jobs)
        workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(WORKERS)]
        try:
            for _ in range(stalls // 2):
                asleep = random.sample(workers, 2)
                for worker in asleep:
                    os.kill(worker.pid or 0, signal.SIGSTOP)
                time.sleep(LEASE_SECONDS * 1.5)
                for worker in asleep:
                    os.kill(worker.pid or 0, signal.SIGCONT)
                # Not before: one that is stopped in the middle of a write keeps SQLite's lock.
                jobs += top_up(app)
                time.sleep(random.uniform(0, 0.1))
        finally:
            end(workers)
        finish(app, url)
        check_ends(url, jobs)
        print(f"N={stalls} stalls, {jobs} jobs")


def test_a_worker_told_to_stop_hands_back_what_it_has_not_ended(url: str) -> None:
    with make_app(url) as app:
        app.migrate()
        app.enqueue_many(NewJob("work", 1_000) for _ in range(20))
        worker = start(run_worker, url, 60.0)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(app.jobs(state="running")) < 8:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        for _ in range(2):  # the second one: no grace
            os.kill(worker.pid or 0, signal.SIGTERM)
            time.sleep(0.1)
        worker.join(PATIENCE_SECONDS)
        assert worker.exitcode == 0
        assert app.jobs(state="running") == []
        back = [job for job in app.jobs(state="pending") if job.executions]
        assert [job.executions[0].outcome for job in back] == ["released"] * 8
        assert {job.attempt for job in back} == {0}
        check(url)
