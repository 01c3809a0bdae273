"""Workers that are killed, stalled and woken up late: every job ends once, and stays ended."""

import signal
import time
from itertools import count
from pathlib import Path
from random import Random

from oncely import NewJob, Oncely
from tests.crash.checker import check
from tests.crash.ends import check_ends, end, finish, wait_until_taken_back
from tests.crash.fleet import start
from tests.crash.load import times
from tests.crash.stopping import holds_leases, send, stop_at_work
from tests.crash.workers import make_app, run_worker, run_worker_without_end
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS, wait_until

LEASE_SECONDS = 0.6
WORKERS = 4
MOST_SECONDS = 0.02


class Jobs:
    """What the workers are given: each takes a moment, and there is always something to hit."""

    def __init__(self, app: Oncely, chance: Random, first: int) -> None:
        self._app = app
        self._chance = chance
        self._numbers = count()
        self.count = 0
        self._add(first)

    def _add(self, count: int) -> None:
        made = self._app.enqueue_many(
            NewJob(
                "threaded" if n % 10 == 0 else "work",
                MOST_SECONDS * self._chance.random(),
                idempotency_key=f"job:{n}",
                unique_key=f"unique:{n}" if n % 3 == 0 else None,
            )
            for n in (next(self._numbers) for _ in range(count))
        )
        self.count += made.inserted

    def top_up(self) -> None:
        if not self._app.jobs(state="pending", limit=1):
            self._add(200)


def test_workers_killed_many_times_under_load_lose_and_double_nothing(url: str) -> None:
    kills = times(60, usually=20)
    chance = dice("killed workers")
    with make_app(url) as app:
        app.migrate()
        jobs = Jobs(app, chance, times(1_500, usually=300))
        workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(WORKERS)]
        try:
            for number in range(kills):
                time.sleep(chance.uniform(0.02, 0.08))
                place = chance.randrange(WORKERS)
                if number % 10 == 0:
                    # However slowly it starts: this one is killed with jobs in hand.
                    stop_at_work(workers[place], app, jobs.top_up)
                end([workers[place]])
                workers[place] = start(run_worker, url, LEASE_SECONDS)
                if number % 20 == 19:
                    jobs.top_up()
                    wait_until_taken_back(app)
        finally:
            end(workers)
        finish(app)
        census = check_ends(url, jobs.count)
        crashed = sum(execution.outcome == "crashed" for execution in census.executions)
        assert crashed, f"{kills} kills hit nothing: the test showed nothing"
        print(f"N={kills} kills, {jobs.count} jobs, {crashed} executions recovered")


def test_workers_stalled_past_their_lease_settle_nothing_late(url: str) -> None:
    stalls = times(12, usually=6)
    chance = dice("stalled workers")
    with make_app(url) as app:
        app.migrate()
        jobs = Jobs(app, chance, times(800, usually=200))
        workers = [start(run_worker, url, LEASE_SECONDS) for _ in range(WORKERS)]
        try:
            for _ in range(stalls // 2):
                asleep = chance.sample(workers, 2)
                for worker in asleep:
                    stop_at_work(worker, app, jobs.top_up)
                for worker in asleep:
                    wait_until(
                        lambda worker=worker: not holds_leases(worker, app),  # type: ignore[misc]
                        "the others take back what it has",
                    )
                for worker in asleep:
                    send(worker, signal.SIGCONT)
                time.sleep(chance.uniform(0, 0.1))
        finally:
            end(workers)
        finish(app)
        census = check_ends(url, jobs.count)
        crashed = sum(execution.outcome == "crashed" for execution in census.executions)
        assert crashed >= stalls
        print(f"N={stalls} stalls, {jobs.count} jobs, {crashed} executions recovered")


def test_a_worker_told_twice_to_stop_hands_back_what_it_has_not_ended(
    url: str, tmp_path: Path
) -> None:
    with make_app(url) as app:
        app.migrate()
        app.enqueue_many(NewJob("work", 1_000) for _ in range(20))
        worker = start(run_worker_without_end, url, tmp_path)
        wait_until(lambda: len(app.jobs(state="running")) >= 8, "its hands are full")
        send(worker, signal.SIGTERM)
        wait_until((tmp_path / "told 0").exists, "it is told")
        send(worker, signal.SIGTERM)  # no grace
        worker.join(PATIENCE_SECONDS)
        assert worker.exitcode == 0
        assert app.jobs(state="running") == []
        back = [job for job in app.jobs(state="pending") if job.executions]
        assert [job.executions[0].outcome for job in back] == ["released"] * 8
        assert {job.attempt for job in back} == {0}
        check(url)
