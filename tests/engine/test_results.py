"""`result` waits for a job's end: told of it, on one connection, and in nobody's thread."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from oncely import (
    Cancel,
    Context,
    InvalidInput,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Nack,
    NewJob,
    NoResult,
    Oncely,
    OncelyError,
    ResultTimeout,
    StoreUnavailable,
)
from oncely.flow import results
from oncely.store import deliver
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sqlite.engine import SqliteEngine
from tests.engine.steps import claim_one, end, prune, retry, settle, sql
from tests.engine.test_fork import fork, went_well
from tests.waiting import PATIENCE_SECONDS, wait_until

NOBODY = "00000000-0000-7000-8000-000000000000"


@pytest.fixture
def told_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits would look by itself after an hour: what is seen here was told."""
    monkeypatch.setattr(results, "_POLL_SECONDS", 3600.0)


def waits(app: Oncely, job_id: str, count: int = 1) -> None:
    """Until so many wait for the job, sure to be told, and have looked since that is sure."""
    engine = app._engine
    assert isinstance(engine, SqliteEngine | PostgresEngine)

    def waiting() -> bool:
        ears = tuple(engine._listener._ears)
        sure = bool(ears) and all(ear.covered and ear.told for ear in ears)
        here = app._results
        with here._lock:
            looked = not (here._looking or here._unseen)
        return sure and looked and len(here._waiting.get(job_id, ())) == count

    wait_until(waiting)


def look_now(app: Oncely, job_id: str) -> None:
    """Whether the word of it has come or not."""
    app._results._look_at([job_id])
    waits(app, job_id)


def test_the_result_of_a_job_that_has_ended(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context, payload: Any) -> Any:
        return payload

    for value in ({"a": [1, None]}, None, "text"):
        receipt = app.enqueue("k", value)
        app.drain()
        assert app.result(receipt.job_id) == value
        assert asyncio.run(app.aresult(receipt.job_id, timeout=0)) == value
    assert not [t for t in threading.enumerate() if t.name == "oncely-listen"]


@pytest.mark.usefixtures("told_only")
def test_who_waits_is_told_of_the_end(app: Oncely) -> None:
    receipt = app.enqueue("k")
    with ThreadPoolExecutor(3) as threads:
        waiting = [threads.submit(app.result, receipt.job_id, PATIENCE_SECONDS) for _ in range(3)]
        waits(app, receipt.job_id, 3)
        claimed = claim_one(app)
        done = deliver.Settlement(claimed.job_id, 1, state="completed", result="[42]")
        assert settle(app, claimed.fence, [done]) == {claimed.job_id}
        assert [future.result(PATIENCE_SECONDS) for future in waiting] == [[42]] * 3


@pytest.mark.usefixtures("told_only")
def test_who_waits_in_another_app_is_told_too(app: Oncely, url: str) -> None:
    receipt = app.enqueue("k")
    with Oncely(url) as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(other.result, receipt.job_id, PATIENCE_SECONDS)
        waits(other, receipt.job_id)
        assert end(app, claim_one(app), "completed")
        assert waiting.result(PATIENCE_SECONDS) is None


def ends_late(app: Oncely) -> None:
    """The lease ran out and the job was taken back, but nobody has claimed it since."""
    claimed = claim_one(app)
    sql(app, "update oncely.lease set expires_at = claimed_at")
    app._engine.run(lambda _: deliver.reclaim(10), "transaction")
    assert end(app, claimed, "failed")


def poisoned(app: Oncely) -> None:
    for _ in range(deliver.CRASH_LIMIT):
        claim_one(app)
        sql(app, "update oncely.lease set expires_at = claimed_at")
        app._engine.run(lambda _: deliver.reclaim(10), "transaction")


def cancelled_running(app: Oncely) -> None:
    app.cancel(claim_one(app).job_id)


def cancelled(app: Oncely) -> None:
    [job] = app.jobs()
    app.cancel(job.job_id)


def fails(app: Oncely) -> None:
    assert end(app, claim_one(app), "failed")


@pytest.mark.usefixtures("told_only")
@pytest.mark.parametrize(
    ("how", "error"),
    [
        (fails, JobFailed),
        (ends_late, JobFailed),
        (poisoned, JobFailed),
        (cancelled, JobCancelled),
        (cancelled_running, JobCancelled),
    ],
)
def test_every_way_to_end_is_told(
    app: Oncely, how: Callable[[Oncely], None], error: type[NoResult]
) -> None:
    receipt = app.enqueue("k")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.result, receipt.job_id, PATIENCE_SECONDS)
        waits(app, receipt.job_id)
        how(app)
        with pytest.raises(error) as raised:
            waiting.result(PATIENCE_SECONDS)
    assert raised.value.job_id == receipt.job_id


def test_an_end_without_a_result_says_why(app: Oncely) -> None:
    @app.job("no")
    async def no(ctx: Context) -> None:
        raise Nack("card stolen\nand more", retryable=False)

    @app.job("stop")
    async def stop(ctx: Context) -> None:
        raise Cancel("order withdrawn")

    failed, stopped = app.enqueue("no"), app.enqueue("stop")
    outside = app.enqueue("never", queue="elsewhere")
    app.drain(queues=["default"])
    app.cancel(outside.job_id)
    with pytest.raises(JobFailed, match=r"failed: Nack: card stolen;") as raised:
        app.result(failed.job_id)
    assert raised.value.error["message"] == "card stolen\nand more"
    with pytest.raises(JobCancelled, match="was cancelled: Cancel: order withdrawn"):
        app.result(stopped.job_id)
    with pytest.raises(JobCancelled, match=r"was cancelled$") as without:
        app.result(outside.job_id)
    assert without.value.error is None
    assert issubclass(NoResult, OncelyError)


