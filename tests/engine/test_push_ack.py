"""Push in mode ack: a 2xx only accepts the job; the receiver says later how it ended."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from oncely import Job, NewJob, Oncely, Push, Retry
from oncely.store import deliver, executions
from oncely.store.claim import Fence
from oncely.store.deliver import Settlement
from tests.engine.push_receiver import OK, Receiver, Request, receiver, reset, status
from tests.engine.steps import let_days_pass, settle, sql

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(autouse=True)
def _loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")


def send_all(app: Oncely, **options: Any) -> int:
    return asyncio.run(app.pusher(**options).drain())


def to(app: Oncely, there: Receiver, **options: Any) -> None:
    """What fails comes back when the test lets time pass, and not while it runs."""
    later = {"retry": Retry(base=3_600, jitter=False)}
    push = Push(there.url, secret=SECRET, mode="ack")
    app.set_queue("hooks", push=push, **{**later, **options})


def put(app: Oncely) -> str:
    return app.enqueue("order.paid", {"n": 1}, queue="hooks").job_id


def job(app: Oncely, job_id: str) -> Job:
    found = app.get(job_id)
    assert found is not None
    return found


def ack(app: Oncely, request: Request, state: Any = "completed") -> bool:
    """As the receiver does it later: all it has is what was sent to it."""
    job_id, epoch, nonce = request.headers["oncely-execution-id"].rsplit(".", 2)
    assert (job_id, int(epoch)) == (request.job["id"], request.job["epoch"])
    fence = Fence(int(epoch), int(nonce, 16))
    end = Settlement(id=job_id, attempt=request.job["attempt"], state=state, result='"done"')
    return settle(app, fence, [end]) == {job_id}


def reclaimed(app: Oncely) -> Sequence[object]:
    return app._engine.run(lambda _: deliver.reclaim(100), "transaction")


def seconds_pass(app: Oncely, seconds: float) -> None:
    let_days_pass(app, seconds / 86_400)


def test_an_accepted_job_runs_until_its_receiver_says_how_it_ended(app: Oncely) -> None:
    with receiver(status(202)) as there:
        to(app, there, timeout=600)
        job_id = put(app)
        assert send_all(app, lease_seconds=60) == 1
        assert job(app, job_id).state == "running"
        # The pusher renews its other leases, and then is gone, and long gone: the job is the
        # receiver's all the same.
        [(worker, epoch, nonce)] = sql(app, "select worker, epoch, nonce from oncely.lease")
        renew = deliver.renew(worker.removesuffix("/ack"), [Fence(epoch, nonce)], 60)
        assert app._engine.run(lambda _: renew, "transaction") == set()
        seconds_pass(app, 500)
        assert reclaimed(app) == []
        assert send_all(app) == 0
        assert job(app, job_id).state == "running"
        [request] = there.requests
    assert ack(app, request)
    found = job(app, job_id)
    assert (found.state, found.result) == ("completed", "done")
    assert not ack(app, request, "failed")
    assert job(app, job_id).state == "completed"


def test_a_receiver_may_be_quicker_than_its_own_answer(app: Oncely) -> None:
    def at_once(peer: Any, request: Request) -> None:
        assert ack(app, request)
        OK(peer, request)

    with receiver(at_once) as there:
        to(app, there)
        job_id = put(app)
        assert send_all(app) == 1
    found = job(app, job_id)
    assert (found.state, found.result) == ("completed", "done")
    assert not [event for event in app.explain(job_id).events if event.what == "deduplicated"]


def test_what_does_not_accept_is_as_in_mode_sync(app: Oncely) -> None:
    for reply, state in (
        (status(500), "scheduled"),
        (status(503), "scheduled"),
        (status(422), "failed"),
        (reset, "scheduled"),
    ):
        with receiver(reply) as there:
            to(app, there)
            job_id = put(app)
            send_all(app)
            assert len(there.requests) == 1
        assert job(app, job_id).state == state
    assert sql(app, "select * from oncely.lease") == []


def test_an_acknowledgement_that_does_not_come_is_a_failed_attempt(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there, timeout=60, retry=Retry(max_attempts=2, base=3_600, jitter=False))
        job_id = put(app)
        send_all(app)
        seconds_pass(app, 61)
        assert send_all(app) == 0
        found = job(app, job_id)
        [execution] = found.executions
        assert (found.state, execution.outcome) == ("scheduled", "retried")
        assert execution.error["type"] == "Unacknowledged"
        assert (found.due_at - execution.ended_at).total_seconds() == 3_600
        seconds_pass(app, 3_601)
        assert send_all(app) == 1
        first, second = there.requests
        assert (second.job["attempt"], second.previous) == (2, "unknown")
        assert second.job["epoch"] > first.job["epoch"]
        assert not ack(app, first), "another execution holds the job"
        seconds_pass(app, 61)
        assert send_all(app) == 0
    assert job(app, job_id).state == "failed"
    assert not ack(app, second)


def test_a_late_acknowledgement_counts_while_nobody_else_has_the_job(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there, timeout=60, retry=Retry(base=3_600, jitter=False))
        job_id = put(app)
        send_all(app)
        seconds_pass(app, 61)
        send_all(app)
        assert job(app, job_id).state == "scheduled"
        [request] = there.requests
        forged = Request(request.line, dict(request.headers), request.body)
        execution_id = forged.headers["oncely-execution-id"]
        forged.headers["oncely-execution-id"] = execution_id[:-1]
        assert not ack(app, forged)
        assert ack(app, request)
        found = job(app, job_id)
        assert (found.state, found.result) == ("completed", "done")
        seconds_pass(app, 7_200)
        assert send_all(app) == 0
        assert len(there.requests) == 1


def test_a_heartbeat_gives_the_receiver_more_time(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there, timeout=60)
        job_id = put(app)
        send_all(app)
        execution_id = there.requests[0].headers["oncely-execution-id"]
        mine = executions.execution(execution_id, job_id)
        app._engine.run(lambda _: executions.keep(mine, 7_200), "transaction")
        seconds_pass(app, 7_100)
        assert (send_all(app), reclaimed(app)) == (0, [])
        assert job(app, job_id).state == "running"
        seconds_pass(app, 110)
        assert (send_all(app), reclaimed(app)) == (0, [])
    [execution] = job(app, job_id).executions
    assert (execution.outcome, execution.attempt) == ("retried", 1)


def test_without_a_pusher_an_overdue_job_is_taken_back_in_the_end(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there, timeout=60)
        job_id = put(app)
        send_all(app)
        seconds_pass(app, 600)
        assert len(reclaimed(app)) == 1
    assert job(app, job_id).executions[-1].outcome == "crashed"


def test_accepted_jobs_count_for_the_concurrency_of_the_queue(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there)
        app.set_queue("hooks", concurrency=2)
        app.enqueue_many(NewJob("k", n, queue="hooks") for n in range(5))
        assert send_all(app) == 2
        assert send_all(app) == 0
        assert ack(app, there.requests[0])
        assert send_all(app) == 1


def test_many_are_accepted_at_once_each_under_its_own_lease(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there)
        app.enqueue_many(NewJob("k", n, queue="hooks") for n in range(20))
        assert send_all(app) == 20
        epochs = {request.job["epoch"] for request in there.requests}
        assert len(epochs) == 20
        assert all(ack(app, request) for request in there.requests)
    assert sql(app, "select * from oncely.lease") == []


def test_a_cancelled_job_cannot_be_acknowledged(app: Oncely) -> None:
    with receiver(OK) as there:
        to(app, there)
        job_id = put(app)
        send_all(app)
        app.cancel(job_id)
        assert not ack(app, there.requests[0])
    assert job(app, job_id).state == "cancelled"
