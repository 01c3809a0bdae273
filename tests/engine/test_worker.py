"""What a worker makes of each way in which a handler can end."""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from oncely import (
    Cancel,
    Context,
    Defer,
    InvalidInput,
    Job,
    Nack,
    NewJob,
    Oncely,
    Retention,
    Retry,
    SchemaError,
)
from oncely.store import claim as claims
from oncely.store import deliver
from oncely.store.lanes import Outlook, survey
from tests.time_outs import HeldTimers
from tests.waiting import PATIENCE_SECONDS, wait_until

AT_ONCE = Retry(max_attempts=3, base=0)


def get(app: Oncely, job_id: str) -> Job:
    job = app.get(job_id)
    assert job is not None
    return job


def outcomes(job: Job) -> list[tuple[str, int]]:
    return [(execution.outcome, execution.attempt) for execution in job.executions]


def test_what_the_handler_returns_is_kept_as_the_result(app: Oncely) -> None:
    @app.job("sum")
    async def add(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    receipt = app.enqueue("sum", [1, 2, 3])
    assert app.drain() == 1
    job = get(app, receipt.job_id)
    assert (job.state, job.result, job.attempt) == ("completed", 6, 1)


def test_a_def_handler_runs_in_a_thread(app: Oncely) -> None:
    @app.job("where")
    def where(ctx: Context) -> bool:
        return threading.current_thread() is threading.main_thread()

    receipt = app.enqueue("where")
    app.drain()
    assert get(app, receipt.job_id).result is False


class Point(msgspec.Struct):
    x: int


@dataclass
class Data:
    x: int


class Model(pydantic.BaseModel):
    x: int


@pytest.mark.parametrize("wanted", [Point, Data, Model, dict[str, int], Any])
def test_the_payload_has_the_type_of_the_annotation(app: Oncely, wanted: Any) -> None:
    seen = []

    async def handle(ctx: Context, payload: Any) -> None:
        seen.append((payload, ctx.payload))

    handle.__annotations__["payload"] = wanted
    app.job("typed")(handle)
    app.enqueue("typed", {"x": 1})
    app.drain()
    payload, raw = seen[0]
    assert raw == {"x": 1}
    assert payload == (wanted(x=1) if wanted in (Point, Data, Model) else raw)


def test_a_payload_that_does_not_fit_fails_at_once(app: Oncely) -> None:
    @app.job("typed")
    async def handle(ctx: Context, payload: Point) -> None:
        raise AssertionError("not called")

    receipt = app.enqueue("typed", {"x": "one"})
    app.drain()
    job = get(app, receipt.job_id)
    assert job.state == "failed"
    assert "does not fit" in job.error["message"]


def test_the_context_tells_what_the_execution_is(app: Oncely) -> None:
    seen: list[Context] = []

    @app.job("tell", queue="lane", retry=AT_ONCE, timeout=60)
    async def tell(ctx: Context) -> None:
        seen.append(ctx)
        if ctx.attempt < 3:
            raise ValueError("again")

    receipt = app.enqueue("tell", {"a": 1})
    assert app.drain() == 3
    assert [ctx.attempt for ctx in seen] == [1, 2, 3]
    assert {ctx.job_id for ctx in seen} == {receipt.job_id}
    assert len({ctx.execution_id for ctx in seen}) == 3
    assert seen[0].epoch < seen[1].epoch < seen[2].epoch
    last = seen[-1]
    assert (last.kind, last.queue, last.max_attempts) == ("tell", "lane", 3)
    assert last.payload == {"a": 1}
    assert last.deadline is not None


def test_an_exception_is_retried_until_the_attempts_are_used_up(app: Oncely) -> None:
    @app.job("bad", retry=AT_ONCE)
    async def bad(ctx: Context) -> None:
        raise ValueError(f"attempt {ctx.attempt}")

    receipt = app.enqueue("bad", unique_key="one")
    assert app.drain() == 3
    job = get(app, receipt.job_id)
    assert outcomes(job) == [("retried", 1), ("retried", 2), ("failed", 3)]
    assert [e.error["message"] for e in job.executions] == ["attempt 1", "attempt 2", "attempt 3"]
    assert "test_worker.py" in job.error["traceback"]
    assert [found.job_id for found in app.jobs(state="failed")] == [receipt.job_id]
    assert app.enqueue("bad", unique_key="one").inserted


def test_an_error_with_any_text_is_kept(app: Oncely) -> None:
    @app.job("odd", retry=Retry(max_attempts=1))
    async def odd(ctx: Context) -> None:
        raise ValueError("nul \0, lone \ud800, long " + "x" * 100_000)

    receipt = app.enqueue("odd")
    app.drain()
    message = get(app, receipt.job_id).error["message"]
    assert message.startswith("nul \\0, lone \\ud800, long xxx")
    assert len(message) < 20_000
    assert app.replay_all(error="lone", dry_run=True) == 1


def test_an_error_that_cannot_be_told_is_kept_all_the_same(app: Oncely) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @app.job("odd", retry=Retry(max_attempts=1))
    async def odd(ctx: Context) -> None:
        raise Mute

    receipt = app.enqueue("odd")
    app.drain()
    assert get(app, receipt.job_id).error["type"] == "Mute"


def test_the_attempts_of_the_job_go_before_those_of_the_kind(app: Oncely) -> None:
    @app.job("bad", retry=AT_ONCE)
    async def bad(ctx: Context) -> None:
        raise ValueError

    receipt = app.enqueue("bad", max_attempts=1)
    assert app.drain() == 1
    assert get(app, receipt.job_id).state == "failed"


def test_a_retry_waits_and_keeps_the_unique_key(app: Oncely) -> None:
    @app.job("bad", retry=Retry(base=1_000))
    async def bad(ctx: Context) -> None:
        raise ValueError

    receipt = app.enqueue("bad", unique_key="one")
    assert app.drain() == 1
    assert get(app, receipt.job_id).state == "scheduled"
    assert app.enqueue("bad", unique_key="one").job_id == receipt.job_id


def test_nack_that_is_not_retryable_fails_at_once(app: Oncely) -> None:
    @app.job("no")
    async def no(ctx: Context) -> None:
        raise Nack("card stolen", retryable=False)

    receipt = app.enqueue("no")
    assert app.drain() == 1
    job = get(app, receipt.job_id)
    assert (job.state, job.error["message"]) == ("failed", "card stolen")


def test_defer_burns_no_attempt(app: Oncely) -> None:
    turns = []

    @app.job("later", retry=Retry(max_attempts=1))
    async def later(ctx: Context) -> str:
        turns.append(ctx.attempt)
        if len(turns) < 5:
            raise Defer(0)
        return "done"

    receipt = app.enqueue("later")
    assert app.drain() == 5
    assert turns == [1] * 5
    job = get(app, receipt.job_id)
    assert (job.state, job.attempt) == ("completed", 1)
    assert outcomes(job) == [("deferred", 1)] * 4 + [("completed", 1)]


def test_cancel_ends_the_job(app: Oncely) -> None:
    @app.job("stop")
    def stop(ctx: Context) -> None:
        raise Cancel("order withdrawn")

    receipt = app.enqueue("stop", unique_key="one")
    app.drain()
    job = get(app, receipt.job_id)
    assert (job.state, job.error["message"]) == ("cancelled", "order withdrawn")
    assert app.enqueue("stop", unique_key="one").inserted


def test_a_handler_that_does_not_end_is_timed_out(app: Oncely) -> None:
    @app.job("slow", retry=Retry(max_attempts=1), timeout=0.05)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    receipt = app.enqueue("slow")
    app.drain()
    job = get(app, receipt.job_id)
    assert job.state == "failed"
    assert "0.05 seconds" in job.error["message"]


def test_the_timeout_of_the_job_goes_before_that_of_the_kind(app: Oncely) -> None:
    @app.job("slow", retry=Retry(max_attempts=1), timeout=3_600)
    async def slow(ctx: Context) -> None:
        await asyncio.Event().wait()

    receipt = app.enqueue("slow", timeout=0.05)
    app.drain()
    assert get(app, receipt.job_id).state == "failed"


def test_a_thread_that_outlives_its_timeout_keeps_its_place(app: Oncely) -> None:
    """Two places, one of them taken, and the thread still has the other: the last job waits until
    that is given up."""
    release, timers = threading.Event(), HeldTimers(app, "slow")

    @app.job("slow", retry=Retry(max_attempts=1), timeout=0.05)
    def slow(ctx: Context) -> None:
        timers.let_go(ctx)
        release.wait(PATIENCE_SECONDS)

    @app.job("taken")
    def taken(ctx: Context) -> None:
        release.wait(PATIENCE_SECONDS)

    @app.job("free")
    async def free(ctx: Context) -> None: ...

    app.enqueue("taken", queue="a")
    first = app.enqueue("slow", queue="a")
    second = app.enqueue("free", queue="a")

    def seen_when_timed_out() -> str:
        try:
            wait_until(lambda: get(app, first.job_id).state == "failed", "it is timed out")
            return get(app, second.job_id).state
        finally:
            release.set()

    with ThreadPoolExecutor(1) as threads:
        seen = threads.submit(seen_when_timed_out)
        asyncio.run(app.worker(concurrency=2).drain())
    assert seen.result() == "pending"
    assert get(app, second.job_id).state == "completed"


def test_a_job_without_a_handler_waits_for_a_worker_that_has_one(app: Oncely) -> None:
    receipt = app.enqueue("unknown")
    assert app.drain() == 1
    job = get(app, receipt.job_id)
    assert (job.state, job.attempt) == ("scheduled", 0)
    assert "no handler" in job.executions[0].error["message"]


def test_a_result_that_is_no_json_fails_the_job_at_once(app: Oncely) -> None:
    @app.job("odd")
    async def odd(ctx: Context) -> object:
        return object()

    receipt = app.enqueue("odd")
    assert app.drain() == 1
    assert "result" in get(app, receipt.job_id).error["message"]


def test_the_kind_s_own_queue_is_used_unless_said_otherwise(app: Oncely) -> None:
    @app.job("mail", queue="mails")
    async def mail(ctx: Context) -> None: ...

    assert get(app, app.enqueue("mail").job_id).queue == "mails"
    assert get(app, app.enqueue("mail", queue="urgent").job_id).queue == "urgent"
    many = app.enqueue_many([NewJob("mail"), NewJob("other")])
    assert [get(app, r.job_id).queue for r in many.receipts] == ["mails", "default"]


def test_a_worker_takes_only_from_its_queues(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context) -> None: ...

    app.enqueue("k", queue="a")
    app.enqueue("k", queue="b")
    assert app.drain(queues=["b"]) == 1
    assert [job.queue for job in app.jobs(state="pending")] == ["a"]
    for queues in ("payments", ["no name"], ["a\0"]):
        with pytest.raises(InvalidInput, match="queue"):
            app.worker(queues=queues)


def test_higher_priorities_first_then_in_order(app: Oncely) -> None:
    order = []

    @app.job("k")
    async def handle(ctx: Context, n: int) -> None:
        order.append(n)

    for n, priority in enumerate([0, 5, 0, 9, 5]):
        app.enqueue("k", n, priority=priority)
    asyncio.run(app.worker(concurrency=1).drain())
    assert order == [3, 1, 4, 0, 2]


def test_middleware_is_around_every_handler_the_first_outermost(app: Oncely) -> None:
    trace: list[str] = []
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    @app.middleware
    async def outer(ctx: Context, call: Any) -> Any:
        trace.append("outer in")
        who.set("outer")
        try:
            return await call(ctx)
        finally:
            trace.append("outer out")

    @app.middleware
    async def inner(ctx: Context, call: Any) -> Any:
        trace.append("inner in")
        return [await call(ctx)]

    @app.job("k")
    def handle(ctx: Context) -> str:
        return who.get()

    receipt = app.enqueue("k")
    app.drain()
    assert trace == ["outer in", "inner in", "outer out"]
    assert get(app, receipt.job_id).result == ["outer"]


def test_a_worker_can_be_stopped_from_another_thread(app: Oncely) -> None:
    worker = app.worker(poll_seconds=60)

    @app.job("k")
    def handle(ctx: Context) -> None:
        worker.stop()

    app.enqueue("k")
    worker.run()
    assert len(app.jobs(state="completed")) == 1


def test_a_worker_whose_task_is_cancelled_hands_its_jobs_back(app: Oncely) -> None:
    receipt = app.enqueue("k")

    async def run() -> None:
        begun = asyncio.Event()

        @app.job("k")
        async def handle(ctx: Context) -> None:
            begun.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(app.run_worker())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    job = get(app, receipt.job_id)
    assert (job.state, outcomes(job)) == ("pending", [("released", 1)])


def test_a_worker_on_a_store_without_tables_says_so(postgres_url: str) -> None:
    with Oncely(postgres_url) as app, pytest.raises(SchemaError, match="oncely migrate"):
        app.worker().run()


def test_replay_gives_a_failed_job_new_attempts_and_a_higher_epoch(app: Oncely) -> None:
    broken = [True]

    @app.job("k", retry=AT_ONCE)
    async def handle(ctx: Context) -> int:
        if broken:
            raise ValueError
        return ctx.attempt

    receipt = app.enqueue("k")
    app.drain()
    broken.clear()
    app.replay(receipt.job_id)
    assert app.drain() == 1
    job = get(app, receipt.job_id)
    assert (job.state, job.result, len(job.executions)) == ("completed", 1, 4)
    epochs = [execution.epoch for execution in job.executions]
    assert epochs == sorted(set(epochs))


@pytest.mark.parametrize(
    "function",
    [lambda: None, lambda a, b, c: None, "text"],
    ids=["no arguments", "three arguments", "no function"],
)
def test_a_function_that_cannot_be_a_handler_is_refused(app: Oncely, function: Any) -> None:
    with pytest.raises(InvalidInput, match="handler of kind 'k'"):
        app.job("k")(function)


def test_one_kind_has_one_handler(app: Oncely) -> None:
    app.job("k")(lambda ctx: None)
    with pytest.raises(InvalidInput, match="has a handler already"):
        app.job("k")(lambda ctx: None)


@pytest.fixture
def dead(app: Oncely) -> str:
    """A job whose worker has died: its lease has run out."""
    receipt = app.enqueue("k", unique_key="one")
    claim(app)
    return receipt.job_id


def claim(app: Oncely, *, started: int = 1) -> claims.Claimed:
    claimed = app._engine.run(
        lambda _: claims.claim(
            "default", worker="dead", nonce=7, lease_seconds=0, limit=1, started=started
        ),
        "transaction",
    )
    return claimed[0]


def recover(app: Oncely) -> list[str]:
    found = app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    return [job.fate for job in found]


def test_a_dead_worker_s_job_is_tried_again_and_no_attempt_is_burned(
    app: Oncely, dead: str
) -> None:
    assert recover(app) == ["crashed"]
    job = get(app, dead)
    assert (job.state, job.attempt, outcomes(job)) == ("pending", 0, [("crashed", 1)])
    assert not app.enqueue("k", unique_key="one").inserted


def test_after_three_crashes_in_a_row_the_job_is_a_poison_pill(app: Oncely, dead: str) -> None:
    fates = recover(app)
    for _ in range(2):
        claim(app)
        fates += recover(app)
    assert fates == ["crashed", "crashed", "poisoned"]
    job = get(app, dead)
    assert (job.state, job.error["type"]) == ("failed", "PoisonPill")
    assert app.enqueue("k", unique_key="one").inserted


def test_crashes_that_are_not_in_a_row_are_forgiven(app: Oncely, dead: str) -> None:
    worker = app.worker(concurrency=1)

    @app.job("k", retry=Retry(base=0))
    async def handle(ctx: Context) -> None:
        worker.stop()
        raise ValueError

    recover(app)
    claim(app)
    recover(app)
    worker.run()
    for _ in range(2):
        claim(app)
        assert recover(app) == ["crashed"]


def test_a_job_that_was_only_fetched_ahead_is_no_poison_pill(app: Oncely) -> None:
    """It may have begun without a word to the store, so it counts one crash, and no more."""
    receipt = app.enqueue("k", delay=0)
    for _ in range(5):
        assert claim(app, started=0).crashes <= 1
        assert recover(app) == ["untried"]
    job = get(app, receipt.job_id)
    assert (job.state, outcomes(job)) == ("pending", [("crashed", 1)] * 5)


def settle(app: Oncely, claimed: claims.Claimed) -> list[deliver.Settlement]:
    done = deliver.Settlement(claimed.job_id, 1, state="completed", result="1")
    done = done.under(claimed.fence)
    return app._engine.run(lambda _: deliver.settle([done]), "transaction")


def test_a_late_end_is_accepted_if_nobody_else_has_the_job(app: Oncely) -> None:
    receipt = app.enqueue("k", unique_key="one")
    late = claim(app)
    recover(app)
    assert settle(app, late) == []
    job = get(app, receipt.job_id)
    assert (job.state, job.result, outcomes(job)) == ("completed", 1, [("completed", 1)])
    assert app.drain() == 0
    assert app.enqueue("k", unique_key="one").inserted


def test_a_late_end_is_refused_if_somebody_else_has_the_job(app: Oncely) -> None:
    receipt = app.enqueue("k")
    late = claim(app)
    recover(app)
    claim(app)
    assert len(settle(app, late)) == 1
    assert get(app, receipt.job_id).state == "running"
    recover(app)
    assert len(settle(app, late)) == 1
    assert get(app, receipt.job_id).state == "pending"


def test_a_running_job_can_be_cancelled_and_its_end_is_refused(app: Oncely) -> None:
    receipt = app.enqueue("k", unique_key="one")
    other = app.enqueue("k")
    claimed = app._engine.run(
        lambda _: claims.claim("default", worker="w", nonce=7, lease_seconds=60, limit=2),
        "transaction",
    )
    app.cancel(receipt.job_id)
    assert get(app, receipt.job_id).state == "cancelled"
    assert app.enqueue("k", unique_key="one").inserted
    assert len(settle(app, claimed[0])) == 1
    assert get(app, receipt.job_id).state == "cancelled"
    assert settle(app, claimed[1]) == []
    assert get(app, other.job_id).state == "completed"


def test_the_lines_of_a_def_handler_are_kept_with_its_error(app: Oncely) -> None:
    @app.job("k", retry=Retry(max_attempts=1))
    def handle(ctx: Context) -> None:
        raise TimeoutError("the other side did not answer")

    receipt = app.enqueue("k")
    app.drain()
    assert 'raise TimeoutError("the other side' in get(app, receipt.job_id).error["traceback"]


def test_one_job_of_a_lease_is_cancelled_and_the_others_go_on(app: Oncely) -> None:
    worker = app.worker(poll_seconds=60)
    gone = asyncio.Event()

    @app.job("gone")
    async def cancelled(ctx: Context) -> None:
        await asyncio.to_thread(app.cancel, ctx.job_id)
        try:
            async with asyncio.timeout(PATIENCE_SECONDS), asyncio.TaskGroup() as tasks:
                tasks.create_task(worker._renew_now())
                await asyncio.Event().wait()
        finally:
            gone.set()

    @app.job("stays")
    async def stays(ctx: Context) -> str:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await gone.wait()
        worker.stop()
        return "done"

    receipts = app.enqueue_many([NewJob("gone"), NewJob("stays")]).receipts
    worker.run()
    assert [get(app, receipt.job_id).state for receipt in receipts] == ["cancelled", "completed"]


def test_a_running_handler_is_cancelled_once_its_worker_notices_that_the_job_is_gone(
    app: Oncely,
) -> None:
    """By a cancel from outside here, but it is the same for a lease that others took back."""
    seen: list[str] = []
    worker = app.worker(poll_seconds=60)

    @app.job("k")
    async def handle(ctx: Context) -> None:
        await asyncio.to_thread(app.cancel, ctx.job_id)
        try:
            await worker._renew_now()
            await asyncio.sleep(0)  # a task that is to be cancelled is so where it waits next
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        finally:
            worker.stop()

    receipt = app.enqueue("k")
    worker.run()
    assert seen == ["cancelled"]
    job = get(app, receipt.job_id)
    assert (job.state, outcomes(job)) == ("cancelled", [("cancelled", 1)])
    assert app.jobs(state="pending") == []


def test_the_same_end_sent_again_after_a_lost_answer_is_accepted(app: Oncely) -> None:
    app.enqueue("k")
    claimed = claim(app)
    assert settle(app, claimed) == []
    done = deliver.Settlement(claimed.job_id, 1, state="completed", result="1")
    done = done.under(claimed.fence)
    again = app._engine.run(lambda _: deliver.settle([done], again=True), "transaction")
    assert again == []


def test_what_was_claimed_before_a_lost_answer_is_found(app: Oncely) -> None:
    app.enqueue("k")
    app.enqueue("k", queue="other")

    outlook = Outlook()
    app._engine.run(lambda _: survey(outlook, None), "read")

    def exchange(again: bool) -> Any:
        return app._engine.run(
            lambda _: deliver.exchange(
                [],
                outlook=outlook,
                worker="w",
                nonce=99,
                lease_seconds=60,
                limit=5,
                again=again,
            ),
            "transaction",
        )

    first = exchange(False)
    assert len(first.claimed) == 2
    again = exchange(True)
    assert {job.job_id for job in again.claimed} == {job.job_id for job in first.claimed}
    assert {job.fence for job in again.claimed} == {job.fence for job in first.claimed}


def test_a_worker_prunes_what_is_over_and_remembers_its_key(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncely.worker.upkeep._FORGET_FIRST_SECONDS", 0.1)
    with Oncely(url, retention=Retention(completed_days=0, failed_days=1)) as app:
        app.migrate()

        @app.job("k")
        async def handle(ctx: Context, fails: bool) -> None:
            if fails:
                raise Nack("no", retryable=False)

        kept = app.enqueue("k", True)
        gone = [app.enqueue("k", False, idempotency_key=f"key:{n}") for n in range(250)]
        app.drain()
        asyncio.run(_run_until(app, lambda: app.get(gone[-1].job_id) is None))
        assert [job.job_id for job in app.jobs()] == [kept.job_id]
        again = app.enqueue("k", False, idempotency_key="key:0")
        assert (again.job_id, again.inserted, again.state) == (gone[0].job_id, False, "completed")


async def _run_until(app: Oncely, reached: Callable[[], bool]) -> None:
    worker = app.worker()

    async def watch() -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            over = False
            while not over:
                await asyncio.sleep(0.02)
                over = await asyncio.to_thread(reached)
        worker.stop()

    await asyncio.gather(worker.arun(), watch())