def test_a_time_out_leaves_the_job_alone(app: Oncely) -> None:
    receipt = app.enqueue("k")
    for timeout in (0, 0.05):
        with pytest.raises(ResultTimeout, match=f"within {timeout:g} seconds"):
            app.result(receipt.job_id, timeout=timeout)
        with pytest.raises(TimeoutError):
            asyncio.run(app.aresult(receipt.job_id, timeout=timeout))
    assert app._results._waiting == {}
    job = app.get(receipt.job_id)
    assert job is not None
    assert job.state == "pending"


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("inf"), True, "1", 1e12])
def test_a_timeout_that_is_none_is_refused(app: Oncely, timeout: Any) -> None:
    with pytest.raises(InvalidInput, match="timeout is"):
        app.result(app.enqueue("k").job_id, timeout=timeout)


@pytest.mark.parametrize("job_id", [NOBODY, "nonsense", None])
def test_a_job_that_is_not_there(app: Oncely, job_id: Any) -> None:
    with pytest.raises(JobNotFound):
        app.result(job_id)
    with pytest.raises(JobNotFound):
        asyncio.run(app.aresult(job_id))


def test_a_job_that_is_pruned_while_it_is_waited_for(app: Oncely) -> None:
    receipt = app.enqueue("k")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.result, receipt.job_id, PATIENCE_SECONDS)
        waits(app, receipt.job_id)
        here = app._results
        with here._lock:  # nobody looks between the end and the pruning
            here._looking = True
        assert end(app, claim_one(app), "completed")
        assert prune(app) == 1
        with here._lock:
            here._looking = False
        here._look_at([receipt.job_id])  # the word of the end may have come meanwhile
        with pytest.raises(JobNotFound):
            waiting.result(PATIENCE_SECONDS)


def test_a_retry_and_a_doubt_are_no_end(app: Oncely) -> None:
    receipt = app.enqueue("k")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(app.result, receipt.job_id, PATIENCE_SECONDS)
        waits(app, receipt.job_id)
        assert retry(app, claim_one(app))
        look_now(app, receipt.job_id)
        assert end(app, claim_one(app), "in_doubt")
        look_now(app, receipt.job_id)
        assert not waiting.done()
        app.close()
        with pytest.raises(StoreUnavailable, match="was closed"):
            waiting.result(PATIENCE_SECONDS)


def test_hundreds_can_wait_at_once_beside_other_work(app: Oncely) -> None:
    @app.job("k")
    async def handle(ctx: Context, n: int) -> int:
        return n

    async def run() -> None:
        jobs = (await app.aenqueue_many(NewJob("k", n) for n in range(300))).receipts
        waiting = [asyncio.create_task(app.aresult(job.job_id)) for job in jobs]
        here = app._results
        await asyncio.to_thread(wait_until, lambda: sum(map(len, here._waiting.values())) == 300)
        # More of them than the store has threads: what needs one gets one all the same.
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await app.aenqueue("other", queue="other")).inserted
            assert await app.adrain(queues=["default"]) == 300
            assert await asyncio.gather(*waiting) == list(range(300))

    asyncio.run(run())
    listeners = [t for t in threading.enumerate() if t.name == "oncely-listen"]
    assert len(listeners) == 1


def test_a_handler_can_wait_for_the_job_it_made(app: Oncely) -> None:
    @app.job("parent")
    async def parent(ctx: Context) -> int:
        child = await app.aenqueue("child")
        return int(await app.aresult(child.job_id)) + 1

    @app.job("child")
    async def child(ctx: Context) -> int:
        return 1

    receipt = app.enqueue("parent")
    app.drain()
    assert app.result(receipt.job_id) == 2


def test_who_is_cancelled_waits_no_longer(app: Oncely) -> None:
    receipt = app.enqueue("k")

    async def run() -> None:
        task = asyncio.create_task(app.aresult(receipt.job_id))
        await asyncio.to_thread(wait_until, lambda: app._results._waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert app._results._waiting == {}
    assert end(app, claim_one(app), "completed")
    assert app.result(receipt.job_id) is None


def test_a_child_of_a_fork_can_wait_while_the_parent_does(app: Oncely) -> None:
    receipt = app.enqueue("k")
    with ThreadPoolExecutor(1) as threads:
        waiting: Future[Any] = threads.submit(app.result, receipt.job_id, PATIENCE_SECONDS)
        waits(app, receipt.job_id)

        def child() -> None:
            other = app.enqueue("k", queue="other")
            ending = threading.Timer(0.3, lambda: end(app, claim_one(app, "other"), "completed"))
            ending.start()
            assert app.result(other.job_id) is None
            ending.join()

        went_well(fork(child))
        assert end(app, claim_one(app), "completed")
        assert waiting.result(PATIENCE_SECONDS) is None
