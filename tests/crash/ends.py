"""How a run with faults must end: every job, once, and by the execution that was accepted."""

from collections.abc import Iterable
from functools import partial
from multiprocessing.context import ForkServerProcess

from oncely import Oncely
from tests.crash.checker import Census, check
from tests.crash.fleet import start
from tests.crash.stopping import end_sessions, let_leases_run_out
from tests.crash.workers import run_worker
from tests.engine.steps import sql
from tests.waiting import wait_until

LONG_LEASE_SECONDS = 600.0


def end(processes: Iterable[ForkServerProcess]) -> None:
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def wait_until_all_ended(app: Oncely) -> None:
    """The faults are over and there are workers: everything must end."""
    # In one look: between two, a job may go from one state to another.
    still = "select count(*) from oncely.job where id not in (select job_id from oncely.outcome)"
    [(left,)] = sql(app, still)
    while left:
        # One after another: a bound for all of them would be one for the speed of the machine.
        wait_until(partial(_are_fewer, app, still, left), f"one more of {left} open jobs ends")
        [(left,)] = sql(app, still)


def _are_fewer(app: Oncely, query: str, than: int) -> bool:
    [(now,)] = sql(app, query)
    return bool(now < than)


def wait_until_taken_back(app: Oncely) -> None:
    """There are workers: no lease that has run out stays where it is."""
    over = {lease.epoch for lease in check(app.url).leases if lease.overdue_seconds > 0}
    wait_until(
        lambda: not over & {epoch for (epoch,) in sql(app, "select epoch from oncely.lease")},
        f"the leases {over} have run out and are taken back",
    )


def finish(app: Oncely) -> None:
    """The faults and their workers are over: two others bring everything to its end. They keep
    their leases however busy the machine is. A job may by chance have been hit three times in a
    row, and is replayed; nothing else may fail it."""
    end_sessions(app)
    let_leases_run_out(app)
    workers = [start(run_worker, app.url, LONG_LEASE_SECONDS) for _ in range(2)]
    try:
        wait_until_all_ended(app)
        for job in app.jobs(state="failed", limit=10_000):
            assert job.error["type"] == "PoisonPill", job
            app.replay(job.job_id)
        wait_until_all_ended(app)
    finally:
        end(workers)


def check_ends(url: str, count: int) -> Census:
    """So many jobs, all completed; their handlers return their epoch."""
    census = check(url)
    assert (len(census.jobs), census.count("completed")) == (count, count)
    strange = [outcome for outcome in census.outcomes if outcome.result != outcome.epoch]
    assert strange == [], "the result is not that of the accepted execution"
    return census
