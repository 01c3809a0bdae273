"""Executions that are claimed one by one and from afar: once per request, fenced, and forgiving to
those who come late."""

import secrets
import threading
from collections.abc import Callable

import pytest

from oncely import JobNotFound, LeaseLost, NewJob, Oncely
from oncely.model.errors import InvalidInput
from oncely.model.outcome import Back, Failure, Rest
from oncely.store import deliver, executions
from oncely.store.claim import Claimed
from oncely.store.deliver import Settlement
from oncely.store.executions import Execution, Handed, Verb, Wanted, execution
from tests.engine.steps import claim as claim_together
from tests.engine.steps import let_days_pass, sql

A_MINUTE = 60 / 86_400
OOPS = Failure("Oops", "it did not work")


def claim(
    app: Oncely,
    limit: int = 1,
    *,
    worker: str = "w",
    request_id: str | None = None,
    queue: str = "default",
    again: bool = False,
    nonce: int | None = None,
) -> Handed:
    wanted = Wanted(queue, worker, nonce or secrets.randbits(60), 60.0, limit, request_id)
    return app._engine.run(lambda _: executions.claim_once(wanted, again=again), "transaction")


def one(job: Claimed) -> Execution:
    return execution(job.execution_id, job.job_id)


def completed(job: Claimed) -> Settlement:
    return deliver.settlement(job, Rest("completed", result='"done"'))


def retried(job: Claimed) -> Settlement:
    return deliver.settlement(job, Back("retried", 30.0, job.attempt, job.defers, OOPS))


def end(app: Oncely, job: Claimed, verb: Verb, make: Callable[[Claimed], Settlement]) -> bool:
    return app._engine.run(lambda _: executions.end(one(job), verb, make), "transaction")


def keep(app: Oncely, job: Claimed, seconds: float = 60.0) -> int:
    return app._engine.run(lambda _: executions.keep(one(job), seconds), "transaction")


def reclaim(app: Oncely) -> list[str]:
    taken = app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    return [job.fate for job in taken]


def state(app: Oncely, job: Claimed) -> str:
    found = app.get(job.job_id)
    assert found is not None
    return found.state


def test_each_job_of_a_claim_has_a_lease_of_its_own(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(3))
    jobs = claim(app, 5).jobs
    assert len({job.fence.epoch for job in jobs}) == 3
    end(app, jobs[1], "ack", completed)
    let_days_pass(app, A_MINUTE / 2)
    keep(app, jobs[0])
    let_days_pass(app, A_MINUTE * 0.75)
    assert reclaim(app) == ["crashed"]
    assert [state(app, job) for job in jobs] == ["running", "completed", "pending"]


def test_the_same_request_gets_the_same_claim(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(5))
    first = claim(app, 2, request_id="r1")
    repeat = claim(app, 2, request_id="r1")
    assert [job.execution_id for job in repeat.jobs] == [job.execution_id for job in first.jobs]
    assert repeat.repeated
    assert not first.repeated
    others = [claim(app, 1, request_id="r2"), claim(app, 1, worker="v", request_id="r1")]
    ids = {job.job_id for handed in (first, *others) for job in handed.jobs}
    assert len(ids) == 4


def test_a_repeat_gives_back_what_is_still_held_and_claims_nothing_new(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(5))
    first = claim(app, 2, request_id="r").jobs
    end(app, first[0], "ack", completed)
    assert [job.job_id for job in claim(app, 2, request_id="r").jobs] == [first[1].job_id]
    end(app, first[1], "ack", completed)
    assert claim(app, 2, request_id="r").jobs == []
    assert len(claim(app, 5).jobs) == 3


def test_a_request_that_found_nothing_may_find_something_later(app: Oncely) -> None:
    assert claim(app, request_id="r").jobs == []
    app.enqueue("k")
    assert len(claim(app, request_id="r").jobs) == 1


def test_a_claim_whose_answer_was_lost_on_its_way_from_the_store_is_found(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(4))
    for request_id in (None, "r"):
        first = claim(app, 2, request_id=request_id, nonce=77_000)
        second = claim(app, 2, request_id=request_id, nonce=77_000, again=True)
        assert [job.fence for job in second.jobs] == [job.fence for job in first.jobs]
        for job in first.jobs:
            end(app, job, "ack", completed)


def test_one_request_sent_twice_at_once_claims_once(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(20))
    gate = threading.Barrier(4)
    got: list[list[str]] = []

    def ask() -> None:
        with Oncely(app.url) as other:
            gate.wait()
            got.append([job.execution_id for job in claim(other, 2, request_id="r").jobs])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 4
    assert all(ids == got[0] for ids in got)
    assert sql(app, "select count(*) from oncely.lease")[0][0] == 2


@pytest.mark.parametrize(("verb", "make"), [("ack", completed), ("nack", retried)])
def test_the_same_end_again_changes_nothing(
    app: Oncely, verb: Verb, make: Callable[[Claimed], Settlement]
) -> None:
    app.enqueue("k")
    [job] = claim(app).jobs
    assert end(app, job, verb, make)
    before = app.get(job.job_id)
    assert not end(app, job, verb, make)
    assert app.get(job.job_id) == before


