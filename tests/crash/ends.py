"""How a run with faults must end: every job, once, and by the execution that was accepted."""

import time
from collections.abc import Iterable
from multiprocessing.context import ForkServerProcess

from oncely import Job, Oncely
from tests.crash.checker import Census, check
from tests.crash.load import times
from tests.engine.steps import found, sql

PATIENCE_SECONDS = times(120)
SWEEP_SECONDS = 10.0
"""Far more than a sweep of these workers takes, for machines that are busy."""


def end(processes: Iterable[ForkServerProcess]) -> None:
    processes = list(processes)
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def wait_until_all_ended(app: Oncely) -> None:
    """The faults are over and there are workers: everything must end, within a bound."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    # In one look: between two, a job may go from one state to another.
    still = "select id from oncely.job where id not in (select job_id from oncely.outcome) limit 5"
    while open_jobs := [found(app, str(id)) for (id,) in sql(app, still)]:
        assert time.monotonic() < deadline, f"still open: {open_jobs}"
        time.sleep(0.05)


def poisoned(app: Oncely) -> list[Job]:
    """A job may by chance have been hit three times in a row; nothing else may fail it."""
    failed = app.jobs(state="failed", limit=10_000)
    assert [job for job in failed if job.error["type"] != "PoisonPill"] == []
    return failed


def check_ends(url: str, count: int) -> Census:
    """So many jobs, all completed; their handlers return their epoch."""
    census = check(url)
    assert (len(census.jobs), census.count("completed")) == (count, count)
    strange = [outcome for outcome in census.outcomes if outcome.result != outcome.epoch]
    assert strange == [], "the result is not that of the accepted execution"
    return census
