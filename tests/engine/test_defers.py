"""How long a job may be deferred: by the number of defers in a row and by the time since the first
of them. The age of the job does not count, and the want of a handler does not count either."""

import secrets

import pytest

from oncely import Context, Defer, Oncely, Retry
from oncely.model import outcome
from oncely.model.job import Job
from oncely.store import executions
from oncely.store.executions import Wanted
from tests.engine.steps import found, let_days_pass, run_out


def outcomes(job: Job) -> list[str]:
    return [execution.outcome for execution in job.executions]


def crash(app: Oncely) -> str:
    """A worker claims the job and dies; which job it was."""
    wanted = Wanted("default", "worker-1", secrets.randbits(60), 60.0, 1)
    handed = app._engine.run(lambda _: executions.claim_once(wanted), "transaction")
    run_out(app)
    return handed.jobs[0].job_id


def deferring(app: Oncely, turns: list[object]) -> None:
    """The handler raises what is first in the list, and returns when nothing is left."""

    @app.job("k", retry=Retry(max_attempts=2, base=0))
    async def handle(ctx: Context) -> None:
        if turns:
            error = turns.pop(0)
            assert isinstance(error, Exception)
            raise error


def test_an_old_job_may_be_deferred(app: Oncely) -> None:
    deferring(app, [Defer(0)])
    job_id = app.enqueue("k", delay=15 * 86_400).job_id
    let_days_pass(app, 15.1)
    assert app.drain() == 2
    assert found(app, job_id).state == "completed"


def test_a_replayed_job_may_be_deferred(app: Oncely) -> None:
    deferring(app, [Defer(0), ValueError("first"), ValueError("second"), Defer(0)])
    job_id = app.enqueue("k").job_id
    app.drain()
    assert found(app, job_id).state == "failed"
    let_days_pass(app, 15)
    app.replay(job_id)
    app.drain()
    assert found(app, job_id).state == "completed"


def test_the_time_since_the_first_defer_in_a_row_is_bounded(app: Oncely) -> None:
    deferring(app, [Defer(0), Defer(3600), Defer(3600), Defer(3600)])
    job_id = app.enqueue("k").job_id
    app.drain()
    let_days_pass(app, 13)
    app.drain()
    assert found(app, job_id).state == "scheduled"
    let_days_pass(app, 2)
    app.drain()
    job = found(app, job_id)
    assert job.state == "failed"
    assert job.error["message"].startswith("deferred 3 times over 15.0 days")


def test_a_retry_begins_a_new_row_of_defers(app: Oncely) -> None:
    deferring(app, [Defer(3600), ValueError("oops"), Defer(3600)])
    job_id = app.enqueue("k").job_id
    app.drain()
    let_days_pass(app, 13)
    app.drain()
    let_days_pass(app, 13)
    app.drain()
    job = found(app, job_id)
    assert job.state == "completed", job.error


def test_a_crash_leaves_the_row_of_defers_as_it_is(app: Oncely) -> None:
    deferring(app, [Defer(3600), Defer(0)])
    job_id = app.enqueue("k").job_id
    app.drain()
    let_days_pass(app, 13)
    crash(app)
    let_days_pass(app, 2)
    app.drain()
    assert found(app, job_id).error["message"].startswith("deferred 1 times over 15.0 days")


def test_the_number_of_defers_in_a_row_is_bounded(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outcome, "DEFER_LIMIT", 3)
    deferring(app, [Defer(0) for _ in range(4)])
    job_id = app.enqueue("k").job_id
    assert app.drain() == 4
    assert found(app, job_id).state == "failed"


def test_a_job_whose_kind_nobody_knows_waits_as_long_as_it_takes(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts neither as a defer of the job's own nor as the end of one."""
    monkeypatch.setattr(outcome, "DEFER_LIMIT", 2)
    job_id = app.enqueue("k", delay=15 * 86_400).job_id
    for _ in range(4):
        let_days_pass(app, 16)
        assert app.drain() == 1
    job = found(app, job_id)
    assert (job.state, job.attempt) == ("scheduled", 0)
    assert outcomes(job) == ["deferred"] * 4
    turns: list[object] = [Defer(0), Defer(0)]
    deferring(app, turns)
    let_days_pass(app, 1)
    assert app.drain() == 3
    assert found(app, job_id).state == "completed"


@pytest.mark.parametrize("group_key", [None, "g"])
def test_want_of_a_handler_keeps_the_count_of_crashes(app: Oncely, group_key: str | None) -> None:
    """A worker that lacks the handler of a poison pill does not forgive it."""
    job_id = app.enqueue("k", group_key=group_key).job_id
    for _ in range(2):
        assert app.drain() == 1
        let_days_pass(app, 1)
        assert crash(app) == job_id
    assert app.drain() == 1
    let_days_pass(app, 1)
    assert crash(app) == job_id
    job = found(app, job_id)
    assert job.state == "failed", outcomes(job)
    assert job.error["type"] == "PoisonPill"