def test_another_end_after_the_first_is_refused(app: Oncely) -> None:
    app.enqueue("k")
    [job] = claim(app).jobs
    end(app, job, "ack", completed)
    with pytest.raises(LeaseLost):
        end(app, job, "nack", retried)
    with pytest.raises(LeaseLost):
        keep(app, job)
    assert state(app, job) == "completed"


@pytest.mark.parametrize(
    ("verb", "make", "left"), [("ack", completed, "completed"), ("nack", retried, "scheduled")]
)
@pytest.mark.parametrize("grouped", [False, True])
def test_a_late_end_is_accepted_while_nobody_else_has_the_job(
    app: Oncely, verb: Verb, make: Callable[[Claimed], Settlement], left: str, *, grouped: bool
) -> None:
    app.enqueue("k", group_key="g" if grouped else None)
    [job] = claim(app).jobs
    let_days_pass(app, A_MINUTE * 2)
    assert reclaim(app) == ["crashed"]
    assert end(app, job, verb, make)
    found = app.get(job.job_id)
    assert found is not None
    assert found.state == left
    assert [e.outcome for e in found.executions] == ["completed" if verb == "ack" else "retried"]
    assert sql(app, "select count(*) from oncely.lease")[0][0] == 0


@pytest.mark.parametrize(("verb", "make"), [("ack", completed), ("nack", retried)])
def test_a_late_end_is_refused_once_another_has_the_job(
    app: Oncely, verb: Verb, make: Callable[[Claimed], Settlement]
) -> None:
    app.enqueue("k")
    [job] = claim(app).jobs
    let_days_pass(app, A_MINUTE * 2)
    reclaim(app)
    [other] = claim(app, worker="v").jobs
    with pytest.raises(LeaseLost):
        end(app, job, verb, make)
    with pytest.raises(LeaseLost):
        keep(app, job)
    end(app, other, "ack", completed)
    with pytest.raises(LeaseLost):
        end(app, job, "nack", retried)


def test_a_late_heartbeat_gives_the_job_back_to_its_execution(app: Oncely) -> None:
    app.enqueue("k")
    [job] = claim(app).jobs
    let_days_pass(app, A_MINUTE * 2)
    keep(app, job)
    let_days_pass(app, A_MINUTE * 2)
    assert reclaim(app) == ["crashed"]
    keep(app, job)
    assert claim(app).jobs == []
    assert reclaim(app) == []
    end(app, job, "ack", completed)
    assert state(app, job) == "completed"
    assert claim(app).jobs == []


def test_jobs_of_one_lease_are_revived_one_by_one(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(2))
    both = claim_together(app, limit=2)
    assert len({job.fence.epoch for job in both}) == 1
    let_days_pass(app, A_MINUTE * 2)
    assert reclaim(app) == ["crashed", "crashed"]
    for job in both:
        keep(app, job)
    assert claim(app, 5).jobs == []
    for job in both:
        end(app, job, "ack", completed)
    assert [state(app, job) for job in both] == ["completed", "completed"]


def test_a_late_heartbeat_does_not_break_a_limit(app: Oncely) -> None:
    app.set_queue("default", concurrency=1)
    app.enqueue("k")
    [job] = claim(app).jobs
    let_days_pass(app, A_MINUTE * 2)
    reclaim(app)
    app.enqueue("k", priority=1)
    [other] = claim(app, worker="v").jobs
    assert other.job_id != job.job_id
    with pytest.raises(LeaseLost):
        keep(app, job)
    end(app, other, "ack", completed)
    keep(app, job)
    assert sql(app, "select count(*) from oncely.lease")[0][0] == 1


def test_an_execution_id_is_for_its_own_job_and_its_own_delivery(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(2))
    mine, other = claim(app, 2).jobs
    with pytest.raises(LeaseLost):
        execution(mine.execution_id, other.job_id)
    job_id, epoch, nonce = mine.execution_id.split(".")
    forged = execution(f"{job_id}.{epoch}.{int(nonce, 16) ^ 1:x}", job_id)
    with pytest.raises(LeaseLost):
        app._engine.run(lambda _: executions.end(forged, "ack", completed), "transaction")
    with pytest.raises(LeaseLost):
        app._engine.run(lambda _: executions.keep(forged, 60.0), "transaction")
    let_days_pass(app, A_MINUTE * 2)
    assert reclaim(app) == ["crashed", "crashed"]
    for call in (
        lambda: executions.end(forged, "nack", retried),
        lambda: executions.keep(forged, 1),
    ):
        with pytest.raises(LeaseLost):
            app._engine.run(lambda _, call=call: call(), "transaction")  # type: ignore[misc]
    assert state(app, mine) == "pending"
    for bad in ("", "x", f"{job_id}.{epoch}", f"{job_id}.0.1", f"{job_id}.1.ffffffffffffffff"):
        with pytest.raises(InvalidInput, match="executionId"):
            execution(bad, job_id)


def test_an_execution_of_a_job_that_is_gone(app: Oncely) -> None:
    missing = "0199a0f0-0000-7000-8000-000000000000"
    gone = execution(f"{missing}.1.1", missing)
    with pytest.raises(JobNotFound):
        app._engine.run(lambda _: executions.end(gone, "ack", completed), "transaction")


def test_a_claim_says_when_the_next_job_falls_due(app: Oncely) -> None:
    app.enqueue("k", delay=30)
    handed = claim(app)
    assert handed.jobs == []
    assert handed.wait_seconds is not None
    assert 0 < handed.wait_seconds <= 30
