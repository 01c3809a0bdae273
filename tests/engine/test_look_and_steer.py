"""Reading jobs back, cancelling and replaying them; and the async twin of each."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncely import Execution, JobNotFound, NewJob, Oncely, UsageError, WrongState
from oncely.model.transition import STATES, State
from oncely.store import steer
from oncely.store.deliver import Settlement
from tests.engine.steps import (
    bring,
    claim,
    claim_one,
    counts,
    end,
    found,
    let_days_pass,
    retry,
    settle,
)

UNKNOWN = "01900000-0000-7000-8000-000000000000"
MALFORMED: list[Any] = [
    "",
    "x",
    UNKNOWN.upper().replace("0", "A"),
    UNKNOWN.replace("-", ""),
    f"{{{UNKNOWN}}}",
    f" {UNKNOWN}",
    f"{UNKNOWN}\n",
    "'; drop table job; --",
    "\0",
    "\ud800",
    None,
    5,
    UNKNOWN.encode(),
]


@pytest.fixture
def zoo(app: Oncely) -> dict[State, str]:
    """A job in every state, each alone in its queue, enqueued in the order of the states."""
    jobs = {state: app.enqueue(f"zoo.{state}", queue=state).job_id for state in STATES}
    for state, job_id in jobs.items():
        bring(app, job_id, state)
    return jobs


@pytest.mark.parametrize("job_id", [UNKNOWN, *MALFORMED], ids=ascii)
def test_get_of_what_is_not_there_is_none(shared_app: Oncely, job_id: Any) -> None:
    assert shared_app.get(job_id) is None


@pytest.mark.parametrize("verb", ["cancel", "replay"])
@pytest.mark.parametrize("job_id", [UNKNOWN, *MALFORMED], ids=ascii)
def test_steering_what_is_not_there_is_an_error(shared_app: Oncely, verb: str, job_id: Any) -> None:
    with pytest.raises(JobNotFound) as caught:
        getattr(shared_app, verb)(job_id)
    assert isinstance(caught.value, LookupError)
    assert isinstance(caught.value, UsageError)
    assert "there is no job" in str(caught.value)
    assert str(caught.value).encode()


def test_jobs_by_state(app: Oncely, zoo: dict[State, str]) -> None:
    for state, job_id in zoo.items():
        [job] = app.jobs(state=state)
        assert (job.job_id, job.state) == (job_id, state)
        assert job == app.get(job_id)
    assert [job.job_id for job in app.jobs()] == list(zoo.values())[::-1]


def test_jobs_by_kind_and_queue(app: Oncely, zoo: dict[State, str]) -> None:
    for state, job_id in zoo.items():
        for filters in (
            {"kind": f"zoo.{state}"},
            {"queue": state},
            {"kind": f"zoo.{state}", "queue": state},
            {"kind": f"zoo.{state}", "queue": state, "state": state},
            {"kind": f"zoo.{state}", "state": state},
            {"queue": state, "state": state},
        ):
            assert [job.job_id for job in app.jobs(**filters)] == [job_id]
    assert app.jobs(kind="zoo") == []
    assert app.jobs(queue="zoo.running") == []
    assert app.jobs(kind="zoo.running", state="completed") == []
    assert app.jobs(queue="running", kind="zoo.failed") == []


@pytest.mark.parametrize("state", STATES)
def test_jobs_are_the_newest_first_and_no_more_than_asked(app: Oncely, state: State) -> None:
    made = []
    for number in range(5):
        app.enqueue("noise", queue="noise", delay=number % 2)
        made.append(app.enqueue("k", number).job_id)
        bring(app, made[-1], "scheduled" if state == "pending" else state)
    if state == "pending":
        let_days_pass(app, 1)
    assert [job.job_id for job in app.jobs(state=state, kind="k")] == made[::-1]
    for limit in (1, 2, 4):
        jobs = app.jobs(state=state, kind="k", queue="default", limit=limit)
        assert [job.job_id for job in jobs] == made[::-1][:limit]
    assert len(app.jobs(limit=10_000)) == 10
    assert len(app.jobs(limit=3)) == 3


def test_a_scheduled_job_is_pending_once_its_time_has_come(app: Oncely) -> None:
    receipt = app.enqueue("k", delay=3600)
    assert [job.state for job in app.jobs(state="scheduled")] == ["scheduled"]
    assert app.jobs(state="pending") == []
    let_days_pass(app, 1)
    assert app.jobs(state="scheduled") == []
    assert [job.state for job in app.jobs(state="pending")] == ["pending"]
    assert found(app, receipt.job_id).state == "pending"
    assert app.enqueue("k", delay=1).state == "scheduled"


def test_a_job_shows_its_deliveries(app: Oncely) -> None:
    before = datetime.now(UTC) - timedelta(milliseconds=2)
    job_id = app.enqueue("k", "p").job_id
    assert found(app, job_id).executions == []
    first = claim_one(app)
    assert found(app, job_id).executions == [], "only deliveries that have ended are shown"
    assert retry(app, first)
    second = claim_one(app)
    result = Settlement(job_id, second.attempt, state="completed", result='{"ok": ["\\u0000"]}')
    assert settle(app, second.fence, [result]) == {job_id}
    after = datetime.now(UTC) + timedelta(milliseconds=2)
    job = found(app, job_id)
    assert job.state == "completed"
    assert job.result == {"ok": ["\0"]}
    assert job.error is None
    assert job.attempt == 2
    assert job.ended_at is not None
    one, two = job.executions
    assert isinstance(one, Execution)
    assert (one.epoch, one.attempt, one.outcome, one.error) == (
        first.fence.epoch,
        1,
        "retried",
        "boom",
    )
    assert (two.epoch, two.attempt, two.outcome) == (second.fence.epoch, 2, "completed")
    assert {one.worker, two.worker} == {"worker-1"}
    for execution in (one, two):
        assert execution.started_at is not None
        assert before <= execution.started_at <= execution.ended_at <= after
    assert two.ended_at == job.ended_at


def test_the_error_of_a_failed_job_is_shown(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    claimed = claim_one(app)
    error = Settlement(job_id, 1, state="failed", error='{"type": "E", "text": "boom 🎉"}')
    assert settle(app, claimed.fence, [error]) == {job_id}
    job = found(app, job_id)
    assert job.error == {"type": "E", "text": "boom 🎉"}
    assert [execution.error for execution in job.executions] == [job.error]
    app.replay(job_id)
    job = found(app, job_id)
    assert job.error is None
    assert [execution.outcome for execution in job.executions] == ["failed"]


@pytest.mark.parametrize("state", ["scheduled", "pending"])
def test_cancel_ends_a_job_that_waits(app: Oncely, state: State) -> None:
    job_id = app.enqueue("k", unique_key="u").job_id
    bring(app, job_id, state)
    app.cancel(job_id)
    job = found(app, job_id)
    assert job.state == "cancelled"
    assert job.ended_at is not None
    assert job.ended_at >= job.created_at
    assert claim(app) == []
    assert counts(app)["ready"] == counts(app)["unique_key"] == 0
    let_days_pass(app, 1)
    assert claim(app) == []


def test_cancelling_again_changes_nothing(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    app.cancel(job_id)
    before = app.get(job_id)
    app.cancel(job_id)
    assert app.get(job_id) == before


@pytest.mark.parametrize("state", ["completed", "failed"])
def test_cancel_refuses_a_job_that_neither_waits_nor_runs(app: Oncely, state: State) -> None:
    job_id = app.enqueue("k", unique_key="u").job_id
    bring(app, job_id, state)
    before = counts(app), app.get(job_id)
    with pytest.raises(WrongState) as caught:
        app.cancel(job_id)
    assert (caught.value.job_id, caught.value.state) == (job_id, state)
    assert str(caught.value) == (
        f"job {job_id} is {state}; only jobs in state scheduled or pending or running "
        "or in_doubt can be cancelled"
    )
    assert (counts(app), app.get(job_id)) == before


@pytest.mark.parametrize("state", [state for state in STATES if state != "failed"])
def test_replay_refuses_a_job_that_has_not_failed(app: Oncely, state: State) -> None:
    job_id = app.enqueue("k", unique_key="u").job_id
    bring(app, job_id, state)
    before = counts(app), app.get(job_id)
    with pytest.raises(WrongState) as caught:
        app.replay(job_id)
    assert (caught.value.job_id, caught.value.state) == (job_id, state)
    assert str(caught.value) == (
        f"job {job_id} is {state}; only jobs in state failed can be replayed"
    )
    assert (counts(app), app.get(job_id)) == before


def test_a_replayed_job_waits_behind_those_that_are_due_already(app: Oncely) -> None:
    first = app.enqueue("k", 1).job_id
    assert end(app, claim_one(app), "failed")
    second = app.enqueue("k", 2).job_id
    let_days_pass(app, 1)
    app.replay(first)
    job = found(app, first)
    assert (job.state, job.payload, job.attempt) == ("pending", 1, 0)
    assert claim_one(app).job_id == second
    assert claim_one(app).job_id == first


def test_a_replayed_job_can_be_cancelled_and_a_retried_one(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    assert retry(app, claim_one(app), delay_seconds=3600)
    let_days_pass(app, 1)
    assert end(app, claim_one(app), "failed")
    app.replay(job_id)
    app.cancel(job_id)
    job = found(app, job_id)
    assert job.state == "cancelled"
    assert [execution.outcome for execution in job.executions] == ["retried", "failed"]
    assert claim(app) == []


@pytest.mark.anyio
async def test_every_verb_has_an_async_twin(app: Oncely) -> None:
    kept, failed = (await app.aenqueue_many([NewJob("k", 1, queue="a"), NewJob("k", 2)])).receipts
    assert await app.aget(kept.job_id) == app.get(kept.job_id)
    assert await app.aget(UNKNOWN) is None
    assert await app.aget("x") is None
    assert await app.ajobs(kind="k", queue="a", state="pending", limit=5) == app.jobs(queue="a")
    await app.acancel(kept.job_id)
    assert found(app, kept.job_id).state == "cancelled"
    with pytest.raises(WrongState):
        await app.areplay(kept.job_id)
    assert end(app, claim_one(app), "failed")
    with pytest.raises(WrongState):
        await app.acancel(failed.job_id)
    await app.areplay(failed.job_id)
    assert found(app, failed.job_id).state == "pending"
    for verb in (app.acancel, app.areplay):
        with pytest.raises(JobNotFound):
            await verb(UNKNOWN)
    assert await app.amigrate() == []


def test_no_verb_that_does_io_lacks_its_twin() -> None:
    verbs = {"enqueue", "enqueue_many", "get", "jobs", "cancel", "replay", "migrate", "close"}
    assert all(callable(getattr(Oncely, f"a{verb}")) for verb in verbs)
    public = {name for name in dir(Oncely) if not name.startswith("_")}
    untwinned = {name for name in public if f"a{name}" not in public and name[1:] not in public}
    no_io = {"job", "middleware", "worker", "pusher", "schedule", "on_event"}
    assert untwinned == {"run_worker", "running"} | no_io


def test_a_replay_sent_again_after_a_lost_answer_is_done(app: Oncely) -> None:
    job_id = app.enqueue("k", unique_key="u").job_id
    bring(app, job_id, "failed")
    app.replay(job_id)
    app._engine.run(lambda _: steer.replay(job_id, again=True), "transaction")
    assert len(claim(app, limit=2)) == 1
    with pytest.raises(WrongState):
        app.replay(job_id)
